"""A forged CTranslate2 folder is refused before CTranslate2 reads it, which ends the process."""

import json
import math
import shutil
import struct
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("ctranslate2")
from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.translate.ctranslate2_files import TYPES, check_ctranslate2_folder
from tests.support.hostile import attempt
from tests.support.translating import untrained

QUANTIZATIONS = {
    "diet_rel": "float32", "sinusoidal": "int8", "shaw": "int8_float16", "learned": "int16",
    "t5": "bfloat16", "rope": "float32",
}  # fmt: skip
OPTIONS = {
    "shaw": ["--share-all-embeddings", "--layernorm-embedding", "--encoder-normalize-before"],
    "rope": ["--position-rope-scaling=linear", "--position-rope-factor=2"],
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run"))


def export(run, scheme="diet_rel", *options, quantization="float32"):
    untrained(run, "--arch", f"transformer_{scheme}_tiny", *options)
    out = run / "out"
    assert main(["export", "ctranslate2", str(run), str(out), "--quantization", quantization]) == 0
    (run / "text").write_text("ban din kon\n")
    return out


def translate(folder, text, *words):
    main(["translate", str(folder), str(text), *words])


def parse(data):
    """The header, the variables and the aliases of a model.bin, as lists."""
    place = 0

    def take(form):
        nonlocal place
        values = struct.unpack_from(form, data, place)
        place += struct.calcsize(form)
        return values

    def name():
        return take(f"<{take('<H')[0]}s")[0][:-1].decode()

    head = [take("<I")[0], name(), take("<I")[0]]
    variables, aliases = [], []
    for _ in range(take("<I")[0]):
        key, (rank,) = name(), take("<B")
        shape = list(take(f"<{rank}I"))
        kind, length = take("<BI")
        variables.append([key, shape, kind, take(f"<{length}s")[0]])
    for _ in range(take("<I")[0]):
        aliases.append([name(), name()])
    assert place == len(data)
    return head, variables, aliases


def pack(head, variables, aliases):
    def name(text):
        return struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0"

    out = [struct.pack("<I", head[0]), name(head[1]), struct.pack("<II", head[2], len(variables))]
    for key, shape, kind, content in variables:
        out += [name(key), struct.pack(f"<B{len(shape)}I", len(shape), *shape)]
        out += [struct.pack("<BI", kind, len(content)), content]
    out.append(struct.pack("<I", len(aliases)))
    out += [name(text) for pair in aliases for text in pair]
    return b"".join(out)


def forge(folder, change):
    """Change the variables, each [name, shape, type, bytes], of the folder's model."""
    path = folder / "model.bin"
    head, variables, aliases = parse(path.read_bytes())
    named = {variable[0]: variable for variable in variables}
    change(named)
    path.write_bytes(pack(head, list(named.values()), aliases))


def number(name, value):
    def change(named):
        named[name][3] = struct.pack(f"<{TYPES[named[name][2]]}", value)

    return change


def shape(name, *dimensions):
    def change(named):
        variable = named[name]
        numbers = math.prod(dimensions)
        variable[1] = list(dimensions)
        variable[3] = (variable[3] * (1 + numbers))[: numbers * struct.calcsize(TYPES[variable[2]])]

    return change


def kind(name, form):
    """Another type, of as many numbers."""

    def change(named):
        variable = named[name]
        variable[2] = TYPES.index(form)
        variable[3] = bytes(struct.calcsize(form) * math.prod(variable[1]))

    return change


def infinite(name):
    def change(named):
        named[name][2:] = TYPES.index("f"), struct.pack("<f", math.inf)

    return change


def rename(before, after):
    def change(named):
        named[before][0] = after

    return change


def without(prefix):
    def change(named):
        for name in [name for name in named if name.startswith(prefix)]:
            del named[name]

    return change


FIRST = "decoder/layer_0"
BIAS = "relative_attention_bias"
FORGERIES = {
    "bias of swapped dimensions": (shape(f"{FIRST}/self_attention/{BIAS}", 2, 2048), BIAS),
    "bias of an odd number of rows": (shape(f"{FIRST}/self_attention/{BIAS}", 2047, 2), BIAS),
    "bias of no row": (shape(f"{FIRST}/self_attention/{BIAS}", 0, 2), BIAS),
    "alignment layer": (number("decoder/alignment_layer", 77), "decoder/alignment_layer"),
    "no heads": (number("encoder/num_heads", 0), "encoder/num_heads is 0"),
    "heads": (number("decoder/num_heads", 3), "decoder/num_heads is 3, which does not divide"),
    "infinite heads": (infinite("decoder/num_heads"), "decoder/num_heads is inf"),
    "distance": (
        number(f"{FIRST}/self_attention/relative_attention_max_distance", 1),
        "relative_attention_max_distance",
    ),
    "activation": (number("encoder/activation", 99), "encoder/activation"),
    "scale": (number("encoder/scale_embeddings", float("nan")), "scale_embeddings"),
    "embeddings": (shape("encoder/embeddings_0/weight", 40, 16), "encoder/embeddings_0/weight"),
    "rank": (shape("encoder/embeddings_0/weight", 91), "not enough values"),
    "short bias": (shape(f"{FIRST}/ffn/linear_0/bias", 1), "linear_0/bias"),
    "missing": (
        lambda named: named.pop(f"{FIRST}/self_attention/linear_0/weight"),
        "self_attention/linear_0/weight",
    ),
    "further": (rename("decoder/projection/weight", "decoder/projection/weights"), "projection"),
    "layers": (
        rename(f"{FIRST}/ffn/linear_0/bias", "decoder/layer_7/ffn/linear_0/bias"), "linear_0/bias"
    ),
    "types": (kind("decoder/projection/weight", "h"), "decoder/projection/weight"),
    "type of a bias": (kind(f"{FIRST}/ffn/linear_0/bias", "e"), "linear_0/bias"),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_model_is_refused(exported, tmp_path, forgery):
    change, fault = FORGERIES[forgery]
    folder = tmp_path / "folder"
    shutil.copytree(exported, folder)
    forge(folder, change)
    with pytest.raises(UserError) as error:
        check_ctranslate2_folder(folder)
    text = str(error.value)
    assert text.startswith(f"{folder / 'model.bin'} is not in the format of `diet-fairseq")
    assert fault in text
    assert text.endswith("it can run into memory errors")


def test_ctranslate2_itself_divides_by_a_forged_zero(exported, tmp_path):
    """The checks are needed, and ``--any-ctranslate2`` leaves them out."""
    folder = tmp_path / "folder"
    shutil.copytree(exported, folder)
    forge(folder, FORGERIES["no heads"][0])
    action = partial(translate, folder, exported.parent / "text")
    outcome = attempt(action, tmp_path / "tried")
    assert (outcome.status, outcome.fault) == (1, None)
    assert "encoder/num_heads is 0" in outcome.err.splitlines()[-1]
    action = partial(translate, folder, exported.parent / "text", "--any-ctranslate2")
    assert attempt(action, tmp_path / "tried").status < 0


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        (
            "shared_vocabulary.json",
            lambda words: words[:-1],
            "decoder/embeddings/weight has Variable(shape=(91, 16)",
        ),
        ("shared_vocabulary.json", lambda words: [*words[1:], 7], "90 must be a valid string"),
        ("shared_vocabulary.json", lambda words: dict.fromkeys(words), "must be a valid list"),
        ("config.json", lambda config: config | {"unk_token": 7}, "config.json is not {"),
        (
            "config.json",
            lambda config: config | {"layer_norm_epsilon": "x"},
            "config.json is not {",
        ),
    ],
)
def test_vocabularies_and_config_are_checked(exported, tmp_path, name, change, fault):
    folder = tmp_path / "folder"
    shutil.copytree(exported, folder)
    path = folder / name
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(UserError) as error:
        check_ctranslate2_folder(folder)
    assert fault in str(error.value)


def test_a_folder_of_two_kinds_of_vocabularies_is_refused(exported, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(exported, folder)
    (folder / "source_vocabulary.txt").write_text("a\n")
    with pytest.raises(UserError, match=r"must have shared_vocabulary\.json, or source_vocabulary"):
        check_ctranslate2_folder(folder)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("scheme", QUANTIZATIONS)
def test_every_export_is_loaded(tmp_path, scheme, capsys):
    options = OPTIONS.get(scheme, ["--decoder-layers=2", "--decoder-ffn-embed-dim=24"])
    out = export(tmp_path / "run", scheme, *options, quantization=QUANTIZATIONS[scheme])
    capsys.readouterr()
    translate(out, tmp_path / "run" / "text")
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.slow
def test_forged_rotary_positions_are_refused(tmp_path):
    out = export(tmp_path / "run", "rope", "--encoder-layers=2")
    check_ctranslate2_folder(out)
    for change, fault in (
        (number("decoder/layer_0/self_attention/rotary_dim", 64), "rotary_dim"),
        (number("decoder/layer_0/self_attention/rotary_base", 0), "rotary_base"),
        (without("encoder/layer_1/self_attention/rotary"), "encoder/layer_1/self_attention/rotary"),
    ):
        folder = tmp_path / "folder"
        shutil.copytree(out, folder, dirs_exist_ok=True)
        forge(folder, change)
        with pytest.raises(UserError, match=fault):
            check_ctranslate2_folder(folder)


def test_a_failure_while_translating_is_named(exported):
    def fail(*_, **__):
        raise IndexError("vector::_M_range_check")

    translator = Translator(exported)
    translator._engine.model = SimpleNamespace(translate_batch=fail)
    with pytest.raises(UserError, match=r"^CTranslate2 can't translate with .* \(vector::_M_range"):
        translator.translate("ban")

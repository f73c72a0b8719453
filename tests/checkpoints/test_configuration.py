"""A checkpoint's configuration names things; nothing is looked up, opened or downloaded for it."""

from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils, hub_utils
from fairseq.data import encoders
from fairseq.data.encoders.gpt2_bpe import DEFAULT_ENCODER_JSON
from fairseq.models.transformer import TransformerModel
from omegaconf.errors import MissingMandatoryValue

from diet_fairseq import checkpoints
from diet_fairseq.checkpoints import configuration
from diet_fairseq.errors import UserError
from tests.support import hostile

TRUST = "use a checkpoint from a source that you trust"


def models(path, data, **overrides):
    """The model, its configuration and its task, as fairseq-generate has them."""
    return checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], {"data": str(data)} | overrides
    )


def refusal(path, data):
    with pytest.raises(UserError) as error:
        models(path, data)
    text = str(error.value)
    assert text.isprintable()
    assert text.startswith(f"{path} ")
    return text.removeprefix(f"{path} ")


@pytest.mark.slow
def test_a_checkpoint_loads_with_a_new_and_an_old_configuration(edited, data):
    for path in (edited(model__dropout=0.25), edited(dropout=0.25)):
        (model,), cfg, task = models(path, data)
        assert model.encoder.dropout_module.p == cfg.model.dropout == 0.25
        assert task.cfg.source_lang == "de"


# --- Nothing is looked up

LOOKUPS = {
    "plain": {"source_lang": "${oc.env:SECRET}"},
    "escaped for Hydra": {"bpe": "$\\{oc.env\\:SECRET\\}"},
    "a literal's escapes": {"max_source_positions": "'\\x24{oc.env:SECRET}'"},
    "inside": {"criterion": "label_smoothed_cross_entropy", "label_smoothing": "'\\x24{oc.env:A}'"},
}


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("way", LOOKUPS)
def test_nothing_is_looked_up_for_an_old_checkpoint(way, edited, data, monkeypatch):
    monkeypatch.setenv("SECRET", "7")
    text = refusal(edited(**LOOKUPS[way]), data)
    assert text.startswith("is refused: ")
    assert text.endswith(f"; {TRUST}")
    option = list(LOOKUPS[way])[-1]
    assert option in text
    assert "which is an interpolation that reads other values" in text


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("section", ["bpe", "tokenizer", "scoring"])
@pytest.mark.parametrize("of_old", [False, True])
def test_names_are_those_of_fairseqs_registries(section, of_old, edited, data):
    path = edited(**{section if of_old else f"{section}___name": "no such\x1b"})
    text = refusal(path, data)
    assert text.startswith(rf"is refused: its {section} is 'no such\x1b', which fairseq doesn't ")
    registered = {"bpe": "sentencepiece", "tokenizer": "space", "scoring": "sacrebleu"}[section]
    models(edited(**{section if of_old else f"{section}___name": registered}), data)


# --- Nothing is downloaded, no file is opened


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", " HTTPS:x", "s3:x", "hdfs://x"])
@pytest.mark.parametrize("place", ["bpe__gpt2_encoder_json", "model__w2v_path", "bpe_codes"])
def test_addresses_are_refused(place, url, edited, data):
    path = edited(**{place: url})
    where = f"cfg.{place.replace('__', '.')}" if "__" in place else f"args.{place}"
    assert refusal(path, data) == (
        f"is refused: {where} of its configuration is {url!r}, an address to download from; {TRUST}"
    )


@pytest.mark.slow
def test_addresses_that_nothing_reads_are_left_alone(edited, data):
    """Nothing reads a run's rendezvous, or the default address in RoBERTa's checkpoints."""
    meeting = {"distributed_init_method": "tcp://localhost:1234"}
    models(edited(distributed_training__distributed_init_method="tcp://localhost:1234"), data)
    models(edited(**meeting), data)
    models(edited(model__distributed_init_method="tcp://localhost:1234"), data)
    models(edited(bpe___name="gpt2", bpe__gpt2_encoder_json=DEFAULT_ENCODER_JSON), data)


FILES = ["/dev/zero", "/etc/passwd", "../../../../../../etc/passwd", "~/x", "folder/x:/etc/passwd"]


@pytest.mark.few(2)
@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("of_old", [False, True])
def test_a_model_is_built_without_the_files_that_its_checkpoint_names(path, of_old, edited, data):
    option = "encoder_embed_path" if of_old else "model__encoder_embed_path"
    (model,), _, _ = models(edited(**{option: path}), data)
    expected = checkpoints.read(edited(model__dropout=0))["model"]
    for name, parameter in model.state_dict().items():
        torch.testing.assert_close(parameter, expected[name])


def test_a_file_that_the_user_names_is_read(edited, data, tmp_path):
    path = edited(model__encoder_embed_path="/dev/zero")
    with pytest.raises(FileNotFoundError, match="/nowhere/x"):
        models(path, data, encoder_embed_path="/nowhere/x")


def test_no_file_is_read_to_cut_text(edited, data, tmp_path):
    path = edited(bpe___name="subword_nmt", bpe__bpe_codes="/dev/zero")
    _, cfg, _ = models(path, data)
    with pytest.raises(MissingMandatoryValue, match="bpe_codes"):
        encoders.build_bpe(cfg.bpe)
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\na b</w>\n")
    hub = hub_utils.from_pretrained(str(path.parent), path.name, str(data), bpe_codes=str(codes))
    assert encoders.build_bpe(hub["args"].bpe).encode("abc ab") == "a@@ b@@ c ab"


@pytest.mark.slow
def test_an_interface_opens_nothing_and_connects_to_nothing(edited, data, tmp_path):
    path = edited(bpe="subword_nmt", bpe_codes="/etc/passwd", replace_unk="/dev/zero",
                  decoder_embed_path="/dev/zero", tokenizer="space")  # fmt: skip

    def translate():
        (tmp_path / "run" / "codes").write_text("#version: 0.2\na b</w>\n")
        model = TransformerModel.from_pretrained(
            str(path.parent), path.name, str(data), bpe_codes=str(tmp_path / "run" / "codes")
        )
        model.translate(["w1 w2"], beam=1)

    outcome = hostile.attempt(translate, tmp_path / "run")
    assert outcome.fault is None
    assert outcome.status == 0, outcome.err


# --- Bounds


def shared(depth):
    value = ["x" * 1000]
    for _ in range(depth):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"model__encoder_layers": 10**8},
            "its configuration asks for more parameters than the fi",
        ),
        ({"model__encoder_embed_dim": 2**15}, "its configuration asks for more parameters than t"),
        ({"decoder_ffn_embed_dim": 10**8}, "its configuration asks for more parameters than the f"),
        ({"model__max_source_positions": 10**9}, "cfg.model.max_source_positions of its configur"),
        ({"max_target_positions": "1_000_000_000"}, "args.max_target_positions of its configurat"),
        ({"model__position_max_distance": 10**18}, "cfg.model.position_max_distance of its confi"),
        ({"model__position_clip": 65_537}, "cfg.model.position_clip of its configuration is 6553"),
        ({"model__x": shared(20)}, "its configuration comes to more than 1,000,000 characters"),
        ({"task__x": "x" * 1_000_001}, "its configuration comes to more than 1,000,000 character"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_enormous_model_or_configuration_is_refused(values, words, edited, data):
    assert refusal(edited(**values), data).startswith(f"is refused: {words}")


def test_twice_the_size_does_not_fit_but_is_built(edited, data):
    """The bound is for models that no computer holds; PyTorch compares names and shapes."""
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict"):
        models(edited(model__encoder_layers=2), data)


def test_several_checkpoints_are_an_ensemble(stock, data):
    both, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(stock)] * 2, {"data": str(data)}
    )
    assert len(both) == 2
    assert both[0] is not both[1]
    assert cfg.task.data == str(data)
    assert task.cfg.source_lang == "de"


def test_a_program_is_named_by_file_and_place(edited, stock, data):
    bad = edited(model__encoder_xformers_att_config="print(1)")
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_model_ensemble_and_task([str(stock), str(bad)], {"data": str(data)})
    assert str(error.value) == (
        f"{bad} is refused: cfg.model.encoder_xformers_att_config of its configuration is "
        f"'print(1)', which fairseq could run as a program; {TRUST}"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("encoder_embed_path", "secret.txt"), ("load_pretrained_encoder_from", "x")],
)
def test_bare_names_of_files_are_left_out(option, value):
    config, removed = configuration.without_files({"model": {option: value, "arch": "x.y"}})
    assert config["model"] == {option: None, "arch": "x.y"}
    assert removed == f"{option} ({value!r})"


def test_a_configuration_with_long_places_is_refused_before_they_are_in_memory():
    value: dict = dict.fromkeys(range(5000), 1)
    for _ in range(45):
        value = {"k" * 200: value}
    with pytest.raises(configuration.Refused, match="comes to more than 1,000,000 characters"):
        configuration.check(None, {"model": value})


@pytest.mark.parametrize("option", ["criterion", "optimizer", "lr_scheduler", "task", "arch"])
def test_names_of_classes_are_names_and_no_paths(option):
    """Hydra would open a file of this name."""
    configuration.check(Namespace(**{option: "fused_adam-w.2"}), None)
    with pytest.raises(configuration.Refused, match="which is not a name"):
        configuration.check(Namespace(**{option: "../../x"}), None)

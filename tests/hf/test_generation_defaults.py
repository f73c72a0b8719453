"""Each default of `generate` in an imported folder is obeyed by our search, or named."""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
import torch
import transformers
from transformers import GenerationConfig

from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.hf.convert.generation import (
    HARMLESS,
    Generation,
    import_generation,
    unsupported_defaults,
)
from diet_fairseq.hf.convert.to_transformers import convert, generation_config
from diet_fairseq.hf.convert.translation import TAGGED, Bart, Marian
from diet_fairseq.translate.directions import Directions, Framing
from diet_fairseq.translate.engine import Search
from diet_fairseq.translate.model_json import read_model_json
from diet_fairseq.translate.translator import load_engine
from tests.hf.conftest import export, take_back
from tests.support import originals, tiny

LINES = [line for line, _ in originals.sentence_pairs(3, seed=7)]
#: the model repeats itself and would not end otherwise
USUAL = {
    "max_length": 38, "no_repeat_ngram_size": 2, "num_beams": 1, "forced_eos_token_id": 0,
    "eos_token_id": 0, "early_stopping": True,
}  # fmt: skip
NAMED = "defaults of generate that the imported model does not have: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A Marian model whose translations end after 3 to 15 subwords."""
    folder = originals.marian(tmp_path_factory.mktemp("marian") / "folder")
    model = transformers.MarianMTModel.from_pretrained(folder)
    model.final_logits_bias[:, 0] += 2
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(USUAL))
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return transformers.MarianMTModel.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def imported(folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("imported") / "out"
    take_back(folder, out)
    return out


@pytest.fixture(scope="module")
def exported(imported, tmp_path_factory) -> Path:
    pytest.importorskip("ctranslate2")
    out = tmp_path_factory.mktemp("exported") / "out"
    main(["export", "ctranslate2", str(imported), str(out)])
    return out


@lru_cache(maxsize=1)
def configuration(folder):
    """The configuration of a Marian model, and the vocabulary of its targets."""
    config = transformers.AutoConfig.from_pretrained(folder)
    return config, Marian().vocabularies(folder, config)[-1]


def read(folder, values, tmp_path, directions=None):
    """What `import hf` makes of these defaults for a Marian model."""
    (tmp_path / "generation_config.json").write_text(json.dumps(values))
    return import_generation(tmp_path, *configuration(folder), directions, "en")


def translate(out, options):
    """Translations with these options in `model.json`."""
    before = read_model_json(out)
    try:
        replace(before, **options).write()
        return Translator(out).translate(LINES)
    finally:
        before.write()


def generate(model, tokenizer, values):
    # given to `generate`, it would be completed by the model's own
    model.generation_config = GenerationConfig(**values, pad_token_id=98, decoder_start_token_id=98)
    outputs = [model.generate(**tokenizer(line, return_tensors="pt"))[0] for line in LINES]
    return [tokenizer.decode(output, skip_special_tokens=True) for output in outputs]


AUNE, OV = 93, 13  # translations begin with AUNE AUNE OV AUNE
OBEYED = {
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 3},
    "max_length": {"max_length": 6},
    "max_new_tokens": {"max_new_tokens": 4},
    "max_new_tokens without an end": {"max_new_tokens": 4, "forced_eos_token_id": None},
    "min_length": {"min_length": 20},
    "min_new_tokens": {"min_new_tokens": 20, "min_length": 25},
    "bad_words_ids": {"bad_words_ids": [[AUNE], [98], [0]]},
    "bad_words_ids, several": {"bad_words_ids": [[AUNE, OV], [AUNE, AUNE, OV], [AUNE, 98]]},
    "suppress_tokens": {"suppress_tokens": [AUNE, 98]},
    "eos_token_id": {"eos_token_id": [0, OV]},
    "eos_token_id, first": {"eos_token_id": [AUNE, 0]},
    "eos_token_id, min_length": {"eos_token_id": [0, OV], "min_length": 6},
    "num_beams": {"num_beams": 4},
    "length_penalty": {"num_beams": 4, "length_penalty": 2.0},
    "num_beams, max_length": {"num_beams": 4, "max_length": 5},
    "num_beams, min_length": {"num_beams": 4, "min_length": 12},
    "num_beams, suppress_tokens": {"num_beams": 4, "suppress_tokens": [AUNE]},
}  # fmt: skip
#: CTranslate2 normalises over the tokens that are not forbidden, and has no end token first
ONLY_FAIRSEQ = [name for name in OBEYED if "num_beams" in OBEYED[name] or name.endswith("first")]


def test_the_defaults_of_the_folder_are_obeyed(folder, imported, model, tokenizer):
    description = read_model_json(imported)
    assert (description.beam, description.no_repeat_ngram_size) == (1, 2)
    assert description.max_target_length == 36  # of 38, without the start and </s>
    expected = generate(model, tokenizer, USUAL)
    assert Translator(imported).translate(LINES) == expected
    assert len(set(expected)) > 1


@pytest.mark.few(3)
@pytest.mark.parametrize("name", OBEYED)
def test_defaults_are_obeyed(name, folder, imported, model, tokenizer, tmp_path):
    values = USUAL | OBEYED[name]
    result = read(folder, values, tmp_path)
    assert not result.unsupported
    expected = generate(model, tokenizer, values)
    assert translate(imported, result.options) == expected
    assert expected != generate(model, tokenizer, USUAL)


@pytest.mark.parametrize(
    ("values", "longest", "least"),
    [
        ({"max_length": 9, "min_length": 5}, 8, 4),  # without the decoder's first input
        ({"max_length": 9, "forced_eos_token_id": 0}, 7, None),
        ({"max_new_tokens": 9, "max_length": 5, "min_new_tokens": 4, "min_length": 7}, 9, 4),
        ({"min_length": 2, "max_length": 1}, 1, None),
        ({}, None, None),
    ],
)
def test_lengths_are_counted_as_in_transformers(values, longest, least, folder, tmp_path):
    options = read(folder, values, tmp_path).options
    assert options.get("max_target_length") == longest
    assert options.get("min_target_length") == least


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OBEYED if name not in ONLY_FAIRSEQ])
def test_ctranslate2_obeys_them_too(name, folder, imported, exported, tmp_path):
    options = read(folder, USUAL | OBEYED[name], tmp_path).options
    assert translate(exported, options) == translate(imported, options)


UNSUPPORTED = {
    "do_sample": True,
    "begin_suppress_tokens": [AUNE],
    "repetition_penalty": 1.3,
    "encoder_no_repeat_ngram_size": 2,
    "encoder_repetition_penalty": 1.2,
    "temperature": 0.7,
    "top_k": 10,
    "num_beam_groups": 2,
    "diversity_penalty": 0.5,
    "num_return_sequences": 2,
    "early_stopping": "never",
    "renormalize_logits": True,
    "exponential_decay_length_penalty": [5, 1.1],
    "sequence_bias": [[[AUNE], -2.0]],
    "forced_bos_token_id": OV,
    "forced_eos_token_id": OV,
    "eos_token_id": [OV],
    "suppress_tokens": [0],
    "bad_words_ids": [[AUNE, 0]],
    "decoder_start_token_id": 5,
    "max_time": 3.0,
    "stop_strings": ["x"],
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_defaults_are_named(name, folder, tmp_path):
    value = UNSUPPORTED[name]
    result = read(folder, USUAL | {name: value}, tmp_path)
    assert str(result) == f"{NAMED}{name} {json.dumps(value)}"


def test_every_option_of_transformers_is_obeyed_named_or_harmless():
    names = set(GenerationConfig().to_dict())
    values = dict.fromkeys(names, "a value that is not neutral")
    assert names == {*unsupported_defaults(values), *HARMLESS, *Generation.model_fields}


def test_neutral_values_are_not_named(folder, tmp_path):
    neutral = GenerationConfig().to_dict() | GenerationConfig._get_default_generation_params()
    neutral |= {"output_attentions": False, "use_cache": True, "low_memory": False, "mine": 1}
    lengths = {"max_length": 38, "forced_eos_token_id": 0, "bad_words_ids": [[98]]}
    assert str(read(folder, neutral | lengths, tmp_path)) == ""


def test_the_command_prints_the_names(folder, tmp_path, capsys):
    config = json.loads((folder / "config.json").read_text())
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "generation_config.json").unlink()  # as in older folders
    more = {"num_beams": 3, "do_sample": True, "temperature": 0.7, "max_length": 20}
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    take_back(tmp_path, tmp_path / "out")
    printed = capsys.readouterr().out
    assert f"{NAMED}do_sample true, temperature 0.7\n" in printed
    description = read_model_json(tmp_path / "out")
    assert (description.beam, description.max_target_length) == (3, 18)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("bad_words_ids", [5], "bad_words_ids.0 must be a valid list, but is 5"),
        ("max_length", "5", 'max_length must be a valid integer, but is "5"'),
    ],
)
def test_values_of_other_types_are_refused(name, value, text, folder, tmp_path):
    with pytest.raises(UserError) as error:
        read(folder, {name: value}, tmp_path)
    path = tmp_path / "generation_config.json"
    assert str(error.value) == f"{path}: {text}; give another folder"


@pytest.mark.parametrize(
    ("number", "pairs", "language"),
    [(OV, (), "de"), (AUNE, (), None), (5, (), None), (OV, (("de", "en"),), None), (None, (), "")],
)
def test_a_forced_tag_is_the_target_language(number, pairs, language, folder, tmp_path):
    directions = Directions({"en": "aune", "de": "▁ov"}, pairs, TAGGED)
    result = read(folder, {"forced_bos_token_id": number}, tmp_path, directions)
    assert result.options.get("target_lang") == (language or None)
    is_named = language is None
    assert result.unsupported == ({"forced_bos_token_id": number} if is_named else {})


def test_bart_s_forced_start_is_its_mark(tmp_path):
    folder = originals.bart(tmp_path / "folder")
    config = transformers.AutoConfig.from_pretrained(folder)
    vocabulary = Bart().vocabularies(folder, config)[-1]
    directions = Directions({}, (("en", "de"),), Framing(target_prefix=("<s>",)))
    for number, unsupported in ((0, {}), (None, {"forced_bos_token_id": None})):
        (folder / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": number}))
        result = import_generation(folder, config, vocabulary, directions, "en")
        assert result.unsupported == unsupported


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_ngrams_count_the_forced_tag_as_in_transformers(size, tmp_path):
    """The tag is the most probable word, which the search must not repeat."""
    folder = originals.m2m_100(tmp_path / "folder")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    *source, tag = tokenizer.convert_tokens_to_ids(["__en__", "▁the", "▁fox", "</s>", "__de__"])

    def generate(**options):
        return model.generate(
            torch.tensor([source]), forced_bos_token_id=tag, num_beams=1, max_new_tokens=12,
            min_new_tokens=12, **options,
        )[0, 2:].tolist()  # fmt: skip

    with torch.no_grad():
        weights = model.get_input_embeddings().weight
        weights[tag] = 1.2 * weights[generate()[0]]
    assert tag in generate()
    model.save_pretrained(folder)
    ids = generate(no_repeat_ngram_size=size)
    expected = [token for token in tokenizer.convert_ids_to_tokens(ids) if token != "__de__"]
    assert (len(expected) == 11) == (size == 1)
    take_back(folder, tmp_path / "out")
    main(["export", "ctranslate2", str(tmp_path / "out"), str(tmp_path / "ctranslate2")])
    for name in ("out", "ctranslate2"):
        description = read_model_json(tmp_path / name)
        marks = description.all_directions.frame("en", "de")
        options = Search(
            beam=1, framing=marks, no_repeat_ngram_size=size, max_len_a=0, max_len_b=12,
            min_length=12,
        )  # fmt: skip
        [hypothesis] = load_engine([description]).translate([["▁the", "▁fox"]], options)[0]
        assert hypothesis.tokens == expected


def test_a_folder_without_a_beam_can_be_exported(tmp_path):
    """transformers does not save options of a beam for one hypothesis."""
    model = convert(tiny.model_of(tiny.Case("diet_abs"))).model
    generation_config(model, num_beams=1, length_penalty=0.6).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    assert settings["num_beams"] == 1


@pytest.mark.slow
def test_an_exported_folder_has_the_options(folder, imported, tmp_path):
    """Our class generates with the folder's own defaults as the imported model translates."""
    values = OBEYED["bad_words_ids, several"] | {"min_length": 8, "eos_token_id": [0, 20]}
    options = read(folder, USUAL | values | {"num_beams": 4}, tmp_path).options
    before = read_model_json(imported)
    try:
        replace(before, **options).write()
        export(imported, tmp_path / "hf")
        expected = Translator(imported).translate(LINES)
    finally:
        before.write()
    settings = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert (settings["num_beams"], settings["no_repeat_ngram_size"]) == (4, 2)
    assert (settings["max_new_tokens"], settings["min_new_tokens"]) == (37, 7)
    description = read_model_json(tmp_path / "hf")
    assert (description.max_target_length, description.end_tokens) == (36, options["end_tokens"])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        outputs = [model.generate(**tokenizer([line], return_tensors="pt"))[0] for line in LINES]
    assert [tokenizer.decode(output, skip_special_tokens=True) for output in outputs] == expected

"""Directions of multilingual models are marked as fairseq's tasks mark them."""

import shutil
import warnings
from dataclasses import replace

import pytest
import torch

from diet_fairseq import Translator
from diet_fairseq.errors import UserError
from diet_fairseq.translate.directions import SOURCE, TARGET, Framing, read_task
from diet_fairseq.translate.model_json import ModelDescription
from diet_fairseq.translate.translator import TooLong
from tests.support import published


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory):
    return published.m2m100(tmp_path_factory.mktemp("m2m100"))


@pytest.fixture(scope="module")
def translator(m2m100):
    return Translator(m2m100.checkpoint, **m2m100.options(("en", "de")))


@pytest.mark.slow
def test_a_multilingual_checkpoint_has_fairseq_s_languages(translator):
    assert translator.targets == {"de": ["en", "fr"], "en": ["de", "fr"], "fr": ["de", "en"]}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("pair", "text"),
    [
        ((None, "de"), "does not name its languages: give --source-lang, one of de, en, fr"),
        (("en", None), "does not name its languages: give --target-lang, one of de, en, fr"),
        (("nl", "de"), ": --source-lang must be one of the model's languages, de, en, fr, but is"
         " nl"),
        (("en", "nl"), ": --target-lang must be a language that the model translates en to, de, fr,"
         " but is nl"),
        (("en", "en"), ": --target-lang must be a language that the model translates en to, de, fr,"
         " but is en"),
    ],
)  # fmt: skip
def test_languages_that_the_model_lacks_are_refused(m2m100, pair, text):
    with pytest.raises(UserError) as error:
        Translator(m2m100.checkpoint, **m2m100.options(pair))
    assert str(error.value).endswith(text)


@pytest.mark.slow
def test_a_translation_between_other_languages_names_those_that_exist(translator):
    with pytest.raises(UserError) as error:
        translator.translate("a", target_lang="nl")
    assert str(error.value) == (
        "target_lang must be a language that the model translates en to, de, fr, but is nl"
    )


def test_a_checkpoint_of_2020_is_loaded_without_warnings_of_hydra(m2m100):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Translator(m2m100.checkpoint, **m2m100.options(("en", "de")))
    assert [
        warning.message for warning in caught if issubclass(warning.category, UserWarning)
    ] == []


def test_a_tag_in_the_text_is_an_unknown_word(m2m100):
    translator = Translator(
        m2m100.checkpoint, data=m2m100.folder, subwords="none", source_lang="en", target_lang="de"
    )
    outputs = {translator.translate(f"▁ban {word}") for word in ("__fr__", "<unk>", "</s>", "xyz")}
    assert len(outputs) == 1


def test_tags_leave_less_room_in_the_encoder(translator):
    with pytest.raises(TooLong) as error:
        translator.translate("b " * 2000, strict=True)
    assert error.value.max_subwords == translator.max_source_length - 1 == 1022


@pytest.mark.slow
def test_a_dictionary_of_another_model_is_named(m2m100, tmp_path):
    lines = (m2m100.folder / "dict.txt").read_text().splitlines(keepends=True)
    (tmp_path / "dict.txt").write_text("".join(lines[:-1]))
    with pytest.raises(UserError) as error:
        Translator(m2m100.checkpoint, **m2m100.options(("en", "de")) | {"data": tmp_path})
    words = len(lines) + 7  # four marks and three tags
    assert str(error.value) == (
        f"{tmp_path / 'dict.txt'}, with the tags of 3 languages, has {words - 1} tokens, but "
        f"{m2m100.checkpoint} has {words}: give --data, the folder of the dictionary that the "
        "model was trained with"
    )


@pytest.mark.slow
def test_a_model_json_without_directions_is_refused(m2m100, tmp_path):
    for path in (m2m100.checkpoint, m2m100.folder / "dict.txt"):
        shutil.copyfile(path, tmp_path / path.name)
    for language in ("en", "de"):
        shutil.copyfile(m2m100.folder / "dict.txt", tmp_path / f"dict.{language}.txt")
    description = ModelDescription("fairseq", "en", "de", tmp_path, tmp_path / "model.pt", tmp_path)
    description.write()
    with pytest.raises(UserError) as error:
        Translator(tmp_path)
    assert str(error.value) == (
        f"{tmp_path / 'model.pt'} is a multilingual model, but the model.json beside it has no "
        "directions: add them, or remove it and give --data and --subwords"
    )
    directions, _ = read_task(vars(torch.load(m2m100.checkpoint, weights_only=False)["args"]))
    replace(description, directions=directions).write()
    described = Translator(tmp_path)
    assert described.targets == directions.targets
    assert described.translate("▁ban") == described.translate("▁ban", source_lang="en")


def test_models_of_several_directions_must_share_their_parameters(tmp_path):
    model = published.multilingual(tmp_path)
    state = torch.load(model.checkpoint, weights_only=False)  # this test wrote it
    state["cfg"]["model"].share_decoders = False
    torch.save(state, model.checkpoint)
    with pytest.raises(UserError) as error:
        Translator(model.checkpoint, **model.options(("de", "en")))
    assert str(error.value) == (
        f"{model.checkpoint} has an encoder or a decoder for each language, but must have been "
        "trained with --share-encoders --share-decoders: use fairseq-generate"
    )


TASK = {"_name": "translation_multi_simple_epoch", "lang_pairs": "en-de,de-en"}


@pytest.mark.parametrize(
    ("task", "marks", "added"),
    [
        ({}, Framing(), ["__de__", "__en__"]),
        ({"encoder_langtok": "tgt"}, Framing(source_prefix=(TARGET,)), ["__de__", "__en__"]),
        ({"decoder_langtok": "True"}, Framing(target_prefix=(TARGET,)), ["__de__", "__en__"]),
        ({"langtoks": {"main": ["src", "tgt"]}},
         Framing(source_prefix=(SOURCE,), target_prefix=(TARGET,)), ["__de__", "__en__"]),
        ({"langs": "en,de,fr", "lang_tok_style": "mbart"}, Framing(),
         ["[en]", "[de]", "[fr]", "<mask>"]),
        ({"langtoks_specs": ["main", "mono_dae"], "extra_data": {"mono_dae": ""}}, Framing(),
         ["__de__", "__en__", "__de_dae__", "__en_dae__", "<mask>"]),
        ({"lang_dict": "???"}, Framing(), []),
        ({"encoder_langtok": "src", "decoder_langtok": True, "lang_tok_replacing_bos_eos": True},
         Framing(source_end=(SOURCE,), target_start=TARGET), ["__de__", "__en__"]),
        ({"_name": "multilingual_translation", "encoder_langtok": "tgt"},
         Framing(source_end=(TARGET,)), ["__de__", "__en__"]),
        ({"_name": "multilingual_translation"}, Framing(), []),
        ({"_name": "translation_from_pretrained_bart", "langs": "en,de", "source_lang": "en",
          "target_lang": "de", "prepend_bos": True},
         Framing(("<s>",), ("</s>", SOURCE), TARGET, (), TARGET), ["[en]", "[de]", "<mask>"]),
    ],
)  # fmt: skip
def test_marks_are_read_from_the_options_of_a_task(task, marks, added):
    directions, tokens = read_task(TASK | task)
    assert (directions.framing, tokens) == (marks, added)


@pytest.mark.parametrize(
    ("task", "option"),
    [
        ({"add_data_source_prefix_tags": True}, "--add-data-source-prefix-tags"),
        ({"lang_tok_style": "other"}, "--lang-tok-style other"),
        ({"langtoks": {"main": ("src.mined", "tgt")}}, "--langtoks ('src.mined', 'tgt')"),
    ],
)
def test_marks_that_are_not_known_are_refused_by_name(task, option):
    with pytest.raises(UserError) as error:
        read_task(TASK | task)
    assert str(error.value) == (
        f"the checkpoint was trained with {option}, whose language tokens are not supported here: "
        "translate with fairseq-generate"
    )


def test_a_language_of_a_stranger_s_checkpoint_is_checked():
    with pytest.raises(UserError, match=r"^the checkpoint names the language '\.\./x', but a lan"):
        read_task(TASK | {"langs": ["en", "../x"]})


def test_a_vocabulary_must_have_the_tags_of_all_languages():
    directions, tags = read_task(TASK | {"encoder_langtok": "src", "decoder_langtok": True})
    directions.check_vocabularies(["</s>", *tags], ["</s>", *tags], "dict.txt")
    for sides in ((["</s>", "__en__"], ["</s>", *tags]), (["</s>", *tags], ["</s>", "__en__"])):
        with pytest.raises(UserError, match=r"^dict\.txt must have the tag of every language, but"):
            directions.check_vocabularies(*sides, "dict.txt")


@pytest.fixture
def indictrans2(tmp_path):
    return published.indictrans2(tmp_path / "published")


def test_an_architecture_of_an_old_checkpoint_needs_its_user_dir(indictrans2):
    state = torch.load(indictrans2.checkpoint, weights_only=False)  # this test wrote it
    state["args"].arch = "transformer_of_nobody"
    torch.save(state, indictrans2.checkpoint)
    with pytest.raises(UserError) as error:
        Translator(indictrans2.folder)
    assert str(error.value) == (
        "the architecture transformer_of_nobody is unknown: give --user-dir, the package that "
        "registers it"
    )

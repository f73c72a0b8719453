"""Folders of `export hf` are loaded by transformers and imported by `import hf`."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from diet_fairseq import Translator
from diet_fairseq.errors import UserError
from diet_fairseq.hf.convert.to_transformers import convert, find_head, generation_config
from diet_fairseq.translate.model_files import ModelOptions, resolve_model
from diet_fairseq.translate.model_json import read_model_json
from tests.hf.conftest import export, loaded, take_back
from tests.support import hugging, tiny
from tests.support.commands import slow

CHECKPOINTS = ("translation", "encoder", "classifier", "answerer")


@pytest.mark.slow
def test_heads_of_fine_tuning_are_left_out(classifier, classifier_folder, tmp_path, capsys):
    take_back(classifier_folder, tmp_path / "back")
    assert "not imported: classifier.dense.bias, " in capsys.readouterr().out
    after = loaded(tmp_path / "back" / "model.pt", tmp_path / "back").model.state_dict()
    before = loaded(classifier).model.state_dict()
    assert {name.split(".")[0] for name in before.keys() - after.keys()} == {"classification_heads"}
    assert all(torch.equal(after[name], before[name]) for name in after)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translation", "encoder", *slow(["stock"])])
def test_a_checkpoint_comes_back_as_it_was(request, name):
    back = request.getfixturevalue(f"{name}_back")
    before = loaded(request.getfixturevalue(name)).model
    after = loaded(back / "model.pt", back).model
    state = before.state_dict()
    if name == "stock":  # a head of fine-tuning
        state = {key: x for key, x in state.items() if not key.startswith("classification_heads.")}
    assert state.keys() == after.state_dict().keys()
    for key, tensor in after.state_dict().items():
        assert torch.equal(tensor, state[key]), key
    tokens = torch.randint(4, 60, (2, 9))
    inputs = (tokens, torch.tensor([9, 9]), tokens) if name == "translation" else (tokens, True)
    with torch.no_grad():
        close = {"rtol": 1e-5, "atol": 1e-5} if name == "stock" else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(before(*inputs)[0], after(*inputs)[0], **close)


def test_generation_ends_where_the_decoder_has_no_more_positions(translation_folder):
    model = convert(tiny.model_of(tiny.Case("diet_abs"))).model
    assert generation_config(model).max_new_tokens == tiny.LIMIT
    settings = json.loads((translation_folder / "generation_config.json").read_text())
    assert settings["max_new_tokens"] == 201


@pytest.mark.slow
def test_a_translation_model_that_came_back_translates(translation, translation_back):
    description = read_model_json(translation_back)
    assert description.engine == "fairseq"
    assert description.languages == ("en", "de")
    before, after = (Translator(model) for model in (translation, translation_back))
    text = ["the quick brown fox"]
    assert after.translate(text) == before.translate(text)


@pytest.mark.slow
def test_every_auto_class_loads_its_folder(
    translation_folder, encoder_folder, classifier_folder, answerer_folder
):
    for auto, folder, name in (
        (AutoModelForSeq2SeqLM, translation_folder, "DietForConditionalGeneration"),
        (AutoModel, translation_folder, "DietTransformerModel"),
        (AutoModel, encoder_folder, "DietEncoderModel"),
        (AutoModelForMaskedLM, encoder_folder, "DietForMaskedLM"),
        (AutoModelForQuestionAnswering, encoder_folder, "DietForQuestionAnswering"),
        (AutoModelForSequenceClassification, classifier_folder, "DietForSequenceClassification"),
        (AutoModelForMaskedLM, classifier_folder, "DietForMaskedLM"),
        (AutoModelForMaskedLM, answerer_folder, "DietForMaskedLM"),
        (AutoModelForQuestionAnswering, answerer_folder, "DietForQuestionAnswering"),
    ):
        model, loading_info = auto.from_pretrained(folder, output_loading_info=True)
        assert type(model).__name__ == name
        new = [key for key in loading_info["missing_keys"] if folder == encoder_folder]
        assert all(key.startswith("qa_outputs.") for key in new)
        assert loading_info["missing_keys"] == set(new)
        assert not loading_info["unexpected_keys"]


@pytest.mark.slow
@torch.no_grad()
def test_a_loaded_model_gives_fairseq_s_logits(
    encoder, encoder_folder, classifier, classifier_folder, answerer, answerer_folder
):
    tokens = torch.randint(4, 60, (2, 9))
    segments = (torch.arange(9) > 4).long().expand(2, -1)
    stock = loaded(encoder).model
    model = AutoModelForMaskedLM.from_pretrained(encoder_folder).eval()
    expected = stock(tokens, segments=segments)[0]
    torch.testing.assert_close(model(tokens, token_type_ids=segments).logits, expected)
    stock = loaded(classifier).model
    model = AutoModelForSequenceClassification.from_pretrained(classifier_folder).eval()
    expected = stock(tokens, classification_head_name="sentence_classification_head")[0]
    torch.testing.assert_close(model(tokens).logits, expected)
    assert model.config.id2label == {0: "no", 1: "yes"}
    stock = loaded(answerer).model
    model = AutoModelForQuestionAnswering.from_pretrained(answerer_folder).eval()
    head = stock.classification_heads["span"]  # on every token; fairseq's reads the first
    features = stock(tokens, features_only=True, segments=segments)[0]
    expected = head.out_proj(head.activation_fn(head.dense(features)))
    out = model(tokens, token_type_ids=segments)
    torch.testing.assert_close(torch.stack([out.start_logits, out.end_logits], -1), expected)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_tokenizer_gives_our_tokens_and_text_again(request, name):
    task = loaded(request.getfixturevalue(name)).task
    tokenizer = AutoTokenizer.from_pretrained(request.getfixturevalue(f"{name}_folder"))
    model = hugging.sentencepiece.SentencePieceProcessor(model_proto=hugging.subword_model())
    dictionary = task.source_dictionary
    assert len(tokenizer) == len(dictionary)
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (dictionary.pad(), dictionary.eos())
    assert tokenizer.mask_token_id == (
        None if name == "translation" else dictionary.index("<mask>")
    )
    for line in [*hugging.TEXT, " zwei  Leerzeichen und Unbekanntes: 東京 "]:
        pieces = " ".join(model.encode(line, out_type=str))
        expected = dictionary.encode_line(pieces, add_if_not_exist=False).tolist()
        start = [] if name == "translation" else [dictionary.bos()]
        assert tokenizer(line)["input_ids"] == start + expected
    assert tokenizer.decode(expected, skip_special_tokens=True).startswith("zwei")
    text = hugging.TEXT[2]
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_a_pair_has_segments_as_in_pretraining(encoder_folder):
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    first, second = hugging.TEXT[:2]
    pair = tokenizer(first, second)
    lengths = [len(tokenizer(text)["input_ids"]) for text in (first, second)]
    assert pair["input_ids"].count(tokenizer.eos_token_id) == 2
    assert pair["token_type_ids"] == [0] * lengths[0] + [1] * (lengths[1] - 1)


def test_source_and_target_have_their_own_dictionaries(tmp_path):
    from diet_fairseq.hf import DietTokenizer

    (tmp_path / "codes").write_text("#version: 0.2\nd o\ndo g</w>\n")
    (tmp_path / "dict.txt").write_text("dog 1\nd@@ 1\no 1\n")
    (tmp_path / "target.txt").write_text("o 1\ndog 1\ndo@@ 1\n")
    tokenizer = DietTokenizer(
        str(tmp_path / "dict.txt"),
        str(tmp_path / "target.txt"),
        codes_file=str(tmp_path / "codes"),
    )
    assert tokenizer("dog cat")["input_ids"] == [4, 3, 3, 3, 2]
    assert tokenizer(text_target="dog")["input_ids"] == [5, 2]
    assert tokenizer("dog")["input_ids"] == [4, 2]
    assert tokenizer.decode([6, 4, 5, 2], skip_special_tokens=True) == "doo dog"
    tokenizer.save_pretrained(tmp_path / "saved")
    again = DietTokenizer.from_pretrained(tmp_path / "saved")
    assert again("dog")["input_ids"] == [4, 2]
    assert again.decode([5]) == "dog"


def test_text_becomes_what_the_encoder_was_trained_on(encoder, tmp_path):
    run = shutil.copytree(encoder.parent, tmp_path / "run", ignore=shutil.ignore_patterns("hf"))
    made_from = run / "data-bin" / "made-from.json"
    made_from.write_text(json.dumps({"lower": True, "language": "fr"}))
    checkpoint = run / encoder.name
    export(checkpoint, tmp_path / "hf")
    AutoTokenizer.from_pretrained(tmp_path / "hf").save_pretrained(tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokenizer.source_lang == "fr"
    expected = tokenizer("the quick fox <mask>")["input_ids"]
    assert tokenizer.unk_token_id not in expected
    assert tokenizer("\x07 The\x85QUICK\u2028Fox <mask>")["input_ids"] == expected
    take_back(tmp_path / "hf", tmp_path / "back")
    pieces = ModelOptions(tmp_path / "back", tmp_path / "back" / "sentencepiece.model")
    back = resolve_model(tmp_path / "back" / "model.pt", pieces, translates=False)
    text = {"lower": True, "language": "fr"}
    for content in (text, {"task": {}, "text": text}):  # of pretraining, of a task
        made_from.write_text(json.dumps(content))
        for description in (resolve_model(checkpoint, translates=False), back):
            assert (description.lower, description.language) == (True, "fr")
            source, _ = description.tokenizers
            assert source.encode("The Quick") == source.encode("the quick")


def test_the_card_shows_how_to_load_the_model(translation_folder):
    card = ModelCard.load(translation_folder / "README.md")
    assert 'AutoModelForSeq2SeqLM.from_pretrained("hf")' in card.text
    assert "from en to de with position scheme diet_rel and " in card.text
    assert "add `license:`" in card.text
    assert (card.data.language, card.data.license) == (["en", "de"], None)
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "translation")


def test_the_card_of_an_encoder_names_its_task(encoder_folder, classifier_folder):
    for folder, task in ((encoder_folder, "fill-mask"), (classifier_folder, "text-classification")):
        card = ModelCard.load(folder / "README.md")
        assert (card.data.pipeline_tag, card.data.language) == (task, None)
        assert "An encoder with position scheme " in card.text


IN_A_NEW_PROCESS = """
import diet_fairseq.hf
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
auto = dict(translation=AutoModelForSeq2SeqLM, encoder=AutoModelForMaskedLM)["{name}"]
model = auto.from_pretrained("{folder}").eval()
tokenizer = AutoTokenizer.from_pretrained("{folder}")
text = tokenizer("the quick fox")["input_ids"]
with torch.no_grad():
    torch.save((model(**torch.load("{batch}")).logits, text), "{out}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder", "translation"])
def test_a_new_process_computes_the_same(request, name, tmp_path):
    folder = request.getfixturevalue(f"{name}_folder")
    auto = AutoModelForSeq2SeqLM if name == "translation" else AutoModelForMaskedLM
    tokens = torch.randint(4, 60, (2, 9))
    batch = {"input_ids": tokens}
    batch |= {"decoder_input_ids": tokens} if name == "translation" else {}
    torch.save(batch, tmp_path / "batch")
    out = tmp_path / "out"
    code = IN_A_NEW_PROCESS.format(name=name, folder=folder, batch=tmp_path / "batch", out=out)
    subprocess.run([sys.executable, "-c", code], check=True)
    logits, text = torch.load(out)
    with torch.no_grad():
        assert torch.equal(auto.from_pretrained(folder).eval()(**batch).logits, logits)
    assert text == AutoTokenizer.from_pretrained(folder)("the quick fox")["input_ids"]


def test_a_folder_holds_no_code(translation_folder):
    assert list(translation_folder.glob("*.py")) == []
    for name in ("config.json", "tokenizer_config.json"):
        assert "auto_map" not in json.loads((translation_folder / name).read_text())


def test_code_in_a_folder_of_version_0_2_is_not_run(translation_folder, tmp_path):
    folder = shutil.copytree(translation_folder, tmp_path / "old")
    (folder / "modeling_diet.py").write_text("raise AssertionError('this code ran')")
    for name, entry in (
        ("config.json", {"AutoModelForSeq2SeqLM": "modeling_diet.DietForConditionalGeneration"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["modeling_diet.DietTokenizer", None]}),
    ):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | {"auto_map": entry}))
    AutoModelForSeq2SeqLM.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize("multiple", [None, 8])
def test_a_vocabulary_that_has_grown_in_transformers_comes_back(multiple, encoder_folder, tmp_path):
    model = AutoModelForMaskedLM.from_pretrained(encoder_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    tokenizer.add_tokens(["<new>", "neu"])
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=multiple)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "grown")
    take_back(tmp_path / "grown", tmp_path / "back")
    back = loaded(tmp_path / "back" / "model.pt", tmp_path / "back")
    dictionary = back.task.source_dictionary
    ids = [dictionary.index(word) for word in ("<mask>", "<new>", "neu")]
    assert ids == tokenizer.convert_tokens_to_ids(["<mask>", "<new>", "neu"])
    assert len(dictionary) == model.config.vocab_size
    assert len(dictionary) % (multiple or 1) == 0
    tokens = torch.tensor([[0, *ids, 5, 2]])
    with torch.no_grad():
        torch.testing.assert_close(
            back.model(tokens)[0], model(tokens).logits, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    ("token", "lines", "words"),
    [
        (
            "two words",
            0,
            "the token 'two words' of tokenizer_config.json can't be a new symbol of ",
        ),
        (None, 3, "dict.txt has 94 symbols, but config.json has vocab_size 92: the folder's files"),
    ],
)
def test_a_dictionary_that_does_not_fit_the_vocabulary_is_refused(
    token, lines, words, encoder_folder, tmp_path, capsys
):
    model = AutoModelForMaskedLM.from_pretrained(encoder_folder)
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    if token:
        tokenizer.add_tokens([token])
        model.resize_token_embeddings(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "grown")
    with open(tmp_path / "grown" / "dict.txt", "a", encoding="utf-8") as file:
        file.writelines(f"new{number} 1\n" for number in range(lines))
    with pytest.raises(UserError) as error:
        take_back(tmp_path / "grown", tmp_path / "back")
    assert words in str(error.value)
    assert not (tmp_path / "back").exists()


def test_of_several_heads_the_one_that_was_trained_last_is_taken():
    task = SimpleNamespace(cfg=SimpleNamespace(classification_head_name="b"))
    assert find_head(SimpleNamespace(classification_heads={"a": 1, "b": 2}), task) == "b"

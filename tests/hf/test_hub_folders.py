"""`import hf` of folders as they lie on the Hub: equal text, or a refusal by name."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers

from diet_fairseq import Translator
from diet_fairseq.hf.convert import translation
from diet_fairseq.hf.convert.translation import TAGGED, MBart, Translation
from diet_fairseq.text.subwords import SentencePiece
from diet_fairseq.text.tokenizer import Tokenizer
from diet_fairseq.translate.directions import EOS, SOURCE, TARGET, Framing
from diet_fairseq.translate.engine import Hypothesis
from diet_fairseq.translate.fairseq_engine import FairseqEngine
from diet_fairseq.translate.model_json import read_model_json
from tests.hf.conftest import take_back
from tests.hf.test_bad_input import refused
from tests.support import hub_folders, originals
from tests.support.hub_folders import edit


def marian_with_tags(folder: Path) -> Path:
    return hub_folders.marian_of_several_sources(folder, languages=["fin", "est"])


#: name -> folder, source and target of a translation, languages with a tag; the first are in the
#: default run
FOLDERS: dict[str, tuple[Any, str, str, int]] = {
    "mBART-50": (hub_folders.mbart50, "fr_XX", "sl_SI", 52),
    "mBART-25, a language starts the decoder": (hub_folders.mbart_en_ro, "en_XX", "ro_RO", 25),
    "NLLB, saved by transformers 4": (hub_folders.nllb_4, "fra_Latn", "rus_Cyrl", 5),
    "NLLB, trimmed": (hub_folders.trimmed_nllb, "eng_Latn", "rus_Cyrl", 3),
    "NLLB, a new language": (hub_folders.nllb_with_new_language, "tyv_Cyrl", "deu_Latn", 4),
    "mBART, a new language": (hub_folders.mbart_with_new_language, "en_XX", "mg_MG", 26),
    "Marian, several sources": (hub_folders.marian_of_several_sources, "eng", "fin", 0),
    "Marian, several sources and targets": (marian_with_tags, "deu", "est", 2),
    "Marian, no options": (hub_folders.marian_without_tokenizer_options, "source", "target", 0),
    "Marian, start elsewhere": (hub_folders.marian_with_generation_defaults, "en", "de", 0),
    "sharded": (lambda path: hub_folders.reshard(originals.m2m_100(path)), "en", "de", 100),
    "half": (lambda path: hub_folders.reshard(originals.marian(path), half=True), "en", "de", 0),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_translates_as_in_transformers(name, tmp_path):
    build, source, target, count = FOLDERS[name]
    folder = build(tmp_path / "folder")
    take_back(folder, tmp_path / "out")
    assert len(read_model_json(tmp_path / "out").all_directions.tags) == count
    lines = ["the quick fox jumps", "a dog sleeps and a fox runs"]
    ours = Translator(tmp_path / "out").translate(
        lines, source_lang=source, target_lang=target, beam=1
    )
    tags = read_model_json(tmp_path / "out").all_directions.tags
    theirs = [generate(folder, line, source, target, tags) for line in lines]
    for text, expected in zip(ours, theirs, strict=True):
        words = "".join(expected.split())
        assert len(words) > 5
        # transformers leaves <unk>, <mask> and padding of the vocabulary out of the text
        assert re.sub(r"\s|⁇|<mask>|madeupword\d+", "", text)[: len(words)] == words


@torch.no_grad()
def generate(folder: Path, line: str, source: str, target: str, tags: Any) -> str:
    """The first 20 tokens of the greedy translation by transformers alone."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options: dict[str, Any] = {}
    if hasattr(tokenizer, "src_lang"):
        tokenizer.src_lang = source
        is_mbart25 = type(tokenizer).__name__ == "MBartTokenizer"
        key = "decoder_start_token_id" if is_mbart25 else "forced_bos_token_id"
        options[key] = tokenizer.convert_tokens_to_ids(tags[target])
    elif target in tags:
        line = f">>{target}<< {line}"
    inputs = tokenizer(line, return_tensors="pt")
    outputs = model.generate(
        **inputs, num_beams=1, do_sample=False, min_new_tokens=1, max_new_tokens=20,
        suppress_tokens=[tokenizer.pad_token_id], **options,
    )  # fmt: skip
    special = {tokenizer.convert_tokens_to_ids(tag) for tag in tags.values()}
    words = [number for number in outputs[0].tolist() if number not in special]
    return str(
        tokenizer.decode(words, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )


def marian_typed_bart(folder: Path) -> Path:
    """Helsinki-NLP's first folders, whose class was a subclass of BART's."""
    originals.marian(folder)
    edit(folder / "config.json", model_type="bart", tokenizer_class="MarianTokenizer")
    edit(folder / "tokenizer_config.json", "tokenizer_class")
    return folder


#: folder, its tokenizer's class, and words of the refusal
CLASSES = {
    "mBARThez": (originals.mbart, "BarthezTokenizer", "MBartTokenizer, MBart50Tokenizer"),
    "BARTpho": (originals.mbart, "BartphoTokenizer", "MBartTokenizer, MBart50Tokenizer"),
    "SMaLL-100": (originals.m2m_100, "SMALL100Tokenizer", "M2M100Tokenizer, NllbTokenizer"),
    "NLLB without a class": (originals.nllb, "TokenizersBackend", "M2M100Tokenizer, NllbTokenizer"),
    "BARThez": (originals.bart, "BarthezTokenizer", "RobertaTokenizer, BartTokenizer, "),
    "PhoBERT": (originals.roberta, "PhobertTokenizer", "RobertaTokenizer, PreTrainedTokenizer, "),
    "Japanese BERT": (originals.bert, "BertJapaneseTokenizer", "BertTokenizer, XLMRoberta"),
    "BERT with byte pairs": (originals.bert, "RobertaTokenizerFast", "belongs to the model type "),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CLASSES)
def test_another_tokenizer_is_refused_by_name(name, tmp_path):
    build, kind, says = CLASSES[name]
    folder = build(tmp_path / "folder")
    edit(folder / "tokenizer_config.json", tokenizer_class=kind)
    text = refused(take_back, folder, tmp_path / "out")
    assert f"'s tokenizer is of the class {kind.removesuffix('Fast')}, which may split" in text
    assert says in text
    assert not (tmp_path / "out").exists()


def set_start(folder: Path, **values: Any) -> Path:
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", "decoder_start_token_id")
    edit(folder / "config.json", **values)
    return folder


#: change of a folder of Marian, and words of the refusal
FAULTS: dict[str, tuple[Any, str]] = {
    "Marian typed bart": (
        lambda path: edit(path / "config.json", model_type="bart"),
        "of the class MarianTokenizer, which may split text or place tags in another way than "
        "RobertaTokenizer, BartTokenizer, PreTrainedTokenizer, TokenizersBackend, the classes "
        "that `import hf` supports for this model type: it belongs to the model type marian",
    ),
    "no start": (set_start, "decoder_start_token_id must be an id from 0 to 98, but is 58100 ("),
    "start out of range": (
        lambda path: set_start(path, decoder_start_token_id=999), "from 0 to 98, but is 999 ("
    ),
    "negative start": (
        lambda path: set_start(path, decoder_start_token_id=-1), "from 0 to 98, but is -1 ("
    ),
    "code": (
        lambda path: edit(
            path / "tokenizer_config.json", auto_map={"AutoTokenizer": ["x.Tokenizer", None]}
        ),
        "tokenizer_config.json has auto_map: the folder's tokenizer needs code of the folder, "
        "which is never run; give a folder whose tokenizer is a class of transformers",
    ),
    "another file": (
        lambda path: edit(path / "tokenizer_config.json", gguf_file="../../secret.gguf"),
        "tokenizer_config.json has gguf_file, which names other files",
    ),
    "sampling": (
        lambda path: edit(
            path / "tokenizer_config.json", sp_model_kwargs={"enable_sampling": True}
        ),
        "tokenizer_config.json has sp_model_kwargs, but fairseq's model reads",
    ),
}  # fmt: skip


@pytest.mark.few(5)
@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_folder_is_refused_by_name(name, marian_folder, tmp_path, monkeypatch):
    change, says = FAULTS[name]
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asks a question"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("opens a connection"))
    folder = shutil.copytree(marian_folder, tmp_path / "folder")
    change(folder)
    assert says in refused(take_back, folder, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory) -> Path:
    return originals.marian(tmp_path_factory.mktemp("marian") / "folder")


def bert_without_options(folder: Path) -> Path:
    """google-bert's first folders: only the vocabulary."""
    originals.bert(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    return folder


def bert_of_sentences(folder: Path) -> Path:
    """sentence-transformers: ``tokenizer.json`` cuts sentences off, and pads them."""
    originals.bert(folder)
    cut = {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    pad = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None,
           "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}  # fmt: skip
    edit(folder / "tokenizer.json", truncation=cut, padding=pad)
    return folder


def bert_with(folder: Path, **options: Any) -> Path:
    originals.bert(folder)
    (folder / "tokenizer.json").unlink()
    edit(folder / "tokenizer_config.json", **options)
    return folder


def without_sentencepiece(folder: Path) -> Path:
    """XLM-R as transformers 5 saves it: only ``tokenizer.json``."""
    originals.xlm_roberta(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    return folder


def generic(build: Any, kind: str) -> Any:
    def change(folder: Path) -> Path:
        edit(build(folder) / "tokenizer_config.json", tokenizer_class=kind)
        return folder

    return change


#: name -> folder, whether text is lower-cased, and words of the output
ENCODERS: dict[str, tuple[Any, bool, str]] = {
    "BERT, no options": (bert_without_options, True, "43 sentences, 3 masked words"),
    "BERT of sentences": (bert_of_sentences, True, "43 sentences, 3 masked words"),
    "BERT with case": (lambda path: bert_with(path, do_lower_case=False), False, "43 sentences"),
    "BERT with accents": (
        lambda path: bert_with(path, strip_accents=False), True,
        "known difference: fairseq's --bpe bert has no options but the case, and splits ",
    ),
    "BERT, tokenizer.json": (generic(originals.bert, "TokenizersBackend"), True, "43 sentences"),
    "ELECTRA": (generic(originals.electra, "ElectraTokenizerFast"), True, "43 sentences"),
    "XLM-R, tokenizer.json": (without_sentencepiece, False, "43 sentences, 3 masked words"),
    "XLM-R, any class": (
        generic(originals.xlm_roberta, "PreTrainedTokenizerFast"), False, "43 sentences"
    ),
}  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_reads_text_as_in_transformers(name, tmp_path, capsys):
    build, lower, says = ENCODERS[name]
    take_back(build(tmp_path / "folder"), tmp_path / "out")
    assert says in capsys.readouterr().out
    options = json.loads((tmp_path / "out" / "made-from.json").read_text())
    assert options["lower"] is lower


@pytest.mark.slow
def test_a_tokenizer_that_can_not_read_a_text_is_refused(tmp_path):
    folder = generic(originals.bert, "TokenizersBackend")(tmp_path / "folder")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["unk_token"] = "[NONE]"
    (folder / "tokenizer.json").write_text(json.dumps(content))
    says = refused(take_back, folder, tmp_path / "out")
    assert f"{folder}'s tokenizer can't read text (Exception: WordPiece error: Missing " in says


@pytest.mark.slow
def test_a_tag_that_is_not_a_code_is_named(tmp_path, capsys):
    folder = originals.marian(tmp_path / "folder", languages=["deu", "fra", "sr@latin"])
    take_back(folder, tmp_path / "out")
    out = capsys.readouterr().out
    assert "not imported, because a language must be a code: >>sr@latin<<\n" in out


@pytest.mark.slow
@pytest.mark.parametrize("build", [originals.mbart, originals.nllb, originals.xlm_roberta])
def test_a_sentencepiece_model_is_copied_where_transformers_reads_the_same(build, tmp_path):
    folder = build(tmp_path / "folder")
    take_back(folder, tmp_path / "out")
    copy = (tmp_path / "out" / "sentencepiece.model").read_bytes()
    assert copy == (folder / "sentencepiece.bpe.model").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("build", [originals.mbart, originals.nllb, originals.bart])
def test_added_words_are_refused_by_name(build, tmp_path):
    folder = hub_folders.grow(build(tmp_path / "folder"), ["zyx", "foxdog"], special=False)
    assert refused(take_back, folder, tmp_path / "out") == (
        f"{folder} can't be imported: its tokenizer has the added words 'zyx', 'foxdog', which the "
        "imported subword model would split; nothing was written"
    )


@pytest.mark.slow
def test_added_words_of_an_encoder_are_refused_by_name(tmp_path):
    folder = hub_folders.grow(
        originals.roberta(tmp_path / "folder"), ["zyx"], special=False, auto="MaskedLM"
    )
    says = refused(take_back, folder, tmp_path / "out")
    assert "its tokenizer has the added words 'zyx', which the imported" in says


@pytest.mark.slow
def test_a_space_before_the_text_is_refused(tmp_path):
    folder = originals.roberta(tmp_path / "folder")
    edit(folder / "tokenizer_config.json", add_prefix_space=True)
    says = refused(take_back, folder, tmp_path / "out")
    assert "can't be imported: transformers gives 'The quick brown fox jumps over the " in says


def test_a_tokenizer_that_can_not_be_built_is_named(tmp_path, capsys):
    folder = originals.bert(tmp_path / "folder")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["pre_tokenizer"] = {"type": "FromTheFuture"}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    take_back(folder, tmp_path / "out")
    out = capsys.readouterr().out
    assert f"not compared as text: transformers can't build the tokenizer from {folder}/tok" in out


def move_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MBart, "framing", lambda self, texts: TAGGED)


def move_forced_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = Framing(source_end=(EOS, SOURCE), target_prefix=(TARGET,))
    monkeypatch.setattr(MBart, "framing", lambda self, texts: marks)


def lose_language(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = Translation.directions

    def directions(self: Any, *args: Any) -> Any:
        result = find(self, *args)
        tags = {name: tag for name, tag in result.tags.items() if name != "ro_RO"}
        return replace(result, tags=tags)

    monkeypatch.setattr(Translation, "directions", directions)


def exchange_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = Translation.directions

    def directions(self: Any, *args: Any) -> Any:
        result = find(self, *args)
        tags = result.tags | {"ro_RO": result.tags["ru_RU"], "ru_RU": result.tags["ro_RO"]}
        return replace(result, tags=tags)

    monkeypatch.setattr(Translation, "directions", directions)


def drop_token(monkeypatch: pytest.MonkeyPatch) -> None:
    read = translation.read_pieces

    def read_pieces(*args: Any) -> dict[str, int]:
        return {token: number for token, number in read(*args).items() if token != "▁f"}

    monkeypatch.setattr(translation, "read_pieces", read_pieces)


def exchange_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    read = translation.read_pieces

    def read_pieces(*args: Any) -> dict[str, int]:
        tokens = read(*args)
        return tokens | {"▁f": tokens["ch"], "ch": tokens["▁f"]}

    monkeypatch.setattr(translation, "read_pieces", read_pieces)


def split_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentencePiece, "encode", lambda self, line: list(line.replace(" ", "▁")))


def read_special_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer,
        "encode",
        lambda self, line: ["</s>"] if "</s>" in line else encode(self, line),
    )


def lose_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    read = FairseqEngine._hypothesis

    def hypothesis(*args: Any) -> Hypothesis:
        result = read(*args)
        return replace(result, tokens=result.tokens[1:])

    monkeypatch.setattr(FairseqEngine, "_hypothesis", hypothesis)


def write_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentencePiece, "decode", lambda self, tokens: "".join(tokens)[1:])


#: a fault in the import -> words of the refusal; the first are in the default run
MUTANTS: dict[Any, str] = {
    move_tag: "transformers gives '' the tokens (en_XX to de_DE) </s> en_XX, but the imported "
    "model en_XX </s>; nothing",
    lose_language: "its tokenizer has the language tag 'ro_RO', which the imported model lacks",
    drop_token: "to '▁f', but the imported dictionary to 'madeupword",
    move_forced_tag: "the target tokens (en_XX to de_DE) de_DE </s>, but the imported "
    "model </s> de_DE </s>; nothing was written",
    exchange_tags: "the target tokens (nl_XX to ro_RO) ",
    exchange_tokens: "to '▁f', but the imported dictionary to 'ch'; nothing was written",
    split_otherwise: "the tokens (en_XX to de_DE) ",
    read_special_tokens: "gives 'the </s> fox' the tokens ▁ t h e </s> ",
    lose_first_token: "the translation (en_XX to de_DE) ",
    write_otherwise: "the translation of 'The quick brown fox jumps over the lazy dog.' is ",
}


@pytest.fixture(scope="module")
def mbart_folder(tmp_path_factory) -> Path:
    return originals.mbart(tmp_path_factory.mktemp("mbart") / "folder")


@pytest.mark.few(3)
@pytest.mark.parametrize("mutate", MUTANTS)
def test_a_fault_of_the_import_is_refused(mutate, mbart_folder, tmp_path, monkeypatch):
    mutate(monkeypatch)
    assert MUTANTS[mutate] in refused(take_back, mbart_folder, tmp_path / "out")
    assert not any(tmp_path.iterdir())

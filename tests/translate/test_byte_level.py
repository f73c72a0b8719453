"""GPT-2's byte-level BPE in translation: BART's checkpoints read and write any text."""

import json
import shutil

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models.bart.hub_interface import BARTHubInterface

from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.text.tokenizer import Tokenizer
from diet_fairseq.translate.model_json import read_model_json
from tests.support import published
from tests.support.texts import scrambled, sentences

ODD = [
    "  ban  dor ", "ban\tdor\t\tbir", "\ufeffban\u2060 \xa0dor\u3000bir", "e\u0301 é ﬁ Ⅻ ½",
    "👩\u200d👩\u200d👧 ban😀", "नमस्ते दुनिया।", "x\x07y\x00z \x1b[0m\x7f", "don't I'M 10,000...!?",
    "日本語 русский العربية", "<s> </s> <unk> <mask>", "<|endoftext|> ▁ban", "ban\ndor\r\nbir",
]  # fmt: skip
MARKS = {"source_prefix": ["<s>"], "target_prefix": ["<s>"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """BART with a model.json, which says that source and translation begin with ``<s>``."""
    model = published.bart(tmp_path_factory.mktemp("bart"))
    description = {
        "format": "diet_fairseq model", "version": 1, "engine": "fairseq", "checkpoint": "model.pt",
        "data": ".", "source_lang": "source", "target_lang": "target",
        "subwords": {"kind": "gpt2", "model": "vocab.bpe"},
        "directions": {"pairs": [["source", "target"]], **MARKS},
    }  # fmt: skip
    (model.folder / "model.json").write_text(json.dumps(description))
    return model


@pytest.fixture(scope="module")
def exported(model):
    folder = model.folder / "exported"
    assert main(["export", "ctranslate2", str(model.folder), str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def hub(model):
    """fairseq's own interface of BART."""
    [bart], cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(model.checkpoint)], {"data": str(model.folder)}
    )
    cfg.generation.beam = 1  # stock attention keeps a wider beam, and then fails with one of 1
    cfg.bpe = cfg.tokenizer = None  # else it fetches the published encoder.json
    interface = BARTHubInterface(cfg, task, bart.eval())
    interface.bpe = model.bpe
    return interface


def test_tokens_and_text_are_those_of_fairseq_s_encoder(model):
    tokenizer = Tokenizer("gpt2", model.subwords, "en")
    generator = torch.Generator().manual_seed(1)
    for text in [*ODD, *sentences(20, seed=9), *scrambled(20, seed=9)]:
        tokens = tokenizer.encode(text)
        assert " ".join(tokens) == model.encode(text), ascii(text)
        assert tokenizer.decode(tokens) == " ".join(text.splitlines())
    for _ in range(50):  # bytes that are not UTF-8
        numbers = torch.randint(len(tokenizer.subwords.numbers), (8,), generator=generator)
        tokens = [*map(str, numbers.tolist()), "<unk>"]
        assert tokenizer.decode(tokens) == model.decode(" ".join(tokens))
    assert [tokenizer.encode(blank) for blank in ("", " ", "\t\n")] == [[], [], []]


def test_a_line_that_is_cut_keeps_its_text(model):
    tokenizer = Tokenizer("gpt2", model.subwords, "en")
    line = "Ban dor. Bir dan!  Bost\tbor. " + "bulm " * 20
    parts = tokenizer.split(line, 12)
    assert max(map(len, parts)) <= 12
    assert "".join(map(tokenizer.decode, parts)).replace(" ", "") == line.replace(" ", "")
    assert tokenizer.split("Ban dor. Bir dan!", 40) == [tokenizer.encode("Ban dor. Bir dan!")]
    whole = tokenizer.split("Ban dor. Bir dan. " + "bulm " * 20, 30)[0]
    assert tokenizer.decode(whole).startswith("Ban dor. Bir dan.")


@pytest.mark.slow
def test_both_engines_translate_as_fairseq_s_own_bart_does(model, exported, hub):
    texts = [*ODD, *sentences(4, seed=5)]
    # with a wider beam CTranslate2 ends fewer translations after a forced token (CTranslate2Engine)
    for engine, beam in ((Translator(exported), 1), (Translator(model.folder), 2)):
        ours = engine.candidates(texts, beam=beam, nbest=beam)
        for text, candidates in zip(texts, ours, strict=True):
            tokens = hub.encode(text)
            [best] = hub.generate([tokens], beam=beam, max_len_a=0, max_len_b=len(tokens) + 50)
            theirs = [" ".join(hub.decode(one["tokens"]).splitlines()) for one in best]
            assert [candidate.text for candidate in candidates] == theirs, ascii(text)
            scores = [float(one["score"]) for one in best]
            assert [candidate.score for candidate in candidates] == pytest.approx(scores, abs=1e-3)
        assert len({line[0].text for line in ours}) > 2


@pytest.mark.slow
def test_the_exported_folder_has_the_subwords(exported):
    description = read_model_json(exported)
    assert (description.subwords, description.subword_model) == ("gpt2", exported / "vocab.bpe")
    assert (exported / "encoder.json").exists()


@pytest.mark.slow
def test_transformers_translates_the_same(model, tmp_path):
    transformers = pytest.importorskip("diet_fairseq.hf") and pytest.importorskip("transformers")
    assert main(["export", "hf", str(model.folder), str(tmp_path / "hf")]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    exported = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    for text in ODD[:-3]:  # the others contain special tokens
        assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == [
            "<s>", *model.encode(text).split(), "</s>"
        ]  # fmt: skip
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    texts = sentences(4, seed=5)
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    outputs = exported.generate(**inputs, num_beams=1, max_new_tokens=30)
    theirs = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    ours = Translator(model.folder).translate(texts, beam=1)
    assert [text[:10] for text in theirs] == [text[:10] for text in ours]
    # and back
    assert main(["import", "hf", str(tmp_path / "hf"), str(tmp_path / "back")]) == 0
    assert Translator(tmp_path / "back").translate(texts, beam=1) == ours


def test_numbers_without_a_byte_are_refused(model, tmp_path):
    for name in ("vocab.bpe", "encoder.json"):
        shutil.copyfile(model.folder / name, tmp_path / name)
    numbers = json.loads((tmp_path / "encoder.json").read_text())
    del numbers["a"]
    (tmp_path / "encoder.json").write_text(json.dumps(numbers))
    with pytest.raises(UserError, match=r"are not the files of fairseq's --bpe gpt2 \(1 of 256 by"):
        Tokenizer("gpt2", tmp_path / "vocab.bpe", "en")

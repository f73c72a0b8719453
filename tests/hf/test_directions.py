"""`export hf` of multilingual models: the tokenizer and ``generate`` write the tags."""

import copy
import json
import pickle
import shutil

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers
from huggingface_hub import ModelCard

from diet_fairseq import Translator
from diet_fairseq.errors import UserError
from diet_fairseq.translate.directions import TARGET
from diet_fairseq.translate.model_json import read_model_json
from tests.hf.conftest import export, take_back
from tests.support import commands, originals, published
from tests.support.texts import sentences

pytestmark = pytest.mark.slow

TEXTS = sentences(4, seed=5)
LAYOUTS = [published.m2m100]
LAYOUTS += commands.slow(
    [published.nllb, published.mbart, published.multilingual, published.indictrans2]
)


def end_soon(model, token: str) -> None:
    """Raise the logit of the token that ends translations: random models rarely end them."""
    content = torch.load(model.checkpoint, weights_only=False)
    state = content["model"]
    norms = [name for name in state if name.endswith("decoder.layer_norm.bias")]
    for name in norms or [n for n in state if n.endswith("decoder.layers.0.final_layer_norm.bias")]:
        prefix = name.partition("decoder.")[0]
        row = state[f"{prefix}decoder.embed_tokens.weight"][model.words.index(token)]
        state[name] = state[name] + 16 * row / row.square().sum()
    torch.save(content, model.checkpoint)


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.__name__)
def model(request, tmp_path_factory):
    model = request.param(tmp_path_factory.mktemp("published"))
    end_soon(model, "[ro_RO]" if request.param is published.mbart else "</s>")
    published.import_package(model)
    return model


def test_generate_translates_as_translate_does(model, tmp_path):
    first = model.pairs[0]
    export(model.path, tmp_path / "hf", *model.flags(first))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == first
    transformer = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    end = transformer.generation_config.eos_token_id
    take_back(tmp_path / "hf", tmp_path / "back")
    translators = (
        Translator(model.path, **model.options(first)),
        Translator(tmp_path / "back"),
    )
    marks = read_model_json(tmp_path / "hf").directions.framing
    if model.sides:  # IndicTrans2's tags are in its source alone
        with pytest.raises(UserError, match="no language has a tag in the target dictionary"):
            tokenizer.get_lang_id(first[1])
    for source, target in model.pairs:
        tokenizer.src_lang, tokenizer.tgt_lang = source, target
        places = {
            "forced_bos_token_id": marks.target_prefix,
            "decoder_start_token_id": (marks.target_start,),
            "eos_token_id": (marks.target_end,),
        }
        marked = {
            name: tokenizer.get_lang_id(target)
            for name, tokens in places.items()
            if TARGET in tokens
        }
        if (source, target) == first:
            marked = {}  # the folder's default
        inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
        outputs = transformer.generate(
            **inputs, num_beams=4, length_penalty=0.0, max_new_tokens=25, **marked
        )
        is_complete = [end in row[1:] for row in outputs]
        assert sum(is_complete) > 2  # where generate stops in the middle, fairseq ends the sentence
        theirs = tokenizer.batch_decode(outputs, skip_special_tokens=True)
        assert any(theirs)
        for translator in translators:
            ours = translator.translate(
                TEXTS, beam=4, lenpen=0.0, source_lang=source, target_lang=target
            )
            pairs = zip(ours, theirs, is_complete, strict=True)
            assert [a == b for a, b, is_equal in pairs if is_equal] == [True] * sum(is_complete)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """M2M-100's layout, exported from English to German."""
    parent = tmp_path_factory.mktemp("m2m100")
    model = published.m2m100(parent / "model")
    export(model.checkpoint, parent / "hf", *model.flags(("en", "de")))
    return parent / "hf"


@pytest.fixture
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def tokens_of(tokenizer, **text):
    return tokenizer.convert_ids_to_tokens(tokenizer(**text)["input_ids"])


def test_the_tokenizer_writes_the_tags_of_its_languages(tokenizer, tmp_path):
    assert tokens_of(tokenizer, text="ban")[0] == "__en__"
    assert tokens_of(tokenizer, text_target="ban")[0] == "__de__"
    tokenizer.add_tokens(["zzz"])
    number = tokenizer.convert_tokens_to_ids("zzz")
    tokenizer.src_lang, tokenizer.tgt_lang = "fr", "en"
    tokenizer.save_pretrained(tmp_path)
    for other in (
        tokenizer,
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
        transformers.AutoTokenizer.from_pretrained(tmp_path),
    ):
        assert tokens_of(other, text="ban zzz")[0] == "__fr__"
        assert number in other("ban zzz")["input_ids"]
        ids = other(text_target="ban")["input_ids"]
        assert tokens_of(other, text_target="ban")[0] == "__en__"
        assert other.decode(ids, skip_special_tokens=True) == "ban"
        assert other.decode(ids).startswith("__en__")


def test_a_tag_in_the_text_is_unknown(tokenizer):
    before, unknown = tokenizer("ban"), tokenizer.unk_token_id
    ids = tokenizer("ban __de__")["input_ids"]
    assert tokenizer.get_lang_id("de") not in ids
    assert ids[: len(before["input_ids"]) - 1] == before["input_ids"][:-1]
    assert unknown in ids


def test_a_language_that_the_model_lacks_is_named(tokenizer):
    with pytest.raises(UserError) as error:
        tokenizer.src_lang = "nl"
    assert (
        str(error.value) == "src_lang must be one of the model's languages, de, en, fr, but is nl"
    )
    assert tokenizer.src_lang == "en"
    with pytest.raises(
        UserError, match="one of de, en, fr, whose tags the target dictionary has, but"
    ):
        tokenizer.get_lang_id("nl")


def test_a_missing_tag_leaves_the_tokenizer_unchanged(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "hf")
    dictionary = tmp_path / "hf" / "dict.txt"
    dictionary.write_text(dictionary.read_text().replace("__fr__", "__other__"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    before = tokenizer("ban")["input_ids"]
    with pytest.raises(UserError, match="lacks the tag __fr__"):
        tokenizer.src_lang = "fr"
    assert tokenizer.src_lang == "en"
    assert tokenizer("ban")["input_ids"] == before


def test_forged_directions_are_refused(folder, tmp_path):
    for change, says in (
        ({"tags": {"../x": "y"}}, "directions.tags.../x.[key] must be a language's code"),
        ({"tags": {"en": "none", "de": "ne"}, "source_prefix": ["{source}"]}, "lacks the tag none"),
    ):
        values = json.loads((folder / "tokenizer_config.json").read_text())
        shutil.copytree(folder, tmp_path / "hf", dirs_exist_ok=True)
        content = json.dumps(values | {"directions": change})
        (tmp_path / "hf" / "tokenizer_config.json").write_text(content)
        with pytest.raises(UserError) as error:
            transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
        assert says in str(error.value)


def test_the_card_says_how_to_choose_a_direction(folder):
    card = ModelCard.load(folder / "README.md")
    assert card.data.language == ["de", "en", "fr"]
    assert (
        'tag = tokenizer.get_lang_id("de")\ntokenizer.src_lang, tokenizer.tgt_lang = "en", "de"\n'
        'outputs = model.generate(**tokenizer("...", return_tensors="pt"), '
        "forced_bos_token_id=tag)\n"
    ) in card.text


def test_opus_mt_s_target_tag_is_written_before_the_source(tmp_path):
    take_back(originals.marian(tmp_path / "folder", languages=("deu", "nld")), tmp_path / "out")
    export(tmp_path / "out", tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert tokens_of(tokenizer, text="the")[0] == ">>deu<<"
    tokenizer.tgt_lang = "nld"
    assert tokens_of(tokenizer, text="the")[0] == ">>nld<<"
    assert tokens_of(tokenizer, text_target="der")[0] != ">>nld<<"


def test_more_than_one_forced_token_is_refused(tmp_path):
    model = published.bart(tmp_path / "bart")
    description = {
        "format": "diet_fairseq model", "version": 1, "engine": "fairseq", "checkpoint": "model.pt",
        "data": ".", "source_lang": "source", "target_lang": "target",
        "subwords": {"kind": "gpt2", "model": "vocab.bpe"},
        "directions": {"pairs": [["source", "target"]], "target_prefix": ["<s>", "7"]},
    }  # fmt: skip
    (model.folder / "model.json").write_text(json.dumps(description))
    with pytest.raises(UserError) as error:
        export(model.folder, tmp_path / "hf")
    assert str(error.value) == (
        f"{model.checkpoint} begins translations with <s> 7, but generate forces one token: use "
        "`diet-fairseq export ctranslate2`"
    )
    assert not (tmp_path / "hf").exists()

"""`import hf` of folders of transformers' own classes: the same outputs, or a refusal."""

import errno
import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers
from fairseq import options
from fairseq.data.data_utils import collate_tokens
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.models import ARCH_MODEL_REGISTRY
from huggingface_hub import ModelCard

from diet_fairseq import Translator, files
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.hf.convert.card import read_license
from diet_fairseq.hf.convert.original import FAMILIES
from diet_fairseq.hf.convert.translation import Marian
from diet_fairseq.models.diet_bert import DietBertModel
from diet_fairseq.models.warm_start import checkpoint_loading
from diet_fairseq.text.subwords import SentencePiece
from diet_fairseq.translate.directions import Framing
from diet_fairseq.translate.model_json import read_model_json
from tests.hf.conftest import export, loaded, take_back
from tests.hf.test_bad_input import refused
from tests.support import originals
from tests.support.checkpoints import Touch

#: the first of each class are in the default run
TRANSLATIONS = {
    "marian": (originals.marian, {}),
    "m2m_100": (originals.m2m_100, {}),
    "nllb": (originals.nllb, {"activation_function": "gelu_new"}),
    "mbart": (originals.mbart, {}),
    "bart": (originals.bart, {}),
    "marian, static": (originals.marian, {"scale_embedding": False, "activation_function": "relu"}),
    "marian, untied": (originals.marian, {"tie_word_embeddings": False,
                                          "activation_function": "gelu"}),
    "marian, separate": (originals.marian, {"separate": True}),
    "m2m_100, untied": (originals.m2m_100, {"tie_word_embeddings": False,
                                            "scale_embedding": False}),
    "bart, scaled": (originals.bart, {"scale_embedding": True, "activation_function": "relu"}),
}  # fmt: skip

ENCODERS = {
    "xlm-roberta": (originals.xlm_roberta, {}),
    "roberta": (originals.roberta, {"layer_norm_eps": 1e-5}),
    "bert": (originals.bert, {}),
    "electra": (originals.electra, {}),
    "bert, masked words alone": (originals.bert, {"head": "ForMaskedLM", "type_vocab_size": 3,
                                                  "hidden_act": "relu"}),
    "electra, wide": (originals.electra, {"embedding_size": 16, "layer_norm_eps": 1e-5}),
    "distilbert": (originals.distilbert, {}),
    "bert, untied": (originals.bert, {"tie_word_embeddings": False}),
}  # fmt: skip


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory) -> Path:
    return originals.marian(tmp_path_factory.mktemp("marian") / "folder")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_translation_model_has_its_outputs(name, tmp_path):
    build, changes = TRANSLATIONS[name]
    folder = build(tmp_path / "folder", **changes)
    take_back(folder, tmp_path / "out")
    compare_translation(folder, tmp_path / "out")


@torch.no_grad()
def compare_translation(folder: Path, out: Path) -> None:
    """Compare the outputs of a folder of transformers and of an imported model."""
    reference = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pairs = originals.sentence_pairs(5, seed=9)
    sources = [tokenizer(source)["input_ids"] for source, _ in pairs]
    targets = [tokenizer(text_target=target)["input_ids"] for _, target in pairs]
    known = loaded(out / "model.pt", out)
    source, target = known.task.source_dictionary, known.task.target_dictionary

    numbers = {}
    if (out / "encoder.json").exists():  # BART's
        numbers = json.loads((out / "encoder.json").read_text())

    def indices(ids, dictionary, is_target):
        decoder = getattr(tokenizer, "target_encoder", None) if is_target else None
        names = {number: word for word, number in (decoder or tokenizer.get_vocab()).items()}
        words = [names.get(number) or tokenizer.convert_ids_to_tokens(number) for number in ids]
        words = [str(numbers.get(word, word)) for word in words]
        return torch.tensor([dictionary.index(word) for word in words])

    our_sources = [indices(ids, source, False) for ids in sources]
    our_targets = [indices(ids, target, True) for ids in targets]
    previous = collate_tokens([ids.roll(1) for ids in our_targets], target.pad())
    for tokens, ours, row in zip(sources, our_targets, range(5), strict=True):
        labels = torch.tensor([targets[row]])
        first = reference.config.decoder_start_token_id
        start = labels[:, -1:] if first is None else torch.tensor([[first]])  # mBART's language
        expected = reference(
            input_ids=torch.tensor([tokens]),
            decoder_input_ids=torch.cat([start, labels[:, :-1]], dim=1),
        ).logits.log_softmax(-1)[0, range(len(ours)), labels[0]]
        for left_pad in (False, True):
            batch = collate_tokens(our_sources, source.pad(), left_pad=left_pad)
            logits = known.model(batch, batch.ne(source.pad()).sum(1), previous)[0][row]
            actual = logits.log_softmax(-1)[range(len(ours)), ours]
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_has_its_outputs(name, tmp_path, capsys):
    build, changes = ENCODERS[name]
    folder = build(tmp_path / "folder", **changes)
    take_back(folder, tmp_path / "out")
    printed = capsys.readouterr().out
    known = loaded(tmp_path / "out" / "model.pt", tmp_path / "out")
    has_nsp = build is originals.bert and "head" not in changes
    assert (getattr(known.model, "nsp_head", None) is not None) == has_nsp
    assert ("initialised by transformers" in printed) == ("head" in changes)
    compare_encoder(folder, tmp_path / "out")


@torch.no_grad()
def compare_encoder(folder: Path, out: Path) -> None:
    """Compare the outputs of a folder of transformers and of an imported encoder."""
    known = loaded(out / "model.pt", out)
    has_nsp = getattr(known.model, "nsp_head", None) is not None
    auto = transformers.AutoModelForPreTraining if has_nsp else transformers.AutoModelForMaskedLM
    reference = auto.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    symbols = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>",
               "[MASK]": "<mask>"}  # fmt: skip
    words = known.task.source_dictionary
    text = f"the {tokenizer.mask_token} brown fox", "a dog"
    inputs = tokenizer([text[0], text[1]], [text[1], text[0]], return_tensors="pt", padding=True)
    names = [
        [symbols.get(word, word) for word in tokenizer.convert_ids_to_tokens(row)]
        for row in inputs["input_ids"].tolist()
    ]
    numbers = {}
    if (out / "encoder.json").exists():  # RoBERTa's
        numbers = json.loads((out / "encoder.json").read_text())
        names = [[str(numbers.get(word, word)) for word in row] for row in names]
    tokens = torch.tensor([[words.index(word) for word in row] for row in names])
    assert (tokens == words.index("<mask>")).sum() == 2
    outputs = reference(**inputs)
    theirs = outputs.prediction_logits if has_nsp else outputs.logits
    segments = inputs.get("token_type_ids")
    logits, extra = known.model(tokens, **({} if segments is None else {"segments": segments}))
    is_real = inputs["attention_mask"].bool()
    columns = [
        words.index(numbers.get(name, name))
        for name in (symbols.get(word, word) for word in ("[MASK]", "[SEP]"))
    ]
    ids = [tokenizer.mask_token_id, tokenizer.sep_token_id]
    torch.testing.assert_close(logits[is_real][:, columns], theirs[is_real][:, ids],
                               rtol=1e-5, atol=2e-5)  # fmt: skip
    if has_nsp:
        follows = extra["nsp_logits"][:, 1]  # class 0 in transformers
        torch.testing.assert_close(
            follows, outputs.seq_relationship_logits[:, 0], rtol=1e-5, atol=2e-5
        )


@pytest.mark.slow
@torch.no_grad()
def test_a_discriminator_of_electra_starts_one_with_other_positions(tmp_path, capsys):
    folder = originals.electra(tmp_path / "folder", head="ForPreTraining")
    take_back(folder, tmp_path / "out")
    printed = capsys.readouterr().out
    assert "left out: discriminator_predictions.dense.bias, " in printed
    assert "\nno head for masked words, because the folder has none: " in printed
    known = loaded(tmp_path / "out" / "model.pt", tmp_path / "out").model
    reference = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = known.encoder.dictionary
    inputs = tokenizer("the brown fox", "a dog", return_tensors="pt")
    symbols = {"[CLS]": "<s>", "[SEP]": "</s>"}
    names = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    tokens = torch.tensor([[words.index(symbols.get(name, name)) for name in names]])
    features = known(tokens, segments=inputs["token_type_ids"], features_only=True)[0]
    expected = reference(**inputs).last_hidden_state
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=2e-5)
    before, after = (
        known.state_dict(),
        swapped(tmp_path / "out", "bert_diet_rel")[1].state_dict(),
    )
    same = [name for name in before if name in after]
    assert any("project_in" in name for name in same)
    assert all(torch.equal(before[name], after[name]) for name in same)


def test_roberta_s_text_is_that_of_fairseq_s_byte_level_bpe(tmp_path):
    folder = originals.roberta(tmp_path / "folder")
    take_back(folder, tmp_path / "out")
    bpe = gpt2_bpe(tmp_path / "out")
    words = loaded(tmp_path / "out" / "model.pt", tmp_path / "out").task.source_dictionary
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for line in (*originals.TEXT, "Größe  und\t東京 !"):
        expected = tokenizer(line)["input_ids"][1:]
        assert words.encode_line(bpe.encode(line), add_if_not_exist=False).tolist() == expected


def test_an_encoder_s_case_is_kept(tmp_path):
    folder = originals.bert(tmp_path / "folder")
    take_back(folder, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "made-from.json").read_text())["lower"] is True
    assert (tmp_path / "out" / "vocab.txt").read_text() == (folder / "vocab.txt").read_text()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("build", "arch"),
    [
        (originals.marian, "transformer_rope"),
        (originals.m2m_100, "transformer_diet_rel"),
        (originals.xlm_roberta, "roberta_rope"),
        (originals.bert, "bert_diet_rel"),
        (originals.electra, "bert_rope"),
    ],
)
def test_an_imported_model_starts_one_with_other_positions(build, arch, tmp_path):
    take_back(build(tmp_path / "folder"), tmp_path / "out")
    known = loaded(tmp_path / "out" / "model.pt", tmp_path / "out")
    before, after = known.model.state_dict(), swapped(tmp_path / "out", arch)[1].state_dict()
    missing = {name.rpartition(".")[0].rpartition(".")[2] for name in before.keys() - after.keys()}
    assert missing <= {"embed_positions", "embed_segments"}
    assert all(torch.equal(before[name], after[name]) for name in before.keys() & after.keys())


def swapped(out: Path, arch: str) -> tuple[Namespace, Any]:
    """The options and the model of another architecture, started from an imported model."""
    known = loaded(out / "model.pt", out)
    task = "translation" if arch.startswith("transformer") else "masked_lm"
    words = [str(out), "--task", task, "--arch", arch]
    words += (out / "options.txt").read_text().split()
    args = options.parse_args_and_arch(options.get_training_parser(default_task=task), words)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, known.task)
    with checkpoint_loading(model):
        model.load_state_dict(known.model.state_dict())
    return args, model


@pytest.mark.slow
def test_an_imported_model_goes_on_to_other_libraries(marian_folder, tmp_path):
    take_back(marian_folder, tmp_path / "out")
    main(["export", "ctranslate2", str(tmp_path / "out"), str(tmp_path / "ctranslate2")])
    lines = [source for source, _ in originals.sentence_pairs(3)]
    fairseq, ctranslate2 = (Translator(tmp_path / name) for name in ("out", "ctranslate2"))
    assert ctranslate2.translate(lines) == fairseq.translate(lines)
    export(tmp_path / "out", tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    target = originals.sentence_pairs(1)[0][1]
    labels = tokenizer(text_target=target)["input_ids"]
    pieces = read_model_json(tmp_path / "out").tokenizers[1].encode(target)
    assert tokenizer.convert_ids_to_tokens(labels) == [*pieces, "</s>"]
    assert tokenizer.decode(labels, skip_special_tokens=True) == target
    take_back(tmp_path / "hf", tmp_path / "back")
    before, after = (
        loaded(tmp_path / name / "model.pt", tmp_path / name).model.state_dict()
        for name in ("out", "back")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert Translator(tmp_path / "back").translate(lines) == fairseq.translate(lines)


def test_a_piece_of_the_other_language_has_its_space(marian_folder):
    pieces = SentencePiece(marian_folder / "target.spm")
    [english] = SentencePiece(marian_folder / "source.spm").encode("the")
    assert pieces.decode(["▁ein", english]) == "ein the"


def test_nothing_is_called_written_before_the_folder_has_its_name(
    marian_folder, tmp_path, capsys, monkeypatch
):
    def rename(old, new, rename_file=files.rename_durably):
        if new == tmp_path / "out":
            raise OSError(errno.ENOSPC, "No space left on device")
        rename_file(old, new)

    monkeypatch.setattr(files, "rename_durably", rename)
    with pytest.raises(UserError, match="out can't be written: No space left on device"):
        take_back(marian_folder, tmp_path / "out")
    assert capsys.readouterr().out == ""


def test_defaults_of_generation_are_kept(marian_folder, tmp_path, capsys):
    shutil.copytree(marian_folder, tmp_path / "folder")
    path = tmp_path / "folder" / "generation_config.json"
    more = {"length_penalty": 0.6, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2}
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    take_back(tmp_path / "folder", tmp_path / "out")
    description = read_model_json(tmp_path / "out")
    assert description.languages == ("en", "de")
    assert (description.beam, description.lenpen) == (4, 0.6)
    assert description.no_repeat_ngram_size == 3
    assert description.max_target_length == 36  # of 38, without the start and </s>
    assert description.target_subword_model == tmp_path / "out" / "target-sentencepiece.model"
    printed = capsys.readouterr().out
    assert "that the imported model does not have: repetition_penalty 1.2\n" in printed
    assert f"--arch transformer_learned --finetune-from-model {tmp_path / 'out'}/mod" in printed
    assert " --activation-fn swish " in (tmp_path / "out" / "options.txt").read_text()


@pytest.mark.slow
def test_nllb_s_old_tokenizer_puts_the_tag_at_the_end(tmp_path):
    folder = originals.nllb(tmp_path / "folder")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"legacy_behaviour": True}))
    take_back(folder, tmp_path / "out")
    description = read_model_json(tmp_path / "out")
    assert description.languages == ("eng_Latn", "deu_Latn")
    assert description.directions.frame("fra_Latn", "deu_Latn") == Framing(
        source_end=("</s>", "fra_Latn"), target_prefix=("deu_Latn",)
    )
    Translator(tmp_path / "out", source_lang="fra_Latn").translate("the fox")
    with pytest.raises(UserError, match="must be one of the model's languages, ace_Arab, "):
        Translator(tmp_path / "out", source_lang="xx")
    assert Translator(tmp_path / "out", source_lang="fr").source_lang == "fra_Latn"


@pytest.mark.slow
def test_opus_mt_s_tags_are_target_languages(tmp_path):
    take_back(originals.marian(tmp_path / "folder", languages=("deu", "nld")), tmp_path / "out")
    description = read_model_json(tmp_path / "out")
    assert description.directions.targets == {"en": ["deu", "nld"]}
    assert description.directions.frame("en", "nld") == Framing(source_prefix=(">>nld<<",))
    assert Translator(tmp_path / "out", target_lang="nld").target_lang == "nld"


@pytest.mark.slow
@pytest.mark.parametrize("build", [originals.m2m_100, originals.mbart])
def test_multilingual_translations_are_those_of_generate(build, tmp_path):
    folder = build(tmp_path / "folder", updates=250, d_model=32)
    take_back(folder, tmp_path / "out")
    lines = [line for line, _ in originals.sentence_pairs(20, seed=7)]
    theirs = generate(folder, tmp_path / "out", lines)
    assert len(set(theirs)) > 3
    main(["export", "ctranslate2", str(tmp_path / "out"), str(tmp_path / "ctranslate2")])
    for name in ("out", "ctranslate2"):
        ours = Translator(tmp_path / name).translate(lines, beam=4, lenpen=0.0)
        different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        assert all(translation == "" for _, translation in different)  # ours has words
        assert len(different) < 5


@pytest.mark.slow
def test_bart_translates_as_generate_does(tmp_path):
    folder = originals.bart(tmp_path / "folder", updates=500, d_model=32)
    take_back(folder, tmp_path / "out")
    lines = [line for line, _ in originals.sentence_pairs(20, seed=7)]
    ours = Translator(tmp_path / "out").translate(lines, beam=4, lenpen=0.0)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = []
    for line in lines:
        outputs = model.generate(
            **tokenizer(line, return_tensors="pt"), num_beams=4, early_stopping=True,
            max_length=38, length_penalty=0.0,
        )  # fmt: skip
        theirs.append(tokenizer.decode(outputs[0], skip_special_tokens=True))
    assert len(set(theirs)) > 3
    assert ours == theirs


def gpt2_bpe(out: Path) -> GPT2BPE:
    """fairseq's encoder of an imported model's texts."""
    paths = {"gpt2_encoder_json": "encoder.json", "gpt2_vocab_bpe": "vocab.bpe"}
    return GPT2BPE(GPT2BPEConfig(**{name: str(out / file) for name, file in paths.items()}))


def generate(folder: Path, out: Path, lines: list[str]) -> list[str]:
    """Translations by transformers, with a beam of 4 that stops as fairseq's search does.

    The subwords are those of the imported model in ``out``: transformers' tokenizers of the tests
    have no real scores or merges.
    """
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    description = read_model_json(out)
    marks = description.all_directions.frame(*description.languages)
    pieces, decoder = description.tokenizers
    options, special = {}, {"</s>", "<pad>"}
    if marks.target_prefix or marks.target_start != "</s>":
        [tag] = marks.target_prefix or [marks.target_start]
        special.add(tag)
        name = "forced_bos_token_id" if marks.target_prefix else "decoder_start_token_id"
        options[name] = tokenizer.convert_tokens_to_ids(tag)
    translations = []
    for line in lines:
        words = [*marks.source_prefix, *pieces.encode(line), *marks.source_end]
        ids = torch.tensor([tokenizer.convert_tokens_to_ids(words)])
        outputs = model.generate(
            ids, num_beams=4, early_stopping=True, length_penalty=0.0, max_length=38,
            min_new_tokens=1, **options,
        )  # fmt: skip
        tokens = tokenizer.convert_ids_to_tokens(outputs[0])
        translations.append(decoder.decode([token for token in tokens if token not in special]))
    return translations


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("build", [originals.marian, originals.bert])
def test_the_licence_of_the_original_is_kept(build, tmp_path):
    folder = build(tmp_path / "folder")
    (folder / "README.md").write_text("---\nlanguage: x\nlicense: 'cc-by-nc-4.0'\n---\n# Model\n")
    take_back(folder, tmp_path / "out")
    subwords = ["--subwords", "none"] if build is originals.bert else []
    export(tmp_path / "out" / "model.pt", tmp_path / "hf", "--data", tmp_path / "out", *subwords)
    card = ModelCard.load(tmp_path / "hf" / "README.md")
    assert card.data.license == "cc-by-nc-4.0"
    assert "`cc-by-nc-4.0`, the licence of the model from which this model was" in card.text
    take_back(tmp_path / "hf", tmp_path / "back")
    kept = [path.read_text() for path in (tmp_path / "back").glob("m*.json")]
    assert any('"license": "cc-by-nc-4.0"' in text for text in kept)


def test_a_licence_is_a_name(tmp_path):
    for top in ("license: a b\n---\n", "licence: mit\n---\n", "x\n---\nlicense: mit\n"):
        (tmp_path / "README.md").write_text("---\n" + top)
        assert read_license(tmp_path) is None
    (tmp_path / "README.md").write_bytes(b"\xff" * 9)
    assert read_license(tmp_path) is None
    (tmp_path / "README.md").unlink()
    assert read_license(tmp_path) is None


def test_weights_in_pytorch_s_format_are_read_as_data(marian_folder, tmp_path):
    shutil.copytree(marian_folder, tmp_path / "folder")
    (tmp_path / "folder" / "model.safetensors").unlink()
    path = tmp_path / "folder" / "pytorch_model.bin"
    state = transformers.MarianMTModel.from_pretrained(marian_folder).state_dict()
    torch.save({name: x.half() for name, x in state.items()}, path)  # as OPUS-MT's are
    take_back(tmp_path / "folder", tmp_path / "out")
    torch.save({"weight": Touch(tmp_path / "touched")}, path)
    assert "is refused" in refused(take_back, tmp_path / "folder", tmp_path / "other")
    assert not (tmp_path / "touched").exists()
    torch.save({"weights": {"weight": torch.ones(2)}}, path)
    assert "weights is not a tensor" in refused(take_back, tmp_path / "folder", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"normalize_before": True}, "has normalize_before True, but fairseq's model has False"),
        ({"activation_function": "mish"}, "has activation_function mish, but fairseq's model has"),
        ({"is_decoder": True}, "has is_decoder True, but fairseq's model has False"),
        ({"encoder_layers": -1}, "encoder_layers must be from 0 to 16,384, but is -1"),
        ({"encoder_layers": 10**4}, "is not valid"),
        (
            {"max_position_embeddings": 10**9},
            "max_position_embeddings must be from 0 to 65,536, but",
        ),
        ({"vocab_size": 20}, "is not valid"),
        ({"eos_token_id": 1}, "has eos_token_id 1 in config.json, but the id 0 in its vocabulary"),
        ({"d_model": 24}, "is not valid"),
        ({"d_model": "x"}, "is not valid"),
    ],
)
def test_an_option_that_fairseq_s_model_lacks_is_refused(change, says, marian_folder, tmp_path):
    shutil.copytree(marian_folder, tmp_path / "folder")
    path = tmp_path / "folder" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert says in refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("vocab.json", "[]", "vocab.json: must be a valid dictionary, but is []"),
        ("vocab.json", '{"</s>": 0, "<unk>": 1}', "the vocabulary lacks the token <pad>"),
        ("vocab.json", '{"</s>": 0, "<unk>": 0}', "'<unk>' has the id 0, but ids must differ"),
        ("vocab.json", '{"</s>": 0, "a": 999}', "'a' has the id 999, but ids must differ and be b"),
        ("vocab.json", '{"</s>": "0"}', "must be a valid integer"),
        ("source.spm", None, "source.spm can't be read"),
        ("generation_config.json", '{"num_beams": 0}', "beam must be greater"),
        ("generation_config.json", '{"num_beams": "x"}', "num_beams must be a valid integer"),
        ("tokenizer_config.json", '{"source_lang": "../x"}', "source_lang must be a language"),
    ],
)
def test_a_damaged_text_file_is_named(name, content, says, marian_folder, tmp_path):
    shutil.copytree(marian_folder, tmp_path / "folder")
    path = tmp_path / "folder" / name
    path.unlink() if content is None else path.write_text(content)
    assert says in refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


def test_missing_parameters_are_named(marian_folder, tmp_path):
    shutil.copytree(marian_folder, tmp_path / "folder")
    path = tmp_path / "folder" / "model.safetensors"
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    del tensors["model.encoder.layers.0.fc1.bias"]
    save_file(tensors, path)
    text = refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert "weights lack model.encoder.layers.0.fc1.bias: give a complete folder" in text


def test_a_model_that_computes_something_else_is_refused(marian_folder, tmp_path, monkeypatch):
    class WithoutStart(Marian):
        def convert(self, tensors, vocabularies, config):
            state = super().convert(tensors, vocabularies, config)
            state["decoder.embed_positions.weight"] = state["encoder.embed_positions.weight"]
            return state

    monkeypatch.setitem(FAMILIES, "marian", WithoutStart())
    text = refused(take_back, marian_folder, tmp_path / "out")
    assert "fairseq's model does not reproduce MarianMTModel (outputs differ by " in text
    assert not (tmp_path / "out").exists()


def test_a_difference_that_is_not_a_number_is_refused(tmp_path, monkeypatch):
    """NaN comes after other differences here, where `max` of Python would not see it."""
    forward = DietBertModel.forward

    def forward_with_nan(self, tokens, **options):
        logits, extra = forward(self, tokens, **options)
        has_left_padding = tokens[:, 0].eq(self.encoder.dictionary.pad()).any()
        return (logits * torch.nan if has_left_padding else logits), extra

    monkeypatch.setattr(DietBertModel, "forward", forward_with_nan)
    says = refused(take_back, originals.bert(tmp_path / "folder"), tmp_path / "out")
    assert "does not reproduce BertForPreTraining (outputs differ by nan)" in says

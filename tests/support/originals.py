"""Folders of transformers' own classes: tiny random models with tokenizers, as saved by them."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from sentencepiece import SentencePieceProcessor
from transformers.convert_slow_tokenizer import SentencePieceExtractor
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

import diet_fairseq.hf  # noqa: F401  # hides a torchaudio that transformers can't import
from tests.support.hugging import TEXT
from tests.support.texts import learn_subwords, train_sentencepiece

ENGLISH, GERMAN = TEXT[:2], TEXT[2:]
#: sizes of BART's kin
SIZES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20, "encoder_attention_heads": 2, "decoder_attention_heads": 4,
    "max_position_embeddings": 40,
}  # fmt: skip


def randomize(model: Any, std: float = 0.4) -> Any:
    """The model with random parameters, biases and norms included, but for frozen ones."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=std)
    return model.eval()


def sentence_pairs(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Sentences of English words, and their words in German, in the reversed order."""
    draw = random.Random(seed)
    words = list(zip(" ".join(ENGLISH).split(), " ".join(GERMAN).split(), strict=False))
    pairs = [draw.choices(words, k=draw.randint(1, 5)) for _ in range(count)]
    return [(" ".join(e for e, _ in pair), " ".join(g for _, g in pair[::-1])) for pair in pairs]


def train(model: Any, tokenizer: Any, updates: int) -> None:
    """Train a model of transformers on sentence pairs, far enough for it to end its sentences."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.004)
    torch.manual_seed(1)
    model.train()
    for update in range(updates):
        sources, targets = map(list, zip(*sentence_pairs(16, seed=update), strict=True))
        batch = tokenizer(sources, text_target=targets, return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.eval()


def save(model: Any, tokenizer: Any, folder: Path, updates: int = 0) -> Path:
    if updates:
        train(randomize(model, 0.1), tokenizer, updates)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def marian(
    folder: Path,
    separate: bool = False,
    updates: int = 0,
    languages: Iterable[str] = (),
    **options: Any,
) -> Path:
    """A Marian model: </s> and <unk> come first in its vocabulary, <pad> last.

    Args:
        separate: whether source and target have their own vocabularies
        languages: target languages with a tag
    """
    folder.mkdir()
    models, vocabularies = [], []
    for side, text in (("source", ENGLISH), ("target", GERMAN)):
        path = learn_subwords(folder / f"{side}.spm", "sentencepiece", text * 5, 60)
        model = SentencePieceProcessor(model_file=str(path))
        models.append(str(path))
        vocabularies.append([model.id_to_piece(n) for n in range(3, model.get_piece_size())])
    words = vocabularies if separate else [[*vocabularies[0], *vocabularies[1]]]
    files = ["vocab.json", "target_vocab.json"]
    for name, pieces in zip(files, words, strict=False):
        symbols = dict.fromkeys(
            ["</s>", "<unk>", *(f">>{n}<<" for n in languages), *pieces, "<pad>"]
        )
        (folder / name).write_text(json.dumps({word: n for n, word in enumerate(symbols)}))
    tokenizer_class: Any = transformers.MarianTokenizer
    tokenizer = tokenizer_class(
        *models, str(folder / files[0]), str(folder / files[1]) if separate else None,
        source_lang="en", target_lang="de", separate_vocabs=separate,
    )  # fmt: skip
    pad = len(tokenizer.encoder) - 1
    sizes = {"vocab_size": pad + 1, "pad_token_id": pad, "decoder_start_token_id": pad}
    if separate:
        sizes["decoder_vocab_size"] = len(tokenizer.target_encoder)
        sizes["decoder_start_token_id"] = len(tokenizer.target_encoder) - 1
    known = {"activation_function": "swish", "scale_embedding": True,
             "share_encoder_decoder_embeddings": not separate}  # fmt: skip
    values: dict[str, Any] = SIZES | sizes | known | options
    config = transformers.MarianConfig(**values)
    marian_model = randomize(transformers.MarianMTModel(config))
    marian_model.final_logits_bias.normal_()
    marian_model.generation_config.update(num_beams=4, max_length=38, bad_words_ids=[[pad]])
    return save(marian_model, tokenizer, folder, updates)


def pieces_with_offset(
    folder: Path, size: int = 70, kind: str = "bpe", text: Iterable[str] = TEXT * 5
) -> list[str]:
    """fairseq's marks, then the pieces of a new SentencePiece model of both languages.

    Args:
        kind: SentencePiece's model type: "bpe" in M2M-100 and NLLB, "unigram" in mBART and XLM-R
    """
    path = folder / "sentencepiece.bpe.model"
    path.write_bytes(train_sentencepiece(text, size, model_type=kind, character_coverage=1.0))
    model = SentencePieceProcessor(model_file=str(path))
    pieces = [model.id_to_piece(number) for number in range(3, model.get_piece_size())]
    return ["<s>", "<pad>", "</s>", "<unk>", *pieces]


def scored_pieces(folder: Path, others: Iterable[str]) -> list[tuple[str, float]]:
    """Pieces of a new unigram model with their scores, and ``others`` with the score 0."""
    pieces = pieces_with_offset(folder, kind="unigram")
    model = SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    scores = [0.0] * 4 + [model.get_score(n) for n in range(3, model.get_piece_size())]
    return [*zip(pieces, scores, strict=True), *((token, 0.0) for token in others)]


def characters(folder: Path) -> bytes:
    """The SentencePiece model's normalisation of characters."""
    extractor = SentencePieceExtractor(str(folder / "sentencepiece.bpe.model"))
    return bytes(extractor.proto.normalizer_spec.precompiled_charsmap)


def m2m_100(folder: Path, updates: int = 0, **options: Any) -> Path:
    """M2M-100, whose languages follow the pieces of ``vocab.json``, and 8 made-up words those."""
    folder.mkdir()
    words = pieces_with_offset(folder)
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    tokenizer = transformers.M2M100Tokenizer(
        str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"),
        src_lang="en", tgt_lang="de",
    )  # fmt: skip
    return multilingual(folder, tokenizer, len(words) + 100 + 8, updates, **options)


def nllb(
    folder: Path,
    updates: int = 0,
    languages: Iterable[str] = NLLB_CODES,
    size: int = 70,
    text: Iterable[str] = TEXT * 5,
    **options: Any,
) -> Path:
    """NLLB, whose tokens are in ``tokenizer.json``: pieces, then languages, then ``<mask>``.

    Args:
        size: number of pieces, which SentencePiece learns from ``text``
    """
    folder.mkdir()
    words = [*pieces_with_offset(folder, size, text=text), *languages, "<mask>"]
    path = str(folder / "sentencepiece.bpe.model")
    extracted: Any = SentencePieceExtractor(path).extract(tokenizers.models.BPE)
    tokenizer_class: Any = transformers.NllbTokenizer
    tokenizer = tokenizer_class(
        vocab={word: n for n, word in enumerate(words)}, merges=extracted["merges"],
        _spm_precompiled_charsmap=extracted["_spm_precompiled_charsmap"],
        additional_special_tokens=[*languages], src_lang="eng_Latn", tgt_lang="deu_Latn",
    )  # fmt: skip
    return multilingual(folder, tokenizer, len(words) + 2, updates, **options)


def multilingual(folder: Path, tokenizer: Any, size: int, updates: int, **options: Any) -> Path:
    """A model of the class of M2M-100 and NLLB."""
    values: dict[str, Any] = SIZES | {"vocab_size": size, "scale_embedding": True} | options
    model = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**values))
    return save(randomize(model), tokenizer, folder, updates)


def mbart(folder: Path, updates: int = 0, **options: Any) -> Path:
    """mBART, with its languages and ``<mask>`` after the pieces."""
    folder.mkdir()
    vocabulary = scored_pieces(folder, [*MBART_CODES, "<mask>"])
    tokenizer_class: Any = transformers.MBartTokenizer
    tokenizer = tokenizer_class(vocab=vocabulary, src_lang="en_XX", tgt_lang="de_DE")
    values: dict[str, Any] = SIZES | {"vocab_size": len(tokenizer), "scale_embedding": True}
    config = transformers.MBartConfig(**values | options)
    model = randomize(transformers.MBartForConditionalGeneration(config))
    return save(model, tokenizer, folder, updates)


#: sizes of BERT's kin
ENCODER_SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 34,
}  # fmt: skip


def xlm_roberta(folder: Path, head: str = "ForMaskedLM", **options: Any) -> Path:
    """XLM-R, with ``<mask>`` after the pieces."""
    folder.mkdir()
    words = scored_pieces(folder, ["<mask>"])
    tokenizer_class: Any = transformers.XLMRobertaTokenizer
    tokenizer = tokenizer_class(vocab=words, _spm_precompiled_charsmap=characters(folder))
    values: dict[str, Any] = ENCODER_SIZES | {"vocab_size": len(words), "type_vocab_size": 1}
    model_class = getattr(transformers, f"XLMRoberta{head}")
    model = randomize(model_class(transformers.XLMRobertaConfig(**values | options)))
    return save(model, tokenizer, folder)


def bart(folder: Path, updates: int = 0, **options: Any) -> Path:
    """BART, with RoBERTa's vocabulary, and ``<s>`` as its forced first token."""
    folder.mkdir()
    tokenizer = byte_level(folder, transformers.BartTokenizer)
    values: dict[str, Any] = SIZES | {"vocab_size": len(tokenizer)} | options
    model = randomize(transformers.BartForConditionalGeneration(transformers.BartConfig(**values)))
    model.generation_config.update(forced_bos_token_id=0)
    return save(model, tokenizer, folder, updates)


def byte_level(folder: Path, tokenizer_class: Any) -> Any:
    """A tokenizer with a byte-level BPE of the texts, two made-up words and ``<mask>``."""
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXT * 5, 300, show_progress=False)
    bpe.save_model(str(folder))
    pieces = sorted(bpe.get_vocab(), key=bpe.get_vocab().__getitem__)
    words = ["<s>", "<pad>", "</s>", "<unk>", *pieces[::-1], "<|endoftext|>"]
    words += ["madeupword0000", "madeupword0001", "<mask>"]
    vocabulary = {word: n for n, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    lines = (folder / "merges.txt").read_text().splitlines()[1:]
    return tokenizer_class(vocab=vocabulary, merges=[tuple(line.split()) for line in lines])


def roberta(folder: Path, head: str = "ForMaskedLM", **options: Any) -> Path:
    """RoBERTa."""
    folder.mkdir()
    tokenizer = byte_level(folder, transformers.RobertaTokenizer)
    values: dict[str, Any] = ENCODER_SIZES | {"vocab_size": len(tokenizer), "type_vocab_size": 1}
    model_class = getattr(transformers, f"Roberta{head}")
    model = randomize(model_class(transformers.RobertaConfig(**values | options)))
    return save(model, tokenizer, folder)


def electra(folder: Path, head: str = "ForMaskedLM", text: Any = None, **options: Any) -> Path:
    """ELECTRA, with BERT's vocabulary and narrower embeddings.

    Args:
        text: the arguments of `word_pieces`
    """
    folder.mkdir()
    tokenizer = word_pieces(folder, **text or {})
    values: dict[str, Any] = ENCODER_SIZES | {"embedding_size": 8, "vocab_size": len(tokenizer)}
    model_class = getattr(transformers, f"Electra{head}")
    model = randomize(model_class(transformers.ElectraConfig(**values | options)))
    return save(model, tokenizer, folder)


def bert(folder: Path, head: str = "ForPreTraining", text: Any = None, **options: Any) -> Path:
    """BERT.

    Args:
        text: the arguments of `word_pieces`
    """
    folder.mkdir()
    tokenizer = word_pieces(folder, **text or {})
    values: dict[str, Any] = ENCODER_SIZES | {"vocab_size": len(tokenizer)} | options
    model_class = getattr(transformers, f"Bert{head}")
    return save(randomize(model_class(transformers.BertConfig(**values))), tokenizer, folder)


def distilbert(folder: Path, head: str = "ForMaskedLM", **options: Any) -> Path:
    """DistilBERT, with BERT's vocabulary."""
    folder.mkdir()
    tokenizer = word_pieces(folder)
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    values: dict[str, Any] = sizes | {"max_position_embeddings": 34, "vocab_size": len(tokenizer)}
    model_class = getattr(transformers, f"DistilBert{head}")
    model = randomize(model_class(transformers.DistilBertConfig(**values | options)))
    return save(model, tokenizer, folder)


def multilingual_minilm(folder: Path) -> Path:
    """A folder with the keys of paraphrase-multilingual-MiniLM-L12-v2 and multilingual-e5-small: a
    BERT without a head, with XLM-R's tokenizer, 35 ids without a token, and BERT's id of padding.
    """
    xlm_roberta(folder, "Model")
    config = json.loads((folder / "config.json").read_text())
    values: dict[str, Any] = ENCODER_SIZES | {
        "vocab_size": config["vocab_size"] + 35,
        "tokenizer_class": "XLMRobertaTokenizer",
    }
    model = transformers.BertModel(transformers.BertConfig(**values))
    randomize(model).save_pretrained(folder)
    return folder


def sentence_transformer(folder: Path, more: Iterable[str] = ("Normalize",)) -> Path:
    """A folder with the files and keys of all-MiniLM-L6-v2: a BERT without a head, and modules.

    Args:
        more: the classes of the modules after ``Pooling``
    """
    bert(folder, "Model")
    path = folder / "config.json"
    values = json.loads(path.read_text())
    for name in ("dtype", "add_cross_attention", "is_decoder", "tie_word_embeddings"):
        values.pop(name, None)
    values |= {"gradient_checkpointing": False, "position_embedding_type": "absolute",
               "torch_dtype": "float32", "transformers_version": "4.33.3"}  # fmt: skip
    path.write_text(json.dumps(values))
    state = transformers.BertModel.from_pretrained(folder).state_dict()
    positions = torch.arange(ENCODER_SIZES["max_position_embeddings"])[None]
    weights = {"embeddings.position_ids": positions, **state}
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    kinds = ["Transformer", "Pooling", *more]
    paths = ["", *(f"{n}_{kind}" for n, kind in enumerate(kinds) if n)]
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    pooling = {"word_embedding_dimension": 16, "pooling_mode_cls_token": False,
               "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
               "pooling_mode_mean_sqrt_len_tokens": False}  # fmt: skip
    versions = {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}
    (folder / "1_Pooling").mkdir()
    for name, content in {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 32, "do_lower_case": False},
        "config_sentence_transformers.json": {"__version__": versions},
        "1_Pooling/config.json": pooling,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2))
    return folder


def word_pieces(folder: Path, more: Iterable[str] = (), **options: Any) -> Any:
    """A tokenizer with words in BERT's published order: [PAD], unused ones, [UNK], [CLS].

    Args:
        more: further word pieces
        options: the options of case, accents and Chinese characters
    """
    words = dict.fromkeys(word for line in TEXT for word in (*line.split(), *line, "##e", "##s"))
    words |= dict.fromkeys(more)
    marks = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: n for n, word in enumerate([*marks, *words])}
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
    tokenizer_class: Any = transformers.BertTokenizer
    return tokenizer_class(vocab=vocabulary, **options)

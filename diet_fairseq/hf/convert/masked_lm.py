"""Descriptions of masked language models for `import hf`: BERT and its relatives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from fairseq.data.data_utils import collate_tokens

from ...export.comparison import Pair, random_sentences
from ...files import read_text
from ..families import (
    BODY,
    HEAD,
    BertFamily,
    DistilBertFamily,
    ElectraFamily,
    EncoderFamily,
    RobertaFamily,
    State,
    XLMRobertaFamily,
)
from .family import GENERIC, Family
from .vocabulary import (
    ADVICE,
    MASK,
    ByteLevelBPE,
    UnigramPieces,
    Vocabulary,
    read_added_tokens,
    read_pieces,
)

#: fairseq's symbols -> BERT's
BERT_SPECIAL = {"<s>": "[CLS]", "<pad>": "[PAD]", "</s>": "[SEP]", "<unk>": "[UNK]",
                MASK: "[MASK]"}  # fmt: skip


class MaskedLM(EncoderFamily, Family):
    """An encoder with BERT's names."""

    token_tables: ClassVar = dict.fromkeys(
        (f"{BODY}embed_tokens.weight", f"{HEAD}weight", f"{HEAD}bias"), 0
    )

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        positions = self.num_positions(config)
        return super().fairseq_options(config, tensors) | {
            "max_positions": positions,
            "tokens_per_sample": positions,
            "untie_weights_roberta": not config.tie_word_embeddings,
            "no_lm_head": self.is_headless(tensors),
        }

    @torch.no_grad()
    def output_pairs(
        self, model: Any, reference: Any, vocabularies: list[Vocabulary]
    ) -> list[Pair]:
        """The last layer's features, logits and pooled features; see `Family.output_pairs`.

        transformers reads random sentences with padding on the right, fairseq with padding on
        either side, because transformers' BERT counts padding on the left as positions.
        """
        [vocabulary], dictionary = vocabularies, model.encoder.dictionary
        pad, ids = dictionary.pad(), torch.tensor(vocabulary.ids)
        longest = min(model.max_positions(), 24)
        draw = torch.Generator().manual_seed(1)
        words = torch.arange(dictionary.nspecial, len(ids))
        sentences = random_sentences(words, (longest, max(1, longest // 2), 1), draw)
        config = reference.config
        kinds = getattr(config, "type_vocab_size", 1)
        segments = [torch.randint(kinds, (len(s),), generator=draw).sort()[0] for s in sentences]
        pairs = []
        for left_pad in (False, True):
            tokens = collate_tokens(sentences, pad, left_pad=left_pad)  # (B, T)
            types = collate_tokens(segments, 0, left_pad=left_pad)
            real = tokens.ne(pad)
            if not left_pad:
                # DistilBERT has no segments
                inputs = {"token_type_ids": types} if hasattr(config, "type_vocab_size") else {}
                out = reference(
                    input_ids=ids[tokens],
                    attention_mask=real.long(),
                    output_hidden_states=True,
                    **inputs,
                )
                hidden = out.hidden_states[-1]  # (B, T, d)
                logits_there, features_there = out[0][real][:, ids], hidden[real]
            options = {"segments": types} if kinds > 1 else {}
            features, extra = model(tokens, features_only=True, **options)  # (B, T, d)
            pairs.append((features[real], features_there))
            if model.encoder.lm_head is not None:
                logits = model(tokens, **options)[0]  # (B, T, V)
                pairs.append((logits[real], logits_there))
            if (pooler := getattr(reference.base_model, "pooler", None)) is not None:
                first = model.pooler(model.first_tokens(features, tokens))  # (B, d)
                pairs.append((model.activation(first), pooler(hidden)))
            if (follows := extra.get("nsp_logits")) is not None:  # (B, 2)
                pairs.append((follows, out.seq_relationship_logits.flip(1)))
        return pairs


class Bert(BertFamily, MaskedLM):
    """Segments at the input, a pooler, and the two next-sentence classes in reverse order.

    The multilingual MiniLM and E5 are BERTs with the tokenizer of XLM-R.
    """

    headless_class = "BertForMaskedLM"
    tokenizer_classes: ClassVar[tuple[str, ...]] = (
        "BertTokenizer",
        "XLMRobertaTokenizer",
        *GENERIC,
    )
    optional = r"bert\.pooler\..*|cls\.seq_relationship\..*"
    heads = r"cls\.seq_relationship\..*"

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        return super().fairseq_options(config, tensors) | {
            "num_segments": config.type_vocab_size,
            "nsp": "cls.seq_relationship.weight" in tensors,
        }

    def symbols(self, folder: Path) -> dict[str, str]:
        if is_of_xlm_r(read_words(folder)):
            return {}
        return {token: symbol for symbol, token in BERT_SPECIAL.items()}

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        words = read_words(folder)
        special = {MASK: MASK} if is_of_xlm_r(words) else BERT_SPECIAL
        return [Vocabulary.from_tokens(words, config.vocab_size, special)]

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        return flip_classes(super().convert(tensors, vocabularies, config))

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        return flip_classes(super().restore(state, vocabularies, config))

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        """Write the file of ``--bpe bert --bpe-vocab-file``, or XLM-R's SentencePiece model."""
        words = read_words(folder)
        if is_of_xlm_r(words):
            return super().write_text(folder, out)
        tokens = sorted((number, token) for token, number in words.items())
        path = out / "vocab.txt"
        path.write_text("".join(f"{t}\n" for _, t in tokens), encoding="utf-8")
        return {"subwords": "wordpiece", "subword_model": path}


def flip_classes(state: State) -> State:
    """The state with the two next-sentence classes exchanged."""
    names = {"nsp_head.weight", "nsp_head.bias"} & state.keys()
    return state | {name: state[name].flip(0) for name in names}


def is_of_xlm_r(words: Mapping[str, int]) -> bool:
    """Whether a vocabulary has the special tokens of XLM-R's tokenizer, and not BERT's."""
    return "<pad>" in words and "[PAD]" not in words


def read_words(folder: Path) -> dict[str, int]:
    """The ids of words and word pieces in ``vocab.txt``, or else in ``tokenizer.json``."""
    path = folder / "vocab.txt"
    if not path.exists():
        return read_pieces(folder)
    lines = read_text(path, ADVICE).removesuffix("\n").split("\n")
    words = {line.rstrip("\r"): number for number, line in enumerate(lines)}
    return words | read_added_tokens(folder)


class Electra(ElectraFamily, Bert):
    """BERT with narrower embeddings and no pooler; only the generator has a language-model head.

    A discriminator is imported without its head.
    """

    tokenizer_classes: ClassVar[tuple[str, ...]] = ("BertTokenizer", "ElectraTokenizer", *GENERIC)
    optional = r"(?!)"
    heads = r"(?!)"
    untrained = r"pooler\..*"

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        options = super().fairseq_options(config, tensors)
        if config.embedding_size != config.hidden_size:
            options["embedding_size"] = config.embedding_size
        return options

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().convert(tensors, vocabularies, config)
        width, draw = config.hidden_size, torch.Generator().manual_seed(1)
        pooler = torch.randn(width, width, generator=draw) * config.initializer_range
        return state | {"pooler.weight": pooler, "pooler.bias": torch.zeros(width)}


class DistilBert(DistilBertFamily, Bert):
    """BERT without segments and pooler."""

    tokenizer_classes: ClassVar[tuple[str, ...]] = (
        "DistilBertTokenizer",
        "BertTokenizer",
        *GENERIC,
    )
    optional = r"(?!)"
    heads = r"(?!)"

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        return MaskedLM.fairseq_options(self, config, tensors)


class XLMRoberta(UnigramPieces, XLMRobertaFamily, MaskedLM):
    """RoBERTa with SentencePiece's pieces; the only token type is added to the positions."""

    tokenizer_classes: ClassVar[tuple[str, ...]] = ("XLMRobertaTokenizer", *GENERIC)

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        return [Vocabulary.from_tokens(read_pieces(folder), config.vocab_size, {MASK: MASK})]

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().restore(state, vocabularies, config)
        kind = torch.zeros(config.type_vocab_size, config.hidden_size)  # added to the positions
        return state | {f"{BODY}embed_segments.weight": kind}


class Roberta(ByteLevelBPE, RobertaFamily, XLMRoberta):
    """RoBERTa, whose dictionary contains GPT-2's numbers of pieces instead of pieces."""

    tokenizer_classes: ClassVar[tuple[str, ...]] = ("RobertaTokenizer", *GENERIC)

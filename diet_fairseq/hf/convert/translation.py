"""Descriptions of translation models for `import hf`: BART, mBART, M2M-100, NLLB and Marian."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from fairseq.data.data_utils import collate_tokens
from pydantic import BaseModel, StrictInt
from torch import Tensor
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_CODES
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_CODES
from transformers.models.mbart50.tokenization_mbart50 import (
    FAIRSEQ_LANGUAGE_CODES as MBART50_CODES,
)
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

from ...errors import UserError, one_line
from ...export.comparison import Pair, random_sentences
from ...files import MAX_VOCABULARY_BYTES, check_regular, read_json_object
from ...text.subwords import TARGET as TARGET_PREFIX
from ...text.subwords import copy_subwords
from ...translate.directions import EOS, LANGUAGE, SOURCE, TARGET, Directions, Framing
from ..families import (
    BIAS,
    BartFamily,
    M2M100Family,
    MarianFamily,
    MBartFamily,
    State,
    TranslationFamily,
)
from .family import GENERIC, Family, Texts, read_texts
from .vocabulary import (
    ADVICE,
    SPECIAL,
    ByteLevelBPE,
    UnigramPieces,
    Vocabulary,
    read_added_tokens,
    read_pieces,
    read_tokens,
)

#: the bias of a symbol without an id is the smallest bias minus this number: its probability is
#: negligible in float32, and the label-smoothed loss stays finite
UNUSED = 30.0

#: both languages' tags come first, as in M2M-100
TAGGED = Framing(source_prefix=(SOURCE,), target_prefix=(TARGET,))


class StartTokens(BaseModel):
    """The first tokens of a translation by a folder's ``generation_config.json``."""

    decoder_start_token_id: StrictInt | None = None
    forced_bos_token_id: StrictInt | None = None


def read_start_tokens(folder: Path) -> StartTokens:
    """The tokens in ``config.json``, or in ``generation_config.json``, which has priority."""
    values: dict[str, Any] = {}
    for name in ("config.json", "generation_config.json"):
        if (folder / name).exists():
            tokens = read_json_object(folder / name, StartTokens, advice=ADVICE)
            values |= tokens.model_dump(exclude_none=True)
    return StartTokens(**values)


class Translation(TranslationFamily, Family):
    """An encoder and a decoder with BART's names."""

    token_tables: ClassVar = {
        "encoder.embed_tokens.weight": 0,
        "decoder.embed_tokens.weight": -1,
        "decoder.output_projection.weight": -1,
    }
    optional = "final_logits_bias"
    #: the pattern of a language's tag, whose last group is the language
    tag: ClassVar[str] = r"(?!)"
    #: class of the tokenizer -> its source language if the folder names none
    default_sources: ClassVar[dict[str, str]] = {}

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        shares_all = getattr(config, "share_encoder_decoder_embeddings", True)
        return super().fairseq_options(config, tensors) | {
            "no_scale_embedding": not config.scale_embedding,
            "share_all_embeddings": shares_all and config.tie_word_embeddings,
            "share_decoder_input_output_embed": config.tie_word_embeddings,
        }

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state, target = super().convert(tensors, vocabularies, config), vocabularies[-1]
        bias = state.pop(BIAS, None)
        if self.options.get("decoder_output_bias"):
            bias = torch.zeros(max(target.ids) + 1) if bias is None else bias.flatten()
            state[BIAS] = target.rows(bias, float(bias.min()) - UNUSED)
        elif bias is not None and bias.any():
            state[BIAS] = bias  # which fairseq's model refuses
        return state

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().restore(state, vocabularies, config)
        if BIAS in state:
            state[BIAS] = vocabularies[-1].original_rows(state[BIAS])[None]
        return state

    def start(self, texts: Texts, number: int | None, target: Vocabulary) -> str | None:
        """The symbol of fairseq's decoder's first input; None: fairseq's model has none.

        Args:
            number: ``decoder_start_token_id``
        """
        is_eos = number is None or target.symbols[target.ids.index(number)] == EOS
        return EOS if is_eos else None

    def check_start(
        self, texts: Texts, number: int | None, target: Vocabulary, folder: Path
    ) -> None:
        """Refuse a ``decoder_start_token_id`` that the imported model can't start with."""
        size = max(target.ids) + 1
        if number is not None and (number < 0 or number not in target.ids):
            raise UserError(
                f"{folder}'s decoder_start_token_id must be an id from 0 to {size - 1:,}, but is "
                f"{number} (in generation_config.json, in config.json, or by default): set it to "
                "the token that the model was trained with"
            )
        if self.start(texts, number, target) is None:
            token = target.symbols[target.ids.index(number or 0)]
            raise UserError(
                f"{folder}'s decoder_start_token_id is {number} ({one_line(token)}), but must be "
                f"{EOS} (or a language, with MBartTokenizer) for a {self.tokenizer_class(texts)}: "
                f"{ADVICE}"
            )

    def default_languages(
        self, texts: Texts, directions: Directions | None, tokens: StartTokens, target: Vocabulary
    ) -> tuple[str, str]:
        """The tokenizer's source language, and the language of the folder's first tokens, or ""."""
        source = self.default_sources.get(self.tokenizer_class(texts), "")
        ids = dict(zip(target.symbols, target.ids, strict=True))
        tags = directions.tags if directions else {}
        first = (tokens.forced_bos_token_id, tokens.decoder_start_token_id)
        return source, next((name for name, tag in tags.items() if ids.get(tag) in first), "")

    def known_tokens(self, tokens: dict[str, int], size: int) -> dict[str, int]:
        """The tokens without the languages that the model's vocabulary of ``size`` ids lacks.

        transformers' tokenizers add all languages of their class to a trimmed vocabulary.
        """
        return {
            token: number
            for token, number in tokens.items()
            if number < size or not re.fullmatch(self.tag, token)
        }

    def framing(self, texts: Texts) -> Framing:
        """The places of the languages' tags."""
        return TAGGED

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """The directions of a model whose vocabulary has language tags; None without tags."""
        tags = {}
        for symbol in vocabularies[0].symbols:
            match = re.fullmatch(self.tag, symbol)
            language = match[match.lastindex or 0] if match else ""
            if LANGUAGE.fullmatch(language):
                tags[language] = symbol
        return Directions(tags, framing=self.framing(texts)) if len(tags) > 1 else None

    @torch.no_grad()
    def output_pairs(
        self, model: Any, reference: Any, vocabularies: list[Vocabulary]
    ) -> list[Pair]:
        """Log-probabilities; see `Family.output_pairs`.

        transformers reads random sentences with padding on the right, fairseq with padding on
        either side, because some classes of transformers count padding on the left as positions.
        """
        source, target = vocabularies[0], vocabularies[-1]
        number = reference.config.decoder_start_token_id
        start = self.start(Texts(), number, target) or EOS
        pad, eos = model.encoder.dictionary.pad(), model.encoder.dictionary.eos()
        longest = min(model.encoder.max_positions(), model.decoder.max_positions(), 24)
        lengths = [max(1, longest - 1), max(1, longest // 2), 1]
        draw = torch.Generator().manual_seed(1)
        sides = []
        for vocabulary in (source, target):
            words = (torch.tensor(vocabulary.ids) >= 0).nonzero()[:, 0]
            words = words[words > eos] if len(words) > eos + 1 else words
            sides.append(random_sentences(words, lengths, draw, [eos]))
        sources, targets = sides[0], sides[1][::-1]
        inputs = collate_tokens(sources, pad)  # (B, S)
        previous = collate_tokens([sentence.roll(1) for sentence in targets], pad)  # (B, T)
        previous[:, 0] = target.symbols.index(start)
        their_previous = torch.tensor(target.ids)[previous]
        if number is not None:
            their_previous[:, 0] = number
        expected = reference(
            input_ids=torch.tensor(source.ids)[inputs],
            attention_mask=inputs.ne(pad).long(),
            decoder_input_ids=their_previous,
        ).logits.log_softmax(-1)  # (B, T, V)
        known = torch.tensor(target.ids) >= 0
        expected = expected[..., torch.tensor(target.ids)[known]][previous.ne(pad)]
        pairs = []
        for left_pad in (False, True):
            batch = collate_tokens(sources, pad, left_pad=left_pad)
            logits, _ = model(batch, batch.ne(pad).sum(1), previous)  # (B, T, V')
            pairs.append((logits.log_softmax(-1)[..., known][previous.ne(pad)], expected))
        return pairs


def default_direction(
    texts: Texts, directions: Directions | None, defaults: tuple[str, str] = ("", "")
) -> tuple[str, str]:
    """The folder's languages, or defaults that fit the dictionaries' names or the tags.

    Args:
        defaults: source and target language if the folder's tokenizer names none
    """
    source = (texts.source_lang or texts.src_lang or defaults[0]).partition("+")[0]
    target = (texts.target_lang or texts.tgt_lang or defaults[1]).partition("+")[0]
    if directions is None:
        names = source or "source", target or "target"
        return names if names[0] != names[1] else ("source", "target")
    targets = directions.targets
    first = source if source in targets else next(iter(targets))
    return first, target if target in targets[first] else targets[first][0]


class Bart(ByteLevelBPE, BartFamily, Translation):
    """Learned positions, post-norm, LayerNorm after the embeddings, and RoBERTa's dictionary."""

    tokenizer_classes = ("RobertaTokenizer", "BartTokenizer", *GENERIC)

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """The only direction, in which source and target begin with ``<s>``."""
        pair = default_direction(texts, None)
        return Directions({}, (pair,), Framing(source_prefix=("<s>",), target_prefix=("<s>",)))


class MBart(UnigramPieces, MBartFamily, Translation):
    """Learned positions, and LayerNorm before each part and after the embeddings."""

    tokenizer_classes = ("MBartTokenizer", "MBart50Tokenizer")
    tag = r"([a-z]{2,3}_[A-Z]{2})"
    default_sources: ClassVar = {"MBartTokenizer": "en_XX", "MBart50Tokenizer": "en_XX"}

    def start(self, texts: Texts, number: int | None, target: Vocabulary) -> str | None:
        """mBART-25 starts with the tag of a language, which may be the folder's default."""
        if number is not None and self.tokenizer_class(texts) == "MBartTokenizer":
            symbol = target.symbols[target.ids.index(number)]
            if re.fullmatch(self.tag, symbol):
                return symbol
        return super().start(texts, number, target)

    def framing(self, texts: Texts) -> Framing:
        """mBART-50 has M2M-100's framing; mBART-25 ends a source and starts a target with a tag."""
        if self.tokenizer_class(texts) == "MBart50Tokenizer":
            return TAGGED
        return Framing(source_end=(EOS, SOURCE), target_start=TARGET)

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        is_mbart50 = self.tokenizer_class(read_texts(folder)) == "MBart50Tokenizer"
        tokens = read_pieces(folder, MBART50_CODES if is_mbart50 else MBART_CODES)
        tokens = self.known_tokens(tokens, config.vocab_size)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]


class M2M100(M2M100Family, Translation):
    """The model of fairseq's ``translation_multi_simple_epoch``, with fairseq's sinusoids."""

    tokenizer_classes = ("M2M100Tokenizer", "NllbTokenizer")
    tag = r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3})"  # M2M-100's, NLLB's
    default_sources: ClassVar = {"M2M100Tokenizer": "en", "NllbTokenizer": "eng_Latn"}

    def framing(self, texts: Texts) -> Framing:
        if texts.legacy_behaviour:
            return replace(TAGGED, source_prefix=(), source_end=(EOS, SOURCE))
        return TAGGED

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        """The languages of M2M-100 follow ``vocab.json``."""
        texts = read_texts(folder)
        if self.tokenizer_class(texts) == "M2M100Tokenizer":
            tokens = read_tokens(folder / "vocab.json")
            codes = M2M_CODES["wmt21" if texts.language_codes == "wmt21" else "m2m100"]
            languages = (f"__{code}__" for code in codes)
            tokens |= {token: n for n, token in enumerate(languages, len(tokens))}
            tokens = {token: n for token, n in tokens.items() if n < config.vocab_size}
            tokens |= read_added_tokens(folder)
        else:
            tokens = read_pieces(folder, NLLB_CODES)
        tokens = self.known_tokens(tokens, config.vocab_size)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]


class Marian(MarianFamily, Translation):
    """Sinusoids from position 0, a bias of the logits, and a decoder that starts with ``<pad>``.

    Marian's sinusoids have other frequencies than fairseq's, so they become a learned table.
    fairseq's decoder starts with ``</s>``: the decoder's row of position 0 also contains the
    difference between Marian's start token and ``</s>``.
    """

    optional = r"final_logits_bias|.*embed_positions\.weight"
    tokenizer_classes = ("MarianTokenizer",)
    pieces = "source.spm"
    tag = ">>(.+)<<"

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        files = [(folder / "vocab.json", config.vocab_size)]
        if not config.share_encoder_decoder_embeddings:
            target = folder / "target_vocab.json"
            files.append((target if target.exists() else files[0][0], config.decoder_vocab_size))
        words = [(read_tokens(file), size) for file, size in files]
        if len(words) == 1:
            added = read_added_tokens(folder)
            new = {token: number for token, number in added.items() if token not in SPECIAL}
            words[0][0].update(new)
        return [Vocabulary.from_tokens(tokens, size, {}) for tokens, size in words]

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """Directions from all of the folder's source languages.

        The target languages are the ones whose tags the vocabulary has. None with one source
        language and no tags.
        """
        if len(vocabularies) > 1:
            return None
        known = super().directions(texts, vocabularies)
        sources = (texts.source_lang or "source").split("+")
        if known is not None:
            return replace(known, pairs=tuple((s, t) for s in sources for t in known.tags))
        if len(sources) == 1:
            return None
        target = default_direction(texts, None)[1]
        return Directions({}, tuple((source, target) for source in sources))

    def start(self, texts: Texts, number: int | None, target: Vocabulary) -> str | None:
        """`convert` adds the difference of any start token and </s> to position 0."""
        return EOS

    def framing(self, texts: Texts) -> Framing:
        return Framing(source_prefix=(TARGET,))

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        text, target = super().write_text(folder, out), folder / "target.spm"
        check_regular(target, MAX_VOCABULARY_BYTES)
        if target.read_bytes() != (folder / self.pieces).read_bytes():
            copy = copy_subwords("sentencepiece", target, out, TARGET_PREFIX)
            text["target_subword_model"] = copy
        return text

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().convert(tensors, vocabularies, config)
        embeddings = tensors["model.decoder.embed_tokens.weight"]
        state["decoder.embed_positions.weight"][2] += start_difference(embeddings, config)
        return state

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().restore(state, vocabularies, config)
        table = state["decoder.embed_positions.weight"].clone()
        table[0] -= start_difference(state["decoder.embed_tokens.weight"], config)
        return state | {"decoder.embed_positions.weight": table}


def start_difference(embeddings: Tensor, config: Any) -> Tensor:
    """(d,): the decoder's input for Marian's start token minus its input for ``</s>``."""
    start = embeddings[config.decoder_start_token_id] - embeddings[config.eos_token_id]
    scale: float = config.d_model**0.5 if config.scale_embedding else 1.0
    return scale * start

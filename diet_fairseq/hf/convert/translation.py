"""Descriptions of translation models for `import hf`: BART, mBART, M2M-100, NLLB and Marian."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_CODES
from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

from ...files import MAX_VOCABULARY_BYTES, check_regular
from ...text.subwords import TARGET as TARGET_PREFIX
from ...text.subwords import copy_subwords
from ...translate.directions import EOS, LANGUAGE, SOURCE, TARGET, Directions, Marks
from .family import ACTIVATION_NAMES, Family, State, Texts, read_texts
from .vocabulary import BytePairs, Vocabulary, read_pieces, read_tokens

#: the bias of a symbol without an id is the smallest bias minus this number: its probability is
#: negligible in float32, and the label-smoothed loss stays finite
UNUSED = 30.0

#: fairseq's name of the bias of the logits
BIAS = "decoder.output_projection.bias"

#: both languages' tags come first, as in M2M-100
TAGGED = Marks(source_prefix=(SOURCE,), target_prefix=(TARGET,))


class Translation(Family):
    """An encoder and a decoder with BART's names."""

    allowed: ClassVar = {
        "is_encoder_decoder": (True,),
        "is_decoder": (False,),
        "activation_function": tuple(ACTIVATION_NAMES),
    }
    names: ClassVar = {
        r"model\.shared\..*": None,
        r"model\.((?:en|de)coder\..*)": r"\1",
        r"lm_head\.weight": "decoder.output_projection.weight",
        r"final_logits_bias": BIAS,
    }
    option_names: ClassVar = {
        **{
            f"{side}_{name}": f"{side}_{key}"
            for side in ("encoder", "decoder")
            for name, key in {
                "layers": "layers",
                "ffn_embed_dim": "ffn_dim",
                "attention_heads": "attention_heads",
                "layerdrop": "layerdrop",
            }.items()
        },
        "encoder_embed_dim": "d_model",
        "decoder_embed_dim": "d_model",
        "activation_fn": "activation_function",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation_dropout": "activation_dropout",
        "max_source_positions": "max_position_embeddings",
        "max_target_positions": "max_position_embeddings",
    }
    token_tables: ClassVar = {
        "encoder.embed_tokens.weight": 0,
        "decoder.embed_tokens.weight": -1,
        "decoder.output_projection.weight": -1,
    }
    optional = "final_logits_bias"
    #: the pattern of a language's tag, whose last group is the language
    tag: ClassVar[str] = r"(?!)"

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

    def marks(self, texts: Texts) -> Marks:
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
        return Directions(tags, marks=self.marks(texts)) if len(tags) > 1 else None

    @torch.no_grad()
    def difference(
        self, model: Any, reference: Any, vocabularies: list[Vocabulary]
    ) -> tuple[float, float]:
        """Compare log-probabilities; see `Family.difference`.

        transformers reads random sentences with padding on the right, fairseq with padding on
        either side, because some classes of transformers count padding on the left as positions.
        """
        source, target = vocabularies[0], vocabularies[-1]
        pad, eos = model.encoder.dictionary.pad(), model.encoder.dictionary.eos()
        longest = min(model.encoder.max_positions(), model.decoder.max_positions(), 24)
        lengths = [max(1, longest - 1), max(1, longest // 2), 1]
        draw = torch.Generator().manual_seed(1)

        def sentences(vocabulary: Vocabulary) -> list[Tensor]:
            words = torch.tensor([n for n, number in enumerate(vocabulary.ids) if number >= 0])
            words = words[words > eos] if len(words) > eos + 1 else words
            return [
                torch.cat([words[torch.randint(len(words), (n,), generator=draw)],
                           torch.tensor([eos])])
                for n in lengths
            ]  # fmt: skip

        sources, targets = sentences(source), sentences(target)[::-1]
        inputs = collate_tokens(sources, pad)  # (B, S)
        previous = collate_tokens([sentence.roll(1) for sentence in targets], pad)  # (B, T)
        their_previous = torch.tensor(target.ids)[previous]
        if (start := reference.config.decoder_start_token_id) is not None:
            their_previous[:, 0] = start
        expected = reference(
            input_ids=torch.tensor(source.ids)[inputs],
            attention_mask=inputs.ne(pad).long(),
            decoder_input_ids=their_previous,
        ).logits.log_softmax(-1)  # (B, T, V)
        known = torch.tensor(target.ids) >= 0
        expected = expected[..., torch.tensor(target.ids)[known]][previous.ne(pad)]
        differences = []
        for left_pad in (False, True):
            batch = collate_tokens(sources, pad, left_pad=left_pad)
            logits, _ = model(batch, batch.ne(pad).sum(1), previous)  # (B, T, V')
            actual = logits.log_softmax(-1)[..., known][previous.ne(pad)]
            differences.append((actual - expected).abs().max())
        return float(torch.stack(differences).max()), float(expected.abs().max())


def default_direction(texts: Texts, directions: Directions | None) -> tuple[str, str]:
    """The folder's languages, or defaults that fit the dictionaries' names or the tags."""
    source, target = texts.source_lang or texts.src_lang, texts.target_lang or texts.tgt_lang
    if directions is None:
        names = source or "source", target or "target"
        return names if names[0] != names[1] else ("source", "target")
    targets = directions.targets
    first = source if source in targets else next(iter(targets))
    return first, target if target in targets[first] else targets[first][0]


class Bart(BytePairs, Translation):
    """Learned positions, post-norm, LayerNorm after the embeddings, and RoBERTa's dictionary."""

    model_class = "BartForConditionalGeneration"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (False,),
        "decoder_start_token_id": (2,),
    }
    options: ClassVar = {"arch": "transformer_learned", "layernorm_embedding": True}

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """The only direction, in which source and target begin with ``<s>``."""
        pair = default_direction(texts, None)
        return Directions({}, (pair,), Marks(source_prefix=("<s>",), target_prefix=("<s>",)))


class MBart(Translation):
    """Learned positions, and LayerNorm before each part and after the embeddings."""

    model_class = "MBartForConditionalGeneration"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (True,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (True,),
        "static_position_embeddings": (False,),
    }
    options: ClassVar = {
        "arch": "transformer_learned",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "layernorm_embedding": True,
    }

    tag = r"([a-z]{2}_[A-Z]{2})"

    def marks(self, texts: Texts) -> Marks:
        """mBART-50 has M2M-100's marks; mBART-25 ends a source and starts a target with a tag."""
        if (texts.tokenizer_class or "").startswith("MBart50"):
            return TAGGED
        return Marks(source_end=(EOS, SOURCE), target_start=TARGET)

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        tokens = read_pieces(folder, MBART_CODES)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]


class M2M100(Translation):
    """The model of fairseq's ``translation_multi_simple_epoch``, with fairseq's sinusoids."""

    model_class = "M2M100ForConditionalGeneration"
    options: ClassVar = {
        "arch": "transformer_sinusoidal",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
    }

    tag = r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3})"  # M2M-100's, NLLB's

    def marks(self, texts: Texts) -> Marks:
        if texts.legacy_behaviour:
            return replace(TAGGED, source_prefix=(), source_end=(EOS, SOURCE))
        return TAGGED

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        """NLLB's tokens are in ``tokenizer.json``; M2M-100's languages follow ``vocab.json``."""
        if (folder / "vocab.json").exists():
            tokens = read_tokens(folder / "vocab.json")
            is_wmt21 = read_texts(folder).language_codes == "wmt21"
            codes = M2M_CODES["wmt21" if is_wmt21 else "m2m100"]
            languages = (f"__{code}__" for code in codes)
            tokens |= {token: n for n, token in enumerate(languages, len(tokens))}
            tokens = {token: n for token, n in tokens.items() if n < config.vocab_size}
        else:
            tokens = read_pieces(folder, NLLB_CODES)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]


class Marian(Translation):
    """Sinusoids from position 0, a bias of the logits, and a decoder that starts with ``<pad>``.

    Marian's sinusoids have other frequencies than fairseq's, so they become a learned table.
    fairseq's decoder starts with ``</s>``: the decoder's row of position 0 also contains the
    difference between Marian's start token and ``</s>``.
    """

    model_class = "MarianMTModel"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (True,),
    }
    position_tables = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
    first_row = 0
    optional = r"final_logits_bias|.*embed_positions\.weight"
    options: ClassVar = {"arch": "transformer_learned", "decoder_output_bias": True}

    pieces = "source.spm"
    tag = ">>(.+)<<"

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        files = [(folder / "vocab.json", config.vocab_size)]
        if not config.share_encoder_decoder_embeddings:
            target = folder / "target_vocab.json"
            files.append((target if target.exists() else files[0][0], config.decoder_vocab_size))
        return [Vocabulary.from_tokens(read_tokens(file), size, {}) for file, size in files]

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """Directions to the languages whose tags the vocabulary has; None without tags."""
        known = super().directions(texts, vocabularies)
        if known is None or len(vocabularies) > 1:
            return None
        source = texts.source_lang or "source"
        return replace(known, pairs=tuple((source, target) for target in known.tags))

    def marks(self, texts: Texts) -> Marks:
        return Marks(source_prefix=(TARGET,))

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

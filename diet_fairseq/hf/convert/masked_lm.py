"""Base class of the descriptions of masked language models for `import hf`."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from fairseq.data.data_utils import collate_tokens

from .family import Family, State, Vocabulary

BODY = "encoder.sentence_encoder."
HEAD = "encoder.lm_head."


class MaskedLM(Family):
    """An encoder with BERT's names."""

    allowed: ClassVar = {
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "position_embedding_type": ("absolute",),
        "hidden_act": ("gelu",),
    }
    names: ClassVar = {
        r"\w+\.embeddings\.word_embeddings\.(.*)": rf"{BODY}embed_tokens.\1",
        r"\w+\.embeddings\.position_embeddings\.(.*)": rf"{BODY}embed_positions.\1",
        r"\w+\.embeddings\.token_type_embeddings\.(.*)": rf"{BODY}embed_segments.\1",
        r"\w+\.embeddings\.LayerNorm\.(.*)": rf"{BODY}layernorm_embedding.\1",
        r"\w+\.encoder\.layer\.(\d+)\.attention\.self\.([qkv])\w+\.(.*)": (
            rf"{BODY}layers.\1.self_attn.\2_proj.\3"
        ),
        r"\w+\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(.*)": (
            rf"{BODY}layers.\1.self_attn.out_proj.\2"
        ),
        r"\w+\.encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(.*)": (
            rf"{BODY}layers.\1.self_attn_layer_norm.\2"
        ),
        r"\w+\.encoder\.layer\.(\d+)\.intermediate\.dense\.(.*)": rf"{BODY}layers.\1.fc1.\2",
        r"\w+\.encoder\.layer\.(\d+)\.output\.dense\.(.*)": rf"{BODY}layers.\1.fc2.\2",
        r"\w+\.encoder\.layer\.(\d+)\.output\.LayerNorm\.(.*)": (
            rf"{BODY}layers.\1.final_layer_norm.\2"
        ),
        r"(?:lm_head|cls\.predictions)\.decoder\.weight": f"{HEAD}weight",
        r"(?:lm_head|cls\.predictions)\.decoder\.bias": f"{HEAD}bias",
        r"(?:lm_head|cls\.predictions)\.bias": None,  # transformers ties it to decoder.bias
        r"(?:lm_head|cls\.predictions\.transform)\.dense\.(.*)": rf"{HEAD}dense.\1",
        r"(?:lm_head\.layer_norm|cls\.predictions\.transform\.LayerNorm)\.(.*)": (
            rf"{HEAD}layer_norm.\1"
        ),
    }

    option_names: ClassVar = {
        "encoder_layers": "num_hidden_layers",
        "encoder_embed_dim": "hidden_size",
        "encoder_ffn_embed_dim": "intermediate_size",
        "encoder_attention_heads": "num_attention_heads",
        "activation_fn": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "layer_norm_eps": "layer_norm_eps",
    }
    token_tables: ClassVar = dict.fromkeys(
        (f"{BODY}embed_tokens.weight", f"{HEAD}weight", f"{HEAD}bias"), 0
    )
    position_tables = (f"{BODY}embed_positions.weight",)

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        positions = config.max_position_embeddings - self.first_row
        return super().fairseq_options(config, tensors) | {
            "max_positions": positions,
            "tokens_per_sample": positions,
            "untie_weights_roberta": not config.tie_word_embeddings,
        }

    def write_text(self, folder: Path, out: Path) -> None:
        """Write the files of fairseq's ``--bpe``."""
        raise NotImplementedError

    @torch.no_grad()
    def difference(
        self, model: Any, reference: Any, vocabularies: list[Vocabulary]
    ) -> tuple[float, float]:
        """Compare logits; see `Family.difference`.

        transformers reads random sentences with padding on the right, fairseq with padding on
        either side, because transformers' BERT counts padding on the left as positions.
        """
        [vocabulary], dictionary = vocabularies, model.encoder.dictionary
        pad, ids = dictionary.pad(), torch.tensor(vocabulary.ids)
        longest = min(model.max_positions(), 24)
        draw = torch.Generator().manual_seed(1)
        sentences = [
            torch.randint(dictionary.nspecial, len(ids), (length,), generator=draw)
            for length in (longest, max(1, longest // 2), 1)
        ]
        kinds = getattr(reference.config, "type_vocab_size", 1)
        segments = [torch.randint(kinds, (len(s),), generator=draw).sort()[0] for s in sentences]
        results = []
        for left_pad in (False, True):
            tokens = collate_tokens(sentences, pad, left_pad=left_pad)  # (B, T)
            types = collate_tokens(segments, 0, left_pad=left_pad)
            options = {"segments": types} if kinds > 1 else {}
            logits, extra = model(tokens, **options)
            results.append((logits[tokens.ne(pad)], extra.get("nsp_logits")))
            if not left_pad:
                out = reference(
                    input_ids=ids[tokens],
                    attention_mask=tokens.ne(pad).long(),
                    token_type_ids=types,
                )
                expected = out[0][tokens.ne(pad)][:, ids]
        differences = [float((actual - expected).abs().max()) for actual, _ in results]
        for _, follows in results:
            if follows is not None:  # (B, 2)
                theirs = out.seq_relationship_logits.flip(1)
                differences.append(float((follows - theirs).abs().max()))
        return max(differences), float(expected.abs().max())

"""Tokenizers for transformers with BERT's word pieces and the ids of fairseq's dictionary."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ..errors import UserError
from ..text.subwords import BERT_SYMBOLS, WordPiece

#: keyword of transformers' tokenizers -> BERT's token
SPECIAL = {"cls_token": "[CLS]", "pad_token": "[PAD]", "sep_token": "[SEP]",
           "unk_token": "[UNK]", "mask_token": "[MASK]"}  # fmt: skip


def wordpiece_tokenizer(
    vocabulary: Mapping[str, int], subwords: WordPiece, segments: bool, **options: Any
) -> Any:
    """A tokenizer of the library ``tokenizers``, which reads text as ``subwords`` does.

    Args:
        vocabulary: symbol -> id, for word pieces and for fairseq's special symbols
        segments: whether the model reads ``token_type_ids``
        options: further arguments of `PreTrainedTokenizerFast`

    Raises:
        UserError: the dictionary lacks a word piece
    """
    content = json.loads(subwords.backend.to_str())
    old = content["model"]["vocab"] | {token["content"]: token["id"] for token in added(content)}
    ids: dict[str, int] = {}
    for token, number in old.items():
        # the symbol of a token that a dictionary can't store has its number in the file
        names = (BERT_SYMBOLS.get(token, token), f"madeupword{number:04}")
        if symbol := next((name for name in names if name in vocabulary), None):
            ids[token] = vocabulary[symbol]
    words = content["model"]["vocab"].keys() - ids.keys()
    # no text has pieces such as [unused1] or white space, because BERT splits text there
    if missing := sorted(word for word in words if not re.fullmatch(r"\[.*\]|.*\s.*", word)):
        raise UserError(
            f"the dictionary lacks {len(missing):,} of {len(old):,} word pieces (such as "
            f"{missing[0]}), which BERT's tokenizer needs: add them to the dictionary, or export "
            "without a tokenizer, with --subwords none"
        )
    vocab = {token: ids[token] for token in content["model"]["vocab"] if token in ids}
    content["model"]["vocab"] = dict(sorted(vocab.items(), key=lambda item: item[1]))
    content["added_tokens"] = [
        token | {"id": ids[token["content"]]}
        for token in added(content)
        if token["content"] in ids  # the model has no embedding of the others
    ]
    renumber(content["post_processor"], ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)),
        model_input_names=[
            "input_ids", *(["token_type_ids"] if segments else []), "attention_mask"
        ],
        **{name: token for name, token in SPECIAL.items() if token in ids},
        **options,
    )  # fmt: skip


def added(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tokens in ``tokenizer.json`` that are found in a text before it is split into words."""
    tokens: list[dict[str, Any]] = content["added_tokens"]
    return tokens


def renumber(processor: dict[str, Any], ids: Mapping[str, int]) -> None:
    """Set the ids of the special tokens that a post-processor of ``tokenizer.json`` adds."""
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [ids[name] for name in token["tokens"]]
    for name in ("sep", "cls"):
        if name in processor:
            processor[name][1] = ids[processor[name][0]]

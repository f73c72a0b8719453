"""Folders of transformers' own classes in the layouts that lie on the Hub.

Each function changes a folder of `originals` as a published folder differs from what this version
of transformers saves. Keys and files follow transformers' conversion scripts, folders that
transformers 4 saved, and the folders that a docstring names; the published files were not at hand.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import transformers
from transformers.models.mbart50.tokenization_mbart50 import (
    FAIRSEQ_LANGUAGE_CODES as MBART50_CODES,
)

from tests.support import originals


def edit(path: Path, *removed: str, **values: Any) -> None:
    """Set the ``values`` in a JSON file, and remove keys."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content = {key: value for key, value in (content | values).items() if key not in removed}
    path.write_text(json.dumps(content))


def mbart50(folder: Path, **options: Any) -> Path:
    """facebook/mbart-large-50-...-mmt: the tokenizer's class in config.json, no tokenizer.json."""
    folder.mkdir()
    pieces = originals.scored_pieces(folder, [*MBART50_CODES, "<mask>"])
    tokenizer_class: Any = transformers.MBart50Tokenizer
    tokenizer = tokenizer_class(vocab=pieces, src_lang="en_XX", tgt_lang="de_DE")
    values: dict[str, Any] = originals.SIZES | {"vocab_size": len(pieces), "scale_embedding": True}
    config = transformers.MBartConfig(**values | {"activation_function": "relu"} | options)
    model = originals.randomize(transformers.MBartForConditionalGeneration(config))
    originals.save(model, tokenizer, folder)
    (folder / "tokenizer.json").unlink()
    edit(folder / "tokenizer_config.json", "tokenizer_class")
    edit(folder / "config.json", tokenizer_class="MBart50Tokenizer")
    return folder


def mbart_en_ro(folder: Path) -> Path:
    """facebook/mbart-large-en-ro: only the SentencePiece model, and ro_RO starts the decoder."""
    originals.mbart(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    start = tokenizer.convert_tokens_to_ids("ro_RO")
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    edit(folder / "config.json", decoder_start_token_id=start)
    return folder


def without_tokenizer_json(folder: Path, added: Iterable[str]) -> Path:
    """A folder that transformers 4 saved: a SentencePiece model, and ``added`` tokens by id."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    marks = ["<s>", "<pad>", "</s>", "<unk>"]
    tokens = {
        str(tokenizer.convert_tokens_to_ids(token)): {
            "content": token, "lstrip": token == "<mask>", "normalized": False, "rstrip": False,
            "single_word": False, "special": True,
        }
        for token in [*marks, *added]
    }  # fmt: skip
    (folder / "tokenizer.json").unlink()
    edit(
        folder / "tokenizer_config.json",
        added_tokens_decoder=tokens,
        additional_special_tokens=[token for token in added if token != "<mask>"],
    )
    return folder


def nllb_4(folder: Path) -> Path:
    """NLLB with five languages, saved by transformers 4's slow tokenizer."""
    languages = ["deu_Latn", "eng_Latn", "fra_Latn", "rus_Cyrl", "zho_Hans"]
    originals.nllb(folder, languages=languages)
    return without_tokenizer_json(folder, [*languages, "<mask>"])


def trimmed_nllb(folder: Path) -> Path:
    """NLLB whose vocabulary was cut to three languages."""
    return originals.nllb(folder, languages=["eng_Latn", "rus_Cyrl", "deu_Latn"])


def grow(folder: Path, tokens: list[str], special: bool, auto: str = "Seq2SeqLM") -> Path:
    """Add tokens to a folder as users do before fine-tuning."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(tokens, special_tokens=special)
    model = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(folder)
    vocabulary = tokenizer.get_vocab()
    size = 1 + max(vocabulary[token] for token in tokens)
    if size > model.config.vocab_size:
        model.resize_token_embeddings(size)
    originals.save(originals.randomize(model), tokenizer, folder)
    return folder


def nllb_with_new_language(folder: Path) -> Path:
    """slone/nllb-rus-tyv and its kin: a language in addition to NLLB's."""
    languages = ["deu_Latn", "eng_Latn", "rus_Cyrl"]
    return grow(originals.nllb(folder, languages=languages), ["tyv_Cyrl"], special=True)


def mbart_with_new_language(folder: Path) -> Path:
    """mBART-25 with another language."""
    return grow(originals.mbart(folder), ["mg_MG"], special=True)


def marian_without_tokenizer_options(folder: Path, **values: Any) -> Path:
    """Helsinki-NLP's older folders: ``tokenizer_config.json`` has only languages, if at all."""
    originals.marian(folder)
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


def marian_of_several_sources(folder: Path, languages: Iterable[str] = ()) -> Path:
    """Helsinki-NLP/opus-mt-tc-big-gmq-...: several source languages in ``source_lang``."""
    originals.marian(folder, languages=languages)
    edit(folder / "tokenizer_config.json", source_lang="deu+eng+fra", target_lang="fin")
    return folder


def marian_with_generation_defaults(folder: Path) -> Path:
    """Folders of newer versions: the start token is only in ``generation_config.json``."""
    originals.marian(folder)
    edit(folder / "config.json", "decoder_start_token_id")
    return folder


def reshard(folder: Path, half: bool = False) -> Path:
    """Weights in several files, or in half precision."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    if half:
        model.half().save_pretrained(folder)
    else:
        model.save_pretrained(folder, max_shard_size="6KB")
    return folder

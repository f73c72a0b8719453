"""The model card of an exported folder, its ``README.md``."""

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any

import yaml
from huggingface_hub import EvalResult, ModelCardData
from pydantic import BaseModel, Field

from ...files import MAX_VOCABULARY_BYTES, open_regular, read_json_object
from ...translate.directions import TARGET
from ...translate.model_json import LICENSE
from ...version import __version__

#: our classes -> their Auto class, and their task on the Hub
KINDS = {
    "DietForConditionalGeneration": ("AutoModelForSeq2SeqLM", "translation"),
    "DietForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
    "DietForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "DietForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering"),
    "DietEncoderModel": ("AutoModel", "feature-extraction"),
}
CARD = """---
{data}
---

# {name}

{summary}

```python
{code}```
{needs}
## Licence

{license}
"""
#: the card's code; a folder may have no tokenizer
MODEL = """from transformers import {auto}

model = {auto}.from_pretrained("{name}")
"""
MODEL_AND_TOKENIZER = """from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
"""
SENTENCE_MODEL = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
embeddings = model.encode(["A dog runs.", "A cat sleeps."])
"""
TEXT_LENGTH = (
    "\nsentence-transformers cuts texts after {length:,} tokens (`model.max_seq_length`). Inputs "
    "of the training had at most {trained:,} tokens; test the model on your texts if they are "
    "longer.\n"
)
#: keys of an imported model's card that remain true after training
KEPT_KEYS = ("language", "license", "license_name", "license_link", "base_model")
#: the card's name in a folder
CARD_FILE = "README.md"
#: the lines that choose a direction; ``generate`` may need no options
DIRECTION = """tokenizer.src_lang, tokenizer.tgt_lang = "{source}", "{target}"
outputs = model.generate(**tokenizer("...", return_tensors="pt"){options})
"""
#: number of bytes of a card that are read
MAX_CARD = 100_000
#: numbers of test sets, and of metrics of a test set, whose scores are read
MAX_TEST_SETS = MAX_METRICS = 20
NO_SCORES = "remove it, and run the workflow again"
LICENSE_OF_ORIGINAL = "`{license}`, the licence of the model from which this model was imported."
NO_TOKENIZER = (
    "The folder has no tokenizer. `dict.txt` (and `dict.target.txt`, if it exists) lists the "
    "tokens in the order of their ids, which begin with 4; `<s>`, `<pad>`, `</s>` and `<unk>` have "
    "the ids 0 to 3.\n"
)
UNKNOWN = (
    "The licence is not known here. If you publish the model, add `license:` to the lines at the "
    "top; it may depend on the data and on the model that training started from."
)


Score = Annotated[float, Field(allow_inf_nan=False)]
Signature = Annotated[str, Field(max_length=300)]


class Scores(BaseModel, strict=True):
    """The content of a workflow's ``scores.json``; unknown keys are ignored."""

    bleu: Score = Field(alias="BLEU")
    chrf: Score = Field(alias="chrF")
    bleu_signature: Signature = Field(alias="BLEU signature")
    chrf_signature: Signature = Field(alias="chrF signature")
    sha256: str = ""  # of the checkpoint


class MetricScore(BaseModel, strict=True):
    """The content of a workflow's ``metric-NAME.json``; unknown keys are ignored."""

    score: Score


def model_card(
    name: str, model: Any, loaded: Any, kept: dict[str, Any], text_length: int | None
) -> str:
    """The card of a model that was converted from a `LoadedModel` to the folder ``name``.

    Args:
        kept: metadata of the card of the model that was imported
        text_length: the number of tokens at which sentence-transformers cuts texts; None: the
            folder has no modules of sentence-transformers
    """
    auto, task = KINDS[type(model).__name__]
    description = loaded.description
    languages, directions = [], description.directions
    if not loaded.is_encoder:
        languages = [*directions.tags] if directions else [*description.languages]
    # the Hub's codes of languages such as de, deu_Latn or de_DE
    matches = [re.fullmatch(r"([a-z]{2,3})(?:[_-]\w+)?", language) for language in languages]
    codes = [match[1] for match in matches if match]
    library = "transformers" if text_length is None else "sentence-transformers"
    data = ModelCardData(
        **kept
        | {
            "language": list(dict.fromkeys(codes)) or kept.get("language"),
            "license": description.license,
            "library_name": library,
            "pipeline_tag": task if text_length is None else "sentence-similarity",
            "tags": None if text_length is None else [library],
            "model_name": name,
            "eval_results": read_results(loaded),
        }
    )
    kind = "An encoder" if loaded.is_encoder else "A translation model"
    between = f" from {languages[0]} to {languages[1]}" if codes else ""
    if directions:
        between = f" of the languages {', '.join(languages)}"
    summary = (
        f"{kind}{between} with position scheme {model.config.positions.scheme_label} and "
        f"{model.num_parameters():,} parameters, trained with fairseq and diet_fairseq."
    )
    has_tokenizer = description.subword_model is not None
    code = (MODEL_AND_TOKENIZER if has_tokenizer else MODEL).format(auto=auto, name=name)
    if directions and has_tokenizer:
        code += direction_lines(description)
    needs = (
        f"\nThe folder needs the package diet_fairseq {__version__} or newer, and no "
        "`trust_remote_code`.\n"
    )
    if text_length is not None:
        code = SENTENCE_MODEL.format(name=name)
        trained = model.config.max_source_positions
        needs += TEXT_LENGTH.format(length=text_length, trained=trained)
    return fill_card(
        data,
        name=name,
        summary=summary,
        code=f"import diet_fairseq.hf  # registers the model with the Auto classes\n{code}",
        needs=needs if has_tokenizer else f"{needs}{NO_TOKENIZER}",
    )


def fill_card(data: ModelCardData, **parts: str) -> str:
    """The card with the metadata ``data`` and the other parts of `CARD`."""
    license = (LICENSE_OF_ORIGINAL if data.license else UNKNOWN).format(license=data.license)
    return CARD.format(data=data.to_yaml(), license=license, **parts)


def direction_lines(description: Any) -> str:
    """The lines of the code that choose the default direction of a multilingual model."""
    source, target = description.languages
    framing = description.directions.framing
    places = {
        "forced_bos_token_id": TARGET in framing.target_prefix,
        "decoder_start_token_id": framing.target_start == TARGET,
        "eos_token_id": framing.target_end == TARGET,
    }
    options = "".join(f", {name}=tag" for name, is_tag in places.items() if is_tag)
    lines = DIRECTION.format(source=source, target=target, options=options)
    tag = f'tag = tokenizer.get_lang_id("{target}")\n'
    return f"{tag}{lines}" if options else lines


def read_results(loaded: Any) -> list[EvalResult] | None:
    """The scores that a workflow has written beside the checkpoint, by test set and metric.

    None without scores of this checkpoint: its digest is in ``scores.json``.
    """
    folders = sorted(loaded.path.parent.glob("evaluation-*"))[:MAX_TEST_SETS]
    folders = [folder for folder in folders if (folder / "scores.json").is_file()]
    if not folders or not loaded.path.is_file():
        return None
    with open(loaded.path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    results = []
    for folder in folders:
        scores = read_json_object(folder / "scores.json", Scores, advice=NO_SCORES)
        if scores.sha256 != digest:
            continue
        values: dict[str, tuple[float, str | None]] = {
            "BLEU": (round(scores.bleu, 2), scores.bleu_signature),
            "chrF": (round(scores.chrf, 2), scores.chrf_signature),
        }
        for path in sorted(folder.glob("metric-*.json"))[:MAX_METRICS]:
            score = read_json_object(path, MetricScore, MAX_VOCABULARY_BYTES, NO_SCORES).score
            values[path.stem.removeprefix("metric-")] = (round(score, 4), None)
        test = folder.name.removeprefix("evaluation-")
        results += [
            EvalResult(
                task_type="translation",
                task_name="Translation {} to {}".format(*loaded.description.languages),
                dataset_type=test,
                dataset_name=test,
                metric_type=name.lower(),
                metric_name=name,
                metric_value=value,
                metric_config=signature,
            )
            for name, (value, signature) in values.items()
        ]
    return results or None


def original_card(name: str, model: Any, folder: Path, loaded: Any) -> str:
    """The card of a `LoadedModel` in its original class, with metadata of ``folder``'s card."""
    kept = read_kept(read_top(folder))
    kept["license"] = read_license(folder)
    [auto] = model.config.architectures
    kind = "feature-extraction" if auto.endswith("Model") else "fill-mask"
    if model.config.is_encoder_decoder:
        kind = "translation"
    data = ModelCardData(
        **kept,
        library_name="transformers",
        pipeline_tag=kind,
        model_name=name,
        eval_results=read_results(loaded),
    )
    summary = (
        f"{auto} with {model.num_parameters():,} parameters, trained with fairseq from a model that"
        "\n`diet-fairseq import hf` imported, and exported by `diet-fairseq export hf --original` "
        f"{__version__}."
    )
    code = MODEL_AND_TOKENIZER.format(auto=auto, name=name)
    return fill_card(data, name=name, summary=summary, code=code, needs="")


def read_kept(top: str) -> dict[str, Any]:
    """The values of `KEPT_KEYS` in a card's untrusted metadata; {} if this is not valid YAML.

    Every scalar is text: ``no`` is Norwegian, and an impossible date is not an error.
    """
    try:
        values = yaml.load(top.removeprefix("---\n"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    kept = {key: values[key] for key in KEPT_KEYS if key in values}
    return {
        key: value
        for key, value in kept.items()
        if all(isinstance(item, str) for item in (value if isinstance(value, list) else [value]))
    }


def read_top(folder: Path) -> str:
    """The metadata at the top of the folder's ``README.md``; empty without it."""
    path = folder / CARD_FILE
    if not path.is_file():
        return ""
    with open_regular(path) as file:
        text = file.read(MAX_CARD).decode("utf-8", "replace")
    return text.split("\n---", 1)[0] if text.startswith("---\n") else ""


def read_license(folder: Path) -> str | None:
    """The licence in the metadata of the folder's ``README.md``, or None."""
    lines = [line for line in read_top(folder).split("\n") if line.startswith("license:")]
    text = lines[0].removeprefix("license:").strip().strip("'\"") if lines else ""
    return text if re.fullmatch(LICENSE, text) else None

"""``diet-fairseq export hf``: a checkpoint as a folder that transformers loads."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from ..errors import UserError
from .folder import check, written

#: the file that travels along, and what of it the Auto classes load
CODE = "modeling_diet"
HEADS = {
    "AutoModelForMaskedLM": "DietForMaskedLM",
    "AutoModelForSequenceClassification": "DietForSequenceClassification",
    "AutoModelForQuestionAnswering": "DietForQuestionAnswering",
}
#: where the recipes put a subword model, and whether it is for words that sacremoses parted
SUBWORDS = {"sentencepiece.model": False, "codes": True}


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="a file that fairseq-train wrote")
    add("out", type=Path, metavar="OUT", help="the folder to write; it must not be there yet")
    add("--data", type=Path, metavar="FOLDER",
        help="what fairseq-preprocess wrote (default: the one it was trained on)")  # fmt: skip
    add("--subwords", metavar="FILE",
        help="sentencepiece.model, or subword-nmt's codes; none: write no tokenizer (default: in "
             "the folder subwords beside the data, where the recipes put it)")  # fmt: skip
    add("--moses", action="store_true",
        help="with --subwords codes: sacremoses parted the text into words")  # fmt: skip
    add("--scores", type=Path, metavar="FILE",
        help="the recipe's scores.json, for the card (default: beside CHECKPOINT)")  # fmt: skip
    add("--dataset", metavar="NAME", help="what it was trained on, for the model card")
    add("--license", metavar="NAME", help="of the weights, for the model card, such as mit")


def run(args: Namespace) -> None:
    check(args.out, force=False)
    from . import huggingface
    from .fairseq_model import load

    model, cfg, task = load(args.checkpoint, args.data)
    data = Path(str(cfg.task.data).split(":")[0])
    head = head_of(model, task)
    found = huggingface.converted(model, head)
    tokens = tokenizer_files(args, data, task, found.model.config)
    scores = scores_of(args)
    with written(args.out, force=False) as folder:
        if head is not None and hasattr(task, "label_dictionary"):
            name_labels(found.model.config, task)
        write_model(folder, found)
        languages = write_tokenizer(folder, tokens, task, found.model.config)
        write_card(folder, args, found.model, languages, scores)
    print(f"{args.out}: {type(found.model).__name__}, {found.model.num_parameters():,} parameters")


def head_of(model: Any, task: Any) -> str | None:
    """The classification head of a fine-tuned encoder."""
    heads = list(getattr(model, "classification_heads", {}))
    if len(heads) > 1:
        named = getattr(task.cfg, "classification_head_name", None)
        heads = [name for name in heads if name == named] or heads[:1]
    return heads[0] if heads else None


def name_labels(config: Any, task: Any) -> None:
    from ..tasks.diet_glue import labels_of

    names = labels_of(task.label_dictionary)
    if len(names) == config.num_labels > 1:
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}


def tokenizer_files(args: Namespace, data: Path, task: Any, config: Any) -> dict[str, Any]:
    """``vocab_file`` and the others of `DietTokenizer`; nothing with ``--subwords none``."""
    from ..hf.tokenizer import symbols_in
    from .vocabulary import check_pair

    if args.subwords == "none":
        return {}
    moses = args.moses
    if args.subwords is None:
        places = [data.parent / "subwords" / name for name in SUBWORDS]
        place = next((place for place in places if place.is_file()), None)
        if place is None:
            raise UserError(
                f"there is no subword model in {data.parent / 'subwords'}: name it by --subwords, "
                "or take --subwords none to write no tokenizer"
            )
        moses = SUBWORDS[place.name]
    else:
        place = Path(args.subwords)
        if not place.is_file():
            raise UserError(f"--subwords {place} is no file: name sentencepiece.model or codes")
    kind = "sentencepiece_file" if place.suffix == ".model" else "codes_file"
    files: dict[str, Any] = {kind: place, "moses": moses}
    if config.is_encoder_decoder:
        source, target = (
            data / f"dict.{language}.txt"
            for language in (task.cfg.source_lang, task.cfg.target_lang)
        )
        files["vocab_file"] = source
        if source.read_bytes() != target.read_bytes():
            files["target_vocab_file"] = target
    else:
        places = [data / "dict.txt", data / "input0" / "dict.txt"]
        files["vocab_file"] = next(path for path in places if path.is_file())
    for name, dictionary in (
        ("vocab_file", task.source_dictionary),
        ("target_vocab_file", task.target_dictionary),
    ):
        if name in files:
            check_pair(files[name], place)
            symbols = symbols_in(files[name])
            if symbols != dictionary.symbols[: len(symbols)]:
                raise UserError(
                    f"{files[name]} is not the dictionary of the model: give its --data"
                )
    return files


def write_model(folder: Path, found: Any) -> None:
    """config.json, the weights, and the code for where the package isn't installed."""
    from safetensors.torch import save_file
    from transformers import GenerationConfig

    from .bundle import bundle

    config, name = found.model.config, type(found.model).__name__
    config.architectures = [name]
    config.save_pretrained(folder)
    save_file(found.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    code = {"AutoConfig": type(config).__name__}
    if config.is_encoder_decoder:
        code |= {"AutoModel": "DietTransformerModel", "AutoModelForSeq2SeqLM": name}
        GenerationConfig(
            bos_token_id=config.bos_token_id,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
            # fairseq-generate's: beam 5, up to 200 words, never nothing, never padding
            num_beams=5,
            early_stopping=True,
            max_new_tokens=201,
            min_new_tokens=1,
            suppress_tokens=[config.pad_token_id],
        ).save_pretrained(folder)
    else:
        code |= {"AutoModel": "DietEncoderModel", **HEADS}
    add_to_json(
        folder / "config.json",
        auto_map={auto: f"{CODE}.{known}" for auto, known in code.items()},
    )
    text = bundle(
        {
            "hf/configuration.py": [type(config).__name__],
            "hf/tokenizer.py": ["DietTokenizer"],
            ("hf/transformer.py" if config.is_encoder_decoder else "hf/encoders.py"): [
                known for auto, known in code.items() if auto != "AutoConfig"
            ],
        }
    )
    (folder / f"{CODE}.py").write_text(text, encoding="utf-8")


def write_tokenizer(folder: Path, files: dict[str, Any], task: Any, config: Any) -> list[str]:
    """The tokenizer's files; the languages of the model, as far as they are known."""
    from ..hf import DietTokenizer

    languages = [getattr(task.cfg, f"{side}_lang", None) for side in ("source", "target")]
    if files:
        mask = "<mask>" if "<mask>" in task.source_dictionary.indices else None
        given: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value for name, value in files.items()
        }
        tokenizer = DietTokenizer(
            **given,
            source_lang=languages[0],
            target_lang=languages[1],
            mask_token=mask,
            model_max_length=config.max_source_positions,
            begins=not config.is_encoder_decoder,
            segments=bool(getattr(config, "type_vocab_size", 0)),
        )
        tokenizer.save_pretrained(folder)
        add_to_json(
            folder / "tokenizer_config.json",
            auto_map={"AutoTokenizer": [f"{CODE}.DietTokenizer", None]},
        )
    return [language for language in languages if language]


def write_card(
    folder: Path, args: Namespace, model: Any, languages: list[str], scores: dict[str, Any] | None
) -> None:
    from .card import card

    text = card(model, args.out.name, languages, args.dataset, args.license, scores)
    (folder / "README.md").write_text(text, encoding="utf-8")


def scores_of(args: Namespace) -> dict[str, Any] | None:
    """Those that are named, or that the recipe found for this checkpoint."""
    places = sorted(args.checkpoint.parent.glob("evaluation-*/scores.json"))
    for place in [args.scores] if args.scores else places:
        try:
            scores = json.loads(place.read_text(encoding="utf-8"))
            if not isinstance(scores, dict):
                raise ValueError
        except (OSError, ValueError) as error:
            raise UserError(f"{place} holds no scores: give the recipe's scores.json") from error
        if args.scores or Path(str(scores.get("model"))).name == args.checkpoint.name:
            return scores
    return None


def add_to_json(path: Path, **more: Any) -> None:
    """Add entries to a file that holds an object."""
    content = json.loads(path.read_text(encoding="utf-8")) | more
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""``diet-fairseq export hf``: export of a checkpoint to Hugging Face transformers."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from .. import input_files
from ..errors import UserError
from ..inference.model_files import dictionaries
from . import checkpoint, description, folder
from .checkpoint import TrainedModel


class Scores(BaseModel, strict=True):
    """Scores of a test set: the content of the file of ``--scores``."""

    BLEU: Annotated[float, Field(allow_inf_nan=False)] | None = None
    chrF: Annotated[float, Field(allow_inf_nan=False)] | None = None
    bleu_signature: Annotated[str, Field(alias="BLEU signature", max_length=1000)] = ""
    chrf_signature: Annotated[str, Field(alias="chrF signature", max_length=1000)] = ""


def run(args: Namespace) -> None:
    folder.check(args.out, args.force)
    from . import huggingface
    from .card import card

    trained = checkpoint.read(args)
    model, task = trained.model, trained.task
    head = head_of(model, task)
    converted = huggingface.convert(model, head)
    tokens = tokenizer_files(trained)
    scores = input_files.read_object(args.scores, Scores) if args.scores else None
    with folder.create(args.out, args.force) as new:
        if head is not None:
            name_labels(converted.model.config, trained.labels)
        write_model(new, converted)
        write_tokenizer(new, tokens, task, converted.model.config)
        languages = list(filter(None, (trained.about.source_lang, trained.about.target_lang)))
        readme = card(converted.model, args.out.name, languages, args.dataset, args.license, scores)
        (new / "README.md").write_text(readme, encoding="utf-8")
        if not trained.is_encoder:
            description.write(trained, "transformers", new)
    name, parameters = type(converted.model).__name__, converted.model.num_parameters()
    print(f"{args.out}: {name}, {parameters:,} parameters")


def head_of(model: Any, task: Any) -> str | None:
    """The classification head of a fine-tuned encoder."""
    heads = list(getattr(model, "classification_heads", {}))
    if len(heads) > 1:
        name = getattr(task.cfg, "classification_head_name", None)
        return name if name in heads else heads[0]
    return heads[0] if heads else None


def name_labels(config: Any, names: Sequence[str]) -> None:
    """Name the classes, if the data have a name for each of them."""
    if len(names) == config.num_labels > 1:
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}


def tokenizer_files(trained: TrainedModel) -> dict[str, Any]:
    """The arguments of `DietTokenizer`; empty for a vocabulary of words."""
    from ..hf.tokenizer import symbols_in

    about, task = trained.about, trained.task
    if about.subword_model is None:
        return {}
    kind = {"sentencepiece": "sentencepiece_file", "subword_nmt": "codes_file"}[about.subwords]
    files: dict[str, Any] = {
        kind: about.subword_model,
        "moses": about.preprocessing == "moses",
        "do_lower_case": about.lower,
        **dict(zip(("source_lang", "target_lang"), about.languages, strict=True)),
    }
    source, *target = dictionaries(about)
    files["vocab_file"] = source
    if target and source.read_bytes() != target[0].read_bytes():
        files["target_vocab_file"] = target[0]
    for name, dictionary in (
        ("vocab_file", task.source_dictionary),
        ("target_vocab_file", task.target_dictionary),
    ):
        if name in files:
            symbols = symbols_in(files[name])
            if symbols != dictionary.symbols[: len(symbols)]:
                raise UserError(
                    f"{files[name]} is not the dictionary of the model: give its --data"
                )
    return files


def write_model(folder: Path, converted: Any) -> None:
    """Write config.json and the weights; for translation also generation_config.json."""
    from safetensors.torch import save_file

    config, name = converted.model.config, type(converted.model).__name__
    config.architectures = [name]
    config.save_pretrained(folder)
    save_file(converted.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if config.is_encoder_decoder:
        generation_config(converted.model).save_pretrained(folder)


def generation_config(model: Any) -> Any:
    """The defaults of fairseq-generate as transformers' ``GenerationConfig``.

    The beam is 5. Outputs have 1 to 200 words, or as many as the decoder has positions, without
    padding, and end in ``</s>``.
    """
    from transformers import GenerationConfig

    config = model.config
    return GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        forced_eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        num_beams=5,
        early_stopping=True,
        max_new_tokens=min(201, model.get_decoder().limit.positions),
        min_new_tokens=1,
        suppress_tokens=[config.pad_token_id],
    )


def write_tokenizer(folder: Path, files: dict[str, Any], task: Any, config: Any) -> None:
    """Write the tokenizer, or the dictionaries alone for a vocabulary of words."""
    from ..hf import DietEncoderTokenizer, DietTokenizer
    from ..hf.tokenizer import FILES

    source, target = task.source_dictionary, task.target_dictionary
    if not files:  # `diet-fairseq import hf` needs the dictionaries
        source.save(str(folder / FILES["vocab_file"]))
        if target != source:
            target.save(str(folder / FILES["target_vocab_file"]))
        return
    options: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in files.items()
    }
    options |= {
        "mask_token": "<mask>" if "<mask>" in source.indices else None,
        "model_max_length": config.max_source_positions,
        "segments": bool(getattr(config, "type_vocab_size", 0)),
    }
    tokenizer: Any
    if reads_fast(files, config):
        del options["moses"], options["target_lang"]
        tokenizer = DietEncoderTokenizer(**options)
    else:
        tokenizer = DietTokenizer(**options, begins=not config.is_encoder_decoder)
    tokenizer.save_pretrained(folder)


def reads_fast(files: dict[str, Any], config: Any) -> bool:
    """Whether `DietEncoderTokenizer` reads the model's subwords."""
    from ..hf.fast_tokenizer import is_plain, read_model

    if config.is_encoder_decoder or "sentencepiece_file" not in files:
        return False
    return is_plain(read_model(Path(files["sentencepiece_file"])))

"""``diet-fairseq export hf``: a checkpoint as a folder that transformers loads."""

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

    trained = checkpoint.read(args)
    model, task = trained.model, trained.task
    head = head_of(model, task)
    found = huggingface.converted(model, head)
    tokens = tokenizer_files(trained)
    scores = input_files.read_object(args.scores, Scores) if args.scores else None
    with folder.written(args.out, args.force) as new:
        if head is not None:
            name_labels(found.model.config, trained.labels)
        write_model(new, found)
        write_tokenizer(new, tokens, task, found.model.config)
        languages = [one for one in (trained.about.source_lang, trained.about.target_lang) if one]
        write_card(new, args, found.model, languages, scores)
        if not trained.is_encoder:
            description.write(trained, "transformers", new)
    print(f"{args.out}: {type(found.model).__name__}, {found.model.num_parameters():,} parameters")


def head_of(model: Any, task: Any) -> str | None:
    """The classification head of a fine-tuned encoder."""
    heads = list(getattr(model, "classification_heads", {}))
    if len(heads) > 1:
        named = getattr(task.cfg, "classification_head_name", None)
        heads = [name for name in heads if name == named] or heads[:1]
    return heads[0] if heads else None


def name_labels(config: Any, names: Sequence[str]) -> None:
    """Name the classes, as far as the data have names for all of them."""
    if len(names) == config.num_labels > 1:
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}


def tokenizer_files(trained: TrainedModel) -> dict[str, Any]:
    """What `DietTokenizer` is told of the text; nothing for a vocabulary of words."""
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


def write_model(folder: Path, found: Any) -> None:
    """Write config.json and the weights; for translation also generation_config.json."""
    from safetensors.torch import save_file

    config, name = found.model.config, type(found.model).__name__
    config.architectures = [name]
    config.save_pretrained(folder)
    save_file(found.tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if config.is_encoder_decoder:
        generation_config(found.model).save_pretrained(folder)


def generation_config(model: Any) -> Any:
    """fairseq-generate's search, as transformers' ``GenerationConfig``.

    Beam 5, up to 200 words or as many as the decoder has positions for, then ``</s>`` in any case,
    never nothing, never padding.
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
    from ..hf import DietEncoderTokenizer, DietTokenizer
    from ..hf.tokenizer import FILES

    if not files:  # for `import hf`, which needs fairseq's dictionaries
        task.source_dictionary.save(str(folder / FILES["vocab_file"]))
        if task.target_dictionary != task.source_dictionary:
            task.target_dictionary.save(str(folder / FILES["target_vocab_file"]))
    else:
        mask = "<mask>" if "<mask>" in task.source_dictionary.indices else None
        given: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value for name, value in files.items()
        }
        kind: Any = DietTokenizer
        if reads_fast(files, config):
            kind = DietEncoderTokenizer
            names = ("vocab_file", "sentencepiece_file", "do_lower_case", "source_lang")
            given = {name: given[name] for name in names}
        else:
            given["begins"] = not config.is_encoder_decoder
        tokenizer = kind(
            **given,
            mask_token=mask,
            model_max_length=config.max_source_positions,
            segments=bool(getattr(config, "type_vocab_size", 0)),
        )
        tokenizer.save_pretrained(folder)


def reads_fast(files: dict[str, Any], config: Any) -> bool:
    """Whether `DietEncoderTokenizer` reads the model's subwords."""
    from ..hf.fast_tokenizer import is_plain, read_model

    if config.is_encoder_decoder or "sentencepiece_file" not in files:
        return False
    return is_plain(read_model(Path(files["sentencepiece_file"])))


def write_card(
    folder: Path, args: Namespace, model: Any, languages: list[str], scores: Scores | None
) -> None:
    from .card import card

    text = card(model, args.out.name, languages, args.dataset, args.license, scores)
    (folder / "README.md").write_text(text, encoding="utf-8")

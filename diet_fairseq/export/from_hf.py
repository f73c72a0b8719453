"""``diet-fairseq import hf``: import of a transformers folder as a fairseq checkpoint."""

import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from .. import input_files, model_json
from ..errors import UserError
from ..inference.model_files import MADE_FROM, TextOptions
from ..model_json import Language
from . import folder as folders

#: the checkpoint in the folder that is written
MODEL = "model.pt"
#: fairseq's name of a classification head
HEAD = "sentence_classification_head"


def run(args: Namespace) -> None:
    folders.check(args.out, args.force)
    config = configuration(args.folder)
    with folders.create(args.out, args.force) as out:
        missing, unread = write(args.folder, out, config, args.out)
    for text, names in (
        ("not in the folder, so as they are initially", missing),
        ("left out", unread),
    ):
        if names:
            print(f"{text}: {', '.join(names)}")
    print(f"{args.out / MODEL}: for fairseq, with --user-dir diet_fairseq and the data {args.out}")


def configuration(folder: Path) -> Any:
    """The configuration of one of our models; no code of the folder is run."""
    from ..checkpoints.plain import shown
    from ..hf import DietEncoderConfig, DietTransformerConfig

    kinds = {kind.model_type: kind for kind in (DietEncoderConfig, DietTransformerConfig)}
    advice = "give one that `diet-fairseq export hf` wrote, or save_pretrained after it"
    try:
        options = input_files.read_json(folder / "config.json")
        kind = str(options.get("model_type"))
    except (UserError, AttributeError) as error:
        raise UserError(f"{folder} holds no config.json that can be read: {advice}") from error
    if kind not in kinds:
        raise UserError(
            f"{folder} holds a model of the type {shown(kind)}, which is not ours: {advice}"
        )
    try:
        config = kinds[kind](**options)
        config.attention_shape()  # checks the options of positions
    except UserError:
        raise
    except Exception as error:
        reason = shown(" ".join(str(error).split()), 200)
        raise UserError(
            f"{folder / 'config.json'} is not as it should be ({reason}): {advice}"
        ) from error
    return config


def weights(folder: Path) -> dict[str, Any]:
    """All tensors of the folder's safetensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise UserError(
            f"{folder} holds no model.safetensors: save the model with save_pretrained, which "
            "writes it (files in pickle's format are not read)"
        )
    try:
        for file in files:
            input_files.check_regular(file)
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{folder}'s weights are cut off or damaged ({error}): give another"
        ) from error


def write(folder: Path, out: Path, config: Any, final: Path) -> tuple[list[str], list[str]]:
    """Write the checkpoint, its dictionaries and its subword model to ``out``.

    Args:
        final: the name that ``out`` will have

    Returns:
        names of parameters that are missing in the folder, and of those that are not read
    """
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
    from omegaconf import OmegaConf

    from ..checkpoints.configuration import no_larger_than
    from ..checkpoints.plain import reason
    from ..patches import saving
    from . import huggingface
    from .huggingface import SPAN

    tensors = weights(folder)
    if any(name.startswith(huggingface.prefix_of(SPAN)) for name in tensors):
        raise UserError(
            f"{folder} holds a model that answers questions, for which fairseq has no task: keep "
            "it in transformers"
        )
    prefix = huggingface.prefix_of(HEAD)
    head = HEAD if any(name.startswith(prefix) for name in tensors) else None
    args = huggingface.arguments(config)
    args.nsp = "nsp_head.weight" in tensors
    generator = tensors.get("generator.encoder.layers.0.final_layer_norm.weight")  # (width,)
    if generator is not None:
        args.arch = f"electra_{config.position_scheme}"
        args.generator_size = generator.numel() / max(config.encoder_embed_dim, 1)
        # shared embeddings are stored once, as the discriminator's
        is_shared = "generator.encoder.layernorm_embedding.weight" not in tensors
        args.generator_embeddings = "shared" if is_shared else "own"
    source, target = write_dictionaries(folder, out, config, args, head)
    args = complete(args, final, head, config)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    task: Any = SimpleNamespace(
        source_dictionary=source, target_dictionary=target, max_positions=lambda: None
    )
    if generator is not None:  # only the task of pretraining builds one
        task = MaskedLMTask(MaskedLMConfig(), source)
    try:
        with no_larger_than(size):
            model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
            if head is not None:
                model.register_classification_head(head, config.num_labels)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{folder / 'config.json'} describes no model that can be built ({reason(error)}): "
            "give another folder"
        ) from error
    state, missing, unread = huggingface.state_for(model, config, tensors, head)
    body = "" if config.is_encoder_decoder else "encoder.sentence_encoder."
    if required := [name for name in missing if name.startswith(body)]:
        raise UserError(f"{folder}'s weights lack {required[0]}: give one that was saved whole")
    cfg = convert_namespace_to_omegaconf(args)
    history: dict[str, Any] = {"criterion_name": "", "optimizer_name": ""}
    history |= {"lr_scheduler_state": {}, "num_updates": 0}
    checkpoint = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": state,
        "optimizer_history": [history],
        "task_state": {},
        "extra_state": {"epoch": 1, "train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    saving.save(checkpoint, str(out / MODEL))
    if config.is_encoder_decoder:
        write_description(folder, out)
    else:
        write_text_options(folder, out)
    return missing, unread


def write_description(folder: Path, out: Path) -> None:
    """Write the checkpoint's ``model.json``, if the folder has one."""
    if not (folder / model_json.NAME).is_file():
        return
    about = model_json.read(folder)
    subwords = about.subword_model and out / about.subword_model.name
    replace(
        about, engine="fairseq", folder=out, checkpoint=out / MODEL, data=out,
        subword_model=subwords,
    ).write()  # fmt: skip


def write_text_options(folder: Path, out: Path) -> None:
    """Write the preprocessing of an encoder's text beside its dictionary."""
    config = tokenizer_config(folder)
    options = TextOptions(lower=config.do_lower_case or False, language=config.source_lang or "en")
    (out / MADE_FROM).write_text(options.model_dump_json(indent=1) + "\n", encoding="utf-8")


def write_dictionaries(
    folder: Path, out: Path, config: Any, args: Namespace, head: str | None
) -> tuple[Any, Any]:
    """Write the dictionaries where fairseq's tasks look for them, and the subword model.

    Returns:
        the dictionaries of source and target
    """
    from fairseq.data import Dictionary

    from ..checkpoints.plain import reason
    from ..hf.tokenizer import FILES, symbols_in

    source = folder / FILES["vocab_file"]
    if not source.is_file():
        raise UserError(f"{folder} holds no {source.name}, fairseq's dictionary: put it there")
    target = folder / FILES["target_vocab_file"]
    target = target if target.is_file() else source
    for name in ("sentencepiece_file", "codes_file"):
        if (folder / FILES[name]).is_file():
            shutil.copyfile(folder / FILES[name], out / FILES[name])
    if config.is_encoder_decoder:
        options = tokenizer_config(folder)  # fairseq needs names, which need not be languages
        args.source_lang = options.source_lang or "source"
        args.target_lang = options.target_lang or "target"
        places = {
            out / f"dict.{args.source_lang}.txt": source,
            out / f"dict.{args.target_lang}.txt": target,
        }
    elif head is not None:
        places = {out / "input0" / "dict.txt": source}
        if config.num_labels > 1:
            (out / "label").mkdir()
            labels = (config.id2label[number] for number in range(config.num_labels))
            lines = "".join(f"{label} 1\n" for label in labels)
            (out / "label" / "dict.txt").write_text(lines, encoding="utf-8")
    else:
        places = {out / "dict.txt": source}
    for place, file in places.items():
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, place)
    dictionaries = []
    sizes = (getattr(config, "source_vocab_size", None) or config.vocab_size, config.vocab_size)
    for file, size in zip((source, target), sizes, strict=True):
        symbols_in(file)
        try:
            dictionary = Dictionary.load(str(file))
        except (RuntimeError, ValueError) as error:  # such as a repeated symbol
            raise UserError(f"{file} is no dictionary ({reason(error)}): give another") from error
        if not config.is_encoder_decoder:
            dictionary.add_symbol("<mask>")
        if len(dictionary) != size:
            raise UserError(
                f"{file} has {len(dictionary):,} symbols, the model {size:,}: put the dictionary "
                "of the model there"
            )
        dictionaries.append(dictionary)
    return dictionaries[0], dictionaries[1]


class TokenizerConfig(BaseModel, strict=True):
    """The options of ``tokenizer_config.json`` that fairseq has."""

    source_lang: Language | None = None
    target_lang: Language | None = None
    do_lower_case: bool | None = None


def tokenizer_config(folder: Path) -> TokenizerConfig:
    """The tokenizer's options; all are None where its file is missing."""
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return TokenizerConfig()
    return input_files.read_object(path, TokenizerConfig, advice="give another folder")


def complete(args: Namespace, data: Path, head: str | None, config: Any) -> Namespace:
    """All options of fairseq-train: its defaults, replaced by ``args``."""
    from fairseq import options
    from fairseq.models import ARCH_CONFIG_REGISTRY

    task = "translation" if config.is_encoder_decoder else "masked_lm"
    if head:
        task = "sentence_prediction"
    words = [str(data), "--task", task, "--arch", args.arch]
    words += ["--criterion", task] if head else []
    parser = options.get_training_parser(default_task=task)
    full = options.parse_args_and_arch(parser, words)
    ARCH_CONFIG_REGISTRY[args.arch](args)  # adds the options that follow from sizes
    for name, value in vars(args).items():
        setattr(full, name, value)
    if head is not None:
        full.classification_head_name = head
        full.num_classes = config.num_labels
        full.regression_target = config.num_labels == 1
    return full

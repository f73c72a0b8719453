"""``diet-fairseq import hf``: a folder of transformers as a checkpoint of fairseq."""

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
    with folders.written(args.out, args.force) as out:
        fresh, left = write(args.folder, out, config, args.out)
    for what, names in (("not in the folder, so as they are initially", fresh), ("left out", left)):
        if names:
            print(f"{what}: {', '.join(names)}")
    print(f"{args.out / MODEL}: for fairseq, with --user-dir diet_fairseq and the data {args.out}")


def configuration(folder: Path) -> Any:
    """Of one of our two kinds of models; no code that lies in the folder is run."""
    from ..checkpoints.plain import shown
    from ..hf import DietEncoderConfig, DietTransformerConfig

    kinds = {kind.model_type: kind for kind in (DietEncoderConfig, DietTransformerConfig)}
    ours = "give one that `diet-fairseq export hf` wrote, or save_pretrained after it"
    try:
        given = input_files.read_json(folder / "config.json")
        kind = str(given.get("model_type"))
    except (UserError, AttributeError) as error:
        raise UserError(f"{folder} holds no config.json that can be read: {ours}") from error
    if kind not in kinds:
        raise UserError(
            f"{folder} holds a model of the type {shown(kind)}, which is not ours: {ours}"
        )
    try:
        config = kinds[kind](**given)
        config.attention_shape()  # checks the options of positions
    except UserError:
        raise
    except Exception as error:
        said = shown(" ".join(str(error).split()), 200)
        raise UserError(
            f"{folder / 'config.json'} is not as it should be ({said}): {ours}"
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
    """The checkpoint and what belongs to it; what `huggingface.state_for` says of parameters."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
    from omegaconf import OmegaConf

    from ..checkpoints.model import no_larger_than
    from ..checkpoints.plain import reason
    from ..patches import saving
    from . import huggingface
    from .huggingface import SPAN

    tensors = weights(folder)
    if any(name.startswith(huggingface.beginning_of(SPAN)) for name in tensors):
        raise UserError(
            f"{folder} holds a model that answers questions, for which fairseq has no task: keep "
            "it in transformers"
        )
    head = None
    if any(name.startswith(huggingface.beginning_of(HEAD)) for name in tensors):
        head = HEAD
    args = huggingface.arguments(config)
    args.nsp = "nsp_head.weight" in tensors
    generator = tensors.get("generator.encoder.layers.0.final_layer_norm.weight")  # (width,)
    if generator is not None:
        args.arch = f"electra_{config.position_scheme}"
        args.generator_size = generator.numel() / max(config.encoder_embed_dim, 1)
        # what is shared is written once
        own = "generator.encoder.layernorm_embedding.weight" in tensors
        args.generator_embeddings = "own" if own else "shared"
    source, target = write_dictionaries(folder, out, config, args, head)
    args = complete(args, final, head, config)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    task: Any = SimpleNamespace(
        source_dictionary=source, target_dictionary=target, max_positions=lambda: None
    )
    if generator is not None:  # which is there for pretraining alone
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
    state, missing, left = huggingface.state_for(model, config, tensors, head)
    body = "" if config.is_encoder_decoder else "encoder.sentence_encoder."
    if lost := [name for name in missing if name.startswith(body)]:
        raise UserError(f"{folder}'s weights lack {lost[0]}: give one that was saved whole")
    cfg = convert_namespace_to_omegaconf(args)
    history = {
        "criterion_name": "",
        "optimizer_name": "",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
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
        describe(folder, out)
    else:
        describe_text(folder, out)
    return missing, left


def describe(folder: Path, out: Path) -> None:
    """``model.json``, with which text is translated, if the folder has one."""
    if not (folder / model_json.NAME).is_file():
        return
    about = model_json.read(folder)
    subwords = about.subword_model and out / about.subword_model.name
    replace(
        about, engine="fairseq", folder=out, checkpoint=out / MODEL, data=out,
        subword_model=subwords,
    ).write()  # fmt: skip


def describe_text(folder: Path, out: Path) -> None:
    """How an encoder's text was made, beside its dictionary."""
    given = tokenizer_config(folder)
    options = TextOptions(lower=given.do_lower_case or False, language=given.source_lang or "en")
    (out / MADE_FROM).write_text(options.model_dump_json(indent=1) + "\n", encoding="utf-8")


def write_dictionaries(
    folder: Path, out: Path, config: Any, args: Namespace, head: str | None
) -> tuple[Any, Any]:
    """Dictionaries where fairseq's tasks look for them, and the subword model; both are read."""
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
        args.source_lang, args.target_lang = languages(folder)
        places = {
            out / f"dict.{args.source_lang}.txt": source,
            out / f"dict.{args.target_lang}.txt": target,
        }
    elif head is not None:
        places = {out / "input0" / "dict.txt": source}
        labels = [str(config.id2label[number]) for number in range(config.num_labels)]
        if config.num_labels > 1:
            (out / "label").mkdir()
            lines = "".join(f"{label} 1\n" for label in labels)
            (out / "label" / "dict.txt").write_text(lines, encoding="utf-8")
    else:
        places = {out / "dict.txt": source}
    for place, file in places.items():
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, place)
    found = []
    sizes = (getattr(config, "source_vocab_size", None) or config.vocab_size, config.vocab_size)
    for file, size in zip((source, target), sizes, strict=True):
        symbols_in(file)
        try:
            dictionary = Dictionary.load(str(file))
        except (RuntimeError, ValueError) as error:  # such as a symbol that is there twice
            raise UserError(f"{file} is no dictionary ({reason(error)}): give another") from error
        if not config.is_encoder_decoder:
            dictionary.add_symbol("<mask>")
        if len(dictionary) != size:
            raise UserError(
                f"{file} has {len(dictionary):,} symbols, the model {size:,}: put the dictionary "
                "of the model there"
            )
        found.append(dictionary)
    return found[0], found[1]


def languages(folder: Path) -> tuple[str, str]:
    """The tokenizer's languages; fairseq needs names, so they default to source and target."""
    options = tokenizer_config(folder)
    return options.source_lang or "source", options.target_lang or "target"


class TokenizerConfig(BaseModel, strict=True):
    """The part of ``tokenizer_config.json`` that is read here."""

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
    """All options of fairseq-train: those given, and its defaults for the others."""
    from fairseq import options
    from fairseq.models import ARCH_CONFIG_REGISTRY

    task = "translation" if config.is_encoder_decoder else "masked_lm"
    if head:
        task = "sentence_prediction"
    words = [str(data), "--task", task, "--arch", args.arch]
    words += ["--criterion", task] if head else []
    parser = options.get_training_parser(default_task=task)
    full = options.parse_args_and_arch(parser, words)
    ARCH_CONFIG_REGISTRY[args.arch](args)  # what follows from the sizes given
    for name, value in vars(args).items():
        setattr(full, name, value)
    if head is not None:
        full.classification_head_name = head
        full.num_classes = config.num_labels
        full.regression_target = config.num_labels == 1
    return full

"""``diet-fairseq export hf``: export of a checkpoint to Hugging Face transformers."""

import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor
from transformers import GenerationConfig

from ...errors import UserError
from ...export.comparison import refuse_differences
from ...files import atomic_folder, refuse_existing
from ...text.subwords import Gpt2, WordPiece, copy_subwords
from ...transformer.config import UNLIMITED
from ...translate.loading import LoadedModel, load_transformer
from ...translate.model_files import ModelOptions, resolve_model
from ...translate.model_json import dictionary_paths, directions_json
from ..encoders import (
    DietEncoderModel,
    DietForMaskedLM,
    DietForQuestionAnswering,
    DietForSequenceClassification,
)
from ..families import SPAN, rename_parameter
from ..tokenizer import FILES, SUBWORDS, DietEncoderTokenizer, DietTokenizer, gpt2_tokenizer
from ..transformer import DietForConditionalGeneration
from ..word_pieces import wordpiece_tokenizer
from .card import model_card, read_kept, read_top
from .configuration import VERSION, encoder_config, transformer_config
from .generation import to_generation
from .original import ORIGINAL, source_folders
from .sentence_modules import MODULES, write_modules

#: largest difference of outputs, which comes from the order of sums
TOLERANCE = 1e-3


def run(args: Namespace) -> None:
    refuse_existing(args.out)
    options = ModelOptions.from_args(args)
    loaded = load_transformer(resolve_model(args.checkpoint, options, translates=False))
    if args.original:
        from .to_original import export_original

        export_original(loaded, args.out)
        return
    converted = convert(loaded.model, find_head(loaded.model, loaded.task))
    model = converted.model
    defaults = {} if loaded.is_encoder else generation_options(loaded)
    if defaults:
        model.config.decoder_start_token_id = defaults["decoder_start_token_id"]
    if len(loaded.labels) == model.config.num_labels > 1:
        model.config.id2label = dict(enumerate(loaded.labels))
        model.config.label2id = {name: n for n, name in enumerate(loaded.labels)}
    if isinstance(model, DietEncoderModel) and loaded.model.encoder.lm_head is not None:
        print("left out: the head for masked words, which no training has changed")
    with atomic_folder(args.out) as new:
        text_length = write_sentence_modules(new, loaded)
        if text_length is not None and text_length > model.config.max_source_positions:
            model.config.max_text_length = text_length
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(new)
        weights = save(converted.tensors, metadata={"format": "pt"})
        (new / "model.safetensors").write_bytes(weights)
        write_tokenizer(new, loaded, model.config)
        card = model_card(args.out.name, model, loaded, read_original_card(loaded), text_length)
        (new / "README.md").write_text(card, encoding="utf-8")
        if not loaded.is_encoder:
            generation_config(model, **defaults).save_pretrained(new)
            loaded.write_model_json("transformers", new)
    print(f"{args.out}: {type(model).__name__}, {model.num_parameters():,} parameters")


def write_sentence_modules(folder: Path, loaded: LoadedModel) -> int | None:
    """Write the modules of sentence-transformers, if the imported model had them.

    Returns:
        the number of tokens at which sentence-transformers cuts texts; None without modules
    """
    sources = [part for path in source_folders(loaded) for part in (path / ORIGINAL, path)]
    source = next((path for path in sources if (path / MODULES).is_file()), None)
    if not loaded.is_encoder or source is None or loaded.description.subword_model is None:
        return None
    limit = loaded.max_positions if loaded.max_positions < UNLIMITED else None
    length = write_modules(source, folder, limit)
    if length is not None:
        print(f"modules of sentence-transformers: texts are cut after {length:,} tokens")
    return length


def read_original_card(loaded: LoadedModel) -> dict[str, Any]:
    """The metadata of the imported model's card that stay true; {} without a card."""
    sources = [part for path in source_folders(loaded) for part in (path / ORIGINAL, path)]
    return next((read_kept(read_top(path)) for path in sources if read_top(path)), {})


def find_head(model: Any, task: Any) -> str | None:
    """The name of an encoder's classification head, preferably its task's head, or None."""
    heads = list(getattr(model, "classification_heads", {}))
    name = getattr(task.cfg, "classification_head_name", None)
    return name if name in heads else next(iter(heads), None)


def generation_options(loaded: LoadedModel) -> dict[str, Any]:
    """The model's options of ``generate``, with the language tags of the default direction."""
    description, target = loaded.description, loaded.task.target_dictionary
    framing = description.all_directions.frame(*description.languages)
    ends = [target.index(token) for token in (framing.target_end, *description.end_tokens)]
    options = to_generation(description, target) | {
        "decoder_start_token_id": target.index(framing.target_start),
        "eos_token_id": ends if description.end_tokens else ends[0],
    }
    if len(framing.target_prefix) > 1:
        raise UserError(
            f"{loaded.path} begins translations with {' '.join(framing.target_prefix)}, but "
            "generate forces one token: use `diet-fairseq export ctranslate2`"
        )
    for token in framing.target_prefix:
        options["forced_bos_token_id"] = target.index(token)
    return options


def generation_config(model: Any, **changes: Any) -> Any:
    """The defaults of fairseq-generate, with ``changes``, as a ``GenerationConfig``.

    The beam size is 5. Outputs have 1 to 200 tokens, but not more than the decoder has positions or
    ``changes`` allow.
    """
    config = model.config
    longest = min(201, model.get_decoder().limit.positions)
    options = {
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.pad_token_id,
        "decoder_start_token_id": config.decoder_start_token_id,
        "num_beams": 5,
        "early_stopping": True,
        "max_new_tokens": min(longest, changes.pop("max_new_tokens", longest)),
        "min_new_tokens": 1,
        "suppress_tokens": [config.pad_token_id],
    }
    options |= changes
    if options["num_beams"] == 1:  # transformers refuses to save options of a beam
        options.pop("early_stopping")
        options.pop("length_penalty", None)
    return GenerationConfig(**options)


def write_tokenizer(folder: Path, loaded: LoadedModel, config: Any) -> None:
    """Write the tokenizer, or only the dictionaries if the model has no subwords."""
    description, directions = loaded.description, loaded.description.directions
    source, target = loaded.task.source_dictionary, loaded.task.target_dictionary
    files = [str(folder / FILES[name]) for name in ("vocab_file", "target_vocab_file")]
    if description.subword_model is None or directions:
        # `import hf` needs the dictionaries, and the task may have added language tags to them
        source.save(files[0])
        if target != source:
            target.save(files[1])
    else:
        files = [str(file) for file in dictionary_paths(description)]
    if description.subword_model is None:
        return
    subwords, limit = description.tokenizers[0].subwords, config.max_source_positions
    has_segments = bool(getattr(config, "type_vocab_size", 0))
    if loaded.is_encoder and isinstance(subwords, Gpt2 | WordPiece):
        shutil.copyfile(files[0], folder / FILES["vocab_file"])
        if isinstance(subwords, WordPiece):
            tokenizer = wordpiece_tokenizer(
                source.indices, subwords, has_segments, model_max_length=limit
            )
        else:
            copy_subwords(description.subwords, description.subword_model, folder)
            tokenizer = gpt2_tokenizer(source.indices, subwords, model_max_length=limit)
        tokenizer.save_pretrained(folder)
        return
    tokenizer_class: Any = DietEncoderTokenizer if loaded.is_encoder else DietTokenizer
    tokenizer = tokenizer_class(
        vocab_file=files[0],
        target_vocab_file=None if target == source else files[-1],
        **{SUBWORDS[description.subwords]: str(description.subword_model)},
        target_sentencepiece_file=(
            description.target_subword_model and str(description.target_subword_model)
        ),
        moses=description.preprocessing == "moses",
        do_lower_case=description.lower,
        source_lang=description.languages[0],
        target_lang=description.languages[1],
        directions=directions and directions_json(directions),
        mask_token="<mask>" if "<mask>" in source.indices else None,
        model_max_length=limit,
        segments=has_segments,
    )
    tokenizer.save_pretrained(folder)


class ConvertedModel(NamedTuple):
    """A model in transformers, in eval mode, and the content of its weights file."""

    model: Any
    tensors: dict[str, Tensor]  # also of heads that the model in transformers lacks


def convert(model: Any, head: str | None = None) -> ConvertedModel:
    """Convert fairseq's model to a model of transformers.

    Args:
        head: the name of the classification head to convert; None: the language-model head
    """
    is_encoder = not hasattr(model, "decoder")
    config = encoder_config(model, head) if is_encoder else transformer_config(model)
    state = {
        rename_parameter(name, config, head): tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith((VERSION, ".gain"))
    }
    kind: Any = DietForMaskedLM
    if not is_encoder:
        kind = DietForConditionalGeneration
    elif head:
        kind = DietForQuestionAnswering if head == SPAN else DietForSequenceClassification
    elif not has_trained_head(state):
        kind = DietEncoderModel
        state = {
            name.removeprefix("model."): tensor
            for name, tensor in state.items()
            if not name.startswith(("lm_head.", "generator.", "discriminator_head."))
        }
    converted = kind(config).eval()
    names_read = converted.state_dict().keys()
    unused_names = [name for name in state if name not in names_read]
    unmatched = [name for name in unused_names if not is_encoder or name.startswith("model.")]
    unmatched += [name for name in names_read if name not in state]
    if unmatched:
        rest = f" and {len(unmatched) - 1} more" if len(unmatched) > 1 else ""
        raise UserError(
            f"the model has options that the transformers version lacks ({unmatched[0]}{rest}): "
            "keep it in fairseq"
        )
    converted.load_state_dict({name: state[name] for name in names_read})
    check_same(model, converted, head)
    tied = state.get("model.embed_tokens.weight", torch.empty(0)).data_ptr()
    heads = {name: state[name] for name in unused_names if state[name].data_ptr() != tied}
    copies = converted.all_tied_weights_keys
    tensors = {**converted.state_dict(), **heads}
    return ConvertedModel(
        converted, {name: x.contiguous() for name, x in tensors.items() if name not in copies}
    )


def has_trained_head(state: dict[str, Tensor]) -> bool:
    """Whether a language-model head exists, and is not new: training changes its zero biases."""
    names = [f"lm_head.{part}.bias" for part in ("dense", "layer_norm", "decoder")]
    return any(name in state and bool(state[name].any()) for name in names)


@torch.no_grad()
def check_same(model: Any, converted: Any, head: str | None = None) -> None:
    """Refuse outputs that differ: logits, or the features of a model without a head."""
    model.eval()
    config = converted.config
    draw = torch.Generator().manual_seed(1)
    longest = min(config.max_source_positions, 24)

    def sentences(vocabulary: int, longest: int) -> Tensor:
        tokens = torch.randint(4, max(vocabulary, 5), (2, longest), generator=draw) % vocabulary
        tokens[:, -1] = config.eos_token_id
        tokens[1, longest // 2 :] = config.pad_token_id
        return tokens

    sources = sentences(converted.get_input_embeddings().num_embeddings, longest)
    real = sources != config.pad_token_id
    if config.is_encoder_decoder:
        targets = sentences(config.vocab_size, min(config.max_target_positions, 17))
        expected = model(sources, real.sum(1), targets)[0]
        actual = converted(input_ids=sources, decoder_input_ids=targets).logits
        real = targets != config.pad_token_id
    else:
        segments = (torch.arange(longest) >= longest // 3).long().expand_as(sources)
        segments = segments.clamp(max=max(config.type_vocab_size - 1, 0))
        out = converted(sources, token_type_ids=segments)
        if head == SPAN:  # this head reads every token
            features = model(sources, features_only=True, segments=segments)[0]  # (B, T, d)
            span = model.classification_heads[head]
            expected = span.out_proj(span.activation_fn(span.dense(features)))  # (B, T, 2)
            actual = torch.stack([out.start_logits, out.end_logits], -1)
        elif head is not None:
            expected = model(sources, segments=segments, classification_head_name=head)[0]
            actual, real = out.logits, torch.ones(2, dtype=torch.bool)
        else:
            is_headless = isinstance(converted, DietEncoderModel)
            expected = model(sources, features_only=is_headless, segments=segments)[0]
            actual = out.last_hidden_state if is_headless else out.logits
    refuse_differences(
        [(actual[real], expected[real])],
        TOLERANCE,
        "the exported model does not reproduce the checkpoint",
        "it uses an option that the transformers version lacks; keep it in fairseq",
    )

"""``diet-fairseq export hf``: export of a checkpoint to Hugging Face transformers."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from ..translate.loading import LoadedModel, load_transformer
from ..translate.model_files import ModelOptions, dictionary_paths, resolve_model
from .folder import atomic_folder, refuse_existing

AUTO_CLASSES = {
    "DietForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "DietForMaskedLM": "AutoModelForMaskedLM",
    "DietForSequenceClassification": "AutoModelForSequenceClassification",
    "DietForQuestionAnswering": "AutoModelForQuestionAnswering",
    "DietEncoderModel": "AutoModel",
}
#: the model card
USAGE = """---
library_name: transformers
---

```python
import diet_fairseq.hf  # registers the model with the Auto classes
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
```
"""


def run(args: Namespace) -> None:
    refuse_existing(args.out)
    from safetensors.torch import save

    from . import huggingface

    options = ModelOptions.from_args(args)
    loaded = load_transformer(resolve_model(args.checkpoint, options, translates=False))
    converted = huggingface.convert(loaded.model, head_of(loaded.model, loaded.task))
    model = converted.model
    with atomic_folder(args.out) as new:
        if len(loaded.labels) == model.config.num_labels > 1:
            model.config.id2label = dict(enumerate(loaded.labels))
            model.config.label2id = {name: n for n, name in enumerate(loaded.labels)}
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(new)
        weights = save(converted.tensors, metadata={"format": "pt"})
        (new / "model.safetensors").write_bytes(weights)
        write_tokenizer(new, loaded, model.config)
        usage = USAGE.format(name=args.out.name, auto=AUTO_CLASSES[type(model).__name__])
        (new / "README.md").write_text(usage, encoding="utf-8")
        if not loaded.is_encoder:
            generation_config(model).save_pretrained(new)
            loaded.write_model_json("transformers", new)
    print(f"{args.out}: {type(model).__name__}, {model.num_parameters():,} parameters")


def head_of(model: Any, task: Any) -> str | None:
    """The classification head of a fine-tuned encoder; of several, the one trained last."""
    heads = list(getattr(model, "classification_heads", {}))
    name = getattr(task.cfg, "classification_head_name", None)
    return name if name in heads else next(iter(heads), None)


def generation_config(model: Any) -> Any:
    """The defaults of fairseq-generate as transformers' ``GenerationConfig``.

    The beam is 5. Outputs have 1 to 200 words, or as many as the decoder has positions, without
    padding.
    """
    from transformers import GenerationConfig

    config = model.config
    return GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        num_beams=5,
        early_stopping=True,
        max_new_tokens=min(201, model.get_decoder().limit.positions),
        min_new_tokens=1,
        suppress_tokens=[config.pad_token_id],
    )


def write_tokenizer(folder: Path, loaded: LoadedModel, config: Any) -> None:
    """Write the tokenizer, or the dictionaries alone for a vocabulary of words."""
    from ..hf import DietEncoderTokenizer, DietTokenizer
    from ..hf.tokenizer import FILES

    description, task = loaded.description, loaded.task
    source, target = task.source_dictionary, task.target_dictionary
    if description.subword_model is None:  # `diet-fairseq import hf` needs the dictionaries
        source.save(str(folder / FILES["vocab_file"]))
        if target != source:
            target.save(str(folder / FILES["target_vocab_file"]))
        return
    files = [str(file) for file in dictionary_paths(description)]
    kind = "sentencepiece_file" if description.subwords == "sentencepiece" else "codes_file"
    tokenizer_class: Any = DietEncoderTokenizer if loaded.is_encoder else DietTokenizer
    tokenizer = tokenizer_class(
        vocab_file=files[0],
        target_vocab_file=None if target == source else files[-1],
        **{kind: str(description.subword_model)},
        moses=description.preprocessing == "moses",
        do_lower_case=description.lower,
        source_lang=description.languages[0],
        target_lang=description.languages[1],
        mask_token="<mask>" if "<mask>" in source.indices else None,
        model_max_length=config.max_source_positions,
        segments=bool(getattr(config, "type_vocab_size", 0)),
    )
    tokenizer.save_pretrained(folder)

"""Model cards: model, data, scores, and usage."""

from typing import Any

from huggingface_hub import ModelCardData

from ..version import __version__

TASKS = {
    "DietForConditionalGeneration": ("translation", "AutoModelForSeq2SeqLM"),
    "DietForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "DietForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "DietForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "DietEncoderModel": ("feature-extraction", "AutoModel"),
}


def card(
    model: Any, name: str, languages: list[str], dataset: str | None, license: str | None
) -> str:
    """The text of README.md."""
    config = model.config
    task, auto = TASKS[type(model).__name__]
    data = ModelCardData(
        language=languages or None,
        license=license,
        library_name="transformers",
        pipeline_tag=task,
        datasets=[dataset] if dataset else None,
        tags=["diet_fairseq", config.position_scheme],
    )
    options = "|".join(f"{key}:{value}" for key, value in (config.position_options or {}).items())
    usage = "outputs = model(**tokenizer('...', return_tensors='pt'))"
    if task == "translation":
        usage = """inputs = tokenizer(['...'], return_tensors='pt')
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))"""
    return f"""---
{data.to_yaml()}
---

# {name}

A fairseq model with the position scheme `{config.position_scheme}` ({options}), written by \
diet_fairseq {__version__}.

```python
import diet_fairseq.hf  # registers the model with the Auto classes
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
{usage}
```
"""

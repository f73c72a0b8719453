"""Model cards: model, data, scores, and usage."""

from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from ..version import __version__

TASKS = {
    "DietForConditionalGeneration": ("translation", "AutoModelForSeq2SeqLM"),
    "DietForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "DietForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "DietForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "DietEncoderModel": ("feature-extraction", "AutoModel"),
}


def card(
    model: Any,
    name: str,
    languages: list[str],
    dataset: str | None,
    license: str | None,
    scores: Any,
) -> str:
    """The text of README.md; ``scores`` are `to_hf.Scores` or None."""
    config = model.config
    task, auto = TASKS[type(model).__name__]
    results, rows = [], []
    for metric in ("BLEU", "chrF"):
        value = getattr(scores, metric, None)
        if value is not None:
            signature = getattr(scores, f"{metric.lower()}_signature")
            results.append(
                EvalResult(
                    task_type=task,
                    dataset_type=dataset or "custom",
                    dataset_name=dataset or "the test set",
                    metric_type=metric.lower(),
                    metric_value=round(value, 2),
                    metric_config=signature,
                )
            )
            rows.append(f"| {metric} | {value:.2f} | `{signature}` |")
    data = ModelCardData(
        language=languages or None,
        license=license,
        library_name="transformers",
        pipeline_tag=task,
        datasets=[dataset] if dataset else None,
        metrics=[result.metric_type for result in results] or None,
        eval_results=results or None,
        model_name=name if results else None,
        tags=["diet_fairseq", config.position_scheme],
    )
    options = "|".join(f"{key}:{value}" for key, value in (config.position_options or {}).items())
    usage = "outputs = model(**tokenizer('...', return_tensors='pt'))"
    if task == "translation":
        usage = """inputs = tokenizer(['...'], return_tensors='pt')
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))"""
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name}",
        f"A fairseq model with the position scheme `{config.position_scheme}` ({options}), written "
        f"by diet_fairseq {__version__}.",
    ]
    if rows:
        parts.append(
            "\n".join(["| score | | sacreBLEU's signature |", "| --- | --- | --- |", *rows])
        )
    parts.append(f"""```python
import diet_fairseq.hf  # registers the model with the Auto classes
from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
{usage}
```
""")
    return "\n\n".join(parts)

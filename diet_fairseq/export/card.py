"""The model card: model, data, scores, and how to load it."""

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
    dataset: str | None = None,
    license: str | None = None,
    scores: Any = None,
) -> str:
    """README.md; ``scores`` are `to_hf.Scores`."""
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
    generate = [
        "inputs = tokenizer(['...'], return_tensors='pt')",
        "print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))",
    ]
    use = (
        generate
        if task == "translation"
        else ["outputs = model(**tokenizer('...', return_tensors='pt'))"]
    )
    parts = [
        f"---\n{data.to_yaml()}\n---",
        f"# {name}",
        f"A fairseq model with the position scheme `{config.position_scheme}` ({options}), written "
        f"by diet_fairseq {__version__}.",
        *(
            ["| score | | sacreBLEU's signature |\n| --- | --- | --- |\n" + "\n".join(rows)]
            if rows
            else []
        ),
        "\n".join(
            [
                "```python",
                "import diet_fairseq.hf  # registers the model with the Auto classes",
                f"from transformers import {auto}, AutoTokenizer",
                "",
                f'model = {auto}.from_pretrained("{name}")',
                f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
                *use,
                "```",
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"

"""Search in long documents: an encoder cut at its length, its chunks, and swapped encoders.

    python -m benchmarks.long_documents ORIGINAL SWAPPED... --text valid.txt.gz

TEXT has one sentence per line and a blank line between documents, and must not be training text of
SWAPPED. A sentence embedding is the normalised mean of the features of real tokens. Three tests:

- ``late``: three passages of the second half of each document's first tokens are cut out of it, and
  each passage must be nearest to its own document;
- ``halves``: the first tokens of each document must be nearest to its next tokens;
- ``classes``: a logistic regression on the embeddings must predict the class of each document.
  ``--labels`` has a line with class and group, such as author and novel, for each document of TEXT,
  or an empty line for a document to leave out. No group is in the training and the test set of a
  fold.

The table has the share of queries that find their own document (R@1), or the mean over groups of
the share of right classes, with its 95% confidence interval (a bootstrap over documents or groups),
and the CPU seconds of all embeddings.
"""

import argparse
import gzip
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import diet_fairseq.hf  # noqa: F401  # registers our classes

PASSAGE, PASSAGES = 62, 3
#: texts as ids, without special tokens
Texts = list[list[int]]


def read_documents(path: Path) -> Iterator[str]:
    """Documents between blank lines."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for document in file.read().strip().split("\n\n"):
            yield document.replace("\n", " ")


def cut_passages(documents: Texts, tokens: int) -> tuple[Texts, Texts, list[int]]:
    """Passages of the second half of the documents.

    Returns:
        passages, documents of ``tokens`` tokens without them, and the document of each passage
    """
    draw = random.Random(2)
    passages, rest, owners = [], [], []
    for number, document in enumerate(documents):
        text = document[: tokens + PASSAGES * PASSAGE]
        part = (len(text) - len(text) // 2) // PASSAGES
        first = [len(text) // 2 + n * part for n in range(PASSAGES)]
        starts = [draw.randrange(start, start + part - PASSAGE) for start in first]
        passages += [text[start : start + PASSAGE] for start in starts]
        owners += [number] * PASSAGES
        for start in reversed(starts):
            text = text[:start] + text[start + PASSAGE :]
        rest.append(text)
    return passages, rest, owners


@torch.no_grad()
def embed(model: Any, tokenizer: Any, texts: Texts) -> Tensor:
    """The sentence embeddings of texts: (N, d)."""
    rows = []
    first, last = tokenizer("")["input_ids"]  # the special tokens around a text
    for ids in texts:
        inputs = torch.tensor([[first, *ids, last]])
        features = model(inputs, attention_mask=torch.ones_like(inputs)).last_hidden_state
        rows.append(F.normalize(features.mean(1), dim=-1)[0])
    return torch.stack(rows)


def embed_chunks(model: Any, tokenizer: Any, texts: Texts, size: int) -> Tensor:
    """The normalised mean of the embeddings of each text's chunks, by their length: (N, d)."""
    rows = []
    for ids in texts:
        chunks = [ids[start : start + size] for start in range(0, len(ids), size)]
        lengths = torch.tensor([len(chunk) for chunk in chunks], dtype=torch.float32)
        rows.append(F.normalize(lengths @ embed(model, tokenizer, chunks), dim=-1))
    return torch.stack(rows)


def find_hits(queries: Tensor, documents: Tensor, owners: list[int]) -> Tensor:
    """The share of each document's queries that are nearest to it: (N,)."""
    nearest = (queries @ documents.T).argmax(1)
    return nearest.eq(torch.tensor(owners)).float().view(len(documents), -1).mean(1)


def classify(features: Tensor, classes: list[str], groups: list[str]) -> Tensor:
    """The share of right classes in each group, with training on other groups: (G,)."""
    # here, because only one test needs it
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_predict

    model = LogisticRegression(C=10, max_iter=1000)
    folds = GroupKFold(min(5, len(set(groups))))
    predictions = cross_val_predict(model, features.numpy(), classes, groups=groups, cv=folds)
    right: dict[str, list[float]] = {}
    for group, guess, answer in zip(groups, predictions, classes, strict=True):
        right.setdefault(group, []).append(float(guess == answer))
    return torch.tensor([sum(values) / len(values) for values in right.values()])


def confidence_interval(hits: Tensor) -> tuple[float, float]:
    """The 95% confidence interval of the mean, by 2,000 samples of the documents or groups."""
    generator = torch.Generator().manual_seed(1)
    samples = torch.randint(len(hits), (2000, len(hits)), generator=generator)
    low, high = hits[samples].mean(1).quantile(torch.tensor([0.025, 0.975])).tolist()
    return low, high


def main() -> None:
    summary, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("original", help="folder of the encoder and its tokenizer")
    parser.add_argument("swapped", nargs="*", help="folders of encoders with the same tokenizer")
    parser.add_argument("--text", type=Path, required=True, help="documents, plain or gzip")
    parser.add_argument(
        "--documents", type=int, default=80, help="number of documents (%(default)s)"
    )
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a text (%(default)s)")
    parser.add_argument(
        "--chunk", type=int, default=512, help="tokens of the original's chunks (%(default)s)"
    )
    parser.add_argument("--test", choices=["late", "halves", "classes"], default="late")
    parser.add_argument("--labels", type=Path, help="TSV of classes: class and group")
    args = parser.parse_args()
    if (args.test == "classes") != (args.labels is not None):
        parser.error("--test classes and --labels need each other: give both, or neither")
    tokenizer: Any = AutoTokenizer.from_pretrained(args.original)
    size, chunk = args.tokens - 2, args.chunk - 2  # without special tokens
    needed = {"late": size + PASSAGES * PASSAGE, "halves": 2 * size, "classes": size}[args.test]
    texts = list(read_documents(args.text))
    labels = [""] * len(texts)
    if args.labels:
        labels = args.labels.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        if len(labels) != len(texts):
            parser.error(
                f"--labels {args.labels} must have a line for each of the {len(texts):,} "
                f"documents, but has {len(labels):,}"
            )
    chosen: Texts = []
    chosen_labels: list[str] = []
    for number in random.Random(1).sample(range(len(texts)), len(texts)):
        if len(chosen) == args.documents:
            break
        if args.labels and not labels[number]:
            continue
        ids = tokenizer(texts[number], add_special_tokens=False, verbose=False)
        if len(ids["input_ids"]) >= needed:
            chosen.append(ids["input_ids"])
            chosen_labels.append(labels[number])
    queries: Texts = []
    documents, owners = [ids[:size] for ids in chosen], list(range(len(chosen)))
    if args.test == "late":
        queries, documents, owners = cut_passages(chosen, size)
    elif args.test == "halves":
        queries, documents = documents, [ids[size : 2 * size] for ids in chosen]
    original: Any = AutoModel.from_pretrained(args.original).eval()

    def cut(texts: Texts) -> Tensor:
        return embed(original, tokenizer, [ids[:chunk] for ids in texts])

    methods: dict[str, Callable[[Texts], Tensor]] = {
        f"original, first {args.chunk} tokens": cut,
        f"original, mean of chunks of {args.chunk}": lambda texts: embed_chunks(
            original, tokenizer, texts, chunk
        ),
    }
    for folder in args.swapped:
        model: Any = AutoModel.from_pretrained(folder).eval()
        methods[f"{folder}, {args.tokens} tokens"] = partial(embed, model, tokenizer)
    measure = "right classes" if args.labels else "R@1"
    print(f"{len(chosen)} documents, {len(queries)} queries\n")
    print(f"| method | {measure} | 95% interval | CPU s |\n| --- | --- | --- | --- |", flush=True)
    for name, method in methods.items():
        start = time.process_time()
        if args.labels:
            classes, groups = zip(*(label.split("\t") for label in chosen_labels), strict=True)
            hits = classify(method(documents), list(classes), list(groups))
        else:
            hits = find_hits(method(queries), method(documents), owners)
        seconds = time.process_time() - start
        low, high = confidence_interval(hits)
        print(
            f"| {name} | {hits.mean():.2f} | {low:.2f} to {high:.2f} | {seconds:.0f} |", flush=True
        )


if __name__ == "__main__":
    main()

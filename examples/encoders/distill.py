"""Distillation of an encoder into a copy of itself with another position scheme.

    pip install accelerate scipy sentence-transformers
    python distill.py all-MiniLM-L6-v2 swapped --text train.txt --position-scheme diet_rel \\
        --position-option position_clip=32 --pairs dev.tsv

The copy learns the original's features of all tokens and their mean, the sentence embedding, on the
lines of text files. A folder of sentence-transformers keeps its modules. The command continues from
its last checkpoint if it is run again.
"""

import csv
import gzip
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from diet_fairseq.hf import swap_positions

#: number of lines that are not trained on
HELD_OUT = 64


def pool(features: Tensor, mask: Tensor) -> Tensor:
    """The normalised mean of the real tokens' features (B, T, d): (B, d)."""
    return F.normalize((features * mask.unsqueeze(-1)).sum(1), dim=-1)


class Distillation(Trainer):
    """Trains a copy to compute the features of its original."""

    def __init__(self, original: Any, pairs: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.original, self.pairs = original.to(self.args.device), pairs

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        """The distance of tokens' features, in their variances, and of sentence embeddings."""
        model.eval()  # no dropout, because the original's features have none
        mask = inputs["attention_mask"]
        with torch.no_grad():
            goal = self.original(**inputs).last_hidden_state  # (B, T, d)
        features, real = model(**inputs).last_hidden_state, mask.bool()
        tokens = F.mse_loss(features[real], goal[real]) / goal[real].var()
        return tokens + (pool(features, mask) - pool(goal, mask)).pow(2).sum(1).mean()

    @torch.no_grad()
    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Log the loss on held-out lines, and Spearman's correlation with the scores of pairs."""
        batches = [self._prepare_inputs(batch) for batch in self.get_eval_dataloader()]
        losses = [self.compute_loss(self.model, batch) for batch in batches]
        metrics = {"eval_loss": torch.stack(losses).mean().item()}
        if self.pairs:
            first, second = (self.embed([row[f"sentence{n}"] for row in self.pairs]) for n in "12")
            scores = [float(row["score"]) for row in self.pairs]
            cosines = (first * second).sum(1).tolist()
            metrics["eval_spearman"] = float(spearmanr(cosines, scores)[0])
        self.log(metrics)
        return metrics

    def embed(self, lines: list[str]) -> Tensor:
        """The sentence embeddings of lines: (N, d)."""
        model: Any = self.model
        tokenizer: Any = self.processing_class
        rows = torch.empty(len(lines), model.config.hidden_size)
        for indices in torch.tensor([len(line) for line in lines]).argsort().split(32):
            texts = [lines[index] for index in indices]
            inputs = tokenizer(texts, padding=True, truncation=True)
            inputs = inputs.convert_to_tensors("pt").to(self.args.device)
            features = model(**inputs).last_hidden_state
            rows[indices] = pool(features, inputs["attention_mask"]).cpu()
        return rows


def read_lines(path: Path) -> list[str]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def main(args: Namespace) -> None:
    set_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    original = AutoModel.from_pretrained(args.model).eval()
    options = dict(option.split("=") for option in args.position_option)
    options = {name: int(x) if x.isdigit() else x for name, x in options.items()}
    copy = swap_positions(
        original, args.position_scheme, max_positions=args.max_positions, **options
    )
    copy.config.trained_length = args.length
    lines = sorted({line for path in args.text for line in read_lines(path)})
    needed = args.steps * args.batch
    order = torch.randperm(len(lines)).tolist()[: needed + HELD_OUT]
    texts = [
        {"input_ids": tokenizer(lines[n], truncation=True, max_length=args.length)["input_ids"]}
        for n in order
    ]
    held_out, texts = texts[:HELD_OUT], texts[HELD_OUT:]
    if not texts:
        raise SystemExit(f"--text must have more than {HELD_OUT} different lines: give more text")
    lengths = [len(text["input_ids"]) for text in texts]
    rounds = range(-(-needed // len(texts)))
    order = [n for _ in rounds for n in get_length_grouped_indices(lengths, args.batch)]
    pairs = args.pairs and list(
        csv.DictReader(read_lines(args.pairs), delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    trainer = Distillation(
        original,
        pairs,
        copy,
        TrainingArguments(
            str(args.out), max_steps=args.steps, learning_rate=args.lr, warmup_steps=20,
            per_device_train_batch_size=args.batch, train_sampling_strategy="sequential",
            eval_strategy="steps", eval_steps=args.check_every, eval_on_start=True,
            save_steps=args.check_every, save_total_limit=1, logging_steps=10, seed=args.seed,
            report_to="none", dataloader_pin_memory=torch.cuda.is_available(),
        ),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=[texts[n] for n in order[:needed]],  # a continued run has the same order
        eval_dataset=held_out,
        processing_class=tokenizer,
    )  # fmt: skip
    checkpoints = {  # complete ones: Trainer writes trainer_state.json last
        int(path.parent.name.partition("-")[2]): str(path.parent)
        for path in args.out.glob("checkpoint-*/trainer_state.json")
    }
    trainer.train(resume_from_checkpoint=checkpoints.get(max(checkpoints, default=0)))
    trainer.save_model()
    if (args.model / "modules.json").exists():
        sentence_model = SentenceTransformer(str(args.model))
        sentence_model[0].model = copy
        sentence_model.max_seq_length = copy.config.max_position_embeddings
        sentence_model.save(str(args.out))


if __name__ == "__main__":
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="folder of the encoder and its tokenizer")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="files of lines")
    parser.add_argument("--position-scheme", default="diet_rel", help="default: %(default)s")
    parser.add_argument("--position-option", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--max-positions", type=int, default=2048, help="default: %(default)s")
    parser.add_argument("--pairs", type=Path, help="TSV: sentence1, sentence2, score")
    parser.add_argument("--length", type=int, default=128, help="tokens a line at most (128)")
    parser.add_argument("--steps", type=int, default=240, help="updates (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="lines an update (%(default)s)")
    parser.add_argument("--lr", type=float, default=4e-4, help="peak (default: %(default)s)")
    parser.add_argument("--check-every", type=int, default=80, metavar="STEPS", help="(80)")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    main(parser.parse_args())

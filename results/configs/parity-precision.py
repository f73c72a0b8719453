"""The first 50 losses of STS-B by fairseq's sentence_prediction and by finetune.py.

    parity-precision.py prepare|fairseq|trainer float32|float64 RUNS ROOT_OF_REPOSITORY

RUNS/parity holds start.pt (the checkpoint after 500 updates of glue-small.yaml), its dict.txt, and
hf, which `diet-fairseq export hf` makes of it, with all dropouts of config.json set to 0; RUNS/data
is the folder of data. Both ways start from the same encoder and the same head, see the same batches
of 16 in the same order, decay all parameters, clip gradients to 1 and have AdamW at 0.001. Losses,
not rounded, go to RUNS/parity/WAY-TYPE.json.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import torch

WAY, DTYPE, RUNS, ROOT = sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
sys.path.insert(0, str(ROOT / "examples" / "roberta"))
HERE = RUNS / "parity"
HF, CHECKPOINT, STS = HERE / "hf", HERE / "start.pt", RUNS / "data" / "glue" / "STS-B"

if DTYPE == "float64":
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double


def fill(head):
    """The same head for both."""
    draw = torch.Generator().manual_seed(1)
    for layer in (head.dense, head.out_proj):
        weight = torch.randn(layer.weight.shape, generator=draw, dtype=torch.float32) * 0.02
        layer.weight.data.copy_(weight)
        layer.bias.data.zero_()


def save(losses):
    (HERE / f"{WAY}-{DTYPE}.json").write_text(json.dumps(losses))


def prepare():
    """800 pairs that fit, as a table and as fairseq's data."""
    from transformers import AutoTokenizer

    import diet_fairseq.hf  # noqa: F401

    tokenizer = AutoTokenizer.from_pretrained(HF)
    with gzip.open(STS / "train.tsv.gz", "rt", encoding="utf-8-sig", newline="\n") as file:
        rows = [line.rstrip("\n").split("\t")[-3:] for line in file][1:]
    pairs = []
    for row in rows:
        tokens = [tokenizer.tokenize(text) for text in row[:2]]
        if sum(map(len, tokens)) + 3 <= 128 and len(pairs) < 800:
            pairs.append((row, tokens))
    table = HERE / "table"
    table.mkdir(exist_ok=True)
    lines = ["\t".join(row) + "\n" for row, _ in pairs]
    (table / "train.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    (table / "dev.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(lines[:16]))
    for side in (0, 1):
        text = HERE / f"input{side}.txt"
        text.write_text("".join(" ".join(tokens[side]) + "\n" for _, tokens in pairs))
        subprocess.run(
            [
                "fairseq-preprocess",
                "--only-source",
                "--trainpref",
                text,
                "--validpref",
                text,
                "--srcdict",
                HERE / "dict.txt",
                "--destdir",
                HERE / "data" / f"input{side}",
            ],
            check=True,
        )
    (HERE / "data" / "label").mkdir(exist_ok=True)
    for split in ("train", "valid"):
        labels = "".join(row[2] + "\n" for row, _ in pairs)
        (HERE / "data" / "label" / f"{split}.label").write_text(labels)


def fairseq():
    from fairseq import utils
    from fairseq.criterions.sentence_prediction import SentencePredictionCriterion as Criterion
    from fairseq.tasks.sentence_prediction import SentencePredictionTask as Task
    from fairseq.trainer import Trainer
    from fairseq_cli import train
    from torch.nn.utils import clip_grad_norm_

    if DTYPE == "float64":  # fairseq's own norm is float32
        utils.clip_grad_norm_ = lambda parameters, most, *_: clip_grad_norm_([*parameters], most)
    losses, forward, build = [], Criterion.forward, Task.build_model
    load = Trainer.load_checkpoint

    def record(self, model, sample, reduce=True):
        loss, size, log = forward(self, model, sample, reduce)
        if model.training:
            losses.append(loss.item() / size)
        return loss, size, log

    def build_model(self, cfg, from_checkpoint=False):
        model = build(self, cfg, from_checkpoint)
        return model.double() if DTYPE == "float64" else model

    def load_checkpoint(self, *args, **kwargs):
        state = load(self, *args, **kwargs)
        fill(self.model.classification_heads["sentence_classification_head"])
        return state

    Criterion.forward, Task.build_model = record, build_model
    Trainer.load_checkpoint = load_checkpoint
    sys.argv = [
        "fairseq-train", str(HERE / "data"), "--user-dir", str(ROOT / "diet_fairseq"),
        "--arch", "roberta_diet_rel_tiny", "--finetune-from-model", str(CHECKPOINT),
        "--task", "sentence_prediction", "--criterion", "sentence_prediction",
        "--num-classes", "1", "--regression-target", "--init-token", "0", "--max-positions", "128",
        "--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.999)", "--adam-eps", "1e-6",
        "--weight-decay", "0.01", "--lr", "0.001", "--lr-scheduler", "fixed", "--clip-norm", "1.0",
        "--batch-size", "16", "--no-shuffle", "--curriculum", "9", "--max-update", "50",
        "--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0",
        "--pooler-dropout", "0", "--disable-validation", "--no-save", "--cpu",
        "--log-format", "json", "--log-interval", "1", "--save-dir", str(HERE / "none"),
    ]  # fmt: skip
    train.cli_main()
    save(losses)


def trainer():
    import finetune
    from transformers import Trainer

    from diet_fairseq.optim.fused_adamw import AdamW

    losses, compute = [], Trainer.compute_loss
    load, arguments = finetune.load, finetune.training_arguments

    def record(self, model, inputs, *args, **kwargs):
        loss = compute(self, model, inputs, *args, **kwargs)
        if model.training:
            losses.append(loss.item())
        return loss

    def load_model(kind, folder, **options):
        model, tokenizer = load(kind, folder, **options)
        fill(model.classifier)
        return model.double() if DTYPE == "float64" else model, tokenizer

    def training_arguments(*args):
        settings = arguments(*args)
        settings.lr_scheduler_type, settings.train_sampling_strategy = "constant", "sequential"
        return settings

    Trainer.compute_loss, finetune.load = record, load_model
    # ours adds epsilon where fairseq does, before the correction of the second moment's bias
    settings = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-6}
    Trainer.get_optimizer_cls_and_kwargs = staticmethod(lambda *_: (AdamW, settings))
    Trainer.get_decay_parameter_names = lambda self, model: [n for n, _ in model.named_parameters()]
    finetune.training_arguments = training_arguments
    sys.argv = [
        "finetune.py", "train", "--task", "STS-B", "--data", str(HERE / "table"),
        "--model", str(HF), "--out", str(HERE / f"run-{DTYPE}"), "--epochs", "1", "--batch", "16",
        "--length", "128", "--rate", "0.001",
    ]  # fmt: skip
    finetune.main()
    save(losses)


{"prepare": prepare, "fairseq": fairseq, "trainer": trainer}[WAY]()

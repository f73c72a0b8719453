"""What the tests of fine-tuning have in common: GLUE's files made small, and an encoder."""

import json
import random
from pathlib import Path

import pytest

from diet_fairseq_cli import main
from tests.support import commands as fairseq
from tests.support.road import sentences, subwords, use, write


def run(*arguments: object) -> int:
    """``diet-fairseq encoder`` with these arguments, in this process."""
    return main(["encoder", *map(str, arguments)])


#: task -> the header and one line of each of its files, as GLUE has them
LAYOUTS: dict[str, dict[str, tuple[str | None, str]]] = {
    "MNLI": {
        "train": (
            "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
            "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
            "0 1 2 g b b p p A B neutral neutral",
        ),
        "dev_matched": (
            "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
            "sentence1_parse sentence2_parse sentence1 sentence2 label1 label2 label3 label4 "
            "label5 gold_label",
            "0 1 2 g b b p p A B neutral x x x x contradiction",
        ),
        "dev_mismatched": (
            "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
            "sentence1_parse sentence2_parse sentence1 sentence2 label1 label2 label3 label4 "
            "label5 gold_label",
            "0 1 2 g b b p p A B neutral x x x x entailment",
        ),
        "test_matched": (
            "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
            "sentence1_parse sentence2_parse sentence1 sentence2",
            "0 1 2 g b b p p A B",
        ),
        "test_mismatched": (
            "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
            "sentence1_parse sentence2_parse sentence1 sentence2",
            "0 1 2 g b b p p A B",
        ),
    },
    "QQP": {
        "train": ("id qid1 qid2 question1 question2 is_duplicate", "1 2 3 A B 1"),
        "dev": ("id qid1 qid2 question1 question2 is_duplicate", "1 2 3 A B 0"),
        "test": ("id question1 question2", "0 A B"),
    },
    "QNLI": {
        "train": ("index question sentence label", "0 A B entailment"),
        "dev": ("index question sentence label", "0 A B not_entailment"),
        "test": ("index question sentence", "0 A B"),
    },
    "SST-2": {
        "train": ("sentence label", "A 1"),
        "dev": ("sentence label", "A 0"),
        "test": ("index sentence", "0 A"),
    },
    "CoLA": {
        "train": (None, "gj04 1 * A"),
        "dev": (None, "gj04 0 * A"),
        "test": ("index sentence", "0 A"),
    },
    "STS-B": {
        "train": (
            "index genre filename year old_index source1 source2 sentence1 sentence2 score",
            "0 g f y o s s A B 3.800",
        ),
        "dev": (
            "index genre filename year old_index source1 source2 sentence1 sentence2 score",
            "0 g f y o s s A B 5.0",
        ),
        "test": (
            "index genre filename year old_index source1 source2 sentence1 sentence2",
            "0 g f y o s s A B",
        ),
    },
    "MRPC": {
        "train": ("Quality,#1 ID,#2 ID,#1 String,#2 String", "1,2,3,A,B"),
        "dev": ("Quality,#1 ID,#2 ID,#1 String,#2 String", "0,2,3,A,B"),
        "test": ("index,#1 ID,#2 ID,#1 String,#2 String", "0,2,3,A,B"),
    },
    "RTE": {
        "train": ("index sentence1 sentence2 label", "0 A B entailment"),
        "dev": ("index sentence1 sentence2 label", "0 A B not_entailment"),
        "test": ("index sentence1 sentence2", "0 A B"),
    },
}


def tabs(line: str) -> str:
    return line.replace("," if "," in line else " ", "\t")


def made(
    folder: Path, name: str, first: str = "one text", second: str = "another text", number: int = 1
) -> Path:
    """A task's folder with its files, each of so many lines."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, (header, line) in LAYOUTS[name].items():
        whole = tabs(line).split("\t")
        row = "\t".join({"A": first, "B": second}.get(cell, cell) for cell in whole)
        head = [] if header is None else [tabs(header)]
        write(folder / name / f"{file}.tsv", [*head, *[row] * number])
    return folder


def encoder_folder(folder: Path) -> Path:
    """A folder as `prepare` leaves it, with 290 sentences of 160 subwords, in lower case."""
    lines = sentences(300)
    for part in ("subwords", "data-bin"):
        (folder / part).mkdir()
    subwords.SentencePiece.learn(folder / "subwords", {"en": lines}, 160, 1)
    coded = list(subwords.SentencePiece(folder / "subwords").encode(lines, "en", 1))
    write(folder / "train", coded[:290])
    write(folder / "valid", coded[290:])
    texts = ("--trainpref", folder / "train", "--validpref", folder / "valid")
    destination = ("--destdir", folder / "data-bin")
    done = fairseq.run("preprocess", "--only-source", *texts, *destination, plugin=False)
    assert done.status == 0, done.err
    made_from = {"bpe": "sentencepiece", "vocabulary": 160, "language": "en", "lower": True}
    (folder / "data-bin" / "made-from.json").write_text(json.dumps(made_from))
    (folder / "prepared.json").write_text('{"longest_line": 30}')
    return folder


def pretrained(folder: Path, name: str, arch: str) -> Path:
    """A checkpoint after one update, in the folder's runs."""
    done = fairseq.run("train", folder / "data-bin", "--arch", arch, "--task", "masked_lm",
                       "--criterion", "masked_lm", "--tokens-per-sample", 32, "--encoder-layers", 2,
                       "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8, "--cpu",
                       "--encoder-attention-heads", 2, "--optimizer", "fused_adamw", "--lr", 0.01,
                       "--batch-size", 8, "--max-update", 1, "--num-workers", 0,
                       "--disable-validation", "--save-dir", folder / "runs" / name)  # fmt: skip
    assert done.status == 0, done.err
    return folder / "runs" / name / "checkpoint_last.pt"


def with_tasks(folder: Path) -> Path:
    """An encoder, a task of pairs, and one of numbers."""
    encoder_folder(folder)
    pretrained(folder, "base", "roberta_diet_rel")
    draw = random.Random(1)
    some = sentences(60)
    for name, file in (("RTE", "rte"), ("STS-B", "sts")):
        (folder / file / name).mkdir(parents=True)
        for split, size in (("train", 16), ("dev", 9), ("test", 5)):
            rows = []
            for number in range(size):
                one, other = draw.sample(some, 2)
                label = ("entailment", "not_entailment")[number % 2]
                sts = [str(number), *"gfyoss", one, other, f"{draw.uniform(0, 5):.2f}"]
                rows.append([str(number), one, other, label] if name == "RTE" else sts)
            header = tabs(LAYOUTS[name][split][0] or "")
            rows = [row[: len(header.split("\t"))] for row in rows]
            write(folder / file / name / f"{split}.tsv", [header, *("\t".join(r) for r in rows)])
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        for file in ("rte", "sts"):
            run("prepare-glue", folder / file, "--folder", folder, "--workers", 1)
    return folder


def forked(command, stdout, stderr, env=None, first=None):
    """Stands in for `cells.status_of`: fairseq's commands in a fork, without the imports."""
    name = command[2].removeprefix("fairseq_cli.")
    done = fairseq.run(name, *command[3:], plugin=False, first=first)
    stdout.write(done.text.encode())
    return done.status

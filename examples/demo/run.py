#!/usr/bin/env python
"""Train, translate and score, from nothing to a report: what `make demo` runs.

Five steps, each calling what one would call by hand: write a corpus, fairseq-preprocess,
fairseq-train, fairseq-generate, sacreBLEU. A step whose result is there is not done again, so a run
that was cut off goes on where it stopped; results get their final names when they are complete.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAIR = ["--source-lang", "en", "--target-lang", "de"]
TESTS = {"test": "test", "long": "test1"}  # our name, fairseq-preprocess' name
ENOUGH = 95.0  # BLEU on the test that the demo promises

TRAINING = shlex.split("""
--encoder-layers 3 --decoder-layers 2 --share-all-embeddings --dropout 0
--criterion cross_entropy --max-tokens 1024
--optimizer adam --adam-betas "(0.9, 0.98)" --clip-norm 1
--lr 2.5e-3 --lr-scheduler polynomial_decay --power 0.5 --warmup-updates 120
""")
# Offsets of more than 16 share a bias, so that even those no training sentence has are learned.
CLIP = ["--position-clip", "16"]
LOGGING = shlex.split("""
--no-epoch-checkpoints --num-workers 0 --log-format json --log-interval 10
""")
SEARCH = ["--beam", "5", "--max-tokens", "4096"]

# The report's last part. Real text wants subwords, dropout, and more updates than the demo's.
OWN_FILES = """\
Two files of one sentence a line, train.en and train.de, and the same for valid and test:

    pip install subword-nmt
    subword-nmt learn-joint-bpe-and-vocab --input train.en train.de -s 8000 \\
        -o codes --write-vocabulary vocab.en vocab.de
    for file in {{train,valid,test}}.{{en,de}}; do
        subword-nmt apply-bpe -c codes < $file > bpe.$file
    done
    fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --destdir data \\
        --trainpref bpe.train --validpref bpe.valid --testpref bpe.test --workers 2
    fairseq-train data --user-dir {plugin} --arch {arch} --share-all-embeddings \\
        --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096 \\
        --optimizer fused_adamw --adam-betas '(0.9, 0.98)' --lr 2e-3 --lr-scheduler inverse_sqrt \\
        --warmup-updates 1000 --max-update 10000 --no-epoch-checkpoints --save-dir checkpoints
    fairseq-generate data --user-dir {plugin} --path checkpoints/checkpoint_best.pt \\
        --beam 5 --post-process subword_nmt > test.out
    grep ^D- test.out | sort -V | cut -f3 | sacrebleu test.de
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the demo with the command line's options."""
    parser = argparse.ArgumentParser(description="Train, translate and score on a small corpus.")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder (default: demo)")
    parser.add_argument("--arch", default="transformer_diet_rel_tiny", help="fairseq architecture")
    parser.add_argument("--user-dir", type=Path, help="fairseq plugin (default: diet_fairseq)")
    parser.add_argument("--max-update", type=int, default=1300, help="updates (default: 1300)")
    parser.add_argument("--seed", type=int, default=1, help="of the training (default: 1)")
    parser.add_argument("--part", type=float, default=1.0, help="part of the corpus to use, to try")
    parser.add_argument(
        "--enough", type=float, default=ENOUGH, help="BLEU below which the demo has failed"
    )
    options = parser.parse_args(arguments)
    if not 0 < options.part <= 1:
        parser.error(f"--part must be above 0 and at most 1, but is {options.part}")
    if options.max_update < 1:
        parser.error(f"--max-update must be at least 1, but is {options.max_update}")
    demo = Demo(
        out=options.out,
        user_dir=options.user_dir or find_plugin(),
        settings={
            "arch": options.arch,
            "max_update": options.max_update,
            "part": options.part,
            "seed": options.seed,
            "grammar": digest(HERE / name for name in ("lexicon.py", "grammar.py", "corpus.py")),
        },
    )
    try:
        bleu = demo.run()
    except KeyboardInterrupt:
        print("\ninterrupted: run the same command to continue", file=sys.stderr)
        sys.exit(130)
    if bleu < options.enough:
        sys.exit(f"error: BLEU {bleu:.1f} on the test is below {options.enough:g}")


def find_plugin() -> Path:
    """The folder of the plugin: the installed one, or the one of this repository."""
    spec = importlib.util.find_spec("diet_fairseq")
    folder = Path(spec.origin).parent if spec and spec.origin else HERE.parents[1] / "diet_fairseq"
    if not folder.is_dir():
        sys.exit("error: no diet_fairseq here: install it, or name its folder with --user-dir")
    return folder


def digest(files: Iterator[Path]) -> str:
    """A name for the contents of files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """A path to write to, file or folder, that takes its final name when all is written."""
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)
    yield part
    os.replace(part, path)


def step(name: str, text: str) -> None:
    """Say what is being done."""
    print(f"{name:<10} {text}", flush=True)


class Progress:
    """One line that changes on a terminal, a line for every tenth elsewhere."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.first: tuple[int, float] | None = None  # how much was done when, at the first report
        self.tenths = 0
        self.terminal = sys.stdout.isatty()

    def at(self, done: int, detail: str) -> None:
        """``done`` of ``total``; what was done before this run tells nothing about the speed."""
        now, left = time.monotonic(), ""
        before, start = self.first = self.first or (done, now)
        if done > before:
            minutes, seconds = divmod(
                round((now - start) / (done - before) * (self.total - done)), 60
            )
            left = f"  {minutes}:{seconds:02d} left"
        text = f"{self.name:<10} {detail}{left}"
        if self.terminal:
            print(f"\r{text:<79}", end="", flush=True)
        elif done * 10 // self.total > self.tenths:
            self.tenths = done * 10 // self.total
            print(text, flush=True)

    def end(self) -> None:
        if self.terminal:
            print("\r" + " " * 79, end="\r", flush=True)


@dataclass
class Demo:
    """The steps, and where their results are."""

    out: Path
    user_dir: Path
    settings: dict[str, Any]

    def run(self) -> float:
        """All steps that are not done; the BLEU on the test."""
        start = time.monotonic()
        self.make_folder()
        with self.lock():
            self.check_settings()
            self.write_corpus()
            self.binarise()
            self.train()
            for test in TESTS:
                self.translate(test)
            bleu = self.report()
        print(f"\n{self.out / 'report.md'} has this report; {time.monotonic() - start:.0f} s")
        return bleu

    def make_folder(self) -> None:
        try:
            (self.out / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sys.exit(f"error: can't write to {self.out}: {error.strerror}; name another --out")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One run at a time in a folder."""
        with open(self.out / "logs" / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.exit(f"error: another run is at work in {self.out}: wait, or stop it")
            yield

    def check_settings(self) -> None:
        """Results of other settings are not taken for these."""
        path = self.out / "settings.json"
        if path.exists():
            before = {"seed": 1} | json.loads(path.read_text())  # earlier versions knew no other
            other = [f"{k} {before.get(k)}" for k, v in self.settings.items() if before.get(k) != v]
            if other:
                sys.exit(
                    f"error: {self.out} holds a run with {', '.join(other)}: "
                    f"remove it (rm -r {shlex.quote(str(self.out))}), or name another --out"
                )
        else:
            with complete(path) as part:
                part.write_text(json.dumps(self.settings, indent=2) + "\n")

    # the steps

    def write_corpus(self) -> None:
        """Sentences as text, to read, and as tokens, to train on."""
        folder = self.out / "corpus"
        if not folder.exists():
            from corpus import SIZES, build
            from grammar import written

            sizes = {name: max(4, round(n * self.settings["part"])) for name, n in SIZES.items()}
            step("corpus", "writing sentences")
            with complete(folder) as part:
                for name in ("tokens", "text"):
                    (part / name).mkdir(parents=True)
                for split, pairs in build(sizes).items():
                    for side, sentences in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                        file = f"{split}.{side}"
                        save(part / "tokens" / file, sentences)
                        save(part / "text" / file, [written(s.split()) for s in sentences])
        count = {split: len(self.read("text", split, "en")) for split in ("train", *TESTS)}
        step(
            "corpus",
            f"{count['train']:,} sentence pairs to learn from, {count['test']} to test, "
            f"{count['long']} longer ones",
        )

    def binarise(self) -> None:
        """fairseq-preprocess: one dictionary for both languages, as names are copied."""
        data = self.out / "data"
        if data.exists():
            return
        step("data", "fairseq-preprocess")
        tokens = self.out / "corpus" / "tokens"
        tests = ",".join(str(tokens / test) for test in TESTS)
        with complete(data) as part:
            files = {"train": tokens / "train", "valid": tokens / "valid", "test": tests}
            prefixes = [word for name, path in files.items() for word in (f"--{name}pref", path)]
            arguments = [*PAIR, "--joined-dictionary", *prefixes, "--destdir", part]
            self.fairseq("preprocess", "preprocess", arguments)

    def train(self) -> None:
        """fairseq-train, which resumes by itself."""
        model, updates = self.out / "model.pt", self.settings["max_update"]
        if not model.exists():
            step("training", f"{self.settings['arch']}, {updates} updates")
            progress = Progress("training", updates)
            folder = self.out / "training"

            def follow(line: str) -> None:
                found = re.search(r"\| train_inner \| ({.*})", line)
                if found:
                    told = json.loads(found[1])
                    done, loss = int(told["num_updates"]), float(told["loss"])
                    speed = float(told["wps"])
                    detail = f"update {done}/{updates}  loss {loss:.2f}  {speed:,.0f} tokens/s"
                    progress.at(done, detail)

            arguments = [self.out / "data", "--save-dir", folder]
            self.fairseq("train", "train", [*arguments, *self.plugin(), *self.training()], follow)
            progress.end()
            with complete(model) as part:
                shutil.copyfile(folder / "checkpoint_last.pt", part)
        step("training", f"done: {model}")

    def translate(self, test: str) -> None:
        """fairseq-generate; translations in the order of the test, as people write."""
        path = self.out / f"{test}.de"
        sources = self.read("text", test, "en")
        if not path.exists():
            from grammar import written

            found: dict[int, str] = {}
            progress = Progress("translate", len(sources))

            def follow(line: str) -> None:
                if line.startswith("H-"):
                    number, _, tokens = line.rstrip("\n").split("\t")
                    found[int(number[2:])] = written(tokens.split())
                    progress.at(len(found), f"{test}: {len(found)}/{len(sources)} sentences")

            arguments = [self.out / "data", "--path", self.out / "model.pt", *self.plugin()]
            arguments += ["--gen-subset", TESTS[test], *SEARCH]
            self.fairseq("generate", f"generate-{test}", arguments, follow)
            progress.end()
            if sorted(found) != list(range(len(sources))):
                sys.exit(
                    f"error: fairseq-generate gave {len(found)} of {len(sources)} translations; "
                    f"see {self.log(f'generate-{test}')}"
                )
            with complete(path) as part:
                save(part, [found[number] for number in range(len(sources))])
        step("translate", f"{len(sources)} sentences: {path}")

    def report(self) -> float:
        """Scores, translations, picture; written, and said. The BLEU on the test."""
        import report

        scores_path, text_path = self.out / "scores.json", self.out / "report.md"
        if not scores_path.exists():
            step("score", "sacreBLEU")
            scores = {
                test: report.score(read(self.out / f"{test}.de"), self.read("text", test, "de"))
                for test in TESTS
            }
            with complete(scores_path) as part:
                report.write_scores(part, scores)
        scores = report.read_scores(scores_path)
        if not text_path.exists():
            model, picture = self.out / "model.pt", self.out / "offsets.png"
            if report.offset_biases(model):
                longest = max(len(line.split()) for line in self.read("tokens", "train", "en"))
                with complete(picture) as part:
                    report.plot_offsets(model, part, reach=longest)
            with complete(text_path) as part:
                part.write_text(self.report_text(scores), encoding="utf-8")
        print("\n" + text_path.read_text(encoding="utf-8"))
        return scores["test"].bleu

    def report_text(self, scores: dict[str, Any]) -> str:
        """The report in Markdown that reads well as text, too."""
        import report

        lines = [
            f"# {self.settings['arch']}, 3 + 2 layers, {self.settings['max_update']} updates",
            "",
        ]
        lines += ["| | sentences | BLEU | chrF | all right |", "| --- | --- | --- | --- | --- |"]
        for test, name in (("test", "test"), ("long", "longer than any seen in training")):
            score = scores[test]
            right = f"{100 * score.exact / score.sentences:.0f}%"
            cells = [name, score.sentences, f"{score.bleu:.1f}", f"{score.chrf:.1f}", right]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        lines += ["", f"BLEU: {score.bleu_signature}", "", f"chrF: {score.chrf_signature}", ""]
        for test, title, count in (("test", "Translations", 4), ("long", "A longer one", 1)):
            lines += [f"## {title}", ""]
            rows = report.samples(
                self.read("text", test, "en"),
                self.read("text", test, "de"),
                read(self.out / f"{test}.de"),
                count,
            )
            lines += [report.show(row) for row in rows]
        if (self.out / "offsets.png").exists():
            lines += ["## What the heads learned about distance", ""]
            lines += ["![The bias of each offset, by layer and head](offsets.png)", ""]
        own_files = OWN_FILES.format(arch=self.settings["arch"], plugin="diet_fairseq")
        lines += ["## The same with your own files", "", own_files]
        return "\n".join(lines)

    # fairseq

    def plugin(self) -> list[object]:
        return ["--user-dir", self.user_dir]

    def training(self) -> list[str]:
        updates = str(self.settings["max_update"])
        length = ["--max-update", updates, "--total-num-update", updates]
        seed = ["--seed", str(self.settings["seed"])]
        clip = CLIP if "diet_rel" in self.settings["arch"] else []
        arch = ["--arch", self.settings["arch"]]
        return [*arch, *clip, *TRAINING, *length, *LOGGING, *seed]

    def log(self, name: str) -> Path:
        return self.out / "logs" / f"{name}.log"

    def fairseq(
        self,
        tool: str,
        name: str,
        arguments: Sequence[object],
        follow: Callable[[str], None] | None = None,
    ) -> None:
        """Run one of fairseq's tools; what it says goes to a log, and to ``follow`` by lines."""
        command = [sys.executable, "-u", "-m", f"fairseq_cli.{tool}", *map(str, arguments)]
        # Threads that wait for each other by spinning slow each other down on a busy machine.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        last = ""
        with (
            open(self.log(name), "a", encoding="utf-8") as log,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=environment,
                preexec_fn=end_with_parent,
            ) as process,
        ):
            log.write(f"$ {shlex.join(command)}\n")
            try:
                for line in process.stdout or ():
                    log.write(line)
                    log.flush()
                    last = line.strip() or last
                    if follow:
                        follow(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            reason = last.removeprefix("error: ")
            sys.exit(
                f"error: fairseq's {tool} ended with status {process.returncode}: {reason} "
                f"(all it said: {self.log(name)})"
            )

    def read(self, kind: str, split: str, side: str) -> list[str]:
        """The corpus, as ``text`` or as ``tokens``."""
        return read(self.out / "corpus" / kind / f"{split}.{side}")


def end_with_parent() -> None:
    """In a program just started: that it end when this one is killed, and not train on unseen."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def save(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()

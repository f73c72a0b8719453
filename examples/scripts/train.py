"""Run fairseq-train on free devices: the plan first, then lines of progress.

    python train.py FOLDER --log FILE --gpus 2 --batch 4096 --capacity 5000 -- fairseq-train ...

The plan is stored as FOLDER/plan.json, together with the time and the memory that the training has
taken.
"""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from datetime import timedelta
from pathlib import Path
from typing import Any

from with_gpus import reserve_gpus

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.look.plateau import can_show_plateau, describe_plateau, word_entropy

#: seconds between two looks at the log, and between two lines of progress
POLL, BETWEEN_LINES = 0.5, 60


def batch_options(option: str, batch: int, capacity: int, gpus: int) -> list[str]:
    """The same batch on any number of GPUs: what exceeds their capacity is accumulated.

    Raises:
        UserError: a batch of samples, which is never rounded, can't be divided among the GPUs
    """
    processes = max(1, gpus)
    steps = -(-batch // (capacity * processes))
    if option == "--batch-size":
        if batch % processes:
            raise UserError(f"batch must be a multiple of gpus, {processes}, but is {batch}")
        while batch % (steps * processes):
            steps += 1
    options = [option, str(max(1, batch // (steps * processes))), "--update-freq", str(steps)]
    if not gpus:
        return [*options, "--cpu"]
    # Resuming on several processes fails without the second option.
    return [*options, "--distributed-world-size", str(gpus), "--load-checkpoint-on-all-dp-ranks"]


def continue_shorter_run(folder: Path, first_checkpoint: int) -> tuple[Path | None, str]:
    """Begin with the last checkpoint of a run with fewer updates and the same settings and text.

    Args:
        folder: of the run, whose name has its updates as ``-u5000-``
        first_checkpoint: the first update whose checkpoint is averaged; 0: never continue

    Returns:
        The run whose checkpoint was copied, and otherwise the reason why the longest shorter run
        is not continued. There is neither if no run is shorter, or if this run has a checkpoint.
    """
    own = re.findall(r"-u(\d+)-", folder.name)
    if not own or (folder / "checkpoint_last.pt").exists():
        return None, ""
    runs = {
        int(re.findall(r"-u(\d+)-", other.name)[-1]): other
        for other in folder.parent.glob(re.sub(r"-u\d+-", "-u*-", folder.name))
    }
    start, reasons = None, []
    for updates in sorted((updates for updates in runs if updates < int(own[-1])), reverse=True):
        reason = explain_new_start(folder, runs[updates], updates, first_checkpoint)
        if not reason:
            start = runs[updates]
            break
        reasons.append(f"does not continue {runs[updates].name}: {reason}")
    if start is None:
        return None, "".join(reasons[:1])
    for name in ("plan.json", "train.log", "checkpoint_last.pt"):
        with open(start / name, "rb") as old, atomic_file(folder / name, "wb") as new:
            shutil.copyfileobj(old, new)
    return start, ""


def explain_new_start(folder: Path, shorter: Path, updates: int, first_checkpoint: int) -> str:
    """The reason why a run does not continue a run with fewer updates; "" if it does."""
    if not ((shorter / "plan.json").exists() and (shorter / "trained").exists()):
        return "its training has not finished"
    if (folder / "SHA256SUMS").read_bytes() != (shorter / "SHA256SUMS").read_bytes():
        return "it was trained on other text"
    if not first_checkpoint:
        return "with --lr-scheduler in options the learning rate may depend on updates"
    if updates >= first_checkpoint:
        return (
            f"the checkpoints to average begin at update {first_checkpoint:,}, and must be later "
            f"than update {updates:,}; raise updates further to continue it"
        )
    return ""


def describe_device(gpus: int) -> str:
    """Number and model of the GPUs, or the CPU's threads."""
    if not gpus:
        return f"CPU, {os.environ.get('OMP_NUM_THREADS', os.cpu_count())} threads"
    listed = ""
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    models = re.findall(r"^GPU \d+: (.+?) \(", listed, re.MULTILINE) or ["GPU"]
    return f"{gpus} x {models[0]}"


def choose_precision(command: list[str], setting: str, gpus: int) -> str:
    """The precision of a training: that of its own options, or the setting.

    Args:
        setting: "auto": bfloat16 where every GPU, or the CPU, has instructions for it
    """
    if "--bf16" in command or "--fp16" in command:
        return "bfloat16" if "--bf16" in command else "float16"
    if setting != "auto":
        return setting
    return "bfloat16" if has_bfloat16(gpus) else "float32"


def has_bfloat16(gpus: int, cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this machine multiplies in bfloat16: GPUs since Ampere, CPUs with AMX or AVX-512."""
    if gpus:
        if not shutil.which("nvidia-smi"):
            return False
        query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True).stdout.split()
        return bool(listed) and all(float(capability) >= 8 for capability in listed)
    try:
        flags = cpuinfo.read_text(encoding="utf-8").split()
    except OSError:  # another system than Linux
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags


def peak_gigabytes(process: int) -> float:
    """The largest resident memory of a process so far; 0 if the system does not tell."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(peak[1]) / 2**20 if peak else 0.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Progress:
    """What is shown of a training: a line every minute."""

    def __init__(
        self, name: str, log: Path, updates: int,
        dictionary: Path | None = None, output: Path | None = None,
    ) -> None:  # fmt: skip
        self.name, self.log, self.updates = name, log, updates
        # It is compared once, with the first held-out loss that can show a plateau.
        self.entropy = word_entropy(dictionary) if dictionary else None
        self.output = output
        # What earlier starts have logged is past.
        self.offset = log.stat().st_size if log.exists() else 0
        self.first = self.update = 0
        self.values: dict[str, str] = {}
        self.gpu_gigabytes, self.peak = 0.0, 0.0  # a GPU's memory, and the most that was allocated
        self.start = time.monotonic()
        self.shown = -math.inf  # the first entry is shown at once
        self.seconds_per_update = 0.0  # of the first entry

    def read(self) -> bool:
        """Read and show new entries of the log; whether there are any."""
        if not self.log.exists():
            return False
        entries = 0
        with open(self.log, "rb") as file:
            file.seek(self.offset)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            self.offset += len(line)
            if memory := re.search(rb"total memory = ([\d.]+) GB", line):
                self.gpu_gigabytes = float(memory[1])
            if line.startswith(b'{"'):
                self.add(json.loads(line))
                entries += 1
        return entries > 0

    def add(self, entry: dict[str, Any]) -> None:
        """Take an entry of the log: numbers of the last updates, or of a validation."""
        if "valid_loss" in entry:
            self.values["held-out loss"] = f"{float(entry['valid_loss']) * math.log(2):.2f}"
            self.warn_of_plateau(entry)
        if "valid_bleu" in entry:
            self.values["BLEU"] = entry["valid_bleu"]
        if "num_updates" not in entry or "loss" not in entry:
            return
        if "gb_free" in entry:
            self.peak = max(self.peak, self.gpu_gigabytes - float(entry["gb_free"]))
        if not self.update:
            # the first entry comes after a part of the interval: time is counted from here on
            self.first, self.start = int(entry["num_updates"]), time.monotonic()
            if float(entry.get("ups") or 0):
                self.seconds_per_update = 1 / float(entry["ups"])
        self.update = int(entry["num_updates"])
        self.values["loss"] = f"{float(entry['loss']) * math.log(2):.2f}"
        self.values["words/s"] = f"{float(entry['wps']):,.0f}"
        if time.monotonic() - self.shown > BETWEEN_LINES:
            self.shown = time.monotonic()
            say(f"{self.name}: {self}")

    def warn_of_plateau(self, entry: dict[str, Any]) -> None:
        """Warn once if an encoder has not learned positions after a fifth of the updates."""
        update = int(entry.get("valid_num_updates", 0))
        if self.entropy is None or not can_show_plateau(update, self.updates):
            return
        # The loss of `electra` and `masked_lm_nsp` is a sum, and these criterions log its parts.
        parts = ("valid_generator_loss", "valid_mlm_loss", "valid_loss")
        loss = next(float(entry[part]) for part in parts if part in entry) * math.log(2)
        options = read_position_options(self.output) if self.output else {}
        if warning := describe_plateau(loss, self.entropy, update, self.updates, options):
            say(f"{self.name}: warning: {warning}")
        self.entropy = None

    def __str__(self) -> str:
        values = [f"{name} {value}" for name, value in sorted(self.values.items())]
        if self.first < self.update < self.updates:
            pace = (time.monotonic() - self.start) / (self.update - self.first)
            left = timedelta(seconds=round(pace * (self.updates - self.update)))
            values.append(f"{left} left")
        return ", ".join([f"update {self.update:,} of {self.updates:,}", *values])


def read_position_options(output: Path) -> dict[str, str]:
    """Names and values of the position options that the last training in a log has printed."""
    lines = re.findall(r"\| (scheme:\S+)", output.read_text(encoding="utf-8", errors="replace"))
    return dict(option.split(":", 1) for option in lines[-1].split("|")) if lines else {}


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    with atomic_file(folder / "plan.json") as file:
        json.dump(plan, file, indent=1)


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the run")
    parser.add_argument(
        "--log", type=Path, required=True, help="file for all output of the command"
    )
    parser.add_argument("--gpus", type=int, required=True, help="number of GPUs; 0: the CPU")
    parser.add_argument(
        "--fewer", action="store_true", help="train on fewer GPUs if others are busy"
    )
    parser.add_argument(
        "--option", default="--max-tokens", help="option of fairseq-train for the size of a batch"
    )
    parser.add_argument("--batch", type=int, required=True, help="tokens or samples an update")
    parser.add_argument(
        "--capacity", type=int, required=True, help="tokens or samples that a GPU holds"
    )
    parser.add_argument(
        "--precision", choices=("auto", "float32", "bfloat16"), default="float32",
        help="precision of a new training; a resumed one keeps its own",
    )  # fmt: skip
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument(
        "--first-checkpoint", type=int, default=0, help="update of the first checkpoint to average"
    )
    parser.add_argument(
        "--dictionary", type=Path, help="dictionary of an encoder, to warn of a plateau"
    )
    parser.add_argument(
        "--start", type=Path, help="file with one line about the model to start from"
    )
    parser.add_argument("--shares", type=Path, help="file with one line about the directions")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    try:
        status = run(args)
    except UserError as error:  # the user of a cluster sees the log, not stderr
        report(error, args.log)
        raise
    sys.exit(status)


def report(error: UserError, log: Path) -> None:
    """Add an error to the log of the training."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"error: {error}\n")


def run(args: Namespace) -> int:
    """Train; the status of the command.

    Raises:
        UserError: the GPUs are fewer than reserved, a signal ended the command, or the command
            has succeeded without a checkpoint
    """
    gpus = reserve_gpus(args.gpus, 1 if args.fewer and args.gpus else None)
    while args.fewer and args.option == "--batch-size" and gpus > 1 and args.batch % gpus:
        gpus -= 1
    batch = batch_options(args.option, args.batch, args.capacity, gpus)
    unit = {"--max-tokens": "tokens", "--batch-size": "samples"}[args.option]
    start, reason = continue_shorter_run(args.folder, args.first_checkpoint)
    stored: dict[str, Any] = {}
    if (args.folder / "plan.json").exists():
        stored = json.loads((args.folder / "plan.json").read_text(encoding="utf-8"))
    # The optimizer of one precision does not load the state of another.
    setting = stored.get("precision", args.precision)
    precision = choose_precision(args.command, setting, gpus)
    if precision == "bfloat16" and "--bf16" not in args.command:
        batch.append("--bf16")
    plan = {
        "device": describe_device(gpus),
        "precision": precision,
        "batch": f"{batch[1]} {unit} x {max(1, gpus)} x {batch[3]} an update",
        "updates": args.updates,
        "command": [*args.command, *batch],
        "seconds": stored.get("seconds", 0.0),
        "gigabytes": stored.get("gigabytes", 0.0),
    }
    write_plan(args.folder, plan)
    name = args.folder.name
    train_log = args.folder / "train.log"
    progress = Progress(name, train_log, args.updates, args.dictionary, args.log)
    say(
        f"{name}: {plan['device']}, {plan['precision']}, {plan['batch']}, {args.updates:,} updates"
        + (f" from the last checkpoint of {start}" if start else "")
    )
    if reason:
        say(f"{name}: {reason}")
    if args.start:
        say(f"{name}: starts from {args.start.read_text(encoding='utf-8').strip()}")
    if args.shares:
        say(f"{name}: {args.shares.read_text(encoding='utf-8').strip()}")
    is_resumed = (args.folder / "checkpoint_last.pt").exists()
    first = "resumes from its last checkpoint" if is_resumed else f"update 0 of {args.updates:,}"
    say(f"{name}: {first}, log: {args.log}")
    begin, seconds, is_timed = time.monotonic(), plan["seconds"], not args.start
    with open(args.log, "ab") as log:
        process = subprocess.Popen(
            plan["command"], stdout=log, stderr=subprocess.STDOUT, close_fds=False
        )  # which inherits the locks of the devices
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while process.poll() is None:
            time.sleep(POLL)
            peak = progress.peak if gpus else peak_gigabytes(process.pid)
            plan["gigabytes"] = max(plan["gigabytes"], peak)
            if (progress.read() and progress.update) or process.poll() == 0:
                plan["seconds"] = seconds + time.monotonic() - begin
                write_plan(args.folder, plan)
            if progress.seconds_per_update and not is_timed:
                is_timed = True
                say(f"{name}: an update takes {progress.seconds_per_update:.2g} seconds")
    except KeyboardInterrupt:  # which the command has got, too
        process.wait()
    if process.returncode < 0 and process.returncode != -signal.SIGINT:
        raise UserError(
            f"fairseq-train was ended from outside by {signal.Signals(-process.returncode).name}: "
            "see the log of the scheduler or of the system, which end a process that needs too "
            "much memory or time; the same command resumes the training"
        )
    if process.returncode == 0:
        if not any(args.folder.glob("checkpoint*.pt")):
            raise UserError(
                f"fairseq-train has ended without an error and without a checkpoint in "
                f"{args.folder}: see {args.log}, and remove options that keep it from saving"
            )
        minutes = plan["seconds"] / 60
        say(f"{name}: trained in {minutes:.1f} minutes, {progress}")
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    with exit_with_one_line():
        main()

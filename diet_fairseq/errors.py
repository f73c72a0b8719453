"""A user's mistake: one clear last line on stderr, status 1, no traceback."""

import re
import sys
from collections.abc import Iterator
from types import TracebackType


class UserError(ValueError):
    """Something the user can mend. The text gives name, rule, value, and what to do."""


#: Mistakes that fairseq itself finds, by the text of its exception, and what we say of them.
FOUND_BY_FAIRSEQ = [
    (
        r"No such file or directory: '(?P<file>.*dict\.[^/]*\.txt)'",
        "there is no dictionary {file}: give the folder that fairseq-preprocess wrote",
    ),
    (
        r"Could not infer language pair",
        "there is no prepared data in the folder given: give the one that fairseq-preprocess "
        "wrote, or name the languages by --source-lang and --target-lang",
    ),
    (
        r"Dataset not found: (?P<split>\S+) \((?P<folder>.*)\)",
        "there is no data of the split {split} in {folder}: give the folder that "
        "fairseq-preprocess wrote, or another split",
    ),
    (
        r"Size of sample #(?P<number>\d+) is invalid \(=(?P<size>\d+)\) since "
        r"max_positions=(?P<limit>\d+), skip",
        "sample {number} has {size} tokens, but the model takes {limit}: give a smaller "
        "--tokens-per-sample, leave it out by --skip-invalid-size-inputs-valid-test, or train with "
        "a larger --max-positions",
    ),
    (
        r"Size of sample #(?P<number>\d+) is invalid \(=(?P<size>.*)\) since "
        r"max_positions=(?P<limit>.*), skip",
        "sentence {number} has {size} tokens (source, target), but the model takes {limit}: "
        "shorten it, leave it out by --skip-invalid-size-inputs-valid-test, or train with larger "
        "--max-source-positions and --max-target-positions",
    ),
    (
        r"^Target (?P<label>\d+) is out of bounds",
        "a label has number {label} (they count from 0), but the model tells fewer apart: give a "
        "larger --num-classes, or take --task glue, which counts them",
    ),
    (
        # raised where the processes were started, of which one ended with our error
        r"diet_fairseq\.errors\.UserError: (?P<text>[^\n]+)",
        "{text}",
    ),
    (
        r"process (?P<rank>\d+) terminated with signal (?P<signal>\w+)",
        "process {rank} of this run was ended by {signal} (SIGKILL: often for want of memory): run "
        "this again, and it goes on from the last checkpoint",
    ),
    (
        r"Connection (closed|reset) by peer",
        "another process of this run has ended: see what it said; start all of them again, and the "
        "run goes on from the last checkpoint",
    ),
    (
        r"Cannot find FullyShardedDataParallel",
        "--ddp-backend fully_sharded needs the package fairscale 0.4.13 and GPUs, and was never "
        "tried with position schemes: take --ddp-backend pytorch_ddp",
    ),
    (
        r"chosen optimizer (?P<name>\w+) does not support flat params",
        "--fp16 makes one long vector of all parameters, but the optimizer {name} needs each by "
        "itself: add --fp16-no-flatten-grads, or take --bf16",
    ),
    (
        r"Unsupported optimizer: (?P<name>\w+)",
        "--memory-efficient-fp16 and --memory-efficient-bf16 keep no float32 copy of the "
        "parameters, which the optimizer {name} needs: take --fp16 or --bf16, or --optimizer adam",
    ),
]


def user_error_behind(error: BaseException | None) -> UserError | None:
    """The `UserError` that ``error`` is or was raised from; fairseq rewraps what it catches."""
    return next((e for e in chain(error) if isinstance(e, UserError)), None)


def mistake_behind(error: BaseException | None) -> str | None:
    """What to tell the user of ``error``, where it is a user's mistake."""
    mistake = user_error_behind(error)
    if mistake is not None:
        return str(mistake)
    for cause in chain(error):
        for pattern, text in FOUND_BY_FAIRSEQ:
            found = re.search(pattern, re.sub(r"np\.\w+\((\d+)\)", r"\1", str(cause)))
            if found:
                return text.format(**found.groupdict())
    return None


def report_user_errors() -> None:
    """Make an uncaught mistake end the program with its text alone; all else is as before."""
    previous = sys.excepthook
    if getattr(previous, "reports_user_errors", False):
        return

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        mistake = mistake_behind(error)
        if mistake is None:
            previous(kind, error, trace)
        else:
            sys.stdout.flush()
            print(f"error: {mistake}", file=sys.stderr)

    excepthook.reports_user_errors = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it was raised from or upon."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__

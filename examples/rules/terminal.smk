# Terminal output: a line for each step and, at the end, the reason of a failure. Snakemake's log in
# .snakemake/log and the options -n and -p show everything.

import atexit
import logging

from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

#: parts of messages that repeat a failure without its reason
REPETITIONS = ("CalledProcessError", "Exiting because a job execution failed", "At least one job did not complete")
SILENT_RULES = ("all", "data")
#: Snakemake's messages that are shown
SHOWN = ("Nothing to be done", "Unlock")
#: on a terminal: erases the bars of trainings, which are soon drawn again below
CLEAR = "\r\x1b[J" * sys.stderr.isatty()


def is_shown(record):
    """Whether to show a message of Snakemake: warnings and errors, except errors of failed jobs."""
    if workflow.dryrun:
        return True
    text = str(record.msg)
    is_repetition = getattr(record, "event", None) == LogEvent.JOB_ERROR or any(part in text for part in REPETITIONS)
    return text.startswith(SHOWN) or (record.levelno > logging.INFO and not is_repetition)


class Steps(logging.Handler):
    """Print a line when a step starts and, at the end, the reason of a failure or how to continue."""

    def __init__(self):
        super().__init__()
        self.done, self.total, self.failed, self.is_stopped = 0, 0, {}, False

    def emit(self, record):
        event = getattr(record, "event", None)
        if workflow.dryrun:
            return
        if event == LogEvent.RUN_INFO:
            self.total = record.stats["total"]
        elif event == LogEvent.PROGRESS:
            self.done, self.total = record.done, record.total
        elif event == LogEvent.JOB_INFO and record.rule_name not in SILENT_RULES:
            name = " ".join([record.rule_name, *map(str, record.wildcards.values())])
            print(f"{CLEAR}[{self.done + 1} of {self.total}] {name}", file=sys.stderr, flush=True)
        elif event == LogEvent.JOB_ERROR:
            self.failed[record.rule_name] = list(record.log)
        elif str(record.msg).startswith("Terminating processes on user request"):
            self.is_stopped = True

    def end(self):
        """Print the last lines."""
        if self.is_stopped:
            print(f"{CLEAR}stopped; run the same command to continue", file=sys.stderr)
            return
        for rule, logs in self.failed.items():
            for log in map(Path, logs):
                lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
                reasons = [line for line in lines if line.startswith("error: ")] or [line for line in lines if line.strip()]
                reason = reasons[-1] if reasons else "error: no output"
                print(f"{CLEAR}step {rule} failed, see {log}\n{reason}", file=sys.stderr)


if workflow.is_main_process:
    steps = Steps()
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.addFilter(is_shown)
    logger.addHandler(steps)
    atexit.register(steps.end)

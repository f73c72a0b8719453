# Terminal output: a line for each step and, at the end, the reason of a failure. Snakemake's log in
# .snakemake/log and the options -n and -p show everything.

import atexit
import logging
from itertools import chain
from signal import Signals

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
        self.done, self.total, self.is_stopped = 0, 0, False
        self.failed = {}  # number of a job -> what is printed about its failure
        self.error = ""  # of the last command that failed on this machine

    def emit(self, record):
        event = getattr(record, "event", None)
        if workflow.dryrun:
            return
        if event == LogEvent.RUN_INFO:
            self.total = record.stats["total"]
        elif event == LogEvent.PROGRESS:
            self.done, self.total = record.done, record.total
        elif event == LogEvent.JOB_INFO and record.rule_name not in SILENT_RULES:
            if record.jobid in self.failed:  # --retries
                print(f"{CLEAR}{self.failed.pop(record.jobid)}\nthe step runs again:", file=sys.stderr)
            name = " ".join([record.rule_name, *map(str, record.wildcards.values())])
            print(f"{CLEAR}[{self.done + 1} of {self.total}] {name}", file=sys.stderr, flush=True)
        elif event == LogEvent.JOB_ERROR:
            self.failed[record.jobid] = describe_failure(record, self.error)
        elif "CalledProcessError" in str(record.msg):
            self.error = str(record.msg)
        elif str(record.msg).startswith("Terminating processes on user request"):
            self.is_stopped = True

    def end(self):
        """Print the last lines."""
        if self.is_stopped:
            print(f"{CLEAR}stopped; run the same command to continue", file=sys.stderr)
            return
        for failure in self.failed.values():
            print(CLEAR + failure, file=sys.stderr)


def read_log(path):
    """The lines of a log that are not blank; none if there is no log."""
    text = Path(path).read_text(encoding="utf-8", errors="replace") if Path(path).exists() else ""
    return [line for line in text.split("\n") if line.strip()]


def describe_failure(record, error):
    """The logs of a failed job, and the reason of the failure.

    Args:
        record: Snakemake's message about the job; a cluster's executor adds its own message and log
        error: Snakemake's message about a command that failed on this machine
    """
    log, *scheduler_logs = record.log
    lines = read_log(log)
    errors = [line for line in lines if line.startswith("error: ")]
    submission = (record.rule_msg or "").partition("For further error details")[0].strip()
    status = re.search(r"SLURM-job '(\S+)' failed.*'([A-Z_]+)'", submission, re.DOTALL)
    slurm_errors = re.findall(r"^slurmstepd\S*: error: (.*)", "\n".join(chain(*map(read_log, scheduler_logs))), re.MULTILINE)
    signal = re.search(r"died with <Signals\.(SIG\w+)|returned non-zero exit status (129|1[345]\d)\.", error)
    if status and (status[2] != "FAILED" or slurm_errors and not errors):
        details = f" ({slurm_errors[0].strip('* ')})" if slurm_errors else ""
        reason = f"error: Slurm ended job {status[1]} with the status {status[2]}{details}: see Slurm's log"
    elif errors:
        reason = errors[-1]
    elif submission and not status:
        reason = f"error: {submission}"
    elif signal and record.shellcmd in error:
        name = signal[1] or Signals(int(signal[2]) - 128).name
        reason = f"error: the step was ended from outside by {name}: see the log of the system or of the scheduler"
    elif record.rule_msg and not any(line.startswith("Traceback ") for line in lines):
        reason = "error: the job ended without a message: see the scheduler's log"
    else:
        reason = lines[-1] if lines else "error: no output"
    return f"step {record.rule_name} failed, see {' and '.join([log, *scheduler_logs])}\n{reason}"


if workflow.is_main_process:
    steps = Steps()
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.addFilter(is_shown)
    logger.addHandler(steps)
    atexit.register(steps.end)

"""fairseq's reports of progress: at least every 20 seconds, with the time of the whole run."""

import logging
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from fairseq.logging import meters, metrics, progress_bar

from ..progress import heartbeat


def audible(iterate: Callable) -> Callable:
    """Report the progress of a loop whose steps are long."""

    @wraps(iterate)
    def wrapper(self: Any) -> Iterator[Any]:
        def say() -> None:
            log = progress_bar.logger
            log.info(f"{self.prefix}: at work on {(self.i or 0) + 1} of {self.size or len(self)}")

        with heartbeat(say, logging.getLogger("fairseq")):
            yield from iterate(self)

    return wrapper


def logs_once(make_bar: Callable) -> Callable:
    """Every line stands in ``--log-file`` once.

    fairseq opens the file anew for every epoch's bar and never closes it: each line of epoch 30
    stands there 30 times, and after some thousand epochs the process may open no more files.
    """

    @wraps(make_bar)
    def wrapper(*args: Any, log_file: str | None = None, **kwargs: Any) -> Any:
        log = progress_bar.logger
        for handler in [*log.handlers] if log_file is not None else []:
            if isinstance(handler, logging.FileHandler):
                log.removeHandler(handler)
                handler.close()
        return make_bar(*args, log_file=log_file, **kwargs)

    return wrapper


def counts_on(load_checkpoint: Callable) -> Callable:
    """``wall`` of a resumed run has the time before the checkpoint, too.

    fairseq loads a stopwatch that stands still, and logs 0 from then on.
    """

    @wraps(load_checkpoint)
    def wrapper(self: Any, *args: Any, reset_meters: bool = False, **kwargs: Any) -> Any:
        extra_state = load_checkpoint(self, *args, reset_meters=reset_meters, **kwargs)
        wall = metrics.get_meter("default", "wall")
        if extra_state is not None and not reset_meters and isinstance(wall, meters.StopwatchMeter):
            # of several processes this is a tensor, their mean
            wall.start_time = time.perf_counter() - float(self._previous_training_time)
        return extra_state

    return wrapper

"""fairseq's registering decorators, which do nothing where `DIET_FAIRSEQ_PATCHES` is ``off``.

fairseq imports the files of ``--user-dir`` that register models and tasks by itself, so their
decorators must know it.
"""

from typing import Any

from fairseq import criterions, models, optim, tasks
from fairseq.optim import lr_scheduler

from .modes import active_kinds


def _unless_off(register: Any) -> Any:
    return register if active_kinds() else lambda *_, **__: lambda unregistered: unregistered


register_criterion = _unless_off(criterions.register_criterion)
register_lr_scheduler = _unless_off(lr_scheduler.register_lr_scheduler)
register_model = _unless_off(models.register_model)
register_model_architecture = _unless_off(models.register_model_architecture)
register_optimizer = _unless_off(optim.register_optimizer)
register_task = _unless_off(tasks.register_task)

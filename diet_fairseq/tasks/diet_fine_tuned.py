"""Tasks ``glue`` and ``question_answering`` of 0.2, whose checkpoints transformers fine-tunes now.

The names stay registered so that fairseq's commands refuse such a checkpoint in words;
`diet-fairseq export hf` converts it.
"""

from dataclasses import dataclass, field
from typing import Any, NoReturn

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask

from ..errors import UserError
from ..registration import register_task

#: names of the tasks, as checkpoints have them
GLUE, QUESTION_ANSWERING = "glue", "question_answering"


@dataclass
class FineTunedConfig(FairseqDataclass):
    """Options of the tasks."""

    data: str = field(default="", metadata={"help": "folder of the data"})


@register_task(GLUE, dataclass=FineTunedConfig)
class GlueTask(FairseqTask):
    """Classification or regression in 0.2."""

    name, script = GLUE, "finetune.py"

    @classmethod
    def setup_task(cls, cfg: FineTunedConfig, **kwargs: Any) -> NoReturn:
        raise UserError(
            f"--task {cls.name} is gone: convert what it fine-tuned by "
            f"`diet-fairseq export hf`, and fine-tune with examples/roberta/{cls.script}"
        )


@register_task(QUESTION_ANSWERING, dataclass=FineTunedConfig)
class QuestionAnsweringTask(GlueTask):
    """Extractive question answering in 0.2."""

    name, script = QUESTION_ANSWERING, "answer.py"

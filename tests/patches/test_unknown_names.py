"""A checkpoint of a user's own architecture or task loads with --user-dir, which errors name."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from fairseq import models, tasks

from diet_fairseq.errors import UserError
from tests.support.commands import TINY, run

PACKAGE = """
from fairseq.models import register_model_architecture
from fairseq.models.transformer import base_architecture
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask


@register_model_architecture("transformer", "my_architecture")
def my_architecture(args):
    base_architecture(args)


@register_task("my_task", dataclass=TranslationConfig)
class MyTask(TranslationTask):
    pass
"""


@pytest.mark.parametrize(
    "build",
    [
        lambda: models.build_model(Namespace(arch="mine"), None),
        lambda: models.build_model(SimpleNamespace(_name="mine"), None, from_checkpoint=True),
    ],
)
def test_an_unknown_architecture_is_named(build):
    with pytest.raises(UserError) as error:
        build()
    assert str(error.value) == (
        "the architecture mine is unknown: give --user-dir, the package that registers it"
    )


def test_an_unknown_task_is_named():
    with pytest.raises(UserError) as error:
        tasks.setup_task(SimpleNamespace(_name="mine"), from_checkpoint=True)
    assert str(error.value) == (
        "the task mine is unknown: give --user-dir, the package that registers it"
    )


def import_plugin():
    import diet_fairseq  # noqa: F401


@pytest.mark.slow
def test_a_model_of_a_user_s_package_loads_when_user_dir_is_given(data, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(PACKAGE)
    (tmp_path / "text").write_text("w1 w2\n")
    user_dir = ("--user-dir", tmp_path / "mine")
    own = ("--arch", "my_architecture", "--task", "my_task", *TINY[2:], "--max-update", 1)
    run_folder = tmp_path / "run"
    done = run("train", data, *own, *user_dir, "--save-dir", run_folder, plugin=False)
    assert done.status == 0, done.err
    model = run_folder / "checkpoint_last.pt"
    files = (model, tmp_path / "text", "--data", data, "--subwords", "none")
    for command, *words in [
        ("generate", data, "--path", model, "--cpu", "--num-workers", 0),
        ("diet_fairseq.cli:main", "translate", *files),
    ]:
        done = run(command, *words, plugin=False, first=import_plugin)
        assert done.status == 1
        assert done.last.endswith("is unknown: give --user-dir, the package that registers it")
        done = run(command, *words, *user_dir, plugin=False, first=import_plugin)
        assert done.status == 0, done.err

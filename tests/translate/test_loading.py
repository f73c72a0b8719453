"""`load_model` reads every checkpoint that fairseq, the plugin or the user's package can build."""

import pytest
import torch

from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from tests.support.translating import untrained

PACKAGE = """
from fairseq.models import register_model_architecture
from fairseq.models.transformer import base_architecture

register_model_architecture("transformer", "architecture_of_a_user")(base_architecture)
"""


def test_an_unknown_architecture_needs_its_user_dir(tmp_path, capsys):
    run, package = untrained(tmp_path / "run", "--arch", "transformer"), tmp_path / "user_package"
    checkpoint = run / "checkpoint_last.pt"
    state = torch.load(checkpoint, weights_only=False)  # this test wrote it
    state["cfg"]["model"]._name = state["cfg"]["model"].arch = "architecture_of_a_user"
    torch.save(state, checkpoint)
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (tmp_path / "text").write_text("ban\n")
    words = ["translate", str(run), str(tmp_path / "text")]
    with pytest.raises(UserError) as error:
        main(words)
    assert str(error.value) == (
        "the architecture architecture_of_a_user is unknown: give --user-dir, the package that "
        "registers it"
    )
    assert main([*words, "--user-dir", str(package)]) == 0
    assert capsys.readouterr().out.count("\n") == 1

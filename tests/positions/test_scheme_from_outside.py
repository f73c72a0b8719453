"""A scheme in a user's own package, as CONTRIBUTING.md prints it: every command knows it."""

import sys
from pathlib import Path

import pytest

from tests.support.commands import TINY, Done, run
from tests.support.pages import write_own_scheme

PAIR = ["--source-lang", "de", "--target-lang", "en", "--cpu"]
TRANSLATE = [*PAIR, "--max-len-b", "5", "--beam", "2"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guide's example in an empty folder."""
    return write_own_scheme(tmp_path_factory.mktemp("outside"))


def succeed(command: str, *words: object) -> Done:
    done = run(command, *words, plugin=False)
    assert done.status == 0, done.text
    return done


def hypotheses(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("H-")]


def try_properties() -> None:
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    import turns

    from diet_fairseq.testing import check_scheme

    check_scheme(turns.Turn)


def compare_folder() -> None:
    """Load the folder without the package, and with it; its logits are the checkpoint's."""
    import torch

    import diet_fairseq.hf  # noqa: F401
    from diet_fairseq.errors import UserError
    from diet_fairseq.translate.model_files import NO_SUBWORDS, ModelOptions, resolve_model

    package, folder, checkpoint, data = map(Path, sys.argv[1:])
    from transformers import AutoModelForSeq2SeqLM

    with pytest.raises(UserError, match="import that package first"):
        AutoModelForSeq2SeqLM.from_pretrained(folder)
    sys.path.insert(0, str(package.parent))
    import turns  # noqa: F401

    from diet_fairseq.translate.loading import load_transformer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert model.config.position_options["position_turn_base"] == 20.0
    trained = load_transformer(
        resolve_model(checkpoint, ModelOptions(data, NO_SUBWORDS), translates=False)
    ).model
    source, target = (
        torch.tensor([[5, 6, 7, 2], [8, 9, 2, 1]]),
        torch.tensor([[2, 5, 6], [2, 7, 8]]),
    )
    with torch.no_grad():
        logits = model(input_ids=source, decoder_input_ids=target).logits
        expected = trained(source, source.ne(1).sum(1), target)[0]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_scheme_from_outside_trains_resumes_translates_and_exports(data, package, tmp_path):
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    ours, run_folder = ["--user-dir", package], tmp_path / "run"
    arch = ["--arch", "transformer_turn", "--position-turn-base", "20"]
    train = ["train", data, *TINY[2:], *arch, *ours, "--save-dir", run_folder]
    assert "scheme:turn|turn_base:20.0|" in succeed(*train, "--max-update", "2").text
    checkpoint = run_folder / "checkpoint_last.pt"
    assert f"Loaded checkpoint {checkpoint}" in succeed(*train, "--max-update", "4").text

    translated = succeed("generate", data, *TRANSLATE, *ours, "--path", checkpoint).out
    assert len(hypotheses(translated)) == 4
    named = ["--data", data, "--subwords", "none", *ours]
    succeed("diet_fairseq.cli:main", "export", "hf", checkpoint, tmp_path / "hf", *named)
    succeed(f"{__name__}:compare_folder", package, tmp_path / "hf", checkpoint, data)
    back = tmp_path / "back"
    succeed("diet_fairseq.cli:main", "import", "hf", tmp_path / "hf", back, *ours)
    returned = succeed("generate", data, *TRANSLATE, *ours, "--path", back / "model.pt").out
    assert hypotheses(returned) == hypotheses(translated)

    start = ["--finetune-from-model", checkpoint, "--arch", "transformer_t5"]
    options = [*TINY[2:], *ours, "--save-dir", tmp_path / "t5", "--max-update", "1"]
    assert "warm start: " in succeed("train", data, *options, *start).text


@pytest.mark.slow
def test_a_scheme_from_outside_has_all_properties(package):
    succeed(f"{__name__}:try_properties", package)


@pytest.mark.slow
def test_the_list_of_schemes_has_one_from_outside(package):
    listed = succeed("diet_fairseq.cli:main", "schemes", "turn", "--user-dir", package).out
    assert listed.startswith("turn: q and k are turned pair by pair")
    for family in ("transformer", "roberta", "bert", "electra"):
        assert f"--arch {family}_turn[" in listed
    assert "--position-turn-base FLOAT  (default: 1000.0)" in listed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["schemes", "turn"], "unknown scheme turn: give one of none, "),
        (["schemes", "--user-dir", "no"], "--user-dir no does not exist: give the folder of a"),
    ],
)
def test_a_command_without_the_package_says_what_to_do(words, error):
    assert run("diet_fairseq.cli:main", *words, plugin=False).last.startswith(f"error: {error}")

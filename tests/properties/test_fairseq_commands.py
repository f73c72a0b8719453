"""Every scheme trains and translates by fairseq's commands, with its flags given once."""

from pathlib import Path

import pytest

from diet_fairseq.config import translation_schemes
from diet_fairseq.positions import SCHEMES
from tests.support.commands import TINY, Done, run

SHORT = [*TINY[2:], "--max-update", "2", "--no-epoch-checkpoints"]
PAIR = ["--source-lang", "de", "--target-lang", "en", "--cpu"]
TRANSLATE = [*PAIR, "--max-len-b", "5"]  # it has learned no end


def train(data: Path, folder: Path, *options: str) -> Path:
    done = run("train", data, *SHORT, *options, "--save-dir", folder)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"


def translations(done: Done) -> list[str]:
    assert done.status == 0, done.err
    return [line for line in done.out.splitlines() if line.startswith("H-")]


#: one of each kind; `test_state` tests what the checkpoints of all schemes hold
OF_EACH_KIND = {SCHEMES[name].kinds: name for name in reversed(translation_schemes())}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", OF_EACH_KIND.values())
def test_a_trained_model_translates_without_repeating_flags(
    data: Path, tmp_path: Path, scheme: str
) -> None:
    path = train(data, tmp_path, "--arch", f"transformer_{scheme}")
    done = run("generate", data, *TRANSLATE, "--path", path, "--beam", "3")
    assert len(translations(done)) == 4


@pytest.mark.slow
def test_a_trained_model_validates_and_translates_what_is_typed(data: Path, tmp_path: Path) -> None:
    path = train(data, tmp_path, "--arch", "transformer_tupe_r")
    done = run(
        "validate", data, *PAIR, "--task", "translation", "--max-tokens", "200", "--path", path
    )
    assert done.status == 0, done.err
    assert "valid on 'valid' subset" in done.out + done.err
    assert (
        len(translations(run("interactive", data, *TRANSLATE, "--path", path, stdin="w1 w2\n")))
        == 1
    )


@pytest.mark.slow
def test_bf16_trains_on_a_cpu_and_translates(data: Path, tmp_path: Path) -> None:
    path = train(data, tmp_path, "--arch", "transformer_diet_rel", "--bf16")
    assert len(translations(run("generate", data, *TRANSLATE, "--path", path))) == 4

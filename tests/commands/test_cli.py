"""One command, `diet-fairseq`: its help is there at once, and each command is what it says."""

import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from importlib.metadata import requires
from pathlib import Path

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY

from diet_fairseq.cli import COMMANDS, EXTRAS, REPLACED, Group, create_parser, main
from diet_fairseq.commands import exports
from diet_fairseq.config import default_options, position_options, translation_schemes
from diet_fairseq.errors import UserError
from diet_fairseq.models.diet_roberta import DietRobertaModel
from diet_fairseq.models.diet_transformer import DietTransformerModel
from diet_fairseq.patches.table import TABLE
from diet_fairseq.positions import SCHEMES
from diet_fairseq.version import __version__
from tests.support.commands import run
from tests.support.translating import words_only

ROOT = Path(__file__).parents[2]
#: every command as its words
COMMANDS_BY_WORDS = {
    (name, *rest): subcommand
    for name, command in COMMANDS.items()
    for rest, subcommand in (
        [((key,), value) for key, value in command.commands.items()]
        if isinstance(command, Group)
        else [((), command)]
    )
}
WORDS = list(COMMANDS_BY_WORDS)


def output_of(capsys, *words):
    """The output of a command that succeeds."""
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def error_of(capsys, *words):
    """The line that a command fails with, and its status."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err.strip(), end.value.code


def help_of(capsys, *words):
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return capsys.readouterr().out


HELP = """
import sys
from contextlib import suppress
from diet_fairseq.cli import main
for words in {words}:
    with suppress(SystemExit):
        main([*words, "--help"])
    print("imported after", *words, {heavy} & sys.modules.keys())
"""
#: libraries whose import takes longer than a help may
HEAVY = {
    "torch",
    "fairseq",
    "numpy",
    "scipy",
    "sklearn",
    "ctranslate2",
    "transformers",
    "omegaconf",
}


def test_help_of_every_command_imports_no_heavy_library():
    groups = {words[:-1] for words in WORDS}
    words = [*groups, *WORDS]
    program = HELP.format(words=words, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: diet-fairseq") == len(words)
    for line in (line for line in done.stdout.splitlines() if line.startswith("imported after")):
        assert line.endswith("set()"), line


def test_the_quantizations_are_those_of_ctranslate2():
    model_spec = pytest.importorskip("ctranslate2.specs.model_spec")
    assert exports.QUANTIZATIONS == model_spec.ACCEPTED_MODEL_TYPES


def test_the_help_names_all_commands_and_fits_on_a_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    groups = {(): COMMANDS} | {
        (name,): command.commands
        for name, command in COMMANDS.items()
        if isinstance(command, Group)
    }
    for words, commands in groups.items():
        text = help_of(capsys, *words)
        assert len(text.splitlines()) < 24
        assert max(map(len, text.splitlines())) <= 80 or words  # examples are not wrapped
        assert "\nexample" in text
        plain = " ".join(text.split())
        assert all(f" {name} {command.help}" in plain for name, command in commands.items())


def test_no_command_prints_the_help(capsys):
    assert output_of(capsys) == help_of(capsys)


def test_the_version_is_the_package_s(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"diet_fairseq {__version__}\n"


def test_train_says_where_training_is(capsys):
    line, status = error_of(capsys, "train", "data-bin")
    assert status == 2
    assert line.startswith(
        "error: `fairseq-train --user-dir diet_fairseq` trains (docs/training.md"
    )
    assert all((ROOT / page).exists() for page in re.findall(r"\((\S+\.md)\)", line))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_has_a_help_that_ends_with_an_example(words, capsys):
    text = help_of(capsys, *words)
    assert text.startswith(f"usage: diet-fairseq {' '.join(words)} ")
    assert "\x1b" not in text  # no colors
    *_, title, example = text.splitlines()
    assert title == "example:"
    program, *typed = shlex.split(example.split(">")[0])
    assert (program, tuple(typed[: len(words)])) == ("diet-fairseq", words)
    assert create_parser().parse(typed).run is COMMANDS_BY_WORDS[words].run


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("nosuch", "error: argument COMMAND: invalid choice: 'nosuch'"),
        ("export", "error: the following arguments are required: COMMAND"),
        ("schemes --nosuch", "error: unrecognized arguments: --nosuch"),
        ("average --num-epoch-checkpoints x", "error: argument --num-epoch-checkpoints: invalid"),
        *(
            (
                f"serve x --max-seconds {value}",
                f"error: argument --max-seconds: must be at least 0.0 and finite, but is {value}",
            )
            for value in ("nan", "inf")
        ),
        (
            "translate x --threads -1",
            "error: argument --threads: must be from 1 to 1024, but is -1",
        ),
        (
            "translate x --length-penalty nan",
            "error: argument --length-penalty: must be a finite n",
        ),
        *(
            (f"{name} train --nosuch", f"error: `{name}` is now a workflow: docs/migrating.md")
            for name in REPLACED
        ),
    ],
)
def test_a_wrong_word_ends_in_one_line(words, line, capsys):
    error, status = error_of(capsys, *words.split())
    assert error.startswith(line)
    assert status == 2


def test_a_missing_package_is_named_with_its_extra(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in [name for name in sys.modules if name.startswith("diet_fairseq.look")]:
        monkeypatch.delitem(sys.modules, module)
    assert error_of(capsys, "look", tmp_path / "checkpoint.pt", "--out", tmp_path / "page") == (
        "error: this needs matplotlib: in the checkout, pip install '.[plots]'", 1
    )  # fmt: skip


#: Ctrl-C in the middle of PyTorch's initialisation, where an exception of Python's aborts
INTERRUPTED_TORCH = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    os.abort()
"""


#: the words of commands that always import PyTorch -> arguments with which they begin to work, in
#: the folder of a model
ARGUMENTS = {
    ("translate",): [".", os.devnull],
    ("export", "ctranslate2"): ["model", "out"],
    ("export", "hf"): ["model", "out"],
    ("import", "hf"): ["model", "out"],
    ("look",): ["model"],
    ("extrapolate",): ["model", "--text", "text"],
    ("average",): ["--inputs", "model", "--output", "out"],
    ("patches",): [],
    ("schemes",): [],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("words", ARGUMENTS, ids=" ".join)
def test_an_interrupted_import_is_silent(words, tmp_path):
    (words_only(tmp_path) / "torch.py").write_text(INTERRUPTED_TORCH)
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "diet_fairseq", *words, *ARGUMENTS[words]], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        # a shell's background jobs ignore Ctrl-C, and so would what they start
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    # of which a shell makes 130
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_interrupts_are_as_before_when_a_command_runs(handler, monkeypatch):
    handlers = []

    def run(args):
        handlers.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setitem(COMMANDS, "schemes", COMMANDS["schemes"]._replace(run=run))
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert main(["schemes"]) == 0
        with pytest.raises(SystemExit):
            main(["nosuch"])
        handlers.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert handlers == [handler] * 2


def write_to_a_closed_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("words", ["schemes", "schemes t5"])
def test_a_closed_output_pipe_ends_a_command_in_silence(words):
    done = run("diet_fairseq.cli:main", *words.split(), plugin=False, first=write_to_a_closed_pipe)
    assert (done.status, done.err) == (128 + signal.SIGPIPE, "")


def test_optional_packages_are_in_their_extras():
    requirements = [re.sub(r"[\s\"']", "", line) for line in requires("diet_fairseq") or ()]
    for package, extra in EXTRAS.items():
        # as the build tool likes it; other distributions install these two packages
        others = {"fairseq": "fairseq-fixed", "google": "protobuf"}
        name = others.get(package, package.replace("_", "[-_]"))
        line = re.compile(rf"{name}[<>=,.\d]*;extra=={extra}")
        assert any(map(line.fullmatch, requirements)), package


ROWS = [(row, *reason) for row in TABLE for reason in row.reasons.items()]


def test_patches_shows_every_change_with_its_kind(capsys):
    blocks = output_of(capsys, "patches").strip().split("\n\n")
    assert len(blocks) == len(ROWS)
    for (row, kind, why), block in zip(ROWS, blocks, strict=True):
        head, *rest = block.splitlines()
        assert head.split() == [kind, row.target]
        assert [line.split("  ")[-1].strip() for line in rest] == [row.replacement, why]


def test_patches_are_a_markdown_table_too(capsys):
    lines = output_of(capsys, "patches", "--markdown").splitlines()
    assert len(lines) == len(ROWS) + 2
    assert {line.count(" | ") for line in lines} == {3}


def test_schemes_shows_each_with_its_architectures_and_options(capsys):
    blocks = output_of(capsys, "schemes").strip().split("\n\n")
    assert [block.partition(":")[0] for block in blocks[:-1]] == list(SCHEMES)
    for name, block in zip(SCHEMES, blocks, strict=False):
        if SCHEMES[name].in_attention:
            fields = [position_options()[field] for field in default_options(SCHEMES[name])]
            assert all(f"    {field.flag}" in block for field in fields)
        assert ("--arch transformer_" in block) == (name in translation_schemes())
    assert "--attention-backend" in blocks[-1]


@pytest.mark.slow
def test_schemes_are_shown_without_fairseq(capsys):
    program = (
        "import sys; sys.modules['fairseq'] = None\n"
        "from diet_fairseq.cli import main; main(['schemes'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (output_of(capsys, "schemes"), "")


def test_every_architecture_of_ours_is_shown(capsys):
    shown = set()
    for start, sizes in re.findall(r"--arch (\w+)\[(.*)\]", output_of(capsys, "schemes")):
        shown |= {start, *(start + size for size in sizes.split("|"))}
    ours = {
        name
        for name, model in ARCH_MODEL_REGISTRY.items()
        if issubclass(model, DietTransformerModel | DietRobertaModel)
    }
    unfit = {f"transformer_{name}" for name in set(SCHEMES) - set(translation_schemes())}
    expected = {name for name in ours if not name.startswith(tuple(unfit))}
    assert shown == expected - {"diet_transformer", "diet_roberta", "diet_bert", "diet_electra"}


def test_one_scheme_can_be_asked_for(capsys):
    text = output_of(capsys, "schemes", "t5")
    assert text.startswith("t5: ")
    assert "tupe_a:" not in text
    with pytest.raises(UserError, match="unknown scheme rotary: give one of none, sinusoidal"):
        main(["schemes", "rotary"])

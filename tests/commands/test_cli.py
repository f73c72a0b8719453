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

from diet_fairseq.commands import exports
from diet_fairseq.config import options_of, position_options, translation_schemes
from diet_fairseq.errors import UserError
from diet_fairseq.models.diet_roberta import DietRobertaModel
from diet_fairseq.models.diet_transformer import DietTransformerModel
from diet_fairseq.patches.table import TABLE
from diet_fairseq.positions import SCHEMES
from diet_fairseq_cli import COMMANDS, EXTRAS, REPLACED, Command, Group, main

ROOT = Path(__file__).parents[2]
#: every command as its words
WORDS = [
    (name, *rest)
    for name, command in COMMANDS.items()
    for rest in ([(one,) for one in command.commands] if isinstance(command, Group) else [()])
]


def said(capsys, *words):
    """What the command prints, which has to end well."""
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def refused(capsys, *words):
    """The line that the command ends with, and its status."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err.strip(), end.value.code


HELP = """
import sys
from contextlib import suppress
from diet_fairseq_cli import main
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


def test_help_names_every_command_and_what_it_does(capsys):
    for words, commands in [((), COMMANDS), *(((n,), c.commands) for n, c in COMMANDS.items()
                                              if isinstance(c, Group))]:  # fmt: skip
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert all(f" {name} {command.help}" in text for name, command in commands.items())


def help_of(capsys, *words):
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return capsys.readouterr().out


def test_the_help_fits_on_a_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(capsys).splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert "examples:" in lines


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_help_ends_with_an_example_that_parses(words, capsys, monkeypatch):
    *_, title, example = help_of(capsys, *words).splitlines()
    assert title == "example:"
    program, *typed = shlex.split(example.split(">")[0])
    assert (program, tuple(typed[: len(words)])) == ("diet-fairseq", words)
    parsed = []
    monkeypatch.setattr("diet_fairseq_cli.import_command", lambda args: parsed.append)
    assert main(typed) == 0
    assert len(parsed) == 1


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_has_a_help_of_its_own_and_a_function(words, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    text = capsys.readouterr().out
    command = COMMANDS[words[0]]
    command = command if isinstance(command, Command) else command.commands[words[1]]
    assert text.startswith(f"usage: diet-fairseq {' '.join(words)} ")
    assert callable(command.function(command.run))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("nosuch", "error: argument COMMAND: invalid choice: 'nosuch'"),
        ("", "error: the following arguments are required: COMMAND"),
        ("export", "error: the following arguments are required: COMMAND"),
        ("schemes --nosuch", "error: unrecognized arguments: --nosuch"),
        ("average --num-epoch-checkpoints x", "error: argument --num-epoch-checkpoints: invalid"),
    ],
)
def test_a_wrong_word_ends_in_one_line(words, line, capsys):
    found, status = refused(capsys, *words.split())
    assert found.startswith(line)
    assert status == 2


@pytest.mark.parametrize("name", REPLACED)
def test_a_replaced_command_names_the_workflow(name, capsys):
    line, status = refused(capsys, name, "train", "--nosuch")
    assert line == f"error: `{name}` is now a workflow: {REPLACED[name]} (docs/migrating.md)"
    assert status == 2
    assert name not in COMMANDS


def test_a_package_that_is_not_there_is_named_with_its_extra(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in [name for name in sys.modules if name.startswith("diet_fairseq.analysis")]:
        monkeypatch.delitem(sys.modules, module)
    assert refused(capsys, "look", tmp_path / "checkpoint.pt", "--out", tmp_path / "page") == (
        "error: this needs matplotlib: pip install 'diet_fairseq[plots]'", 1
    )  # fmt: skip


#: Ctrl-C in the middle of PyTorch's initialisation, where an exception of Python's aborts
INTERRUPTED_TORCH = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    os.abort()
"""


@pytest.mark.parametrize(
    "command",
    [["-m", "diet_fairseq"], ["-c", "import sys, diet_fairseq_cli as c; sys.exit(c.main())"]],
    ids=["python -m", "diet-fairseq"],
)
def test_an_interrupted_import_is_silent(command, tmp_path):
    (tmp_path / "torch.py").write_text(INTERRUPTED_TORCH)
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command, "schemes"], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True,
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

    monkeypatch.setattr(Command, "function", lambda self, name: run if name == "run" else id)
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert main(["schemes"]) == 0
        with pytest.raises(SystemExit):
            main(["nosuch"])
        handlers.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert handlers == [handler] * 2


@pytest.mark.parametrize("words", ["schemes", "schemes t5"])
def test_a_command_whose_output_nobody_reads_on_ends_in_silence(words):
    command = [sys.executable, "-m", "diet_fairseq", *words.split()]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_another_broken_pipe_than_the_output_s_is_no_silent_end(monkeypatch):
    def run(args):
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr(Command, "function", lambda self, name: run if name == "run" else id)
    with pytest.raises(BrokenPipeError, match="of a worker"):
        main(["schemes"])


def test_every_such_package_is_in_its_extra():
    asked = [re.sub(r"[\s\"']", "", line) for line in requires("diet_fairseq") or ()]
    for package, extra in EXTRAS.items():
        name = package.replace("_", "[-_]")  # as the build tool likes it
        line = re.compile(rf"{name}[<>=,.\d]*;extra=={extra}")
        assert any(map(line.fullmatch, asked)), package


ROWS = [(row, *reason) for row in TABLE for reason in row.reasons.items()]


def test_patches_shows_every_change_with_its_kind(capsys):
    blocks = said(capsys, "patches").strip().split("\n\n")
    assert len(blocks) == len(ROWS)
    for (row, kind, why), block in zip(ROWS, blocks, strict=True):
        head, *rest = block.splitlines()
        assert head.split() == [kind, row.target]
        assert [line.split("  ")[-1].strip() for line in rest] == [row.replacement, why]


def test_patches_are_a_markdown_table_too(capsys):
    lines = said(capsys, "patches", "--markdown").splitlines()
    assert len(lines) == len(ROWS) + 2
    assert {line.count(" | ") for line in lines} == {3}


def test_schemes_shows_each_with_its_architectures_and_options(capsys):
    blocks = said(capsys, "schemes").strip().split("\n\n")
    assert [block.partition(":")[0] for block in blocks[:-1]] == list(SCHEMES)
    for name, block in zip(SCHEMES, blocks, strict=False):
        if SCHEMES[name].in_attention:
            fields = [position_options()[field] for field in options_of(SCHEMES[name])]
            assert all(f"    {field.flag}" in block for field in fields)
        assert ("--arch transformer_" in block) == (name in translation_schemes())
    assert "--attention-backend" in blocks[-1]


def test_every_architecture_of_ours_is_shown(capsys):
    shown = set()
    for start, sizes in re.findall(r"--arch (\w+)\[(.*)\]", said(capsys, "schemes")):
        shown |= {start, *(start + size for size in sizes.split("|"))}
    ours = {
        name
        for name, model in ARCH_MODEL_REGISTRY.items()
        if issubclass(model, DietTransformerModel | DietRobertaModel)
    }
    unfit = {f"transformer_{name}" for name in set(SCHEMES) - set(translation_schemes())}
    wanted = {name for name in ours if not name.startswith(tuple(unfit))}
    assert shown == wanted - {"diet_transformer", "diet_roberta", "diet_bert", "diet_electra"}


def test_one_scheme_can_be_asked_for(capsys):
    text = said(capsys, "schemes", "t5")
    assert text.startswith("t5: ")
    assert "tupe_a:" not in text
    with pytest.raises(UserError, match="there is no scheme rotary: take one of none, sinusoidal"):
        main(["schemes", "rotary"])

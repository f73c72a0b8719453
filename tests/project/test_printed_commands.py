"""Commands that the documentation prints: options, targets, files and packages exist.

Those that a line `<!-- run -->` marks are also run, by test_walks.py.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields

import pytest
import yaml
from config_keys import Encoder, Translation
from fairseq import options
from fairseq.dataclass.configs import FairseqConfig

from diet_fairseq import cli
from tests.support.pages import BLOCK, MARKDOWN, ROOT, text_of

FAIRSEQ_PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": options.get_interactive_generation_parser,
    "fairseq-validate": options.get_validation_parser,
    "fairseq-preprocess": options.get_preprocessing_parser,
}
#: programs whose words say nothing about this package
SHELL_PROGRAMS = {
    ".", "awk", "bicleaner-ai-classify", "cat", "cp", "curl", "cut", "do", "done", "echo",
    "fairseq-hydra-train", "for", "grep", "head", "paste", "pip", "python3.11", "python3.12",
    "sacrebleu", "sbatch", "shuf", "sort", "srun", "subword-nmt", "tail", "tensorboard", "torchrun",
}  # fmt: skip
INLINE = re.compile(r"`(diet-fairseq|make) (\w+)")


def commands(text: str) -> Iterator[list[str]]:
    """The words of every simple command in the shell blocks of a page, without redirections."""
    for language, block in BLOCK.findall(text):
        if language != "sh":
            continue
        lines = block.replace("\\\n", " ").splitlines()
        program = " ; ".join(re.sub(r"(^|\s)#.*", "", line) for line in lines)
        program = re.sub(r"\$\([^()]*\)", "", program)  # the options in a file
        lexer = shlex.shlex(program, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        separator = ";"
        for word in [*lexer, ";"]:
            if not set(word) <= set("|;&<>"):
                if separator not in ("<", ">") and word != "do":
                    command.append(word)
                separator = ";" if separator in ("<", ">") else separator
                continue
            separator = word
            if word not in ("<", ">") and command:
                yield command
                command = []


def verify_python(words: list[str]) -> None:
    """The script, or one beside it, has the options."""
    if words[0] == "-c":
        ast.parse(words[1])
        return
    if words[0] == "-m":
        words = [f"{words[1].replace('.', '/')}.py", *words[2:]]
    sources = "".join(path.read_text() for path in (ROOT / words[0]).parent.glob("*.py"))
    for word in words[1:]:
        assert not word.startswith("-") or f'"{word}"' in sources, word


def verify_snakemake(words: list[str]) -> None:
    from snakemake.cli import get_argument_parser

    words = ["cluster-generic" if word == "slurm" else word for word in words]  # not installed
    args = get_argument_parser().parse_args(words)
    files = (ROOT / args.snakefile).parent.iterdir()
    rules = "\n".join(path.read_text() for path in files if path.is_file())
    for target in args.targets:
        assert "/" in target or re.search(rf"^(rule |  ){target}:", rules, re.MULTILINE), target


def verify_fairseq(name: str, words: list[str]) -> None:
    """Parse, with the plugin that this process has imported; `...` stands for more options."""
    if "--user-dir" in words:
        at = words.index("--user-dir")
        if words[at + 1] != "diet_fairseq":
            return  # architectures of a user's package
        del words[at : at + 2]
    parser = FAIRSEQ_PARSERS[name]()
    if "..." in words:
        words.remove("...")
        if "--arch" not in words:
            known = {option for action in parser._actions for option in action.option_strings}
            assert {word for word in words if word.startswith("-")} <= known, words
            return
        words += ["--optimizer", "adam"]
    if name == "fairseq-preprocess":
        parser.parse_args(words)
    else:
        options.parse_args_and_arch(parser, input_args=words)


def check(command: list[str]) -> None:
    """Fail if a command has a program, an option, a target or a file that does not exist."""
    while re.match(r"[A-Z_]+=", command[0]):
        command = command[1:]
    program, *words = command
    for word in words:
        assert not word.startswith(("examples/", "tools/")) or (ROOT / word).exists(), word
    if words and words[0] in cli.REPLACED:
        return  # of 0.2, which made the measurements of that time
    if program == "diet-fairseq":
        cli.create_parser().parse(words)
    elif program == "make":
        assert re.search(rf"^{words[0]}:", text_of("Makefile"), re.MULTILINE), words[0]
    elif program == "bash":
        assert (ROOT / words[0]).is_file(), words[0]
    elif program == "python":
        verify_python(words)
    elif program == "snakemake":
        verify_snakemake(words)
    elif program in FAIRSEQ_PARSERS:
        verify_fairseq(program, words)
    else:
        assert program in SHELL_PROGRAMS, program


@pytest.mark.parametrize("page", MARKDOWN)
def test_what_a_page_prints_exists(page):
    """Options, targets and files of commands, commands within sentences, and keys of configs."""
    text = text_of(page)
    for command in commands(text):
        check(command)
    for program, word in INLINE.findall(text):
        if program == "make":
            check([program, word])
        else:
            assert word in {*cli.COMMANDS, *cli.REPLACED}, word
    keys = {*Translation.model_fields, *Encoder.model_fields}
    of_fairseq = {section.name for section in fields(FairseqConfig)}
    for language, block in BLOCK.findall(text):
        if language == "yaml":
            given = yaml.safe_load(block).keys()
            assert given <= keys or given <= of_fairseq

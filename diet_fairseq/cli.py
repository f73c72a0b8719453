"""The command ``diet-fairseq`` = ``python -m diet_fairseq``.

The modules of `commands` import PyTorch and fairseq in their `run` functions, so that ``--help`` is
printed at once.
"""

import logging
import sys
import warnings
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from .commands import average, exports, extrapolate, look, patches, schemes, serve, translate
from .errors import UserError, interruptible, report_user_errors, silent_interrupts
from .version import __version__


class Command(NamedTuple):
    """A command of ``diet-fairseq``."""

    help: str  # one line
    example: str  # the words after diet-fairseq
    add_arguments: Callable[[ArgumentParser], None]
    #: takes the parsed arguments and returns the exit status, or None for 0
    run: Callable[[Namespace], int | None]


class Group(NamedTuple):
    """Commands with a common first word."""

    help: str  # one line
    commands: dict[str, Command]


EXPORT = {
    "ctranslate2": Command(
        "write a folder that CTranslate2 translates with",
        "export ctranslate2 checkpoints/average.pt model-ct2 --quantization int8",
        exports.add_ctranslate2_arguments,
        exports.deferred_run("..export.ctranslate2"),
    ),
    "hf": Command(
        "write a folder that transformers loads",
        "export hf checkpoints/average.pt model-hf",
        exports.add_hf_arguments,
        exports.deferred_run("..hf.convert.to_transformers"),
    ),
}
IMPORT = {
    "hf": Command(
        "write a fairseq checkpoint from a folder of transformers",
        "import hf model-hf checkpoints-hf",
        exports.add_import_hf_arguments,
        exports.deferred_run("..hf.convert.from_transformers"),
    ),
}
COMMANDS: dict[str, Command | Group] = {
    "translate": Command(
        "translate text, line by line",
        "translate checkpoints/average.pt test.en > test.de",
        translate.add_arguments,
        translate.run,
    ),
    "serve": Command(
        "translate text over HTTP",
        "serve checkpoints/average.pt --port 5000",
        serve.add_arguments,
        serve.run,
    ),
    "export": Group("write a checkpoint in another library's format", EXPORT),
    "import": Group("write a fairseq checkpoint from another library's model", IMPORT),
    "look": Command(
        "show what a model has learned about positions, as a page",
        "look checkpoints/average.pt --text test.en --out look",
        look.add_arguments,
        look.run,
    ),
    "extrapolate": Command(
        "measure quality on inputs longer than in training",
        "extrapolate checkpoints/average.pt --text test.en --reference test.de",
        extrapolate.add_arguments,
        extrapolate.run,
    ),
    "average": Command(
        "average the parameters of several checkpoints",
        "average --inputs checkpoints --num-epoch-checkpoints 5 --output checkpoints/average.pt",
        average.add_arguments,
        average.run,
    ),
    "patches": Command(
        "list what importing the plugin changes in fairseq",
        "patches --markdown",
        patches.add_arguments,
        patches.run,
    ),
    "schemes": Command(
        "list the position schemes, their sizes and options",
        "schemes diet_rel",
        schemes.add_arguments,
        schemes.run,
    ),
}
EXAMPLES = (
    "translate checkpoints/average.pt test.en > test.de",
    "COMMAND --help",
)
#: commands of 0.2 that became workflows
REPLACED = ("translation", "grid", "encoder", "tables")
#: optional package -> the extra of diet_fairseq that installs it
EXTRAS = {
    "ctranslate2": "ctranslate2",
    "fairseq": "fairseq",
    "google": "transformers",  # protobuf
    "jinja2": "plots",
    "matplotlib": "plots",
    "sacremoses": "data",
    "python_multipart": "serve",
    "safetensors": "transformers",
    "starlette": "serve",
    "tqdm": "data",
    "transformers": "transformers",
    "uvicorn": "serve",
}


class Formatter(RawDescriptionHelpFormatter):
    """Help formatter with wider columns for command names, and without wrapping of examples."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=30, **options)
        self._action_max_length = 15  # argparse doesn't count that names of commands are indented


class Parser(ArgumentParser):
    """An argument parser that reports errors without the usage; ``examples`` end its help.

    Attributes:
        subparsers: a parser for each word that may follow
    """

    def __init__(self, examples: Sequence[str] = (), **options: Any) -> None:
        title = "example" if len(examples) == 1 else "examples"
        epilog = "\n".join([f"{title}:", *(f"  diet-fairseq {example}" for example in examples)])
        super().__init__(formatter_class=Formatter, epilog=epilog, **options)
        self.subparsers: Mapping[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Exit with one line."""
        self.exit(2, f"error: {message} (--help shows all options)\n")

    def add_commands(self, commands: Mapping[str, Command | Group]) -> None:
        """Add a subparser for every command and group."""
        action = self.add_subparsers(title="commands", required=True, metavar="COMMAND")
        for name, command in commands.items():
            members = command.commands if isinstance(command, Group) else {name: command}
            subparser = action.add_parser(
                name,
                help=command.help,
                description=f"{command.help[0].upper()}{command.help[1:]}.",
                examples=[member.example for member in members.values()],
            )
            if isinstance(command, Group):
                subparser.add_commands(command.commands)
                continue
            command.add_arguments(subparser)
            subparser.add_argument(
                "--user-dir",
                metavar="DIR",
                help="Python package to import first, as in fairseq, with your own position "
                "schemes",
            )
            subparser.set_defaults(run=command.run)
        self.subparsers = action.choices

    def parse(self, words: Sequence[str]) -> Namespace:
        """Parse a command line, in which options may appear between file names."""
        if words and words[0] in self.subparsers:
            return self.subparsers[words[0]].parse(words[1:])
        return self.parse_args(words) if self.subparsers else self.parse_intermixed_args(words)


def create_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(EXAMPLES, prog="diet-fairseq", description="Position attention for fairseq.")
    parser.add_argument("--version", action="version", version=f"diet_fairseq {__version__}")
    parser.add_commands(COMMANDS)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    words = sys.argv[1:] if words is None else words
    parser = create_parser()
    if not words:
        parser.print_help()
        return 0
    if words[0] == "train":
        parser.exit(
            2,
            "error: `fairseq-train --user-dir diet_fairseq` trains (docs/training.md), and the "
            "workflows of examples/ do it from raw text to a score (examples/README.md)\n",
        )
    if words[0] in REPLACED:
        parser.exit(
            2, f"error: `{words[0]}` is now a workflow: docs/migrating.md names its command\n"
        )
    args = parser.parse(words)
    # the import of fairseq would make the loggers of all libraries verbose
    logging.basicConfig()
    logging.getLogger().setLevel(logging.WARNING)
    # PyTorch 2.15 warns of torch.jit.script, which fairseq calls when it is imported
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    try:
        with interruptible(lambda: "run the same command to continue"):
            if args.user_dir is not None:
                import_user_dir(args)
            return args.run(args) or 0
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        parser.exit(1, f"error: this needs {package}: in the checkout, pip install '.[{extra}]'\n")
    except UserError:
        if "diet_fairseq.plugin" not in sys.modules:  # the plugin sets the hook itself
            sys.excepthook = report_user_errors(sys.excepthook)
        raise


def import_user_dir(args: Namespace) -> None:
    """Import the package ``args.user_dir``, as fairseq does."""
    with silent_interrupts():
        from fairseq.utils import import_user_module
    try:
        import_user_module(args)
    except FileNotFoundError as error:
        raise UserError(
            f"--user-dir {args.user_dir} does not exist: give the folder of a Python package"
        ) from error

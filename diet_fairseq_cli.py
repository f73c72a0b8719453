"""The command ``diet-fairseq``: its parser, which answers ``--help`` at once.

The package is imported when a command is called, and not before: that takes seconds. It is also why
this file stands beside the package, as fairseq_cli beside fairseq.
"""

import logging
import signal
import sys
import threading
import warnings
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, NoReturn


class Command(NamedTuple):
    """A command, whose module is imported when it is called."""

    help: str  # one line
    example: str  # what to type after diet-fairseq
    #: its `run` takes the parsed arguments, and returns the status to exit with, or None for 0
    module: str
    #: the function that adds the arguments to the parser (default: the module's `add_arguments`);
    #: its module imports neither PyTorch nor fairseq
    arguments: str = ""

    def import_run(self) -> Callable[[Namespace], int | None]:
        run: Callable[[Namespace], int | None] = import_module(f"diet_fairseq.{self.module}").run
        return run

    def add_arguments(self, parser: ArgumentParser) -> None:
        path = self.arguments or f"{self.module}.add_arguments"
        module, _, function = path.rpartition(".")
        getattr(import_module(f"diet_fairseq.{module}"), function)(parser)


class Group(NamedTuple):
    """Commands that belong together, with one line of help."""

    help: str
    commands: dict[str, Command]


EXPORT = {
    "ctranslate2": Command(
        "write a folder that CTranslate2 translates with",
        "export ctranslate2 checkpoints/average.pt model-ct2 --quantization int8",
        "export.ctranslate2",
        "commands.exports.add_ctranslate2_arguments",
    ),
    "hf": Command(
        "write a folder that transformers loads",
        "export hf checkpoints/average.pt model-hf",
        "hf.convert.to_transformers",
        "commands.exports.add_hf_arguments",
    ),
}
IMPORT = {
    "hf": Command(
        "write a fairseq checkpoint from a folder of transformers",
        "import hf model-hf checkpoints-hf",
        "hf.convert.from_transformers",
        "commands.exports.add_import_hf_arguments",
    ),
}
COMMANDS: dict[str, Command | Group] = {
    "translate": Command(
        "translate text, line by line",
        "translate checkpoints/average.pt test.en > test.de",
        "commands.translate",
    ),
    "serve": Command(
        "translate text over HTTP",
        "serve checkpoints/average.pt --port 5000",
        "commands.serve",
    ),
    "export": Group("write a checkpoint in another library's format", EXPORT),
    "import": Group("write a fairseq checkpoint from another library's model", IMPORT),
    "look": Command(
        "show what a model has learned about positions, as a page",
        "look checkpoints/average.pt --text test.en --out look",
        "commands.look",
    ),
    "extrapolate": Command(
        "measure quality on inputs longer than those of training",
        "extrapolate checkpoints/average.pt --text test.en --reference test.de",
        "commands.extrapolate",
    ),
    "average": Command(
        "average the parameters of several checkpoints",
        "average --inputs checkpoints --num-epoch-checkpoints 5 --output checkpoints/average.pt",
        "commands.average",
    ),
    "patches": Command(
        "list what importing the plugin changes in fairseq",
        "patches --markdown",
        "commands.patches",
    ),
    "schemes": Command(
        "list the position schemes, their sizes and options",
        "schemes diet_rel",
        "commands.schemes",
    ),
}
EXAMPLES = (
    "translate checkpoints/average.pt test.en > test.de",
    "COMMAND --help",
)
#: commands of 0.2 that became workflows
REPLACED = ("translation", "grid", "encoder", "tables")
#: packages that only some commands need -> the extra of diet_fairseq that installs them
EXTRAS = {
    "ctranslate2": "ctranslate2",
    "jinja2": "plots",
    "matplotlib": "plots",
    "sacremoses": "data",
    "safetensors": "transformers",
    "starlette": "serve",
    "tqdm": "data",
    "transformers": "transformers",
    "uvicorn": "serve",
}


class Formatter(RawDescriptionHelpFormatter):
    """Leaves room for the names of commands beside their help, and examples as they are."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=30, **options)
        self._action_max_length = 15  # argparse doesn't count that names of commands are indented


def examples_text(*examples: str) -> str:
    """The end of a help: commands to copy."""
    title = "example" if len(examples) == 1 else "examples"
    return "\n".join([f"{title}:", *(f"  diet-fairseq {example}" for example in examples)])


class Parser(ArgumentParser):
    """Reports errors without the usage; a command's parser gets its options from its module."""

    command: Command | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Formatter, **options)

    def error(self, message: str) -> NoReturn:
        """Exit with one line."""
        self.exit(2, f"error: {message} (--help shows all options)\n")

    def add_commands(self, commands: Mapping[str, Command | Group]) -> None:
        """Add a parser for every command, and for every group's."""
        subparsers = self.add_subparsers(title="commands", required=True, metavar="COMMAND")
        for name, command in commands.items():
            description = f"{command.help[0].upper()}{command.help[1:]}."
            subparser = subparsers.add_parser(name, help=command.help, description=description)
            if isinstance(command, Group):
                subparser.epilog = examples_text(*(c.example for c in command.commands.values()))
                subparser.add_commands(command.commands)
            else:
                subparser.epilog = examples_text(command.example)
                subparser.command = command
                subparser.set_defaults(command=command)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, after the command's module has added its arguments."""
        if not self.command:
            return super().parse_known_args(args, namespace)
        command, self.command = self.command, None
        command.add_arguments(self)
        self.add_argument(
            "--user-dir",
            metavar="DIR",
            help="package to import first, as fairseq does: position schemes of your own",
        )
        # MODEL --option VALUE FILE, which argparse would not take
        return self.parse_known_intermixed_args(args, namespace)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; the status to exit with."""
    words = sys.argv[1:] if words is None else words
    parser = Parser(
        prog="diet-fairseq",
        description="Position attention for fairseq.",
        epilog=examples_text(*EXAMPLES),
    )
    parser.add_commands(COMMANDS)
    if words and words[0] in REPLACED:
        parser.exit(
            2, f"error: `{words[0]}` is now a workflow: docs/migrating.md names its command\n"
        )
    try:
        with silent_interrupts():
            args = parser.parse_args(words)
            run = import_command(args)
        from diet_fairseq.interrupts import interruptible

        with interruptible(lambda: "run the same command to continue"):
            return run(args) or 0
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        parser.exit(1, f"error: this needs {package}: pip install 'diet_fairseq[{extra}]'\n")


@contextmanager
def silent_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process at once (a shell's status 130) while libraries are imported.

    Python's KeyboardInterrupt in the middle of PyTorch's initialisation aborts the process.
    """
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if handler is not signal.default_int_handler or not in_main_thread:
        yield  # Ctrl-C is ignored, or means something else
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def import_command(args: Namespace) -> Callable[[Namespace], int | None]:
    """The function that runs the command, with the plugin and ``--user-dir`` imported."""
    from diet_fairseq.errors import UserError, report_user_errors
    from diet_fairseq.modes import active_kinds

    # fairseq calls it while it is imported, of which PyTorch 2.15 warns its users
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
    if active_kinds():
        import_module("diet_fairseq.plugin")
    else:  # otherwise the plugin has done this
        sys.excepthook = report_user_errors(sys.excepthook)
    # Importing fairseq makes the loggers of all libraries verbose.
    logging.getLogger().setLevel(logging.WARNING)
    if args.user_dir is not None:
        from fairseq.utils import import_user_module

        try:
            import_user_module(args)
        except FileNotFoundError as error:
            raise UserError(
                f"--user-dir {args.user_dir} is not there: give the folder of a Python package"
            ) from error
    command: Command = args.command
    return command.import_run()


if __name__ == "__main__":
    sys.exit(main())

"""The command ``diet-fairseq``: its parser, which answers ``--help`` at once.

The package is imported when a command is called, and not before: that takes seconds. It is also why
this file stands beside the package, as fairseq_cli beside fairseq.
"""

import logging
import sys
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn


class Command(NamedTuple):
    """A command: its help, and where its functions are.

    Attributes:
        help: one line
        module: of the package
        run: takes the parsed arguments, and returns the status to exit with, or None for 0
        add_arguments: takes the parser; its module imports neither PyTorch nor fairseq
        by_corpus: ``add_arguments`` also takes the words to parse: defaults depend on ``--corpus``,
            which it would miss as an abbreviation
        passes_on: ``run`` also takes the words that the parser does not know, for fairseq-train
    """

    help: str
    module: str
    run: str = "run"
    add_arguments: str = "add_arguments"
    by_corpus: bool = False
    passes_on: bool = False

    def function(self, name: str) -> Any:
        return getattr(import_module(f"diet_fairseq.{self.module}"), name)


class Group(NamedTuple):
    """Commands that belong together, with one line of help."""

    help: str
    commands: dict[str, Command]


TRANSLATION = {
    "prepare": Command(
        "from raw text to what fairseq-train reads",
        "recipes.translation.prepare",
        "prepare",
        by_corpus=True,
    ),
    "train": Command(
        "show the fairseq-train command, and run it",
        "recipes.translation.train",
        "train",
        by_corpus=True,
        passes_on=True,
    ),
    "evaluate": Command(
        "translate the test set, and score it",
        "recipes.translation.evaluate",
        "evaluate",
        by_corpus=True,
    ),
}
ENCODER = {
    "prepare": Command(
        "from raw text to what fairseq-train reads", "recipes.encoders.prepare", "prepare"
    ),
    "pretrain": Command(
        "show the fairseq-train command, and run it",
        "recipes.encoders.pretrain",
        "pretrain",
        passes_on=True,
    ),
    "prepare-glue": Command(
        "GLUE's files to what finetune reads",
        "recipes.encoders.prepare_task",
        "prepare_glue",
        "add_glue_arguments",
    ),
    "prepare-task": Command(
        "tab-separated values of your own to what finetune reads",
        "recipes.encoders.prepare_task",
        "prepare_task",
        "add_task_arguments",
    ),
    "prepare-xtreme": Command(
        "XTREME's files to what finetune reads: English to train on, languages to test on",
        "recipes.encoders.prepare_xtreme",
        "prepare_xtreme",
    ),
    "finetune": Command(
        "a task, with a grid of learning rates and seeds",
        "recipes.encoders.finetune",
        "finetune",
        passes_on=True,
    ),
    "ablate": Command(
        "pretrain and fine-tune the rows of one of the papers' tables",
        "recipes.grid.ablate",
        "ablate",
        passes_on=True,
    ),
    "report": Command(
        "GLUE's table of what is finished, and XTREME's, beside the papers'",
        "recipes.encoders.report",
        "report",
    ),
    "predict": Command(
        "labels for GLUE's test sets, or for any tab-separated values",
        "recipes.encoders.predict",
        "predict",
    ),
    "answer": Command("what a text says to a question", "recipes.encoders.answer"),
    "score-xtreme": Command(
        "XTREME's scores of predictions, by task and language", "recipes.encoders.score_xtreme"
    ),
}
EXPORT = {
    "ctranslate2": Command(
        "a folder that CTranslate2 translates with",
        "commands.exports",
        "export_ctranslate2",
        "add_ctranslate2_arguments",
    ),
    "hf": Command(
        "a folder that transformers loads", "commands.exports", "export_hf", "add_hf_arguments"
    ),
    "safetensors": Command(
        "parameters and configuration, to read",
        "commands.exports",
        "export_safetensors",
        "add_safetensors_arguments",
    ),
}
IMPORT = {
    "hf": Command(
        "a folder of transformers as a checkpoint of fairseq",
        "commands.exports",
        "import_hf",
        "add_import_hf_arguments",
    ),
}
COMMANDS: dict[str, Command | Group] = {
    "translation": Group("machine translation, from raw text to a BLEU score", TRANSLATION),
    "encoder": Group("encoders, from raw text to pretraining and fine-tuning", ENCODER),
    "grid": Command(
        "train many schemes with the same budget; their table and curves", "recipes.grid.run"
    ),
    "translate": Command("translate text, line by line", "commands.translate"),
    "serve": Command("translate text over HTTP", "commands.serve"),
    "export": Group("a checkpoint in another library's format", EXPORT),
    "import": Group("a model of another library for fairseq", IMPORT),
    "look": Command("what a trained model has learned about positions, as a page", "commands.look"),
    "extrapolate": Command(
        "quality by length of the input, beyond what a model was trained on",
        "commands.extrapolate",
    ),
    "average": Command("average the parameters of several checkpoints", "commands.average"),
    "parameters": Command("count the parameters of the papers' models", "commands.parameters"),
    "patches": Command("what importing the plugin changes in fairseq", "commands.patches"),
    "tables": Command(
        "every row of the papers: what runs it, what came out, what it costs", "commands.tables"
    ),
    "schemes": Command("the position schemes, their sizes and options", "commands.schemes"),
}
#: packages that only some commands need -> the extra of diet_fairseq that installs them
EXTRAS = {
    "ctranslate2": "ctranslate2",
    "jinja2": "plots",
    "matplotlib": "plots",
    "prometheus_client": "serve",
    "sacremoses": "data",
    "safetensors": "safetensors",
    "starlette": "serve",
    "tqdm": "data",
    "transformers": "transformers",
    "uvicorn": "serve",
}


class _Formatter(HelpFormatter):
    """Leaves room for the names of commands beside their help."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=30, **options)


class Parser(ArgumentParser):
    """Reports errors without the usage; a command's parser gets its options from its module."""

    command: Command | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (--help shows all options)\n")

    def add_commands(self, commands: dict[str, Any]) -> None:
        """Add a parser for every command, and for every group's."""
        subparsers = self.add_subparsers(required=True, metavar="COMMAND")
        for name, command in commands.items():
            passes_on = isinstance(command, Command) and command.passes_on
            by_corpus = isinstance(command, Command) and command.by_corpus
            subparser = subparsers.add_parser(
                name,
                help=command.help,
                description=f"{command.help[0].upper()}{command.help[1:]}.",
                allow_abbrev=not (passes_on or by_corpus),
            )
            if isinstance(command, Group):
                subparser.add_commands(command.commands)
                continue
            subparser.command = command
            subparser.set_defaults(command=command)
            if passes_on:
                subparser.epilog = (
                    "Options that this command doesn't know are passed on to fairseq-train."
                )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.command:
            words = [args] if self.command.by_corpus else []
            command, self.command = self.command, None
            command.function(command.add_arguments)(self, *words)
            if not command.passes_on:  # MODEL --option VALUE FILE, which argparse would not take
                return self.parse_known_intermixed_args(args, namespace)
        return super().parse_known_args(args, namespace)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; the status to exit with."""
    parser = Parser(prog="diet-fairseq", description="Position attention for fairseq.")
    parser.add_commands(COMMANDS)
    try:
        args, more = parser.parse_known_args(words)
        return _call(parser, args, more)
    except KeyboardInterrupt:  # while the package is imported; later, it has more to say
        parser.exit(130, "\ninterrupted: run the same command to start over\n")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        extra = EXTRAS[package]
        parser.exit(1, f"error: this needs {package}: pip install 'diet_fairseq[{extra}]'\n")


def _call(parser: Parser, args: Namespace, more: list[str]) -> int:
    from diet_fairseq.errors import report_user_errors
    from diet_fairseq.interrupts import interruptible, read_on
    from diet_fairseq.modes import active_kinds

    if not active_kinds():  # otherwise importing the package has done this
        sys.excepthook = report_user_errors(sys.excepthook)
    command: Command = args.command
    if more and not command.passes_on:
        parser.error(f"unknown: {' '.join(more)}")
    import_module("diet_fairseq.plugin")  # and fairseq, which makes all loggers verbose
    logging.getLogger().setLevel(logging.WARNING)
    run = command.function(command.run)
    with interruptible(lambda: "run the same command to continue"):
        return read_on(lambda: run(args, *([more] if command.passes_on else [])) or 0)


if __name__ == "__main__":
    sys.exit(main())

# Shared by all workflows: the environment of commands, folder names from settings, config checks.

import hashlib
import importlib.util
import io
import json
import logging
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import yaml
from config_checks import check_config, did_you_mean
from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

min_version("9.27")

include: "terminal.smk"
include: "resources.smk"

EXAMPLES = Path(str(workflow.current_basedir)).parent
PLUGIN = importlib.util.find_spec("diet_fairseq").submodule_search_locations[0]
# A user's package imports the plugin itself.
USER_DIR = f"--user-dir {shlex.quote(str(config.get('user_dir') or PLUGIN))}"

# Commands come from the environment that Snakemake runs in, on a cluster's nodes, too.
shell.executable("bash")
BIN = shlex.quote(str(Path(sys.executable).parent))
shell.prefix(f"set -euo pipefail; export HF_HUB_OFFLINE=1 PATH={BIN}:$PATH; ")


def digest(settings):
    """A hash of settings, eight digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def settings_of(*keys):
    """A part of the config."""
    return {key: config[key] for key in keys}


def script(name):
    """The start of a shell command that runs the script at this path below examples."""
    return f"python {shlex.quote(str(EXAMPLES / name))} "


def quoted_words(key, text):
    """The words of options in a config, each quoted for the shell."""
    try:
        return shlex.join(shlex.split(text))
    except ValueError as error:
        raise WorkflowError(f"{key} must close its quotes, but is {text!r}: add the missing one") from error


def warn(text):
    """Print a warning once: every job reads the rules anew."""
    if workflow.is_main_process:
        logger.warning(f"warning: {text}")


@cache
def position_schemes():
    """Position schemes by name, including schemes that user_dir registers."""
    from diet_fairseq.errors import UserError
    from diet_fairseq.positions import SCHEMES
    from diet_fairseq.config import import_user_dir

    if config["user_dir"]:
        try:
            import_user_dir(Path(config["user_dir"]))
        except UserError as error:
            raise WorkflowError(f"config.user_dir: {error}") from None
    return SCHEMES


def check_schemes(names, translation, others=()):
    """Refuse a scheme that is not registered; ``names`` has the scheme of each key of the config.

    ``others`` are names that are not of schemes. Every job reads the rules anew: there the import of PyTorch would take seconds for nothing.
    """
    if not workflow.is_main_process:
        return
    known = [*others]
    known += [name for name, scheme in position_schemes().items() if not (translation and scheme.compressed)]
    for key, name in names.items():
        if name not in known:
            raise WorkflowError(
                f"{key} must name one of the schemes {', '.join(known)}, but names {name}"
                f"{did_you_mean(name, known) or ': correct it,'} or set user_dir to the package that registers it"
            )


def check_training_options(options, sources):
    """Refuse options that fairseq-train refuses, before text is downloaded and prepared.

    ``options`` are all options of a training, as text; ``sources`` has the words that come from each key of the config.
    """
    if not workflow.is_main_process or not any(sources.values()):
        return
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    from diet_fairseq.errors import UserError
    from fairseq.options import get_training_parser, parse_args_and_arch

    # fairseq's import sets up logging, which would print all messages of Snakemake once more.
    root.handlers[:] = handlers
    root.setLevel(level)
    parser, output, unknown = get_training_parser(), io.StringIO(), []
    words = shlex.split(f"{options} {USER_DIR}")
    try:
        with redirect_stdout(output), redirect_stderr(output):
            _, unknown = parse_args_and_arch(parser, ["data", *words], parse_known=True)
    except UserError as error:
        faults = [str(error)]
    except SystemExit as end:
        message = output.getvalue().rpartition("error: ")[2].strip()
        faults = [message if end.code else "--help prints a help and trains nothing: remove it"]
    else:
        architecture = words[len(words) - words[::-1].index("--arch")]
        known = [name for name in parser._option_string_actions if name.startswith("--")]
        names = [word.partition("=")[0] for word in unknown]
        # The value of an unknown option is unknown, too.
        names = [name for name in names if name.startswith("-")] or names
        advice = [did_you_mean(name, known, 0.8) or ": remove it" for name in names]
        faults = [f"fairseq-train has no option {name} with --arch {architecture}{text}" for name, text in zip(names, advice)]
    if faults:
        fault = ". ".join(faults).replace("?. ", "? ")
        faulty_words = {*re.findall(r"[\w-]+", fault)}
        keys = [key for key, text in sources.items() if faulty_words & {word.partition("=")[0] for word in shlex.split(text)}]
        raise WorkflowError(f"{(keys or [*sources])[0]}: {fault}")


def check_bleu(language, tokenizer):
    """Refuse a tokenizer of sacreBLEU's that lacks a package or a download."""
    from diet_fairseq.errors import UserError
    from diet_fairseq.text.scores import bleu

    if workflow.is_main_process:
        try:
            bleu(language, tokenizer)
        except UserError as error:
            raise WorkflowError(f"config.bleu_tokenizer: {error}") from None


def user_code(scheme):
    """A digest of user_dir's code, on which a model with this scheme depends; empty for the package's schemes."""
    folder = Path(config["user_dir"] or PLUGIN).resolve()
    if not config["user_dir"] or scheme == "stock":
        return {}
    # the scheme of a start may be the package's
    if scheme != "start" and position_schemes()[scheme].__module__.split(".")[0] != folder.name:
        return {}
    return {"user_dir": digest([path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))])}


def count_devices():
    """GPUs that this machine, or CUDA_VISIBLE_DEVICES, has."""
    return len(run_path(str(EXAMPLES / "scripts" / "with_gpus.py"))["visible_devices"]())


onstart:
    if not workflow.local_exec and config["gpus"] == "auto":
        raise WorkflowError(
            "config.gpus must be a number on a cluster, but is auto, which counts the GPUs of the machine that submits the"
            " jobs: write the number of GPUs of a training, or 0 for the CPU"
        )
    if workflow.local_exec and config["gpus"] != "auto" and config["gpus"] > count_devices():
        raise WorkflowError(
            f"config.gpus must be at most {count_devices()}, this machine's, but is {config['gpus']}: write auto"
        )


def divide_machine(trainings):
    """GPUs and CPU threads of a training: what the config says, or this machine's by the number of trainings.

    They decide about no new training: no rule has them in its params. Nor does it have the precision.
    """
    gpus, threads = config["gpus"], config["threads"]
    if gpus == "auto":
        devices = count_devices()
        gpus = min(devices, max(1, devices // trainings))
    if threads == "auto":
        side_by_side = min(trainings, max(1, count_devices() // gpus)) if gpus else trainings
        cores = workflow.global_resources["_cores"].value  # none where a cluster has the cores
        threads = max(1, cores // side_by_side) if cores else 4
    return gpus, threads


# Folders are built under a temporary name and renamed, so a killed run leaves no partial folder.
RENAME = 'rm -rf {output:q}; mv -T "$aside" {output:q}; rm -rf {output:q}.*.tmp'
# A folder of fairseq-preprocess, with the digests of its files.
BINARISED = '(cd "$aside"; rm -f preprocess.log; sha256sum * > SHA256SUMS); ' + RENAME

# A killed training resumes from its last checkpoint, if the text has not changed.
CHECK_TEXT = (
    "[ -e {params.folder:q}/SHA256SUMS ] || cp {input.data:q}/SHA256SUMS {params.folder:q}; "
    "cmp {input.data:q}/SHA256SUMS {params.folder:q}/SHA256SUMS || "
    "{{ echo error: {params.folder:q} 'was trained on other text: remove it, or name another folder' >&2; exit 1; }}; "
)
WITH_GPUS = script("scripts/with_gpus.py") + "{resources.gpu} "


def fairseq_train(plan):
    """The command that trains, with options of train.py; its output goes to the log."""
    plan += " --fewer" * (config["gpus"] == "auto")
    plan += f" --precision {config['precision']}"
    return (
        script("scripts/train.py") + f"{{params.folder:q}} --log {{log:q}} --gpus {{resources.gpu}} {plan}"
        f" -- fairseq-train {{input.data:q}} {USER_DIR} {{params.options}} --save-dir {{params.folder:q}}"
        " --log-format json --log-interval 50 --log-file {params.folder:q}/train.log"
    )

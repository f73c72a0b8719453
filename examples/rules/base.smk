# Shared by all workflows: the commands' environment, names by settings, the config's check.

import hashlib
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path

import yaml
from jsonschema.exceptions import best_match
from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version, validate

min_version("9.27")

EXAMPLES = Path(str(workflow.current_basedir)).parent
PLUGIN = importlib.util.find_spec("diet_fairseq").submodule_search_locations[0]  # --user-dir

# Commands come from the environment that Snakemake runs in, on a cluster's nodes, too.
shell.executable("bash")
BIN = shlex.quote(str(Path(sys.executable).parent))
shell.prefix(f"set -euo pipefail; export HF_HUB_OFFLINE=1 PATH={BIN}:$PATH; ")


def digest(settings):
    """Eight digits that stand for settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def settings_of(*keys):
    """A part of the config."""
    return {key: config[key] for key in keys}


def script(name):
    """The start of a shell command: a script, by its path below examples."""
    return f"python {shlex.quote(str(EXAMPLES / name))} "


def check_lines(key, value):
    """Refuse text with a line break, or another control character, which would end a shell command."""
    if isinstance(value, dict):
        for name, part in value.items():
            check_lines(f"a key of {key}", name)
            check_lines(f"{key}.{name}", part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            check_lines(f"{key}.{number}", part)
    elif isinstance(value, str) and re.search(r"[\0-\x1f\x7f]", value):
        raise WorkflowError(f"{key} must be one line, but is {value!r}: write >- instead of | in front of it")


def quoted_words(key, text):
    """The words of options in a config, each quoted for the shell."""
    try:
        return shlex.join(shlex.split(text))
    except ValueError as error:
        raise WorkflowError(f"{key} must close its quotes, but is {text!r}: add the missing one") from error


def check_config(schema):
    """Fill in defaults; refuse a config with one message of key, rule and value."""
    check_lines("config", config)
    try:
        validate(config, str(schema))
    except WorkflowError as error:
        fault = best_match([error.__context__])
        key = ".".join(["config", *map(str, fault.absolute_path)])
        advice = {"number": ": write 0.001 or 1.0e-3", "string": ": put it in quotes"}.get(str(fault.validator_value), "")
        raise WorkflowError(f"{key}: {fault.message}{advice}") from None


def batch_options(option, capacity):
    """The same batch on any number of GPUs: what exceeds their capacity is accumulated."""

    def options(wildcards, resources):
        gpus = max(1, resources.gpu)
        steps = -(-config["batch"] // (capacity * gpus))
        if option == "--batch-size":  # of tokens a batch is never exact
            if config["batch"] % gpus:
                raise WorkflowError(
                    f"config.batch must be a multiple of gpus, {gpus}, but is {config['batch']}"
                )
            while config["batch"] % (steps * gpus):
                steps += 1
        batch = f"{option} {max(1, config['batch'] // (steps * gpus))} --update-freq {steps}"
        if not resources.gpu:
            return f"{batch} --cpu"
        # Resuming on several processes fails without the second option.
        return f"{batch} --distributed-world-size {gpus} --load-checkpoint-on-all-dp-ranks"

    return options


# Folders are made aside: neither a kill nor the orphan of a killed Snakemake leaves half of one.
RENAME = 'rm -rf {output:q}; mv -T "$aside" {output:q}; rm -rf {output:q}.*.tmp'
# A folder of fairseq-preprocess, with the digests of its files.
BINARISED = '(cd "$aside"; rm -f preprocess.log; sha256sum * > SHA256SUMS); ' + RENAME

# A training that was killed goes on from its last checkpoint, if the text is still the same.
CHECK_TEXT = (
    "[ -e {params.folder:q}/SHA256SUMS ] || cp {input.data:q}/SHA256SUMS {params.folder:q}; "
    "cmp {input.data:q}/SHA256SUMS {params.folder:q}/SHA256SUMS || "
    "{{ echo error: {params.folder:q} 'was trained on other text: remove it, or name another folder' >&2; exit 1; }}; "
)
WITH_GPUS = script("scripts/with_gpus.py") + "{resources.gpu} "
FAIRSEQ_TRAIN = (
    WITH_GPUS + f"fairseq-train {{input.data:q}} --user-dir {shlex.quote(PLUGIN)}"
    " {params.options} {params.batch} --save-dir {params.folder:q} --log-format json"
    " --log-interval 100 --log-file {params.folder:q}/train.log > {log:q} 2>&1"
)

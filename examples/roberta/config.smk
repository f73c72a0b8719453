# The config, checked; the names of runs; options of the scripts.

import math
from itertools import product

from config_keys import Encoder, Tuning

GIVEN = {*config}  # the keys without defaults
check_config(config, Encoder)

FOLDER = config["folder"]
SUBWORDS = f"{FOLDER}/subwords/" + ("codes" if config["subwords"] == "subword_nmt" else "sentencepiece.model")
START = START_DIGEST = None
MODEL = MODEL_MB[config["size"]]  # memory of a training, in megabytes


include: "start.smk"


TASKS, QUESTIONS = config["tasks"], config["questions"]
TUNING = Tuning().model_dump() | config["tuning"]
DOWNLOADS = config["downloads"]

# Keys that shape the pretrained model, besides model and seed.
TEXT = ("text", "wikitext", "lines_per_document", "lower", "valid_share", "smoothing")
DATA = (*TEXT, "language", "subwords", "vocabulary")
if config["valid"]:  # without it runs keep the names that 0.3.0 gave them
    DATA += ("valid",)
TRAINING = ("size", "objective", "length", "positions", "updates", "batch", "learning_rate", "warmup",
            "optimizer", "weight_decay", "clip_norm", "options")


# Label of a pretraining -> its scheme.
SCHEMES = {
    label: model.split()[0].partition("_")[2] for label, model in config["models"].items() if isinstance(model, str)
}
if START:
    SCHEMES = {label: scheme.split()[0] for label, scheme in config["models"].items()}
KEY = "schemes" if START else "models"
check_schemes(
    {f"config.{KEY}.{label}": scheme for label, scheme in SCHEMES.items()},
    translation=False,
    others=["start"] if START else (),
)


def run_name(label, seed):
    """The name of a pretraining's folder, which depends on the settings."""
    keys = [*DATA, *TRAINING]
    settings = {"model": config["models"][label], "seed": seed}
    if START:
        keys = [key for key in keys if key not in PARTS_OF_START]
        settings["start"] = START_DIGEST
    settings |= settings_of(*keys) | user_code(SCHEMES[label])
    return f"{label}-s{seed}-{digest(settings)}"


def model_name(label, seed):
    """The name of an exported model: a run, or an earlier checkpoint of one."""
    model = config["models"][label]
    if isinstance(model, str):
        return run_name(label, seed)
    return f"{run_name(model['checkpoint_of'], seed)}-u{model['updates']}"


RUNS, MODELS = {}, {}  # name of a run -> label, seed; name of a model -> its run, its checkpoint
for label, seed in product(config["models"], config["pretraining_seeds"]):
    model = config["models"][label]
    if isinstance(model, str):
        RUNS[run_name(label, seed)] = (label, seed)
        MODELS[model_name(label, seed)] = (run_name(label, seed), "checkpoint_last.pt")
        continue
    base, updates = model["checkpoint_of"], model["updates"]
    if not isinstance(config["models"].get(base), str):
        raise WorkflowError(f"config.models.{label}.checkpoint_of must be a label, but is {base!r}")
    if config["keep"] != -1 or updates % config["save_interval"] or updates > config["updates"]:
        raise WorkflowError(
            f"config.models.{label}.updates must be a multiple of save_interval up to updates, with "
            f"keep: -1, but is {updates}"
        )
    MODELS[model_name(label, seed)] = (run_name(base, seed), f"checkpoint_*_{updates}.pt")

if START:
    MODELS[f"{AS_IT_WAS}-{START_DIGEST}"] = (None, "model.pt")

if config["gpus"] != "auto" and config["batch"] % max(1, config["gpus"]):
    raise WorkflowError(f"config.batch must be a multiple of gpus, {config['gpus']}, but is {config['batch']}")
GPUS, THREADS = divide_machine(len(RUNS))


def tuning_names(task):
    """The names of a task's fine-tunings: all rates, epochs and seeds."""
    settings = TUNING | (QUESTIONS if task == "questions" else TASKS[task])
    apart = ("rates", "epochs", "seeds", "tests", "per_step", "statistic")
    shared = digest({key: value for key, value in settings.items() if key not in apart})
    runs = product(settings["rates"], settings["epochs"], settings["seeds"])
    return [f"lr{rate:g}-e{epochs}-s{seed}-{shared}" for rate, epochs, seed in runs]


# A length that the model has no positions for, or a stride without room, would fail after pretraining.
POSITIONS = max(config["positions"] or 0, config["length"])
if START:
    POSITIONS = start_positions(START_CONFIG) or math.inf
    if config["length"] > POSITIONS:
        raise WorkflowError(
            f"config.length must be at most {POSITIONS}, the positions of start, but is {config['length']}: use {POSITIONS}"
        )
for label, settings in [*TASKS.items(), *([("questions", QUESTIONS)] if QUESTIONS else [])]:
    length = (TUNING | settings)["length"]
    if length > POSITIONS:
        raise WorkflowError(f"config: length {length} of {label} must be at most {POSITIONS}, the model's positions")
if TUNING["batch"] % min(step := TUNING["per_step"] or 1, TUNING["batch"]):
    raise WorkflowError(f"config.tuning.per_step must divide batch, {TUNING['batch']}, but is {step}: use a divisor")
if QUESTIONS and (stride := QUESTIONS.get("stride", 128)) >= length - 67:  # 64 of a question, and 3
    raise WorkflowError(f"config.questions.stride must be below {length - 67}, length minus 67, but is {stride}")
if unknown := {*config["wikitext"]} - {file for files in [*config["text"].values(), config["valid"]] for file in files}:
    raise WorkflowError(f"config.wikitext must name files of text or valid, but has {min(unknown)}")


def result_files(model):
    """The results of a model's fine-tunings."""
    tasks = [*TASKS, *(["questions"] if QUESTIONS else [])]
    return [f"{FOLDER}/tuning/{model}/{task}/{name}/result.json" for task in tasks for name in tuning_names(task)]


# Label of a model -> the results of its fine-tunings.
RESULTS = {AS_IT_WAS: result_files(f"{AS_IT_WAS}-{START_DIGEST}")} if START else {}
RESULTS |= {
    label: [file for seed in config["pretraining_seeds"] for file in result_files(model_name(label, seed))]
    for label in config["models"]
}

# Files

KNOWN_TASKS = yaml.safe_load((EXAMPLES / "roberta" / "tasks.yaml").read_text(encoding="utf-8"))
for label, settings in TASKS.items():
    name = settings.setdefault("task", label)
    if Path(name).suffix != ".yaml" and name not in KNOWN_TASKS:
        raise WorkflowError(
            f"config.tasks.{label}: the task must be one of {', '.join(KNOWN_TASKS)}, or a file "
            f"that ends in .yaml, but is {name!r}"
        )
    if Path(name).suffix == ".yaml" and not Path(name).is_file():
        raise WorkflowError(f"config.tasks.{label}: file not found: {name}")


def existing_file(path):
    """The file of this name, gzipped or not; one that is not there may be downloaded."""
    return next((name for name in (path, f"{path}.gz") if Path(name).is_file()), path)


def task_files(label):
    """The files that a fine-tuning reads."""
    name, folder = TASKS[label]["task"], TASKS[label]["data"]
    own = [name] if Path(name).suffix == ".yaml" else []
    task = yaml.safe_load(Path(name).read_text(encoding="utf-8")) if own else KNOWN_TASKS[name]
    files = [task["train"], *task["dev"].values(), *task.get("tests", {}).values()]
    return own + [existing_file(f"{folder}/{file}") for file in files]


def check_download(path):
    """Refuse a missing file without checksum; return no input."""
    if DOWNLOADS[path]["sha256"] is None and not Path(path).is_file():
        raise WorkflowError(
            f"config.downloads.{path}: sha256 is required for a download, but is null: set it, or "
            f"put the file there"
        )
    return []


# Options

OBJECTIVES = {
    "masked_lm": "--task masked_lm --sample-break-mode complete --criterion masked_lm",
    "nsp": "--nsp --task masked_lm_nsp --criterion masked_lm_nsp",
    # google-research/electra: 85% of the chosen tokens are masked, none replaced at random
    "electra": "--task masked_lm --sample-break-mode complete --criterion electra"
    " --leave-unmasked-prob 0.15 --random-token-prob 0",
}


OPTIONS, OPTIMIZER = (quoted_words(f"config.{key}", config[key]) for key in ("options", "optimizer"))
MODEL_OPTIONS = {
    label: quoted_words(f"config.{KEY}.{label}", model.partition(" ")[2])
    for label, model in config["models"].items()
    if isinstance(model, str)
}


def text_options(wildcards):
    """Options of clean_documents.py."""
    options = [shlex.join(["--text", language, *files]) for language, files in config["text"].items()]
    options += [shlex.join(["--wikitext", *config["wikitext"]]), f"--valid-share {config['valid_share']}"]
    options.append(shlex.join(["--valid", *config["valid"]]))
    options += ["--lower"] * config["lower"]
    if config["lines_per_document"]:
        options.append(f"--lines-per-document {config['lines_per_document']}")
    if len(config["text"]) > 1:
        options.append(f"--smoothing {config['smoothing']}")
    return " ".join(options)


def start_options(scheme):
    """The options of a model that starts from another model; the shell reads them from its folder."""
    if scheme == "start":
        options = f"$(cat {START}/options-start.txt)"
    else:
        options = f"$(sed s/SCHEME/{scheme}/ {START}/options-swap.txt)"
    return f"{options} --finetune-from-model {START}/model.pt"


def pretraining_options(wildcards):
    """All options that affect what is learnt, except the batch; the model's options come last and win."""
    label, seed = RUNS[wildcards.run]
    model = config["models"][label].partition(" ")[0]
    updates = config["updates"]
    # Compressed keys are a share of a sample's in DIET (appendix A): these keep its length.
    compressed = "linformer" in model or "diet_abs_lin" in model
    positions = config["length"] if compressed else max(config["positions"] or 0, config["length"])
    shape = start_options(model) if START else f"--arch {model}_{config['size']}"
    return (
        f"{shape} {OBJECTIVES[config['objective']]} --tokens-per-sample {config['length']}"
        f"{'' if START else f' --max-positions {positions}'}"
        f" --optimizer {OPTIMIZER} --weight-decay {config['weight_decay']}"
        f" --clip-norm {config['clip_norm']} --lr {config['learning_rate']} --lr-scheduler linear_ratio"
        f" --warmup-ratio {config['warmup']} --max-update {updates} --seed {seed}"
        f" --save-interval-updates {min(config['save_interval'], updates)}"
        f" --validate-interval-updates {min(config['validate_interval'], updates)}"
        f" --keep-interval-updates {config['keep']} --no-epoch-checkpoints {OPTIONS} {MODEL_OPTIONS[label]}"
    )


def known_architecture(scheme):
    """Options that only the shell can read, and an architecture like the model's for the check of the other options."""
    if not START:
        return "", ""
    kind = "roberta" if START_CONFIG.get("model_type") in ("roberta", "xlm-roberta", "distilbert") else "bert"
    return start_options(scheme), f"--arch {kind}_{'learned' if scheme == 'start' else scheme}"


for name, (label, seed) in RUNS.items():
    if seed == config["pretraining_seeds"][0]:
        check_training_options(
            pretraining_options(SimpleNamespace(run=name)).replace(*known_architecture(SCHEMES[label])),
            {
                "config.options": OPTIONS,
                f"config.{KEY}.{label}": MODEL_OPTIONS[label],
                "config.optimizer": OPTIMIZER,
                "config.objective": OBJECTIVES[config["objective"]],
            },
        )


def tuning_options(settings):
    """Options of finetune.py and answer.py that all runs of a task share."""
    options = f"--length {settings['length']} --batch {settings['batch']} --warmup {settings['warmup']}"
    options += f" --weight-decay {settings['weight_decay']} --evaluate-every {settings['evaluate_every']}"
    options += " --group-by-length" * settings["group_by_length"] + " --bf16" * settings["bf16"]
    return options + (f" --per-step {settings['per_step']}" if settings["per_step"] else "")


def question_options(wildcards):
    """Options of answer.py: its training set and its tests."""
    options = [tuning_options(TUNING | QUESTIONS), f"--stride {QUESTIONS.get('stride', 128)}"]
    if "language" in QUESTIONS:
        options += ["--train-language", shlex.quote(QUESTIONS["language"])]
    for name, files in QUESTIONS.get("tests", {}).items():
        pairs = (f"{language}={existing_file(file)}" for language, file in files.items())
        options.append(shlex.join(["--test", name, *pairs]))
    return " ".join(options)

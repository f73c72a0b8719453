# Inputs and options of the rules: files of text, checkpoints, options of fairseq-train.


def files_of(place, source):
    """The two files of a source of text; those of downloads are made by the rule `download`."""
    if not isinstance(source, str):
        return [f"{FOLDER}/raw/{place}.{lang}" for lang in (SOURCE, TARGET)]
    pair = []
    for lang in (SOURCE, TARGET):
        names = [f"{source}.{lang}", f"{source}.{lang}.gz"]
        existing = [name for name in names if Path(name).is_file()]
        if not existing:
            raise WorkflowError(f"config: {place}: file not found: {' or '.join(names)}")
        pair.append(existing[0])
    return pair


PLACES = {f"train-{number}": source for number, source in enumerate(TRAIN)}
PLACES |= {"valid": config["valid"]} | {f"test-{name}": source for name, source in TESTS.items()}
FILES = {place: files_of(place, source) for place, source in PLACES.items()}
for name, file in config["inputs"].items():
    if not Path(file).is_file():
        raise WorkflowError(f"config.inputs.{name}: file not found: {file}")


# Options of the search; with start, the model's own unless the config has them.
SEARCH = settings_of(*(key for key in SEARCH_KEYS if key in GIVEN_KEYS or not START))
SEARCH_WORDS = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in SEARCH.items())


def description(wildcards, input):
    """Options of describe.py, which do not affect what is learnt."""
    if START:
        return f"--start {shlex.quote(START_FOLDER)} {SEARCH_WORDS}"
    return (
        f"--data {shlex.quote(str(input.data))} --languages {SOURCE} {TARGET}"
        f" --subwords {config['subwords']} {shlex.quote(str(input.subwords))} {SEARCH_WORDS}"
    )


def checkpoints(wildcards):
    if wildcards.model == "start":
        return [START_CHECKPOINT]
    return [f"{FOLDER}/runs/{run.name}/average.pt" for run in MODELS[wildcards.model]]


# fairseq's own model in the size `tiny`, which it has no name for.
STOCK_TINY = "--dropout 0.3 " + " ".join(
    f"--{side}-layers 4 --{side}-embed-dim 128 --{side}-ffn-embed-dim 256 --{side}-attention-heads 4"
    for side in ("encoder", "decoder")
)


def architecture(scheme, size):
    if scheme == "start":
        return START_POSITIONS
    name = "transformer" if scheme == "stock" else f"transformer_{scheme}"
    if scheme == "stock" and size == "tiny":
        return f"--arch {name} {STOCK_TINY}"
    return f"--arch {name}{'' if size in ('', 'base') else f'_{size}'}"


def save_interval():
    """Updates between checkpoints; the last one is saved after the last update."""
    updates, average = config["updates"], config["average"]
    if average > updates:
        raise WorkflowError(
            f"config.average (default 5) is {average}, more than updates, {updates}: set average to {updates} or less"
        )
    longest = min(config["save_interval"], updates // average)
    interval = next(n for n in range(longest, 0, -1) if updates % n == 0)
    if interval * 4 < longest:
        raise WorkflowError(
            f"config.updates must have a divisor from {-(-longest // 4)} to {longest}, the interval between "
            f"checkpoints, but is {updates}: change it"
        )
    return interval


SAVE_INTERVAL = save_interval()
# Megabytes of a process that trains; a start has its weights, gradients and Adam's state
TRAINED_MB = 2000 + 5 * START_BYTES // 10**6 if START else max(map(MODEL_MB.get, config["sizes"]))
GPUS, THREADS = divide_machine(len(RUNS))
OPTIONS = quoted_words("config.options", config["options"])
ALL_OPTIONS = " ".join([config["options"], *SCHEMES.values()])
# A training with fewer updates can be continued where the learning rate does not depend on their number.
FIRST_CHECKPOINT = config["updates"] - (config["average"] - 1) * SAVE_INTERVAL
if "--lr-scheduler" in ALL_OPTIONS:
    FIRST_CHECKPOINT = 0
if "--no-save" in ALL_OPTIONS.split():
    raise WorkflowError("config.options must not have --no-save: the workflow averages and translates with checkpoints")
if config["patience"] and "--disable-validation" in ALL_OPTIONS.split():
    raise WorkflowError(
        f"config.patience must be null with --disable-validation in options, but is {config['patience']}: it counts validations"
    )
if config["warmup"] > config["updates"] and not re.search("--(lr-scheduler|warmup-updates)", ALL_OPTIONS):
    warn(
        f"config.warmup (default 400) should be at most updates, {config['updates']}, but is {config['warmup']}: the learning"
        f" rate rises to {config['learning_rate'] * config['updates'] / config['warmup']:.2g} only, not to"
        f" learning_rate, {config['learning_rate']}; lower warmup, or train longer"
    )
METRICS = {name: quoted_words(f"config.metrics.{name}", command) for name, command in config["metrics"].items()}
SCHEME_OPTIONS = {
    label: quoted_words(f"config.schemes.{label}", scheme.partition(" ")[2]) for label, scheme in SCHEMES.items()
}


# fairseq's names of the subwords and words to join again.
JOINED = {"sentencepiece": ("sentencepiece", "space"), "subword_nmt": ("subword_nmt", "moses")}[config["subwords"]]
# The options of a start have the names.
JOINED_WORDS = "" if START else " --eval-bleu-remove-bpe {} --eval-bleu-detok {}".format(*JOINED)
BLEU_VALIDATION = (
    "--eval-bleu --eval-bleu-args '{{\"beam\": 1}}'{}"
    " --eval-bleu-detok-args '{{\"target_lang\": \"{}\"}}'"
    " --best-checkpoint-metric bleu --maximize-best-checkpoint-metric"
).format(JOINED_WORDS, TARGET)


def training_options(wildcards):
    """All options that affect what is learnt, except the batch; the scheme's options come last and win."""
    run = RUNS[wildcards.run]
    validation = BLEU_VALIDATION if config["validation"] == "bleu" else ""
    if config["patience"]:
        validation += f" --patience {config['patience']}"
    dropout = "" if config["dropout"] is None else f"--dropout {config['dropout']}"
    start = f"{START_OPTIONS} --finetune-from-model {shlex.quote(START_CHECKPOINT)}" if START else ""
    shape = start or "--share-all-embeddings"
    return (
        f"--source-lang {SOURCE} --target-lang {TARGET}"
        f" {architecture(NAMES[run.label], run.size)} {shape} --seed {run.seed} {dropout}"
        " --optimizer fused_adamw --adam-betas '(0.9, 0.98)' --adam-eps 1e-9"
        f" --lr {config['learning_rate']} --lr-scheduler inverse_sqrt --warmup-updates {config['warmup']}"
        f" --criterion fused_label_smoothed_cross_entropy{'' if START else ' --label-smoothing 0.1'}"
        f" --max-update {config['updates']} --save-interval-updates {SAVE_INTERVAL}"
        f" --keep-interval-updates {config['average']} --no-epoch-checkpoints"
        f" --skip-invalid-size-inputs-valid-test {validation} {OPTIONS} {SCHEME_OPTIONS[run.label]}"
    )


for label in SCHEMES:
    name = next(name for name, run in RUNS.items() if run.label == label)
    options = training_options(SimpleNamespace(run=name))
    if START:  # the check has any positions, and no shape
        options = options.replace(START_POSITIONS, "--arch transformer_sinusoidal").replace(START_OPTIONS, "")
    check_training_options(options, {"config.options": OPTIONS, f"config.schemes.{label}": SCHEME_OPTIONS[label]})

# Inputs and options of the rules: files of text, checkpoints, options of fairseq-train.


def files_of(place, source, corpus):
    """The two files of a source of text in a corpus; those of downloads are made by the rule `download`."""
    languages = CORPORA[corpus]
    if not isinstance(source, str):
        return [f"{FOLDER}/raw/{corpus}{place}.{language}" for language in languages]
    pair = []
    for language in languages:
        names = []
        for name in dict.fromkeys(source.replace("{pair}", name_of(order)) for order in (languages, languages[::-1])):
            path = name.replace("{lang}", language) if "{lang}" in name else f"{name}.{language}"
            names += [path, f"{path}.gz"]
        existing = [name for name in names if Path(name).is_file()]
        if not existing:
            raise WorkflowError(f"config: {place}: file not found: {' or '.join(names)}")
        pair.append(existing[0])
    return pair


PLACES = {f"train-{number}": source for number, source in enumerate(TRAIN)}
PLACES |= {"valid": config["valid"]} | {f"test-{name}": source for name, source in TESTS.items()}


def has_corpus(place, corpus):
    """Whether a source of text has a corpus; training text may be of some alone."""
    pairs = PAIRS_OF[int(place.removeprefix("train-"))] if place.startswith("train-") else None
    return not pairs or bool({name_of(order) for order in (CORPORA[corpus], CORPORA[corpus][::-1])} & {*pairs})


for number, pairs in enumerate(PAIRS_OF):
    known = {name_of(order) for pair in DIRECTIONS for order in (pair, pair[::-1])}
    if unknown := sorted({*(pairs or ())} - known):
        raise WorkflowError(
            f"config.train.{number}.pairs must name pairs of the config, {', '.join(map(name_of, DIRECTIONS))}, but names {unknown[0]}"
        )
# Files of both languages, in the corpus's order: folder of the corpus and place -> files
FILES = {
    f"{corpus}{place}": files_of(place, source, corpus)
    for corpus in CORPORA for place, source in PLACES.items() if has_corpus(place, corpus)
}


def files_for(place, direction):
    """The source and the reference of a direction."""
    corpus = corpus_for(direction)
    files = FILES[f"{corpus}{place}"]
    return files if CORPORA[corpus] == direction else files[::-1]


TEST_FILES = {name: files_for(f"test-{test}", direction) for name, (test, direction) in EVALUATIONS.items()}
for corpus in CORPORA:
    if not any(has_corpus(place, corpus) for place in PLACES if place.startswith("train-")):
        raise WorkflowError(f"config.train must have text of every pair, but has none of {corpus[:-1]}: add it, or remove the pair")


def training_text(wildcards):
    """The files of a corpus, in the order of its sources."""
    names = [f"{corpus_of(wildcards)}train-{number}" for number in range(len(TRAIN))]
    return [file for name in names for file in FILES.get(name, [])]


def repeats(wildcards):
    """How often the pairs of each source of a corpus are used."""
    return [times for number, times in enumerate(REPEATS) if f"{corpus_of(wildcards)}train-{number}" in FILES]


def texts_of(split, kind="clean"):
    """The cleaned or encoded text of all corpora: source and target of the first, of the second, ..."""
    return [f"{FOLDER}/{kind}/{corpus}{split}.{language}" for corpus, pair in CORPORA.items() for language in pair]


def sources_of(kind):
    """The training sources of all directions, cleaned or encoded."""
    return [f"{FOLDER}/{kind}/{corpus_for(direction)}train.{direction[0]}" for direction in DIRECTIONS]


def binarise(corpus, dictionaries, prefixes="--trainpref {0}train --validpref {0}valid"):
    """The command that binarises a corpus into the folder that is made."""
    text = shlex.quote(f"{FOLDER}/encoded/{corpus}")
    source, target = CORPORA[corpus]
    return (
        f"fairseq-preprocess --source-lang {source} --target-lang {target} {prefixes.format(text)} {dictionaries}"
        ' --destdir "$aside" --workers {threads} >> {log:q} 2>&1; '
    )


def binarise_all(dictionaries):
    """The commands that binarise all corpora; several have one dictionary of all languages."""
    if not MULTILINGUAL or START:
        return "".join(binarise(corpus, dictionaries) for corpus in CORPORA)
    shared = '--srcdict "$aside/dict.txt" --tgtdict "$aside/dict.txt"'
    commands = "".join(binarise(corpus, shared) for corpus in CORPORA)
    return (
        'cat {input.train:q} > "$aside.text"; '
        'fairseq-preprocess --only-source --dict-only --trainpref "$aside.text" --nwordssrc {params.vocabulary:q}'
        f' --destdir "$aside" >> {{log:q}} 2>&1; rm "$aside.text"; {commands}'
    )


def sacrebleu_name(source):
    """sacreBLEU's name of a test set, or nothing."""
    return "" if isinstance(source, str) else source.get("sacrebleu", "")


# Name of a text -> its file and its direction
INPUTS = {}
for name, value in config["inputs"].items():
    file, pair = (value["file"], value["pair"]) if isinstance(value, dict) else (value, None)
    if not Path(file).is_file():
        raise WorkflowError(f"config.inputs.{name}: file not found: {file}")
    if MULTILINGUAL != bool(pair) or (pair and tuple(pair.split("-")) not in DIRECTIONS):
        needed = f"have file and pair, one of {', '.join(map(name_of, DIRECTIONS))}" if MULTILINGUAL else "be a file"
        raise WorkflowError(f"config.inputs.{name} must {needed}, but is {value!r}")
    INPUTS[name] = file, pair


# Options of the search; with start, the model's own unless the config has them.
SEARCH = settings_of(*(key for key in SEARCH_KEYS if key in GIVEN_KEYS or not START))
SEARCH |= settings_of(*(key for key in NEW_SEARCH_KEYS if key in GIVEN_KEYS))
SEARCH_WORDS = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in SEARCH.items())


def description(wildcards, input):
    """Options of describe.py, which do not affect what is learnt."""
    if START:
        return f"--start {shlex.quote(START_FOLDER)} {SEARCH_WORDS}"
    return (
        f"--data {shlex.quote(str(input.data))} --languages {SOURCE} {TARGET}"
        + (f" --pairs {' '.join(map(name_of, DIRECTIONS))}" if MULTILINGUAL else "")
        +         f" --subwords {config['subwords']} {shlex.quote(str(input.subwords))} {SEARCH_WORDS}"
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


# The task of a multilingual model. The tags of languages stand where NLLB and M2M-100 have them, or where the start has them.
TASK = (
    f"--task translation_multi_simple_epoch --lang-pairs {','.join(map(name_of, DIRECTIONS))} "
    + (START_TASK if START else f"--langs {','.join(LANGUAGES)} --encoder-langtok src --decoder-langtok")
)
SAMPLING = f" --sampling-method temperature --sampling-temperature {config['temperature']}"
# the held-out loss of all directions, which checkpoint_best.pt goes by, and that of each
SAMPLING += f" --valid-subset {','.join(['valid', *(f'valid.{name_of(pair)}' for pair in DIRECTIONS)])}"
OF_TASK = re.compile(r"--(task|langs|lang-dict|lang-pairs|(en|de)coder-langtok|lang-tok-\S+|langtoks\S*|sampling-\S+|valid-subset)\b")
for key, text in ("options", OPTIONS), *((f"schemes.{label}", text) for label, text in SCHEME_OPTIONS.items()):
    if MULTILINGUAL and (option := OF_TASK.search(text)):
        raise WorkflowError(
            f"config.{key} must not have {option[0]}, which follows from directions or pairs, and from temperature: remove it"
        )


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
        (TASK + SAMPLING if MULTILINGUAL else f"--source-lang {SOURCE} --target-lang {TARGET}")
        + f" {architecture(NAMES[run.label], run.size)} {shape} --seed {run.seed} {dropout}"
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
        options = options.replace(START_POSITIONS, "--arch transformer_sinusoidal").replace(START_OPTIONS, "").replace(START_TASK, "")
    check_training_options(options, {"config.options": OPTIONS, f"config.schemes.{label}": SCHEME_OPTIONS[label]})

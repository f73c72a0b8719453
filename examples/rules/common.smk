# The config, checked, and the names of runs.

from typing import NamedTuple

from config_keys import Translation

GIVEN_KEYS = {*config}
check_config(config, Translation)

FOLDER = config["folder"]


include: "directions.smk"
include: "start.smk"


TESTS = config["test"]
if isinstance(TESTS, str) or {"url", "sacrebleu"} & TESTS.keys():
    TESTS = {"test": TESTS}
TRAIN = config["train"] if isinstance(config["train"], list) else [config["train"]]
EVALUATIONS = find_evaluations(TESTS)
# How often the pairs of each source are used, and the pairs of languages it has, if not all; files are named by their path
# from here on.
REPEATS = [source.get("repeat", 1) if isinstance(source, dict) else 1 for source in TRAIN]
PAIRS_OF = [source.get("pairs") if isinstance(source, dict) else None for source in TRAIN]
TRAIN = [source.get("file", source) if isinstance(source, dict) else source for source in TRAIN]
if config["validation"] == "bleu" and MULTILINGUAL:
    raise WorkflowError(
        "config.validation must be loss or a name of metrics for several directions, whose task in fairseq computes no"
        " BLEU, but is 'bleu': remove it"
    )
# A metric chooses among the checkpoints of a finished training, which itself goes by the loss.
SELECTION = []
if config["validation"] not in ("loss", "bleu"):
    SELECTION, config["validation"] = [config["validation"]], "loss"
if not {*SELECTION} <= config["metrics"].keys():
    raise WorkflowError(
        "config.validation must be loss, bleu or a name of metrics, but is"
        f" {SELECTION[0]!r}{did_you_mean(SELECTION[0], ['loss', 'bleu', *config['metrics']]) or ': add it to metrics'}"
    )
SCHEMES = config["schemes"]
if isinstance(SCHEMES, list):
    SCHEMES = {scheme: scheme for scheme in SCHEMES}
# Label -> scheme, and its options of fairseq-train.
NAMES = {label: scheme.partition(" ")[0] for label, scheme in SCHEMES.items()}
check_schemes(
    {f"config.schemes.{label}": name for label, name in NAMES.items()},
    translation=True,
    others=["start" if START else "stock"],
)

# Keys that shape the trained model, besides scheme, size and seed.
# Those that are new in 0.5 count if they are set: runs of 0.4 keep their names.
NEW = ("check_languages",)
DATA = ("train", "valid", "max_words", "max_characters", "max_ratio", "subwords", "vocabulary")
TRAINING = ("updates", "batch", "learning_rate", "warmup", "dropout", "options", "validation", "patience",
            "save_interval", "average")


class Run(NamedTuple):
    """One training."""

    label: str  # of the scheme
    size: str
    seed: int

    @property
    def name(self):
        """The name of its folder, which depends on the settings."""
        settings = settings_of(*DATA, *TRAINING) | {"scheme": SCHEMES[self.label], "languages": list(DIRECTIONS[0])}
        settings |= {key: config[key] for key in NEW if config[key]}
        if MULTILINGUAL:
            settings |= {"languages": DIRECTIONS} | settings_of("temperature")
        updates = settings.pop("updates")  # with more of them a training can be continued
        settings |= {"size": self.size, "seed": self.seed} | user_code(NAMES[self.label])
        if START:
            settings |= settings_of("keep", "new_languages") | {"start": START_DIGEST}
        label = "-".join(filter(None, (self.label, self.size)))
        return f"{label}-s{self.seed}-u{updates}-{digest(settings)}"


GRID = [
    Run(label, size, seed)
    for label in SCHEMES
    for size in config["sizes"]
    for seed in config["seeds"]
]
RUNS = {run.name: run for run in GRID}
# Folder of a model below FOLDER -> its runs: one, or all seeds of an ensemble.
MODELS = {f"runs/{name}": [run] for name, run in RUNS.items()}
if START:
    MODELS = {"start": []} | MODELS  # as it was
if config["ensemble"] and len(config["seeds"]) > 1:
    for label in SCHEMES:
        for size in config["sizes"]:
            members = [run for run in GRID if (run.label, run.size) == (label, size)]
            name = digest([run.name for run in members])
            MODELS[f"ensembles/{'-'.join(filter(None, (label, size, name)))}"] = members

for language in {target: None for _, target in DIRECTIONS}:
    check_bleu(language, config["bleu_tokenizer"])

if config["baseline"] not in (None, *SCHEMES):
    raise WorkflowError(
        f"config.baseline must be one of the schemes, {', '.join(SCHEMES)}, but is {config['baseline']!r}"
    )

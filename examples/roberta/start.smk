# The model that trainings start from: its digest, its defaults, and the keys that it replaces.

#: files of a folder of transformers that decide what its model computes
TRANSFORMERS_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "codes", "*.safetensors", "pytorch_model*.bin")
#: files of a folder of `diet-fairseq import hf`, or of a checkpoint's data and subwords
TEXT_FILES = ("dict.txt", "made-from.json", "sentencepiece.model", "codes", "vocab.bpe", "encoder.json", "tokenizer.json", "vocab.txt")

# RoBERTa continues to train with this warm-up (Gururangan et al. 2020, table 13); the learning rate
# is for small batches.
START_DEFAULTS = {"learning_rate": 0.00005, "warmup": 0.06}
#: key whose value comes from the model -> the reason, and what to do
PARTS_OF_START = {
    "subwords": ("whose subwords split the text", "remove it"),
    "vocabulary": ("whose vocabulary stays", "remove it"),
    "lower": ("whose subwords have a case", "remove it"),
    "size": ("whose size stays", "remove it"),
    "positions": ("whose positions stay", "remove it"),
    "models": ("whose class stays", "write schemes: [start, diet_rel], where start stands for its own positions"),
}


def list_start_files(start):
    """The files that decide what a model is, and what its text is."""
    advice = "name a folder of transformers, of `diet-fairseq import hf` or of a run"
    if not start.exists():
        raise WorkflowError(f"config.start must name a model, but {start} does not exist: {advice}")
    if (start / "config.json").is_file():
        return [file for pattern in TRANSFORMERS_FILES for file in sorted(start.glob(pattern))]
    names = ("model.pt", "checkpoint_last.pt")
    weights = next((path for path in (start, *map(start.joinpath, names)) if path.is_file()), None)
    if weights is None:
        raise WorkflowError(f"config.start must have config.json, {' or '.join(names)}, but {start} has none of them: {advice}")
    # A run has its dictionary and subwords in folders above it.
    above = [folder / name for folder in weights.absolute().parents[:3] for name in ("data-bin", "subwords")]
    folders = [weights.parent, *above]
    return [weights, *(folder / name for folder in folders for name in TEXT_FILES if (folder / name).is_file())]


def digest_start(start):
    """A digest of the contents of a model's files, on which no path and no time has an effect.

    Digests of files are stored with size and time, because every job reads the rules anew.
    """
    known = Path(FOLDER) / "start" / "digests.json"
    stored = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else {}
    files = {str(file): file for file in list_start_files(start)}
    digests = run_path(str(EXAMPLES / "scripts" / "start.py"))["digest_files"](files, stored)
    if workflow.is_main_process and not workflow.dryrun:
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(digests, indent=1), encoding="utf-8")
    return digest([[file.name, digests[path][2]] for path, file in files.items()])


def read_start_config(start):
    """config.json of the class of transformers that a model has, or had before its import; empty if unknown."""
    for path in (start / "config.json", start / "original" / "config.json"):
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8"))
    return {}


def start_positions(values):
    """The number of tokens that a model of transformers has positions for; None: unknown, or no limit."""
    offset = 2 if values.get("model_type") in ("roberta", "xlm-roberta") else 0
    positions = values.get("max_position_embeddings")
    return positions - offset if isinstance(positions, int) else None


AS_IT_WAS = "as_it_was"  # label of the model before any training
if config["start"]:
    for key, (reason, advice) in PARTS_OF_START.items():
        if key in GIVEN:
            raise WorkflowError(f"config.{key} must not be set beside start, {reason}, but is {config[key]!r}: {advice}")
    if config["objective"] != "masked_lm":
        raise WorkflowError(
            f"config.objective must be masked_lm beside start, because imported models have no other head to train, but is"
            f" {config['objective']}: remove it"
        )
    config |= {key: value for key, value in START_DEFAULTS.items() if key not in GIVEN}
    config["models"] = config["schemes"] or ["start"]
    if isinstance(config["models"], list):
        config["models"] = {scheme: scheme for scheme in config["models"]}
    if Path(config["start"]).resolve().is_relative_to(Path(FOLDER).resolve()):
        raise WorkflowError(
            f"config.start must lie outside of folder, {FOLDER}, whose content depends on it, but is {config['start']}:"
            " name another folder"
        )
    START_DIGEST = digest_start(Path(config["start"]))
    START = f"{FOLDER}/start/{START_DIGEST}"
    # Of the job that imports the model: no parameter, see there.
    os.environ.update(DIET_FAIRSEQ_START=config["start"])
    START_CONFIG = read_start_config(Path(config["start"]))
    weights = sum(path.stat().st_size for path in list_start_files(Path(config["start"])) if path.stat().st_size > 1e6)
    MODEL = round(2000 + 13 * weights / 1e6)  # as MODEL_MB has for base and large
elif config["schemes"]:
    raise WorkflowError(f"config.schemes must not be set without start, but is {config['schemes']!r}: write models")
elif not config["learning_rate"]:
    raise WorkflowError("config.learning_rate must be above 0 without start, but is 0")

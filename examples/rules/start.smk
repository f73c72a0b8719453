# The model of the key `start`, which trainings start from: its checks, defaults and digest.

START = config["start"]
START_FOLDER = f"{FOLDER}/start"
#: the model before the training, in the table
AS_IT_WAS = "as it was"
#: keys that say what a start has anyway -> the reason in words
PARTS_OF_START = {
    "subwords": "whose subwords split the text",
    "vocabulary": "whose vocabulary stays or is trimmed",
    "sizes": "whose size stays",
}
#: options of the search; with start, the model has them
SEARCH_KEYS = ("beam", "length_penalty", "penalty")
#: options of the search that are new in 0.5: used only if they are set, so that text of 0.4 is not translated again
NEW_SEARCH_KEYS = ("max_len_a",)

if START:
    for key, reason in PARTS_OF_START.items():
        if key in GIVEN_KEYS and config[key] != "trim":
            raise WorkflowError(
                f"config.{key} must not be set beside start, {reason}, but is {config[key]!r}: remove it"
            )
    updates = config["updates"]
    defaults = {
        "schemes": ["start"],
        "sizes": [""],
        "learning_rate": 0.0002,
        "warmup": min(400, max(1, updates // 10)),
        "average": min(config["average"], updates),
    }
    config.update({key: value for key, value in defaults.items() if key not in GIVEN_KEYS})
else:
    if config["learning_rate"] == 0:
        raise WorkflowError("config.learning_rate must be above 0 without start, but is 0")
    if config["vocabulary"] == "trim":
        raise WorkflowError("config.vocabulary must be a number without start, but is 'trim'")
TRIMS = config["vocabulary"] == "trim"
for key, is_used in (("keep", TRIMS), ("new_languages", START)):
    if config[key] and not is_used:
        needed = "vocabulary trim" if key == "keep" else "start"
        raise WorkflowError(f"config.{key} must not be set without {needed}, but is {config[key]!r}: remove it")
for file in config["keep"]:
    if not Path(file).is_file():
        raise WorkflowError(f"config.keep: file not found: {file}")


def find_start_digest():
    """The digest of the start's files, which every run's name depends on, and their size in bytes.

    A file keeps the digests of large files, so that only changed files are read again. A job trusts the file.
    """
    start_script = run_path(str(EXAMPLES / "scripts" / "start.py"))
    path = Path(FOLDER, "start-digest.json")
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if known and not workflow.is_main_process:
        return known["digest"], known["bytes"]
    paths = [START] if isinstance(START, str) else START.values()
    if any(Path(name).resolve().is_relative_to(Path(FOLDER).resolve()) for name in paths):
        raise WorkflowError(f"config.start must lie outside of folder, {FOLDER}, whose content depends on it: move it")
    try:
        found = start_script["find_digest"](START, DIRECTIONS, known, config["new_languages"])
    except start_script["UserError"] as error:
        raise WorkflowError(f"config.start: {error}") from None
    if not workflow.dryrun:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found), encoding="utf-8")
    return found["digest"], found["bytes"]


if START:
    START_DIGEST, START_BYTES = find_start_digest()
    START_CHECKPOINT = f"{START_FOLDER}/model.pt"
    #: parts of fairseq-train's command that the shell reads from the folder
    START_POSITIONS = f"$(cat {shlex.quote(START_FOLDER)}/positions.txt)"
    START_OPTIONS = f"$(cat {shlex.quote(START_FOLDER)}/options.txt)"
    START_TASK = f"$(cat {shlex.quote(START_FOLDER)}/task/options.txt)"  # of several directions


# The directions of translation: one, or several of a multilingual model, and the texts of each.

from itertools import permutations


def find_directions():
    """Pairs of source and target, in the config's order."""
    languages, pairs, choice = config.get("languages"), config["pairs"], config["directions"]
    if (languages is None) == (not pairs):
        has = "both" if pairs else "neither"
        raise WorkflowError(f"config must have either languages or pairs, but has {has}: write languages: [en, de] or pairs: [en-de, de-en]")
    if pairs and choice:
        raise WorkflowError(f"config.directions must not be set beside pairs, which name them, but is {choice!r}: remove it")
    if pairs:
        named = [tuple(pair.split("-")) for pair in pairs]
    elif choice is None:
        if len(languages) > 2:
            raise WorkflowError(
                f"config.directions must be set for more than two languages, but is null: write all, from_{languages[0]},"
                f" to_{languages[0]} or with_{languages[0]}, or pairs instead of languages"
            )
        return [tuple(languages)]
    else:
        kind, _, language = choice.partition("_")
        if kind != "all" and language not in languages:
            raise WorkflowError(
                f"config.directions must name one of languages, {', '.join(languages)}, but is {choice!r}"
                f"{did_you_mean(language, languages)}"
            )
        if faulty := next((code for code in languages if "-" in code), None):
            raise WorkflowError(
                f"config.languages must have no hyphen in a code where there are several directions, which fairseq"
                f" writes with one, but has {faulty!r}: write an underscore"
            )
        places = {"all": (0, 1), "from": (0,), "to": (1,), "with": (0, 1)}[kind]
        named = [
            pair for pair in permutations(languages, 2)
            if kind == "all" or any(pair[place] == language for place in places)
        ]
    if same := next((source for source, target in named if source == target), None):
        raise WorkflowError(f"config.pairs must have two languages each, but has {same}-{same}: remove it")
    return named


MULTILINGUAL = bool(config["pairs"] or config["directions"])
DIRECTIONS = find_directions()
LANGUAGES = sorted({language for direction in DIRECTIONS for language in direction})
SOURCE, TARGET = DIRECTIONS[0]
if "temperature" in GIVEN_KEYS and not MULTILINGUAL:
    raise WorkflowError(f"config.temperature must not be set for one direction, but is {config['temperature']}: remove it")


def name_of(direction):
    return "-".join(direction)


def find_corpora():
    """Texts of two languages, each of which serves both directions: folder -> languages, in the order of its first direction."""
    if not MULTILINGUAL:
        return {"": DIRECTIONS[0]}
    corpora = {}
    for source, target in DIRECTIONS:
        if f"{target}-{source}/" not in corpora:
            corpora[f"{source}-{target}/"] = source, target
    return corpora


CORPORA = find_corpora()
# In names of files: the folder of a corpus and its languages, which are wildcards where there are several.
CORPUS, SOURCE_OF, TARGET_OF = ("{source}-{target}/", "{source}", "{target}") if MULTILINGUAL else ("", SOURCE, TARGET)


def corpus_of(wildcards):
    """The folder of the corpus that the wildcards name, a key of CORPORA."""
    return CORPUS.format(**wildcards)


def corpus_for(direction):
    """The folder of the corpus that a direction is in."""
    return next(corpus for corpus, pair in CORPORA.items() if {*pair} == {*direction})


#: the languages of a corpus as a param
CORPUS_LANGUAGES = (lambda w: [w.source, w.target]) if MULTILINGUAL else [SOURCE, TARGET]


def find_evaluations(tests):
    """Name of an evaluation in files and in the table -> test set and direction."""
    if not MULTILINGUAL:
        return {test: (test, DIRECTIONS[0]) for test in tests}
    return {f"{test}.{name_of(direction)}": (test, direction) for test in tests for direction in DIRECTIONS}

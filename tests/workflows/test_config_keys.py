"""Every rule about a key of a config refuses what breaks it, and says so in one message."""

import math
from copy import deepcopy

import pytest
from config_checks import check_config, find_sections
from config_keys import Encoder, Section, Translation, Tuning
from snakemake.exceptions import WorkflowError

from tests.workflows.conftest import TINY, EncoderExperiment
from tests.workflows.test_hostile_configs import EXPERIMENTS, name_of_parameter, places, put

KEYS = {Translation: TINY, Encoder: EncoderExperiment.tiny}


def refusal(model: type[Section], change: dict) -> str:
    """The message about a config with this change; none if the config is accepted."""
    try:
        check_config(deepcopy(KEYS[model] | change), model)
    except WorkflowError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": 5}, "config has no key update: did you mean updates?"),
        (
            {"lr": 1, "epochs": 5, "sises": ["tiny"], "foo": 1},
            "config has no key epochs: did you mean updates (steps of the optimizer, not epochs)? "
            "config has no key foo: remove it. config has no key lr: did you mean learning_rate "
            "(at the end of warm-up)? config has no key sises: did you mean sizes?",
        ),
        ({"a\nb": 5}, r"config has no key a\nb: remove it"),
        ({5: 5}, "config has no key 5: remove it"),
        (
            {"subwords": "sentence_piece"},
            "config.subwords must be 'sentencepiece' or 'subword_nmt', but is 'sentence_piece': "
            "did you mean sentencepiece?",
        ),
        ({"test": {"url": "x", "membre": "y"}}, "config.test has no key membre: did you mean me"),
        ({"test": {"url": "x"}}, "config.test.url must begin with http:// or https://, but is 'x'"),
        ({"test": {"sacrebleu": "a", "b": "c"}}, "config.test has no key b: remove it"),
        ({"test": {}}, "config.test must have at least 1 item, but is {}"),
        ({"test": {"a": 5}}, "config.test.a must be text or a mapping, but is 5: put it in quotes"),
        ({"test": {2016: "a"}}, "a key of config.test must be text, but is 2016: put it in quotes"),
        (
            {"train": {"file": "text/train", "repeat": 0}},
            "config.train.repeat must be greater than or equal to 1, but is 0",
        ),
        (
            {"train": [{"repeat": 2}]},
            "config.train.0 must have one of the keys sacrebleu, url, file, and no key that "
            "another needs, but is {'repeat': 2}",
        ),
        ({"train": {"url": "http://x", "repeat": 2}}, "config.train must have one of the keys "),
        ({"train": {"file": "a", "sacrebleu": "b"}}, "config.train must have one of the keys sacr"),
        ({"valid": {"sacrebleu": "a", "member": "b"}}, "config.valid must have one of the keys "),
        ({"train": ["a", {"file": 5}]}, "config.train.1.file must be text, but is 5: put it in qu"),
        ({"valid": {"file": "text/valid"}}, "config.valid has no key file: remove it"),
        ({"valid": {"url": "http://x", "membre": "y"}}, "config.valid has no key membre: did you "),
        ({"start": {"data": "model"}}, "config.start lacks the keys checkpoint: add them"),
        ({"check_languages": "en"}, "config.check_languages must be true or false, but is 'en'"),
        ({"options": "a\nb"}, r"config.options must be one line, but is 'a\nb': write >- instead"),
        ({"learning_rate": "1e-3"}, "config.learning_rate must be a number, but is '1e-3': write "),
        ({"learning_rate": True}, "config.learning_rate must be a number, but is True: write 0.00"),
        ({"learning_rate": math.nan}, "config.learning_rate must be a finite number, but is nan"),
        ({"learning_rate": -1}, "config.learning_rate must be greater than or equal to 0, but is "),
        ({"temperature": 0}, "config.temperature must be greater than 0, but is 0"),
        ({"max_ratio": 0.9}, "config.max_ratio must be greater than or equal to 1, but is 0.9"),
        ({"max_len_a": 11}, "config.max_len_a must be less than or equal to 10, but is 11"),
        ({"languages": ["en", False]}, "config.languages.1 must be text, but is False: put it in "),
        ({"languages": ["en"]}, "config.languages must have at least 2 items, but is ['en']"),
        ({"languages": ["en"] * 2}, "config.languages must have no entry twice, but is ['en', 'e"),
        (
            {"schemes": "diet_rel"},
            "config.schemes must be a list or a mapping, but is 'diet_rel': write [diet_rel]",
        ),
        ({"schemes": []}, "config.schemes must have at least 1 item, but is []"),
        ({"schemes": ["t5", "t5"]}, "config.schemes must have no entry twice, but is ['t5', 't5']"),
        ({"seeds": 1}, "config.seeds must be a list, but is 1: write [1]"),
        ({"seeds": {}}, "config.seeds must be a list, but is {}"),
        ({"seeds": [-1]}, "config.seeds.0 must be greater than or equal to 0, but is -1"),
        ({"updates": "1e5"}, "config.updates must be an integer, but is '1e5': write digits only"),
        ({"updates": 5.0}, "config.updates must be an integer, but is 5.0: write digits only"),
        ({"dropout": 2}, "config.dropout must be less than or equal to 1, but is 2"),
        ({"gpus": "two"}, "config.gpus must be an integer or 'auto', but is 'two': write digits"),
        ({"gpus": -1}, "config.gpus must be greater than or equal to 0, but is -1"),
        ({"threads": 0}, "config.threads must be greater than or equal to 1, but is 0"),
        ({"vocabulary": 0}, "config.vocabulary must be greater than or equal to 1, but is 0"),
        ({"test": 5}, "config.test must be text or a mapping, but is 5: put it in quotes"),
        ({"inputs": None}, "config.inputs must be a mapping, but is None: write NAME: VALUE lines"),
        ({"folder": ["a"]}, "config.folder must be text, but is ['a']"),
    ],
)  # fmt: skip
def test_a_fault_is_described_by_key_rule_value_and_advice(change, message):
    found = refusal(Translation, change)
    assert found.startswith(message)
    assert found.isprintable()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"tuning": {"lr": [0.1]}, "epochs": 3},
            "config has no key epochs: did you mean updates (steps of the optimizer, not epochs)? "
            "config.tuning has no key lr: did you mean rates?",
        ),
        ({"tasks": {"a": {"data": "b", "seed": 1}}}, "config.tasks.a has no key seed: did you "),
        ({"text": "a.txt"}, "config.text must be a mapping, but is 'a.txt': write NAME: VALUE lin"),
        ({"text": {"en": []}}, "config.text.en must have at least 1 item, but is []"),
        ({"start": None}, "config.start must be text, but is None"),
        ({"schemes": None}, "config.schemes must be a list or a mapping, but is None"),
        ({"models": {}}, "config.models must have at least 1 item, but is {}"),
        ({"models": {"a": {"updates": 3}}}, "config.models.a lacks the keys checkpoint_of: add th"),
        ({"models": {"a": 5}}, "config.models.a must be text or a mapping, but is 5: put it in q"),
        ({"questions": {"stride": 5}}, "config.questions must have the key train, but is {'stride"),
        ({"questions": {"train": "a", "length": 69}}, "config.questions.length must be greater th"),
        ({"downloads": {"a": {"url": "http://x"}}}, "config.downloads.a lacks the keys sha256: ad"),
        ({"valid_share": 1}, "config.valid_share must be less than 1, but is 1"),
        ({"valid_share": 0}, "config.valid_share must be greater than 0, but is 0"),
        ({"smoothing": 1.1}, "config.smoothing must be less than or equal to 1, but is 1.1"),
        ({"warmup": 1}, "config.warmup must be less than 1, but is 1"),
        ({"length": 2}, "config.length must be greater than or equal to 3, but is 2"),
        ({"keep": -2}, "config.keep must be greater than or equal to -1, but is -2"),
        ({"tuning": {"rates": [0]}}, "config.tuning.rates.0 must be greater than 0, but is 0"),
        ({"tuning": {"epochs": [1, 1]}}, "config.tuning.epochs must have no entry twice, but is "),
    ],
)  # fmt: skip
def test_a_fault_of_an_encoder_s_config_is_described(change, message):
    assert refusal(Encoder, change).startswith(message)


def test_all_missing_keys_are_named_at_once():
    with pytest.raises(WorkflowError, match=r"^config lacks the keys valid, test: add them$"):
        check_config({"folder": "out", "train": "text"}, Translation)


#: key -> the value of it that has a text, the words of its rule, texts that it allows, others
TEXTS = {
    "folder": (
        lambda text: {"folder": text}, "a path of letters, digits, spaces and ._@+=#/-, no ",
        ["a", "/a b/\u00fc", "../a-1", "a#@+=_.", "=", "a-"],
        ["", "-a", " a", "#a", "a ", "a;b", "a;", "a'", "a$b", "~/a", "a{b}", "a*", "a\\"],
    ),
    "train": (
        lambda text: {"train": text}, "a path without other braces than {lang} and {pair}, and ",
        ["a", "a.{lang}", "{pair}/{lang}", "a;b", "{lang}", "a-"],
        ["", "-a", "-{lang}", "{a}", "{", "a}", "{lang", "{lang}{", "{{lang}}", "x{pairs}"],
    ),
    "user_dir": (
        lambda text: {"user_dir": text}, "a path without braces, and no hyphen first",
        ["a", "a b;c", "a-"], ["", "-a", "{lang}", "a{", "a}"],
    ),
    "url": (
        lambda text: {"valid": {"url": text}}, "begin with http:// or https://",
        ["http://a", "https://", "https://a b"], ["", "ftp://a", "http:/a", "a http://b", "httpss://"],
    ),
    "sha256": (
        lambda text: {"valid": {"url": "http://x", "sha256": text}}, "be 64 digits from 0 to f",
        ["0" * 64, "f" * 64], ["", "0" * 63, "0" * 65, "g" * 64, "F" * 64],
    ),
    "sha256 of a language": (
        lambda text: {"valid": {"url": "http://x", "sha256": {"en": text}}}, "be 64 digits from 0 ",
        ["0" * 64], ["", "0" * 65],
    ),
    "languages": (
        lambda text: {"languages": ["x", text]}, "begin with a letter or a digit, and may also ",
        ["en", "EN_9-a", "3"], ["", "-a", "_a", "a.b", "a b", "a;", "\u00fc", "a/b"],
    ),
    "inputs": (
        lambda text: {"inputs": {text: "a"}}, "hyphens and underscores, dots and +",
        ["a", "A.b+c_d-9", "9"], ["", ".a", "-a", "+a", "a b", "a/b", "a;", "\u00fc"],
    ),
    "pairs": (
        lambda text: {"pairs": [text]}, "two languages with a hyphen between, such as en-de",
        ["en-de", "a_1-B_2"], ["", "en", "en-", "-de", "en-de-x", "_a-b", "a-_b", "a.b-c", "a-b c"],
    ),
    "directions": (
        lambda text: {"directions": text}, "be all, or from_, to_ or with_ and a language",
        ["all", "from_en", "to_a-B_1", "with_9"],
        ["", "al", "all_en", "all ", "from_", "from_-a", "in_en", "to_a.b", "xall", "xto_a"],
    ),
    "schemes": (
        lambda text: {"schemes": {"a": text}}, "be the name of a scheme, and may have options of ",
        ["rope", "t5_a2", "t5 --x '1;'"], ["", "5", "T5", "_t5", "t-5", "t5;", " t5", "--x 1"],
    ),
    "metrics": (
        lambda text: {"metrics": {"a": text}}, "have the word {hypotheses}, which stands for ",
        ["{hypotheses}", "a {hypotheses} {b}"], ["", "hypotheses", "{hypothesis}", "{ hypotheses}"],
    ),
    "columns": (
        lambda text: {"metrics": {text: "{hypotheses}"}}, "must not be folder, scheme, size, seeds",
        ["COMET", "BLEU2", "folder.", "xmodel"],
        ["folder", "scheme", "size", "seeds", "test", "model", "BLEU", "chrF", "parameters",
         "minutes"],
    ),
}  # fmt: skip
TEXTS_OF_ENCODERS = {
    "models": (
        lambda text: {"models": {"a": text}}, "be bert_, roberta_ or electra_ with the name of a ",
        ["bert_t5", "roberta_t5 --x", "electra_a_1"],
        ["", "t5", "bert", "bert_", "bert_5", "bertt5", "xbert_t5", "bert_t5;", " bert_t5"],
    ),
    "labels": (
        lambda text: {"models": {text: "bert_t5"}}, "must not be pretraining",
        ["pretraining2", "xpretraining", "as_it_was"], ["pretraining"],
    ),
    "labels of schemes": (
        lambda text: {"schemes": {text: "t5"}}, "must not be ",
        ["adaptation2", "was"], ["pretraining", "adaptation", "as_it_was"],
    ),
    "tasks": (
        lambda text: {"tasks": {text: {"data": "a"}}}, "must not be questions",
        ["RTE", "questions2", "pretraining"], ["questions"],
    ),
    "test sets": (
        lambda text: {"questions": {"train": "a", "tests": {text: {}}}}, "letters and digits only",
        ["XQuAD", "9a"], ["", "a-b", "a_b", "a b", "\u00fc"],
    ),
    "languages": (
        lambda text: {"questions": {"train": "a", "tests": {"X": {text: "a"}}}}, "begin with a le",
        ["de", "de-en"], ["", "a.b", "-a"],
    ),
    "downloads": (
        lambda text: {"downloads": {text: {"url": "http://x", "sha256": None}}}, "without braces, ",
        ["a/b c"], ["-a", "{a}"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "change", "rule", "allowed", "refused"),
    [
        pytest.param(model, *rules, id=f"{model.__name__}-{name}")
        for model, table in ((Translation, TEXTS), (Encoder, TEXTS_OF_ENCODERS))
        for name, rules in table.items()
    ],
)
def test_a_rule_about_text_allows_and_refuses(model, change, rule, allowed, refused):
    for text in allowed:
        assert refusal(model, change(text)) == ""
    for text in refused:
        message = refusal(model, change(text))
        assert rule in message, text
        assert f"but is {text!r}" in message


@pytest.mark.parametrize(("kind", "path"), places(), ids=name_of_parameter)
def test_no_text_of_a_config_has_a_line_break_or_a_control_character(kind, path):
    model, changes = EXPERIMENTS[kind]
    for text in ("a\nb", "a\n", "\x00", "a\x7f", "\x1b[2J"):
        message = refusal(model, put(kind.tiny | changes, path, text))
        assert "must be one line, but is" in message
        assert message.isprintable()


@pytest.mark.parametrize("model", [Translation, Encoder])
def test_defaults_are_filled_in_and_values_stay_as_they_are(model):
    """Names of runs are digests of the config, in which 1 and 1.0 differ."""
    values = KEYS[model] | {"learning_rate": 1, "updates": 7}
    config = deepcopy(values)
    check_config(config, model)
    assert repr({key: config[key] for key in values}) == repr(values)
    assert config.keys() == model.model_fields.keys()
    assert repr(config["options"]) == repr(values["options"])
    assert config["user_dir"] is None
    if model is Translation:
        assert repr([config["temperature"], config["max_ratio"]]) == "[5, 3]"
        assert config["inputs"] == {}
        assert config["schemes"] == ["diet_rel"]
    else:
        assert config["downloads"] == {}
        assert config["tuning"] == values["tuning"]


def test_keys_of_a_section_that_are_not_set_are_not_filled_in():
    """They would change the names of runs."""
    train = [{"file": "text/train"}, {"url": "http://x"}]
    config = deepcopy(TINY | {"train": train})
    check_config(config, Translation)
    assert config["train"] == train


def test_no_questions_are_accepted():
    assert refusal(Encoder, {"questions": {}}) == ""


def test_defaults_of_tuning():
    assert Tuning().model_dump() == {
        "statistic": "diet", "rates": [0.00003], "epochs": [5], "seeds": [1, 2, 3, 4, 5],
        "length": 128, "batch": 32, "per_step": None, "warmup": 0.1, "weight_decay": 0.01,
        "evaluate_every": 0, "group_by_length": False, "bf16": False,
    }  # fmt: skip


@pytest.mark.parametrize("model", [Translation, Encoder])
def test_a_key_has_one_section_whose_keys_are_suggested(model):
    for name, field in model.model_fields.items():
        assert len({*find_sections(field.annotation)}) <= 1, name

"""Configs: a good one shows what would run, a bad one is refused before anything runs."""

import re
from argparse import Namespace

import pytest
import yaml
from fairseq.models import ARCH_CONFIG_REGISTRY

from tests.support.pages import write_own_scheme
from tests.workflows.conftest import EXAMPLES, EncoderExperiment, Experiment, write_corpus


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"lr": 1, "epochs": 5, "sises": ["tiny"], "foo": 1},
            "config has no key epochs: did you mean updates (steps of the optimizer, not epochs)? "
            "config has no key foo: remove it. config has no key lr: did you mean learning_rate "
            "(at the end of warm-up)? config has no key sises: did you mean sizes?",
        ),
        (
            {"schemes": {"mine": "diet --lr 1"}},
            "config.schemes.mine must name one of the schemes stock, none, sinusoidal, ",
        ),
        (
            {"user_dir": "text"},
            "config.user_dir: {folder}/text is not a Python package: give a folder with an __init",
        ),
        ({"schemes": ["linformer"]}, "config.schemes.linformer must name one of the schemes stoc"),
        ({"updates": 10007, "save_interval": 250}, "config.updates must have a divisor from 63 to"),
        ({"train": "text/nosuch"}, "config: train-0: file not found: text/nosuch.en or"),
        ({"inputs": {"a": "nosuch"}}, "config.inputs.a: file not found: nosuch"),
        ({"metrics": {"a": "wc '{hypotheses}"}}, "config.metrics.a must close its quotes, but is"),
        (
            {"validation": "comet", "metrics": {"COMET": "wc {hypotheses}"}},
            "config.validation must be loss, bleu or a name of metrics, but is 'comet'",
        ),
        ({"baseline": "shaw"}, "config.baseline must be one of the schemes, diet_rel, but"),
        ({"updates": 3, "average": 5}, "config.average (default 5) is 5, more than updates, 3"),
        ({"options": "--no-save"}, "config.options must not have --no-save: the workflow averages"),
        (
            {"options": "--disable-validation", "patience": 3},
            "config.patience must be null with --disable-validation in options, but is 3: it",
        ),
        ({"options": "--lr '1"}, "config.options must close its quotes, but is \"--lr '1\": add"),
        ({"options": "a\nb"}, "config.options must be one line, but is 'a\\nb': write >- instead"),
    ],
)  # fmt: skip
def test_a_bad_config_is_refused_in_one_message(experiment, change, message):
    experiment.configure(**change)
    assert experiment.refusal().startswith(message.format(folder=experiment.folder))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"options": "--drpout 0.1 --foo 3"},
            "config.options: fairseq-train has no option --drpout with --arch "
            "transformer_diet_rel_tiny: did you mean --dropout? fairseq-train has no option --foo "
            "with --arch transformer_diet_rel_tiny: remove it",
        ),
        ({"options": "a"}, "config.options: fairseq-train has no option a with --arch transformer"),
        ({"options": "--dropout x"}, "config.options: argument --dropout: invalid float value: '"),
        ({"options": "--help"}, "config.options: --help prints a help and trains nothing: remove"),
        (
            {"schemes": {"a": "t5", "b": "shaw --positon-clip 3"}},
            "config.schemes.b: fairseq-train has no option --positon-clip with --arch "
            "transformer_shaw_tiny: did you mean --position-clip?",
        ),
        (
            {"schemes": ["diet_rel", "stock"], "options": "--position-gain 3"},
            "config.options: fairseq-train has no option --position-gain with --arch transformer: ",
        ),
        (
            {"options": "--arch transformer_diet_rl"},
            "config.options: --arch must be a registered architecture, but is transformer_diet_rl:",
        ),
    ],
)  # fmt: skip
def test_options_that_fairseq_train_refuses_are_refused_before_text_is_prepared(
    experiment, change, message
):
    experiment.configure(**change)
    assert experiment.refusal().startswith(message)


@pytest.mark.slow
def test_the_check_of_options_prints_no_log(experiment):
    """fairseq is imported in this process, and sets up logging."""
    output, _ = experiment.start("-n").communicate(timeout=600)
    assert "This was a dry-run" in output
    assert not re.findall(r"^(?:DEBUG|INFO|WARNING):.*", output, re.MULTILINE)


@pytest.mark.slow
def test_a_warm_up_that_does_not_end_is_a_warning(experiment):
    experiment.configure(warmup=400)
    message = (
        "warning: config.warmup (default 400) should be at most updates, 150, but is 400: the "
        "learning rate rises to 0.0075 only, not to learning_rate, 0.02; lower warmup, or train "
    )
    assert experiment.planned().count(message) == 1
    experiment.configure(warmup=400, schemes={"a": "diet_rel --warmup-updates 20"})
    assert "warning: config.warmup" not in experiment.planned()


@pytest.mark.slow
def test_a_tokenizer_of_bleu_that_is_not_there_is_refused(experiment):
    experiment.environment["SACREBLEU"] = "/dev/null/folder"  # nothing is downloaded
    experiment.configure(bleu_tokenizer="flores200")
    message = "config.bleu_tokenizer: BLEU of language de needs sacreBLEU's tokenizer flores200, "
    assert experiment.refusal().startswith(message)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"models": {"mine": "bert_diet"}},
            r"config.models.mine must name one of the schemes none, .*, but names diet: did you "
            r"mean diet_rel\? or set user_dir to the package that registers it",
        ),
        ({"length": 64}, "config: length 90 of RTE must be at most 64, the model's positions"),
        ({"gpus": 3}, "config.batch must be a multiple of gpus, 3, but is 8"),
        ({"questions": {"train": "squad.json"}}, "config.questions.stride must be below 23"),
        ({"wikitext": ["text/e.txt"]}, "config.wikitext must name files of text or valid, but has"),
        (
            {"tuning": {"batch": 8, "per_step": 3, "length": 90}},
            "config.tuning.per_step must divide batch, 8, but is 3: use a divisor",
        ),
        (
            {"models": {"x": "bert_t5 --position-gian 1"}},
            r"config.models.x: fairseq-train has no option --position-gian with --arch "
            r"bert_t5_tiny: did you mean --position-gain\?",
        ),
        ({"optimizer": "adan"}, "config.optimizer: argument --optimizer: invalid choice: 'adan'"),
        ({"text": "a.txt"}, "config.text must be a mapping, but is 'a.txt': write NAME: VALUE li"),
    ],
)
def test_a_bad_config_of_an_encoder_is_refused(tmp_path, change, message):
    assert re.match(message, EncoderExperiment(tmp_path, **change).refusal())


def test_a_killed_step_runs_again_by_the_profile():
    for path in EXAMPLES.glob("**/profiles/default/config.yaml"):
        profile = yaml.safe_load(path.read_text())
        assert profile["rerun-incomplete"] is True
        assert profile["rerun-triggers"] == ["input", "params", "mtime"]


def test_the_grid_is_schemes_by_sizes_by_seeds(experiment):
    experiment.configure(
        schemes={"a": "shaw", "b": "shaw --lr 1"}, sizes=["tiny", "base"], seeds=[1, 2]
    )
    output = experiment.planned("-p")
    assert "train                  8" in output
    names = {word.split("/")[2] for word in output.split() if word.endswith("/trained")}
    assert {name.rpartition("-")[0] for name in names} == {
        f"{label}-{size}-s{seed}-u150"
        for label in "ab"
        for size in ("tiny", "base")
        for seed in (1, 2)
    }
    assert "--arch transformer_shaw_tiny " in output
    assert "--arch transformer_shaw " in output
    assert re.search(r" --lr 0[.]\d+ .* --lr 1 ", output)  # an option of the scheme wins
    assert not (experiment.folder / "out").exists()


def runs(experiment) -> set[str]:
    """The folders of the planned trainings."""
    return {word for word in experiment.planned().split() if "/trained" in word}


@pytest.mark.slow
def test_a_setting_that_shapes_learning_names_another_folder(experiment):
    before = runs(experiment)
    for change in (
        {"learning_rate": 0.001}, {"vocabulary": 301}, {"options": "--dropout 0.2"}, {"updates": 7},
        {"check_languages": True}, {"train": {"file": "text/train", "repeat": 2}},
    ):  # fmt: skip
        experiment.configure(**change)
        assert runs(experiment) != before, change
    for change in (
        {"gpus": 2}, {"gpus": "auto"}, {"threads": "auto"}, {"beam": 3}, {"check_languages": False}
    ):  # fmt: skip
        experiment.configure(**change)
        assert runs(experiment) == before, change


@pytest.mark.slow
def test_a_metric_of_validation_selects_a_checkpoint_of_the_same_run(experiment):
    before = runs(experiment)
    metrics = {"metrics": {"COMET": "wc {hypotheses} {source}"}}
    experiment.configure(validation="COMET", **metrics)
    assert runs(experiment) == before
    output = experiment.planned("-p")
    [command] = re.findall(r"scripts/select_checkpoint.py .*", output)
    assert "/best-COMET.pt --valid en de text/valid.en text/valid.de --user-dir " in command
    assert " -- wc '{hypotheses}' '{source}' > " in command
    assert "--best-checkpoint-metric" not in output
    experiment.configure(**metrics)
    assert "select_checkpoint.py" not in experiment.planned("-p")


@pytest.mark.slow
def test_the_longest_length_is_planned_only_if_it_is_set(experiment):
    files = {"inputs": {"mine": "text/test.en"}}
    experiment.configure(**files)
    before = runs(experiment)
    assert "--max-len-a" not in experiment.planned("-p")
    experiment.configure(max_len_a=2, **files)
    assert runs(experiment) == before
    # the last program before the option
    words = re.findall(
        r".*(?:scripts/(\w+)\.py|diet-fairseq (\w+)).*--max-len-a 2", experiment.planned("-p")
    )
    assert {*words} == {("describe", ""), ("generate", "")}  # translate has it from model.json


@pytest.mark.slow
def test_options_of_cleaning_are_planned_only_if_they_are_set(experiment):
    def cleaning():
        return re.findall(r"scripts/clean\.py .* --max-ratio 3 (.*)2>&1", experiment.planned("-p"))

    assert cleaning() == [""]
    experiment.configure(train=["text/test", {"file": "text/train", "repeat": 5}])
    assert cleaning() == ["--repeat 1 5 "]
    experiment.configure(check_languages=True)
    assert cleaning() == ["--check-languages "]


@pytest.mark.slow
def test_a_scheme_of_one_s_own_is_planned_in_all_steps(experiment):
    package = write_own_scheme(experiment.folder)
    built_in = runs(experiment)
    experiment.configure(
        user_dir="turns", schemes={"turn": "turn", "mine": "turn --lr 1", "diet_rel": "diet_rel"},
        inputs={"mine": "text/test.en"},
    )  # fmt: skip
    output = experiment.planned("-p")
    assert output.count("--arch transformer_turn_tiny ") == 2
    for program in (r"fairseq-train", r"\S+/generate\.py", r"diet-fairseq translate"):
        assert len(re.findall(rf"{program} .* --user-dir turns ", output)) == 3, program
    before = runs(experiment)
    (package / "__init__.py").write_text((package / "__init__.py").read_text() + "\n")
    assert before & runs(experiment) == built_in


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "option"),
    [({}, ""), ({"split_sentences": True}, "yes"), ({"split_sentences": False}, "no")],
)
def test_inputs_are_split_into_sentences_as_the_config_says(experiment, choice, option):
    experiment.configure(inputs={"mine": "text/test.en"}, **choice)
    [command] = re.findall(r"diet-fairseq translate .*", experiment.planned("-p"))
    assert re.findall(r"--split-sentences (\w+)", command) == [option] * bool(option)


@pytest.mark.slow
def test_an_encoder_s_scheme_of_one_s_own_is_planned_in_all_steps(tmp_path):
    write_own_scheme(tmp_path)
    experiment = EncoderExperiment(tmp_path, user_dir="turns", models={"mine": "bert_turn --lr 1"})
    output = experiment.planned("-p")
    assert "--arch bert_turn_tiny " in output
    programs = ("fairseq-train", "diet-fairseq export hf", r"\S+/finetune\.py", r"\S+/answer\.py")
    for program in programs:
        assert len(re.findall(rf"{program} .* --user-dir turns ", output)) == 1, program


@pytest.mark.slow
def test_the_machine_is_divided_among_the_trainings(experiment):
    """Four GPUs and 8 cores; neither they nor the batch decide about a new training."""
    experiment.environment["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
    experiment.configure(threads="auto", seeds=[1, 2, 3])
    output = experiment.planned("-p", "-c", 8)
    assert output.count("--gpus 1 --batch 1000 --capacity 5000 --updates 150") == 3
    assert len(re.findall(r"rule train:(?:\n    .+)+\n    threads: 2\n", output)) == 3
    experiment.configure(threads="auto", gpus="auto")
    assert "--gpus 4 --batch 1000" in experiment.planned("-p")
    experiment.configure(threads="auto", seeds=[*range(9)])
    assert experiment.planned("-c", 12).count("\n    threads: 3\n") == 18  # with translation
    experiment.environment["CUDA_VISIBLE_DEVICES"] = ""
    assert "--gpus 0 --batch 1000" in experiment.planned("-p")


@pytest.mark.slow
def test_one_seed_is_no_ensemble(experiment):
    experiment.configure(ensemble=True, seeds=[1])
    assert "ensembles/" not in experiment.planned()


@pytest.mark.few(1)
@pytest.mark.parametrize(("updates", "interval"), [(650, 130), (3, 3), (400, 200), (1000, 250)])
def test_the_last_checkpoint_is_saved_after_the_last_update(experiment, updates, interval):
    experiment.configure(updates=updates, save_interval=250, average=1 if updates != 650 else 4)
    assert f"--save-interval-updates {interval} " in experiment.planned("-p")
    assert updates % interval == 0


def test_stock_tiny_has_the_shape_of_our_tiny(experiment):
    experiment.configure(schemes=["stock"], options="")
    command = experiment.planned("-p")
    words = command[command.index("--arch transformer ") :].split()
    ours = Namespace()
    ARCH_CONFIG_REGISTRY["transformer_none_tiny"](ours)
    for side in ("encoder", "decoder"):
        for part in ("layers", "embed-dim", "ffn-embed-dim", "attention-heads"):
            value = words[words.index(f"--{side}-{part}") + 1]
            assert int(value) == getattr(ours, f"{side}_{part.replace('-', '_')}")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["demo", "wmt18", "multi30k", "tatoeba", "flores"])
def test_the_carried_configs_are_valid(name, tmp_path):
    """All rules that they need are there; a missing local corpus is named."""
    config = yaml.safe_load((EXAMPLES / name / "config.yaml").read_text())
    tests = config["test"].values() if isinstance(config["test"], dict) else [config["test"]]
    for place in (config["train"], config["valid"], *tests):
        if isinstance(place, str) and not place.startswith("examples/"):
            (tmp_path / place).parent.mkdir(exist_ok=True)
            for lang in config["languages"]:
                (tmp_path / f"{place}.{lang}").write_text("a\n")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    experiment = Experiment(tmp_path)
    (tmp_path / "config.yaml").write_text((EXAMPLES / name / "config.yaml").read_text())
    assert "train" in experiment.planned("--resources", "gpu=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "snakefile",
    ["Snakefile", "demo/Snakefile", "lengths/Snakefile", "roberta/Snakefile", "papers/Snakefile"],
)
def test_the_linter_wants_nothing_but_containers(tmp_path, snakefile):
    """The environment is the package's own."""
    write_corpus(tmp_path / "text")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    experiment = (EncoderExperiment if "roberta" in snakefile else Experiment)(tmp_path)
    experiment.snakefile = snakefile
    _, output = experiment.plan("--lint")
    advice = {line.strip() for line in output.splitlines() if line.startswith("    * ")}
    assert advice == {"* Specify a conda environment or container for each rule.:"}, output
    assert "localrules" not in output


def edges(graph):
    names = dict(re.findall(r"(id\d+)\[(\w+)\]", graph))
    return {(names[a], names[b]) for a, b in re.findall(r"(id\d+) --> (id\d+)", graph)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "kind"), [("README.md", Experiment), ("roberta/README.md", EncoderExperiment)]
)
def test_the_picture_in_the_docs_is_the_graph_of_the_rules(tmp_path, page, kind):
    write_corpus(tmp_path / "text")
    experiment = kind(tmp_path)
    if kind is Experiment:
        experiment.configure(inputs={"mine": "text/test.en"})
    graph = experiment.planned("--rulegraph", "mermaid-js")
    picture = (EXAMPLES / page).read_text().partition("```mermaid")[2].partition("```")[0]
    assert edges(picture) == edges(graph) != set()

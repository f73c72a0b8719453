"""Options that can't be right are refused before a run starts, in one line that names them."""

from argparse import SUPPRESS, ArgumentParser, Namespace

import pytest
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

from diet_fairseq.errors import UserError
from diet_fairseq.patches.option_rules import RULES, SUBWORDS, check
from tests.support.texts import write

TRAIN = [
    *("data", "--arch", "transformer_t5", "--optimizer", "adam", "--lr-scheduler", "inverse_sqrt"),
    *("--criterion", "label_smoothed_cross_entropy"),
]


def parsed(command: str, *arguments: object) -> Namespace:
    """What fairseq reads of a command line."""
    words = list(map(str, arguments))
    if command == "preprocess":
        return options.get_preprocessing_parser().parse_args(words)
    makers = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
        "interactive": options.get_interactive_generation_parser,
        "validate": lambda: options.get_validation_parser("translation"),
    }
    start = TRAIN if command == "train" else ["data", "--path", "model.pt"]
    return options.parse_args_and_arch(makers[command](), [*start, *words])


#: the command and its options -> what is said of them
REFUSED = {
    "train --lr -1": "--lr must be at least 0, but is -1.0",
    "train --lr []": "--lr must have a value, but is []",
    "train --dropout 2": "--dropout must be from 0 to 1, but is 2.0",
    "train --dropout nan": "--dropout must be from 0 to 1, but is nan",
    "train --attention-dropout -0.1": "--attention-dropout must be from 0 to 1, but is -0.1",
    "train --label-smoothing 1.1": "--label-smoothing must be from 0 to 1, but is 1.1",
    "train --encoder-layers 0": "--encoder-layers must be at least 1, but is 0",
    "train --decoder-attention-heads 0": "--decoder-attention-heads must be at least 1, but is 0",
    "train --max-tokens 0": "--max-tokens must be at least 1, but is 0",
    "train --batch-size 0": "--batch-size must be at least 1, but is 0",
    "train --update-freq 2,0": "--update-freq must be at least 1, but is 0",
    "train --warmup-updates -1": "--warmup-updates must be at least 0, but is -1",
    "train --warmup-updates 0": "--lr-scheduler inverse_sqrt needs --warmup-updates of at least 1, "
    "but it is 0: its rate falls from where the warm-up ends",
    "train --clip-norm inf": "--clip-norm must be a number, but is inf",
    "train --seed -1": "--seed must be from 0 to 4294967295, but is -1",
    "train --num-workers -1": "--num-workers must be at least 0, but is -1",
    "train --log-interval 0": "--log-interval must be at least 1, but is 0",
    "train --save-interval 0": "--save-interval must be at least 1, but is 0",
    "train --patience -2": "--patience must be at least -1, but is -2",
    "train --adam-betas x": "--adam-betas must be two numbers from 0 to below 1, but is 'x': write "
    "'(0.9, 0.999)'",
    "train --eval-bleu-args {x": "--eval-bleu-args must be a JSON object such as "
    """'{"beam": 4}', but is {x""",
    'train --eval-bleu-args {"bem":2}': "--eval-bleu-args has bem, which is no option of a search: "
    "names are those of fairseq-generate, such as beam, lenpen or max_len_b",
    'train --eval-bleu-args {"beam":0}': "--eval-bleu-args: --beam must be at least 1, but is 0",
    'train --eval-bleu-args {"beam":"two"}': "beam of --eval-bleu-args must be a number, but is "
    "'two'",
    "train --eval-bleu-detok nosuch": "--eval-bleu-detok must be one of moses, nltk, space, but is "
    "nosuch",
    "train --task masked_lm_nsp --mask-prob 0": "--mask-prob must be above 0 and below 1 with "
    "--task masked_lm_nsp, but is 0.0: 0.15 is usual",
    "train --task masked_lm --mask-prob 1": "--mask-prob must be above 0 and below 1 with --task "
    "masked_lm, but is 1.0: 0.15 is usual",
    "train --fp16 --bf16": "--fp16 and --bf16 are two kinds of numbers: give one of them",
    "train --adaptive-softmax-cutoff 10,20 --tie-adaptive-weights": "--tie-adaptive-weights needs "
    "the adaptive input of fairseq's language models, but --arch transformer_t5 translates: leave "
    "it out",
    "train --arch transformer --adaptive-input --adaptive-softmax-cutoff 10,20 "
    "--tie-adaptive-weights": "--tie-adaptive-weights needs the adaptive input of fairseq's "
    "language models, but --arch transformer translates: leave it out",
    "train --adaptive-softmax-cutoff 10,20 --criterion cross_entropy": "--criterion cross_entropy "
    "can't train an adaptive softmax (--adaptive-softmax-cutoff): take --criterion adaptive_loss",
    "train --adaptive-softmax-cutoff 10,20 --criterion adaptive_loss": "--criterion adaptive_loss "
    "needs --ddp-backend legacy_ddp, as parts of the softmax may have no gradient, but it is "
    "pytorch_ddp: give that",
    "train --best-checkpoint-metric accuracy": "--best-checkpoint-metric accuracy needs "
    "--report-accuracy: give both",
    "train --combine-valid-subsets --valid-subset valid,test": "--combine-valid-subsets reads "
    "valid, valid1, ... as one, and --valid-subset is valid,test: leave one of them out",
    "train --quant-noise-scalar 0.1": "--quant-noise-scalar 0.1 needs a GPU: leave it out",
    "train --best-checkpoint-metric bleu": "--best-checkpoint-metric bleu needs --eval-bleu, which "
    "measures it: give both",
    "generate --no-repeat-ngram-size 1": "--no-repeat-ngram-size must be 0 or at least 2, but is 1",
    "generate --beam 0": "--beam must be at least 1, but is 0",
    "generate --beam 2 --nbest 3": "--nbest 3 is more than the search finds: take a --beam of at "
    "least 3, but it is 2, or a smaller --nbest",
    "generate --beam 4 --diverse-beam-groups 3": "--diverse-beam-groups 3 does not divide --beam 4:"
    " change one of the two",
    "generate --lenpen nan": "--lenpen must be a number, but is nan",
    "generate --max-len-b -1": "--max-len-b must be at least 0, but is -1",
    "generate --temperature 0": "--temperature must be above 0, but is 0.0",
    "generate --sampling-topk 0": "--sampling-topk must be at least 1, or -1 for all, but is 0",
    "generate --sampling-topp 2": "--sampling-topp must be above 0 and at most 1, or -1 for all, "
    "but is 2.0",
    "generate --model-overrides {x": "--model-overrides must be a Python dictionary such as "
    "\"{'dropout': 0.1}\", but is {x",
    "interactive --model-overrides [1]": "--model-overrides must be a Python dictionary such as "
    "\"{'dropout': 0.1}\", but is [1]",
    "interactive --remove-bpe nosuch": "--remove-bpe must be one of subword_nmt, sentencepiece, "
    "wordpiece, letter, silence, _EOW, none, but is nosuch",
    "interactive --path=": "--path is missing: name the checkpoint to use",
    "generate --constraints": "--constraints are read by fairseq-interactive only: use that, or "
    "leave it out",
    "generate --replace-unk": "--replace-unk ends in an error in this version of fairseq: leave it "
    "out; with subwords hardly a word is unknown",
    "generate --score-reference --print-alignment soft": "--print-alignment is of translations, "
    "and --score-reference makes none: give one",
    "generate --num-shards 3 --shard-id 2": "--num-shards is not read by fairseq-generate: split "
    "the text, or leave it out",
    "interactive --num-shards 3": "--num-shards is not read by fairseq-interactive: split the "
    "text, or leave it out",
    **{
        f"interactive {option}": f"{option.split()[0]} is not read by fairseq-interactive: use "
        "fairseq-generate, or leave it out"
        for option in ("--prefix-size 2", "--lm-path l.pt", "--results-path r", "--score-reference")
    },
    "interactive --buffer-size -1": "--buffer-size must be at least 0, but is -1",
    "validate --max-tokens 0": "--max-tokens must be at least 1, but is 0",
    "preprocess --workers 0": "--workers must be at least 1, but is 0",
    "preprocess -s de": "--source-lang and --target-lang are needed, or --only-source for text "
    "alone",
    "preprocess --only-source --srcdict nosuch": "--srcdict nosuch: there is no such file: check "
    "the path",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_value_that_can_not_be_right_is_refused(line, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError) as refused:
        parsed(*line.split())
    assert str(refused.value) == REFUSED[line]


ACCEPTED = [
    "train --lr 0",
    "train --lr 0.1,0.2 --update-freq 2,1",
    "train --dropout 0 --attention-dropout 1",
    "train --clip-norm -1",
    "train --max-update 0 --patience -1",
    "train --adaptive-softmax-cutoff 10,20 --criterion adaptive_loss --ddp-backend legacy_ddp",
    "train --task language_modeling --arch transformer_lm_wiki103 --tie-adaptive-weights "
    "--adaptive-softmax-cutoff 10,20 --adaptive-input-cutoff 10,20 --criterion adaptive_loss "
    "--ddp-backend legacy_ddp",
    "train --eval-bleu-args {}",
    'train --eval-bleu-args {"beam":4,"max_len_a":1.2,"sampling":false}',
    "generate --beam 2 --nbest 2 --lenpen -1",
    "generate --remove-bpe",
    "generate --remove-bpe=@@",
    "generate --sampling-topk -1 --sampling-topp -1",
    "generate --model-overrides {'dropout':0.1}",
    "interactive --buffer-size 0",
]


@pytest.mark.parametrize("line", ACCEPTED)
def test_a_value_that_can_be_right_is_taken(line):
    parsed(*line.split())


@pytest.mark.parametrize(
    ("languages", "option", "said"),
    [
        ("de fr", "train", "--trainpref {0}: there is no file {0}.fr: check the prefix and the"),
        ("de en", "train --validpref train,nosuch", "--validpref nosuch: there is no file nosuch"),
        ("de en", "train --testpref nosuch", "--testpref nosuch: there is no file nosuch.de: "),
        ("de en", "train --alignfile nosuch", "--alignfile nosuch: there is no such file: check"),
    ],
)
def test_texts_that_are_not_there_are_named_before_anything_is_written(
    tmp_path, monkeypatch, languages, option, said
):
    monkeypatch.chdir(tmp_path)
    for language in ("de", "en"):
        write(tmp_path / f"train.{language}", ["a"])
    source, target = languages.split()
    with pytest.raises(UserError) as refused:
        parsed("preprocess", "-s", source, "-t", target, "--trainpref", *option.split())
    assert str(refused.value).startswith(said.format("train"))
    assert len(list(tmp_path.iterdir())) == 2


def added(part: type) -> list:
    """The options of a model, a task, an optimizer ..."""
    parser = ArgumentParser(conflict_handler="resolve")
    getattr(part, "add_args", lambda _: None)(parser)
    return parser._actions


@pytest.fixture(scope="module")
def everything() -> list:
    """All options of all commands, and of all that one can choose on them."""
    parsers = [
        options.get_preprocessing_parser(),
        options.get_training_parser(),
        options.get_interactive_generation_parser(),
        options.get_validation_parser(),
        options.get_eval_lm_parser(),
    ]
    parts = {*MODEL_REGISTRY.values(), *ARCH_MODEL_REGISTRY.values(), *TASK_REGISTRY.values()}
    parts |= {part for kind in REGISTRIES.values() for part in kind["registry"].values()}
    return [a for parser in parsers for a in parser._actions] + [
        action for part in parts for action in added(part)
    ]


def test_every_rule_is_about_options_that_there_are(everything):
    known = {action.dest for action in everything}
    for _, names in RULES:
        assert set(names.split()) <= known


def test_no_default_of_fairseq_s_breaks_a_rule(everything):
    ruled = {name for _, names in RULES for name in names.split()}
    for action in everything:
        default = action.default
        if action.dest not in ruled or default == SUPPRESS:
            continue
        if isinstance(default, str) and callable(action.type) and not default.startswith("${"):
            default = action.type(default)  # as argparse does
        check(Namespace(**{action.dest: default}))


def test_what_fairseq_can_undo_may_be_asked_for():
    from fairseq.data.data_utils import post_process

    for symbol in SUBWORDS:
        post_process("a", symbol)
    with pytest.raises(NotImplementedError):
        post_process("a", "nosuch")


def test_a_mistake_in_the_form_is_one_line(capsys):
    for words, said in [
        (["--seed", "x"], "error: argument --seed: invalid int value: 'x'"),
        (["--update-freq", "x"], "error: argument --update-freq: invalid value: 'x'"),
        (["--criterion", "nosuch"], "error: argument --criterion: invalid choice: 'nosuch'"),
        (["--nosuch"], "error: unrecognized arguments: --nosuch"),
    ]:
        with pytest.raises(SystemExit) as end:
            parsed("train", *words)
        assert end.value.code == 2
        err = capsys.readouterr().err
        assert err.startswith(said)
        assert err.count("\n") == 1


def test_what_fairseq_looks_up_unasked_is_named_where_it_is_missing(capsys):
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_training_parser(), ["data"])
    said = capsys.readouterr().err
    assert said.startswith("error: the following arguments are required: --arch")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--arch", "transformer_diet_rel"], ["--position-clip N", "--encoder-layers"]),
        (["--arch", "bert_t5", "--task", "masked_lm"], ["--segment-scheme", "--mask-prob"]),
        (["--arch", "transformer"], ["--encoder-layers", "--label-smoothing"]),
        ([], ["--max-update"]),
    ],
)
@pytest.mark.parametrize("help_", ["-h", "--help"])
def test_help_shows_the_options_of_what_is_chosen(words, shown, help_, capsys):
    criterion = ["--criterion", "label_smoothed_cross_entropy"]
    with pytest.raises(SystemExit) as end:
        options.parse_args_and_arch(options.get_training_parser(), [help_, *words, *criterion])
    assert end.value.code == 0
    said = capsys.readouterr().out
    for option in shown:
        assert option.split()[0] in said
    assert ("--position-clip" in said) == any("_diet" in w or "_t5" in w for w in words)

"""`train` asks fairseq for the paper's settings, whatever the number of GPUs, and `stock`'s."""

import shlex

import pytest
from fairseq import options
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.config import TRANSLATION
from diet_fairseq.errors import UserError
from diet_fairseq.recipes.translation.corpora import MULTI30K, WMT18
from tests.support.road import Search, run, train


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "prepared.json").write_text("{}")
    return tmp_path


@pytest.fixture
def shown(folder, capsys, monkeypatch):
    """What `train --show` prints, as fairseq-train reads it."""

    def call(corpus, *arguments, gpus=0):
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
        run(corpus, "train", *arguments, "--folder", folder, "--show")
        line = capsys.readouterr().out
        assert line.startswith("fairseq-train ")
        words = shlex.split(line)[1:]
        return options.parse_args_and_arch(options.get_training_parser(), words)

    return call


def test_the_paper_s_settings(shown):
    args = shown(WMT18, "diet_rel", "en", "de")
    assert args.arch == "transformer_diet_rel"
    assert (args.source_lang, args.target_lang) == ("en", "de")
    assert args.encoder_layers == args.decoder_layers == 6
    assert args.encoder_embed_dim == 512
    assert args.max_update == 250_000
    assert args.max_tokens * args.update_freq[0] == 25_000
    assert args.warmup_updates == 4000
    assert args.lr[0] == pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-3)
    assert args.dropout == args.label_smoothing == 0.1
    assert args.share_all_embeddings
    assert args.cpu


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8, 64])
def test_the_batch_is_the_same_on_any_number_of_gpus(shown, gpus):
    args = shown(WMT18, "shaw", "de", "en", gpus=gpus)
    assert args.distributed_world_size == gpus
    assert args.max_tokens <= 5000
    assert args.max_tokens * args.update_freq[0] * gpus == pytest.approx(25_000, rel=0.01)
    assert not args.cpu


def test_a_run_on_several_gpus_can_be_resumed(shown):
    assert shown(WMT18, "shaw", "de", "en", gpus=2).load_checkpoint_on_all_dp_ranks
    assert not shown(WMT18, "shaw", "de", "en").load_checkpoint_on_all_dp_ranks


def test_a_cpu_or_fewer_gpus_can_be_asked_for(shown):
    assert shown(WMT18, "shaw", "de", "en", "--gpus", 0, gpus=4).cpu
    assert shown(WMT18, "shaw", "de", "en", "--gpus", 2, gpus=4).distributed_world_size == 2
    with pytest.raises(UserError, match="--gpus 4: there are 1"):
        shown(WMT18, "shaw", "de", "en", "--gpus", 4, gpus=1)


def test_what_is_not_known_here_is_passed_on_and_wins(shown):
    more = ("--position-rank", "128", "--lr", "0.5", "--bf16", "--max-tokens", "77")
    args = shown(WMT18, "diet_abs", "en", "cs", *more)
    assert (args.position_rank, args.lr, args.bf16, args.max_tokens) == (128, [0.5], True, 77)


@pytest.mark.parametrize("size", train.SIZES)
@pytest.mark.parametrize("scheme", [*TRANSLATION, "stock"])
def test_every_scheme_has_every_size(scheme, size):
    words = train.architecture(scheme, size)
    assert words[1] in ARCH_CONFIG_REGISTRY
    assert (scheme in words[1]) == (scheme != "stock")


@pytest.mark.parametrize("size", train.SIZES)
def test_stock_has_the_size_of_ours(shown, size):
    ours, stock = (
        vars(shown(MULTI30K, scheme, "en", "de", "--size", size))
        for scheme in ("sinusoidal", "stock")
    )
    known = [
        name for name in stock if name in ours and name not in ("arch", "save_dir", "log_file")
    ]
    assert {name: stock[name] for name in known} == {name: ours[name] for name in known}


def test_an_unknown_scheme_is_refused(folder):
    with pytest.raises(UserError, match="no scheme rotary: take one of none, sinusoidal"):
        run(WMT18, "train", "rotary", "en", "de", "--folder", folder, "--show")


def test_data_must_be_prepared_first(tmp_path):
    with pytest.raises(UserError, match="holds no finished data: run `prepare` first"):
        run(WMT18, "train", "shaw", "en", "de", "--folder", tmp_path, "--show")


def test_a_run_has_checkpoints_to_average_before_it_ends(shown):
    for updates in (3, 100, 250_000):
        args = shown(WMT18, "shaw", "de", "en", "--updates", updates)
        assert 1 <= args.save_interval_updates <= max(1, updates / 5)
        assert args.keep_interval_updates == Search().average


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("evaluate diet_rel en de --beam 0", "argument --beam: must be at least 1, but is 0"),
        (
            "evaluate diet_rel en de --length-penalty nan",
            "argument --length-penalty: must be a finite number, but",
        ),
        ("evaluate diet_rel en de --nosuch", "unknown: --nosuch"),
        ("train diet_rel en de --updates 0", "argument --updates: must be at least 1, but is 0"),
        (
            "train diet_rel en de --tokens-per-gpu 0",
            "argument --tokens-per-gpu: must be at least 1, but is",
        ),
        ("train diet_rel en de --seed x", "argument --seed: invalid int value: 'x'"),
        ("prepare en de --vocabulary -1", "argument --vocabulary: must be at least 1, but is -1"),
        ("prepare en de --workers 0", "argument --workers: must be at least 1, but is 0"),
        ("prepare en", "the following arguments are required: TGT"),
        ("nosuch", "argument COMMAND: invalid choice: 'nosuch'"),
    ],
)
def test_a_wrong_option_is_named_in_one_line(command, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        run(WMT18, *command.split())
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

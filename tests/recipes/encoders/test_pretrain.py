"""`pretrain` asks fairseq for the papers' settings, whatever the number of GPUs."""

import shlex

import pytest
from fairseq import options
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.config import PositionConfig, options_of
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from diet_fairseq.recipes.encoders import presets, pretrain
from tests.support.glue import run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "prepared.json").write_text('{"longest_line": 126}')
    return tmp_path


@pytest.fixture
def shown(folder, capsys, monkeypatch):
    """What `pretrain --show` prints, as fairseq-train reads it."""

    def call(*arguments, gpus=0):
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
        run("pretrain", *arguments, "--folder", folder, "--show")
        line = capsys.readouterr().out
        assert line.startswith("fairseq-train ")
        words = shlex.split(line)[1:]
        return options.parse_args_and_arch(options.get_training_parser(), words)

    return call


def test_tupe_s_settings(shown):
    args = shown("tupe_r", "--preset", "tupe", gpus=16)
    assert args.arch == "bert_tupe_r_base"
    assert (args.encoder_layers, args.encoder_embed_dim) == (12, 768)
    assert args.max_update == 1_000_000
    assert args.batch_size * args.update_freq[0] * args.distributed_world_size == 256
    assert args.batch_size == 16
    assert args.tokens_per_sample == 512
    assert (args.lr, args.warmup_ratio * args.max_update) == ([1e-4], 10_000)
    assert (args.optimizer, args.adam_betas, args.adam_eps) == ("fused_adamw", "(0.9, 0.999)", 1e-6)
    assert (args.weight_decay, args.clip_norm, args.dropout) == (0.01, 1.0, 0.1)
    assert (args.mask_prob, args.leave_unmasked_prob, args.random_token_prob) == (0.15, 0.1, 0.1)


def test_diet_s_settings(shown):
    args = shown("diet_abs", "--preset", "diet", gpus=8)
    assert args.arch == "bert_diet_abs_base"
    assert args.max_update == 500_000
    assert args.batch_size * args.update_freq[0] * args.distributed_world_size == 4096
    assert args.tokens_per_sample == 128
    assert (args.lr, args.warmup_ratio, args.lr_scheduler) == ([1.8e-3], 0.025, "linear_ratio")
    assert args.optimizer == "lamb_torch"


@pytest.mark.parametrize(
    ("words", "positions"),
    [
        (("diet_abs",), 512),
        (("stock",), 512),
        (("diet_rel", "--length", 768), 768),
        (("linformer",), None),  # its 32 keys are a quarter of the 128 tokens
        (("diet_abs_lin",), None),
    ],
)
def test_diet_s_models_have_the_positions_that_its_parameters_were_counted_with(
    shown, words, positions
):
    args = shown(*words, "--preset", "diet")
    assert getattr(args, "max_positions", None) == positions


def test_the_settings_of_tupe_s_large_models_are_roberta_s(shown):
    args = shown("tupe_r", "--preset", "tupe-large", gpus=16)
    assert args.arch == "bert_tupe_r_large"
    assert (args.encoder_layers, args.encoder_embed_dim) == (24, 1024)
    assert args.max_update == 1_000_000
    assert args.batch_size * args.update_freq[0] * args.distributed_world_size == 8192
    assert (args.lr, args.warmup_ratio * args.max_update) == ([4e-4], 30_000)
    assert (args.adam_betas, args.clip_norm, args.dropout) == ("(0.9, 0.98)", 0.0, 0.1)


def words_of(preset):
    """The options that choose it, with the one encoder that it may be for."""
    return ("--preset", preset, *(("--encoder", preset) if preset == "electra" else ()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_papers_presets_have_the_papers_scores(shown, scheme):
    for preset, ours in presets.PRESETS.items():
        config = PositionConfig.of(shown(scheme, *words_of(preset)))
        default = options_of(SCHEMES[scheme])
        gain = config.position_gain or default.get("position_gain", 1)
        is_blind = gain == 1 and config.position_start in (None, "blind")
        assert is_blind == (preset != "machine" or default.get("position_gain", 1) == 1), preset
        assert ours.blind == (preset != "machine")
    if scheme in ("none", "tupe_a"):  # segments have a gain, too
        segments = shown(scheme, "--preset", "diet", "--segment-scheme", "per-head")
        assert PositionConfig.of(segments).position_gain == 1
    if "position_start" in default:
        again = PositionConfig.of(shown(scheme, "--preset", "tupe", "--position-start", "local"))
        assert again.position_gain is None  # the scheme's own


def test_full_sentences_are_packed_without_next_sentences(shown):
    for preset in presets.PRESETS:
        args = shown("t5", *words_of(preset))
        criterion = "electra" if preset == "electra" else "masked_lm"
        assert (args.task, args.criterion) == ("masked_lm", criterion)
        assert not getattr(args, "nsp", False)
        assert str(args.sample_break_mode) == "complete"


def test_next_sentences_take_their_task_and_criterion(shown):
    args = shown("t5", "--nsp", "--length", 64)
    assert (args.task, args.criterion, args.nsp) == ("masked_lm_nsp", "masked_lm_nsp", True)
    assert str(args.sample_break_mode) == "none"
    assert args.save_dir.endswith("runs/bert_t5-tiny-nsp")


@pytest.mark.parametrize("arguments", [("stock",), ("t5", "--encoder", "roberta")])
def test_next_sentences_need_a_bert(folder, arguments):
    with pytest.raises(UserError) as error:
        run("pretrain", *arguments, "--nsp", "--folder", folder, "--show")
    assert str(error.value) == (
        "--nsp needs a BERT: take --encoder bert and one of our schemes, or leave it out"
    )


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 8)])
@pytest.mark.parametrize("preset", ["tupe", "diet"])
def test_the_batch_is_the_same_on_any_number_of_gpus(shown, preset, gpus, nodes):
    args = shown("shaw", "--preset", preset, "--nodes", nodes, gpus=gpus)
    assert args.distributed_world_size == gpus * nodes
    assert args.load_checkpoint_on_all_dp_ranks
    assert args.batch_size <= presets.PRESETS[preset].per_gpu
    whole = args.batch_size * args.update_freq[0] * gpus * nodes
    assert whole == presets.PRESETS[preset].batch
    assert not args.cpu


def test_a_cpu_or_fewer_gpus_can_be_asked_for(shown):
    assert shown("shaw", "--gpus", 0, gpus=4).cpu
    assert shown("shaw", "--gpus", 2, gpus=4).distributed_world_size == 2
    with pytest.raises(UserError, match="--gpus 4: there are 1"):
        shown("shaw", "--gpus", 4, gpus=1)


def test_what_is_not_known_here_is_passed_on_and_wins(shown):
    more = ("--position-input", "learned", "--lr", "0.5", "--bf16", "--mask-whole-words")
    args = shown("diet_abs", "--updates", 7, "--seed", 3, *more)
    assert (args.position_input, args.lr, args.bf16) == ("learned", [0.5], True)
    assert (args.mask_whole_words, args.max_update, args.seed) == (True, 7, 3)


@pytest.mark.parametrize("size", pretrain.SIZES)
@pytest.mark.parametrize("encoder", ["bert", "roberta"])
@pytest.mark.parametrize("scheme", [*SCHEMES, "stock"])
def test_every_scheme_has_every_size(encoder, scheme, size):
    words = pretrain.architecture(encoder, scheme, size)
    assert words[1] in ARCH_CONFIG_REGISTRY
    assert (scheme in words[1]) == (scheme != "stock")


@pytest.mark.parametrize("size", pretrain.SIZES)
def test_stock_has_the_size_of_ours(shown, size):
    ours, stock = (
        vars(shown(scheme, "--encoder", "roberta", "--size", size))
        for scheme in ("learned", "stock")
    )
    skipped = ("arch", "save_dir", "log_file")
    known = [name for name in stock if name in ours and name not in skipped]
    assert {name: stock[name] for name in known} == {name: ours[name] for name in known}


def test_an_electra_masks_as_google_s_does(shown):
    args = shown("tupe_r", "--encoder", "electra", "--preset", "electra", gpus=1)
    assert (args.arch, args.criterion, args.task) == (
        "electra_tupe_r_base", "electra", "masked_lm"
    )  # fmt: skip
    assert (args.mask_prob, args.leave_unmasked_prob, args.random_token_prob) == (0.15, 0.15, 0)
    assert (args.lr, args.tokens_per_sample, args.discriminator_weight) == ([2e-4], 512, 50)
    assert args.generator_size == 1 / 3


@pytest.mark.parametrize("encoder", ["bert", "roberta"])
def test_an_electra_s_settings_are_not_taken_for_another_encoder(folder, encoder):
    with pytest.raises(UserError) as error:
        run("pretrain", "t5", "--preset", "electra", "--encoder", encoder, "--folder", folder,
            "--show")  # fmt: skip
    assert str(error.value) == (
        f"--preset electra has the settings of such an encoder, but --encoder is {encoder}: add "
        "--encoder electra, or take another --preset"
    )


@pytest.mark.parametrize("gpus", [(), ("--gpus", 0)])
def test_nodes_without_gpus_are_refused(folder, monkeypatch, gpus):
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(gpus))
    with pytest.raises(UserError) as error:
        run("pretrain", "t5", "--nodes", 2, *gpus, "--folder", folder, "--show")
    assert str(error.value) == (
        "--nodes 2: several nodes train with GPUs only, and none is used here: leave it out, or "
        "run this on a node that has some"
    )


@pytest.mark.parametrize("words", [("stock",), ("shaw", "--size", "large")])
def test_an_electra_that_is_not_there_is_refused(folder, words):
    with pytest.raises(UserError, match=r"--encoder electra has no (stock|large): take one of our"):
        run("pretrain", *words, "--encoder", "electra", "--folder", folder, "--show")


def test_lines_that_have_no_room_are_refused(folder):
    with pytest.raises(UserError) as error:
        run("pretrain", "t5", "--length", 64, "--folder", folder, "--show")
    assert str(error.value) == (
        "--length 64 is too short for lines of up to 126 subwords: prepare the text with "
        "--longest-line 62, or take --length 128"
    )


def test_an_unknown_scheme_is_refused(folder):
    with pytest.raises(UserError, match="no scheme rotary: take one of none, sinusoidal"):
        run("pretrain", "rotary", "--folder", folder, "--show")


def test_data_must_be_prepared_first(tmp_path):
    with pytest.raises(UserError, match="holds no finished data: run `prepare` first"):
        run("pretrain", "shaw", "--folder", tmp_path, "--show")

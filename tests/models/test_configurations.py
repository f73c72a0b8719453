"""fairseq-hydra-train builds our models from a configuration, as fairseq-train from its flags."""

import json
from argparse import Namespace

import pytest
import torch
from fairseq.models import build_model
from omegaconf import DictConfig, OmegaConf

from diet_fairseq.errors import UserError
from tests.support import tiny
from tests.support.cases import complete
from tests.support.commands import PLUGIN, run
from tests.support.pages import BLOCK, ROOT, text_of

#: architectures with options of their scheme
MODELS = {
    "transformer_diet_rel": {"position_gain": 2, "position_clip": 3},
    "roberta_tupe_r": {"position_untie_cls": "no"},
    "bert_diet_abs": {"position_rank": 3, "nsp": True},
    "electra_t5": {"position_buckets": 8},
}
SIZES = {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in {
        "embed_dim": tiny.DIM,
        "ffn_embed_dim": tiny.DIM,
        "layers": tiny.LAYERS,
        "attention_heads": tiny.HEADS,
    }.items()
} | {f"max_{name}positions": tiny.LIMIT for name in ("", "source_", "target_")}
CONFIG = {
    "common": {"cpu": True, "log_format": "json", "log_interval": 1, "user_dir": PLUGIN[1]},
    "checkpoint": {"no_epoch_checkpoints": True},
    "task": {"_name": "translation"},
    "criterion": {"_name": "fused_label_smoothed_cross_entropy", "label_smoothing": 0.1},
    "dataset": {"max_tokens": 160, "num_workers": 0},
    "optimizer": {"_name": "fused_adamw", "adam_betas": "(0.9,0.98)"},
    "lr_scheduler": {"_name": "inverse_sqrt", "warmup_updates": 2},
    "optimization": {"lr": [0.01], "max_update": 2},
    "model": {
        "_name": "transformer_diet_rel_tiny",
        "encoder_embed_dim": 8,
        "decoder_embed_dim": 8,
        "dropout": 0.0,
        "position_clip": 3,
    },
}


class Task(tiny.Task):
    @staticmethod
    def max_positions():
        return 12


def configuration(arch: str, **options) -> DictConfig:
    """The configuration of a tiny model, as fairseq-hydra-train gives it to `build_model`."""
    config = OmegaConf.create({"_name": arch, **SIZES, **options})
    OmegaConf.set_struct(config, True)
    return config


@pytest.mark.parametrize("arch", MODELS)
def test_a_configuration_gives_the_model_of_the_flags(arch):
    config = configuration(arch, **MODELS[arch])
    torch.manual_seed(1)
    ours = build_model(config, Task)
    torch.manual_seed(1)
    args = complete(arch, **MODELS[arch])
    theirs = build_model(args, Task)
    tiny.assert_same(ours.state_dict(), theirs.state_dict())
    # a checkpoint saves the final values, from which the model is built again
    saved = [name for name in vars(args) if name.startswith("position_")]
    assert {name: config[name] for name in saved} == {name: getattr(args, name) for name in saved}
    again = build_model(OmegaConf.create(OmegaConf.to_container(config)), Task)
    again.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"position_gian": 2.0},
            "model.position_gian is not an option: correct it to position_gain or position_rank",
        ),
        ({"position_\x1b[2J": 1}, "model.position_\\x1b[2J is not an option: correct it to "),
        ({"position_x": 1}, "model.position_x is not an option: correct it to "),
        ({"position_gain": "2"}, "model.position_gain must be a number, but is '2': change it"),
        ({"position_gain": True}, "model.position_gain must be a number, but is True: change it"),
        ({"position_clip": 2.5}, "model.position_clip must be an integer, but is 2.5: change it"),
        (
            {"position_sharing": False},
            "model.position_sharing must be text in quotes, but is False: change it",
        ),
        (
            {"encoder_learned_pos": True},
            "--encoder-learned-pos can't be combined with --arch transformer_diet_rel: use "
            "--position-input learned instead",
        ),
    ],
)
def test_wrong_options_of_a_configuration_are_refused(options, message):
    with pytest.raises(UserError) as error:
        build_model(configuration("transformer_diet_rel", **options), Task)
    assert str(error.value).startswith(message)


def test_the_configuration_in_the_docs_gives_its_model():
    [text] = [
        block
        for language, block in BLOCK.findall(text_of(ROOT / "docs" / "training.md"))
        if language == "yaml" and "_name: masked_lm" in block
    ]
    [model] = [section for name, section in OmegaConf.create(text).items() if name == "model"]
    scheme = tiny.schemes_in(build_model(OmegaConf.merge(model, SIZES), Task))
    assert {type(part).__name__ for part in scheme.values()} == {"TupeR"}
    assert {part.untie_cls for part in scheme.values()} == {"no"}


def train(data, folder, *overrides):
    """fairseq-hydra-train with `CONFIG`, in ``folder``."""
    (folder / "small.yaml").write_text(
        json.dumps(CONFIG | {"task": {**CONFIG["task"], "data": str(data)}})
    )
    return run(
        "fairseq_cli.hydra_train:cli_main",
        *("--config-dir", folder, "--config-name", "small", f"hydra.run.dir={folder}/run"),
        *overrides,
        plugin=False,
    )


@pytest.mark.slow
def test_hydra_trains_resumes_and_generates(data, tmp_path):
    first = train(data, tmp_path)
    assert first.status == 0, first.err
    resumed = train(data, tmp_path, "optimization.max_update=4")
    assert "(epoch 1 @ 2 updates)" in resumed.text
    last = tmp_path / "run" / "checkpoints" / "checkpoint_last.pt"
    done = run("generate", data, "--path", last, "--max-tokens", 160, "--max-len-b", 3, "--cpu")
    assert done.status == 0, done.err
    assert "Generate test with beam=5" in done.text


def test_a_namespace_is_unchanged():
    """fairseq-train's own options, which other parts of fairseq share, are not copied."""
    from diet_fairseq.models.architectures import to_namespace

    args = Namespace(arch="transformer_none")
    assert to_namespace(args) is args

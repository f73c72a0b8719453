"""Checkpoints of ELECTRA: the models that load the discriminator, and refusals."""

import copy
import logging
from argparse import Namespace

import pytest
import torch

from diet_fairseq.criterions.diet_electra import ElectraConfig, ElectraLoss
from diet_fairseq.errors import UserError
from tests.support.electra import LIMIT, TASK, WORDS, build, loss_of, sample_of

FINE_TUNING = Namespace(source_dictionary=WORDS, max_positions=lambda: LIMIT)


@pytest.mark.parametrize(
    ("task", "size"), [(FINE_TUNING, {}), (TASK, {"embedding_size": 12})], ids=["wide", "narrow"]
)
@pytest.mark.parametrize("arch", ["electra_tupe_r", "bert_tupe_r", "roberta_tupe_r"])
def test_models_take_the_discriminator(arch, size, task, caplog):
    pretrained = build("electra_tupe_r", segment_scheme="none", **size).eval()
    segments = {} if arch.startswith("roberta") else {"segment_scheme": "none"}
    model = build(arch, task, **segments, **size).eval()
    with caplog.at_level(logging.INFO, logger="diet_fairseq"):
        model.load_state_dict(pretrained.state_dict(), strict=True)
    line = "loading ELECTRA's discriminator; its head and the generator are dropped"
    assert (line in caplog.text) == (task is FINE_TUNING or model.__class__ is not type(pretrained))
    tokens = sample_of()[1]
    expected, _ = pretrained(tokens, features_only=True)
    assert torch.equal(model(tokens, features_only=True)[0], expected)


@pytest.mark.parametrize("arch", ["bert_tupe_r", "roberta_tupe_r"])
def test_narrow_embeddings_learn_with_a_language_model_s_head(arch):
    model = build(arch, embedding_size=12)
    sample, original = sample_of()
    logits, _ = model(sample["net_input"]["src_tokens"])
    assert logits.shape == (*original.shape, len(WORDS))
    logits.logsumexp(-1).sum().backward()
    embeddings = model.encoder.sentence_encoder.embed_tokens.weight
    assert model.encoder.lm_head.weight is embeddings
    assert embeddings.shape == (len(WORDS), 12)
    assert model.encoder.sentence_encoder.project_in.weight.grad.abs().sum() > 0


def test_fine_tuning_builds_no_generator():
    model = build("electra_tupe_r", FINE_TUNING)
    assert model.generator is None
    assert model.discriminator_head is None


def test_a_checkpoint_of_pretraining_loads_as_what_it_was():
    pretrained = build("electra_diet_abs")
    again = build("electra_diet_abs")
    again.load_state_dict(pretrained.state_dict(), strict=True)
    for name, value in pretrained.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


@pytest.fixture
def before():
    """A model of version 0.2, whose generator has embeddings of its own, and whose options lack it.

    As fairseq builds it from a checkpoint: what an architecture fills in is not filled in again.
    """
    model = build("electra_learned", generator_embeddings="own").eval()
    with torch.no_grad():
        for name, parameter in model.generator.named_parameters():
            parameter.add_(0.1 * torch.randn_like(parameter)) if "embed" in name else None
    del model.args.generator_embeddings
    return model


@torch.no_grad()
def test_a_checkpoint_of_version_0_2_gives_its_numbers(before):
    again = type(before).build_model(copy.deepcopy(before.args), TASK).eval()
    again.load_state_dict(before.state_dict(), strict=True)
    sample = sample_of()[0]["net_input"]["src_tokens"]
    mask = torch.ones_like(sample).bool()
    logits, expected = (model.generator(sample, mask, None) for model in (again, before))
    assert torch.equal(logits, expected)
    shared = {name: p for name, p in again.named_parameters() if "generator" in name}
    assert "generator.encoder.layernorm_embedding.weight" in shared


def test_a_checkpoint_of_version_0_2_is_not_resumed_with_shared_embeddings(before):
    match = (
        r"^the checkpoint's generator has \S+ of its own, but this model's generator shares "
        ".*: give --generator-embeddings own"
    )
    with pytest.raises(UserError, match=match):
        build("electra_learned").load_state_dict(before.state_dict())
    unshared = build("electra_learned", generator_embeddings="own")
    unshared.load_state_dict(before.state_dict())


# --- a user's mistakes -----------------------------------------------------------------------


def test_other_criterions_refuse_a_generator():
    model = build("electra_diet_rel")
    with pytest.raises(UserError, match=r"--arch electra_\.\.\. needs --criterion electra"):
        model(sample_of()[1])


def test_the_criterion_refuses_models_without_a_generator():
    for arch in ("roberta_diet_rel", "bert_tupe_r"):
        with pytest.raises(UserError, match="--criterion electra needs a model with a generator"):
            loss_of(build(arch), sample_of()[0])
    with pytest.raises(UserError, match="--criterion electra needs --task masked_lm"):
        loss_of(build("electra_diet_rel", FINE_TUNING), sample_of()[0])


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_an_impossible_discriminator_weight_is_refused(weight):
    with pytest.raises(UserError, match="--discriminator-weight must be at least 0"):
        ElectraLoss(ElectraConfig(discriminator_weight=weight), TASK)


def test_an_embedding_size_of_zero_is_the_encoder_s_width():
    model = build("bert_tupe_r", embedding_size=0)
    assert model.encoder.sentence_encoder.embed_tokens.embedding_dim == 16

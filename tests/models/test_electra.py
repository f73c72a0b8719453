"""ELECTRA against Hugging Face's model and against the paper's loss."""

import math
from itertools import cycle

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from torch.utils._python_dispatch import TorchDispatchMode

from diet_fairseq.criterions.diet_electra import ElectraLoss
from diet_fairseq.errors import UserError
from diet_fairseq.models import diet_electra
from diet_fairseq.positions import SCHEMES
from tests.support import mutants
from tests.support.electra import LIMIT, WORDS, build, enlarged, loss_of, sample_of
from tests.support.modeling import import_modeling

electra = import_modeling("electra")

# --- Hugging Face's --------------------------------------------------------------------------


def as_theirs(encoder, prefix, ours):
    """The parameters of one of our encoders under Hugging Face's names."""
    pad = WORDS.pad()
    parameters = {
        "embeddings.word_embeddings.weight": ours["embed_tokens.weight"],
        "embeddings.position_embeddings.weight": ours["embed_positions.weight"][pad + 1 :],
        "embeddings.token_type_embeddings.weight": ours["embed_segments.weight"],
    }
    for part in ("weight", "bias"):
        parameters[f"embeddings.LayerNorm.{part}"] = ours[f"layernorm_embedding.{part}"]
        if encoder.project_in is not None:
            parameters[f"embeddings_project.{part}"] = ours[f"project_in.{part}"]
        for layer in range(len(encoder.layers)):
            for their_name, our_name in {
                "attention.self.query": "self_attn.q_proj",
                "attention.self.key": "self_attn.k_proj",
                "attention.self.value": "self_attn.v_proj",
                "attention.output.dense": "self_attn.out_proj",
                "attention.output.LayerNorm": "self_attn_layer_norm",
                "intermediate.dense": "fc1",
                "output.dense": "fc2",
                "output.LayerNorm": "final_layer_norm",
            }.items():
                parameters[f"encoder.layer.{layer}.{their_name}.{part}"] = ours[
                    f"layers.{layer}.{our_name}.{part}"
                ]
    return {f"{prefix}{name}": value for name, value in parameters.items()}


def config_of(encoder, embedding_size):
    layer = encoder.layers[0]
    return electra.ElectraConfig(
        vocab_size=len(WORDS),
        embedding_size=embedding_size,
        hidden_size=layer.fc1.in_features,
        num_hidden_layers=len(encoder.layers),
        num_attention_heads=layer.self_attn.num_heads,
        intermediate_size=layer.fc1.out_features,
        max_position_embeddings=LIMIT,
        layer_norm_eps=1e-5,
        pad_token_id=WORDS.pad(),
        attn_implementation="eager",
    )


def load(theirs, parameters):
    missing, unexpected = theirs.load_state_dict(parameters, strict=False)
    assert not unexpected
    assert all("position_ids" in name or "token_type_ids" in name for name in missing)
    return theirs.eval()


def pair(embedding_size):
    model = build(
        "electra_learned", embedding_size=embedding_size, segment_scheme="input", num_segments=2
    ).eval()
    return enlarged(model)


@pytest.mark.parametrize("embedding_size", [16, 12])
def test_the_discriminator_gives_hugging_face_s_logits(embedding_size):
    model = pair(embedding_size)
    encoder, head = model.encoder.sentence_encoder, model.discriminator_head
    parameters = as_theirs(encoder, "electra.", encoder.state_dict())
    for part in ("weight", "bias"):
        parameters[f"discriminator_predictions.dense.{part}"] = getattr(head.dense, part)
        parameters[f"discriminator_predictions.dense_prediction.{part}"] = getattr(head.out, part)
    theirs = load(electra.ElectraForPreTraining(config_of(encoder, embedding_size)), parameters)
    _, original = sample_of()
    seen = original.ne(WORDS.pad())
    expected = theirs(original, attention_mask=seen.long()).logits
    features, _ = model(original, features_only=True)
    torch.testing.assert_close(head(features)[seen], expected[seen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("embedding_size", [16, 12])
def test_the_generator_gives_hugging_face_s_logits(embedding_size):
    model = pair(embedding_size)
    encoder, head = model.generator.encoder, model.generator.lm_head
    parameters = as_theirs(encoder, "electra.", encoder.state_dict())
    for part in ("weight", "bias"):
        parameters[f"generator_predictions.dense.{part}"] = getattr(head.dense, part)
        parameters[f"generator_predictions.LayerNorm.{part}"] = getattr(head.layer_norm, part)
    parameters |= {"generator_lm_head.weight": head.weight, "generator_lm_head.bias": head.bias}
    theirs = load(electra.ElectraForMaskedLM(config_of(encoder, embedding_size)), parameters)
    sample, original = sample_of()
    tokens, masked = sample["net_input"]["src_tokens"], sample["target"].ne(WORDS.pad())
    expected = theirs(tokens, attention_mask=original.ne(WORDS.pad()).long()).logits
    logits = model.generator(tokens, masked, None)
    torch.testing.assert_close(logits, expected[masked], rtol=1e-5, atol=1e-5)


# --- the objective ---------------------------------------------------------------------------


def by_hand(model, sample, original, sampled, weight):
    """The loss of a batch, token by token, from the paper's text."""
    targets, padding = sample["target"], WORDS.pad()
    masked = targets.ne(padding)
    features = model.generator.encoder(sample["net_input"]["src_tokens"])["encoder_out"][0]
    logits = model.generator.lm_head(features.transpose(0, 1)[masked])
    generator, corrupted, number = 0.0, original.clone(), 0
    for row, column in masked.nonzero().tolist():
        generator -= float(F.log_softmax(logits[number], -1)[original[row, column]])
        corrupted[row, column] = sampled[number]
        number += 1
    features, _ = model(corrupted, features_only=True)
    probabilities = torch.sigmoid(model.discriminator_head(features))
    discriminator, tokens = 0.0, 0
    for row, column in original.ne(padding).nonzero().tolist():
        replaced = corrupted[row, column] != original[row, column]
        p = float(probabilities[row, column])
        discriminator -= float(torch.tensor(p if replaced else 1 - p).log())
        tokens += 1
    return (generator / number + weight * discriminator / tokens) * number


def check_loss(scheme: str, left_pad: bool = False) -> None:
    model = enlarged(build(f"electra_{scheme}").eval())
    sample, original = sample_of(left_pad=left_pad)
    masked = sample["target"].ne(WORDS.pad())
    # the first sampled token is the original one, and counts as that
    sampled = torch.tensor([int(original[masked][0]), 5, 6, 7])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diet_electra, "sample", lambda logits, padding: sampled)
        loss, size, log = loss_of(model, sample, discriminator_weight=20.0)
    expected = by_hand(model, sample, original, sampled, 20.0)
    assert size == 4
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert int(log["replaced"]) == int((sampled != original[masked]).sum()) < 4


@pytest.mark.parametrize(
    ("scheme", "left_pad"),
    zip([name for name, kind in SCHEMES.items() if not kind.compressed], cycle([False, True])),
)
def test_the_loss_is_the_paper_s(scheme, left_pad):
    check_loss(scheme, left_pad)


def test_unchanged_targets_are_predicted_and_sampled_too():
    model = build("electra_diet_rel").eval()
    sample, original = sample_of()
    source = sample["net_input"]["src_tokens"]
    place = sample["target"].ne(WORDS.pad()).nonzero()[0]
    source[tuple(place)] = original[tuple(place)]
    _, extra = model(source, targets=sample["target"])
    assert len(extra["generator_logits"]) == 4


class RowsOf(TorchDispatchMode):
    """A mode that counts rows of results with so many columns, but not of parameters' views."""

    def __init__(self, columns):
        super().__init__()
        self.columns, self.most = columns, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        computed = isinstance(out, torch.Tensor) and not function.is_view
        if computed and out.shape[-1:] == (self.columns,):
            self.most = max(self.most, out.numel() // self.columns)
        return out


def check_logits(scheme: str) -> None:
    model = build(f"electra_{scheme}")
    with RowsOf(len(WORDS)) as counted:
        loss_of(model, sample_of()[0])
    assert counted.most == 4


@pytest.mark.parametrize("scheme", ["tupe_r", "diet_rel"])
def test_the_generator_s_logits_are_those_of_chosen_tokens_alone(scheme):
    check_logits(scheme)


def test_the_sampling_follows_the_seed():
    model, sample = build("electra_tupe_r"), sample_of()[0]
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        loss = loss_of(model, sample)[0]
        losses.append(float(loss))
    assert losses[0] == losses[1] != losses[2]


def test_accumulated_batches_have_the_gradients_of_one(monkeypatch):
    monkeypatch.setattr(diet_electra, "sample", lambda logits, padding: logits.argmax(-1))
    both, _ = sample_of((9, 9), ((1, 4), (2, 7)))
    parts = [
        {
            "net_input": {"src_tokens": both["net_input"]["src_tokens"][row : row + 1]},
            "target": both["target"][row : row + 1],
        }
        for row in (0, 1)
    ]
    gradients = []
    for batches in ([both], parts):
        model = build("electra_tupe_r").eval()
        done = [loss_of(model, batch) for batch in batches]
        sum(loss for loss, _, _ in done).backward()
        assert sum(size for _, size, _ in done) == 4
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients)


def test_batches_and_processes_are_measured_together():
    """Logged values of two batches are means over all their tokens, not means of means."""
    logs = [
        {"sample_size": 4, "ntokens": 10, "generator_right": 1, "discriminator_right": 9},
        {"sample_size": 1, "ntokens": 30, "generator_right": 1, "discriminator_right": 15},
    ]
    outputs = [
        {"guessed": 5, "detected": 4, "replaced": 4},
        {"guessed": 3, "detected": 0, "replaced": 6},
    ]
    losses = {"loss": 8.0, "generator_loss": 5.0, "discriminator_loss": 20.0}
    with metrics.aggregate() as aggregated:
        ElectraLoss.reduce_metrics(
            [log | numbers | losses for log, numbers in zip(logs, outputs, strict=True)]
        )
    values = aggregated.get_smoothed_values()
    bits = 1 / math.log(2)
    assert values == pytest.approx(
        {
            "loss": 16 / 5 * bits,
            "generator_loss": 10 / 5 * bits,
            "discriminator_loss": 40 / 40 * bits,
            "generator_accuracy": 2 / 5,
            "discriminator_accuracy": 24 / 40,
            "precision": 4 / 8,
            "recall": 4 / 10,
        },
        abs=1e-4,
    )


def test_samples_follow_the_generator_s_distribution():
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0]]).expand(20_000, -1)
    shares = torch.bincount(diet_electra.sample(logits, padding=2), minlength=4) / 20_000
    torch.testing.assert_close(shares, F.softmax(logits[0], 0), atol=0.02, rtol=0)
    without = torch.tensor([[0.0, 1.0, -torch.inf]]).expand(20_000, -1)
    shares = torch.bincount(diet_electra.sample(logits, padding=3), minlength=4) / 20_000
    torch.testing.assert_close(shares[:3], F.softmax(without[0], 0), atol=0.02, rtol=0)
    assert shares[3] == 0


def test_the_generator_puts_no_padding_into_a_sentence():
    model = build("electra_diet_rel").eval()
    with torch.no_grad():
        model.generator.lm_head.bias[WORDS.pad()] = 1000  # leaves others none of float32
    read = []
    stack = model.encoder.sentence_encoder
    stack.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    sample, _ = sample_of((9, 9))
    loss_of(model, sample)
    assert read[-1].ne(WORDS.pad()).all()


def check_sampling(scheme: str) -> None:
    """The generator learns the same, whatever the discriminator's loss weighs."""
    gradients = []
    for weight in (0.0, 50.0):
        model = build(f"electra_{scheme}").eval()
        torch.manual_seed(5)
        loss_of(model, sample_of()[0], discriminator_weight=weight)[0].backward()
        gradients.append(model.generator.lm_head.dense.weight.grad)
    assert torch.equal(*gradients)


def test_no_gradient_goes_through_the_sampling():
    check_sampling("tupe_r")


def test_every_parameter_learns():
    model = build("electra_tupe_r", embedding_size=12)
    loss_of(model, sample_of()[0])[0].backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_padding_changes_nothing(monkeypatch):
    monkeypatch.setattr(diet_electra, "sample", lambda logits, padding: logits.argmax(-1))
    model = build("electra_diet_rel").eval()
    short, _ = sample_of((9, 6))
    source, target = (
        F.pad(x, (0, 5), value=WORDS.pad())
        for x in (short["net_input"]["src_tokens"], short["target"])
    )
    long = {"net_input": {"src_tokens": source}, "target": target}
    torch.testing.assert_close(loss_of(model, long)[0], loss_of(model, short)[0])


SHARED = ("embed_tokens", "embed_positions", "embed_segments", "layernorm_embedding")


@pytest.mark.parametrize("options", [{}, {"embedding_size": 12}], ids=["wide", "narrow"])
def test_all_embeddings_are_shared_with_the_generator(options):
    model = build("electra_learned", **options)
    ours, theirs = model.encoder.sentence_encoder, model.generator.encoder
    for part in SHARED:
        assert getattr(ours, part) is getattr(theirs, part) is not None
    assert model.generator.lm_head.weight is ours.embed_tokens.weight


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (0, "--generator-size must be at least 0.00390625, but is 0"),
        (
            0.7,
            "--generator-size 0.7 of width 256 is 179, which must be a multiple of the "
            "generator's 2 heads: use 0.5",
        ),
    ],
)
def test_a_generator_of_no_possible_width_is_refused(part, says):
    with pytest.raises(UserError) as error:
        build("electra_t5", encoder_embed_dim=256, generator_size=part)
    assert str(error.value) == says


def test_a_generator_may_have_embeddings_of_its_own():
    model = build("electra_learned", generator_embeddings="own")
    ours, theirs = model.encoder.sentence_encoder, model.generator.encoder
    assert [getattr(ours, part) is getattr(theirs, part) for part in SHARED] == [True, *[False] * 3]


def test_generator_and_discriminator_have_the_scheme():
    model = build("electra_diet_rel")
    for encoder in (model.encoder.sentence_encoder, model.generator.encoder):
        assert encoder.layers[0].self_attn.positions is not None


def test_a_batch_without_masked_tokens_has_a_loss():
    sample, _ = sample_of((5,), ((),))
    loss, size, _ = loss_of(build("electra_diet_rel"), sample)
    assert size == 0
    assert loss.isfinite()


def test_electra_trains_in_bf16():
    model = build("electra_tupe_r").bfloat16()
    loss = loss_of(model, sample_of()[0])[0]
    loss.backward()
    assert loss.isfinite()


MUTANTS: mutants.Table = [
    (check_loss, mutants.all_targets_count_as_replaced, "diet_rel"),
    (check_sampling, mutants.a_sample_with_a_gradient, "tupe_r"),
    (check_logits, mutants.logits_of_every_token, "tupe_r"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)

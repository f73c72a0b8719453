"""Compressed keys and values: what Linformer's own code gives, what padding gets, what it costs."""

import copy
import importlib.util
from pathlib import Path

import fairseq
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diet_fairseq.attention.compressed import Compression
from diet_fairseq.attention.context import Context
from diet_fairseq.models import warm_start
from diet_fairseq.positions.layout import Layout
from diet_fairseq.transformer import PositionalAttention
from tests.support import mutants, tiny
from tests.support.attentions import attentions
from tests.support.tiny import LIMIT, PAD, SIDES, SOURCES, TOLERANCE, Case, padded

close = torch.testing.assert_close
COMPRESSED = [case for case in tiny.CASES if case.kind.compressed]
FIRST = tiny.first_of_each_scheme(COMPRESSED)
LINFORMER = Case("linformer", family="roberta")


def unpadded(sentences: int, length: int) -> Layout:
    return Layout.of_self_attention(torch.zeros(sentences, length, dtype=torch.bool))


# --- what others give ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def released():
    """fairseq's own Linformer attention, which knows nothing of padding."""
    examples = Path(fairseq.__file__).parent / "examples"
    file = examples / "linformer/linformer_src/modules/multihead_linear_attention.py"
    if not file.is_file():
        pytest.skip(f"this fairseq has no {file.name}")
    spec = importlib.util.spec_from_file_location("released_linformer", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MultiheadLinearAttention


@pytest.mark.parametrize("shared", [False, True], ids=["E and F", "E for both"])
def test_without_padding_it_is_fairseq_s_linformer(released, shared):
    options = {"max_seq_len": 12, "compressed": 4, "shared_kv_compressed": int(shared)}
    theirs = released(16, 2, self_attention=True, **options).eval()
    f = None if shared else Compression(12, 3)
    ours = PositionalAttention(16, 2, compress_k=Compression(12, 3), compress_v=f).eval()
    ours.load_state_dict(theirs.state_dict())
    for length in (12, 7, 1):
        x = tiny.vectors(length, 2, 16)
        expected, _ = theirs(x, x, x, need_weights=False)
        actual, _ = ours(x, Context(unpadded(2, length)))
        close(actual, expected, **TOLERANCE)


#: schemes that with E = F = 1 are others
FULL = {"linformer": "learned", "diet_abs_lin": "diet_abs"}


@torch.no_grad()
def check_identity(case: Case) -> None:
    """k = n and E = F = 1, sentences of n tokens: full attention."""
    model = tiny.model_to_change(case.but(projection_length=LIMIT))
    for attention in attentions(model):
        for matrix in attention.matrices:
            matrix.copy_(torch.eye(LIMIT))
    options = (("segment_scheme", case.option("segment_scheme")),) if case.family == "bert" else ()
    full = tiny.model_to_change(Case(FULL[case.scheme], options, case.family))
    parameters = {
        name: value for name, value in model.state_dict().items() if "compress" not in name
    }
    full.load_state_dict(parameters)
    sources = tiny.sentences(LIMIT, LIMIT, LIMIT)
    close(tiny.logits(model, sources), tiny.logits(full, sources), **TOLERANCE)


AS_THEY_ARE = [case for case in COMPRESSED if not case.options or case.family == "bert"]
SHARED = [case for case in COMPRESSED if case.option("projection_sharing") != "none"]


@tiny.each(AS_THEY_ARE + SHARED)
def test_identity_compression_is_full_attention(case):
    check_identity(case)


# --- padding ---------------------------------------------------------------------------------


def check_padding_gets_nothing(case: Case) -> None:
    """A vector at padding reaches no other output, and gets no gradient from any."""
    for attention in attentions(tiny.model_of(case)):
        for left_pad in (True, False):
            padding = padded(SOURCES, left_pad).eq(PAD)
            real, layout = ~padding, attention.layout(padding)
            x = tiny.vectors(*padding.shape, tiny.DIM).requires_grad_()
            changed = x.detach() + 100 * padding.unsqueeze(-1)
            out = attention(x, layout)
            close(attention(changed, layout)[real], out[real], **TOLERANCE)
            (gradient,) = torch.autograd.grad(tiny.some_loss(out[real]), x)
            assert gradient[padding].count_nonzero() == 0
            assert gradient[real].count_nonzero() > 0


@tiny.each(COMPRESSED)
def test_padding_contributes_nothing_to_a_compressed_key_or_value(case):
    check_padding_gets_nothing(case)


# --- cost ------------------------------------------------------------------------------------

#: primes, so that a size tells where it comes from
N, K, SENTENCES = 61, 13, 3


class Sizes(TorchDispatchMode):
    """Notes tensors, forward and backward, whose number of entries is a multiple of n x n."""

    def __init__(self) -> None:
        super().__init__()
        self.square: list[tuple[str, torch.Size]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.numel() and not tensor.numel() % N**2:
                self.square.append((str(func), tensor.shape))
        return out


def check_linear(case: Case, n: int = N, k: int = K) -> None:
    """No n x n tensor in a training step or a forward pass, with padding on either side or none."""
    options = {"projection_length": k} if case.kind.compressed else {}
    model = tiny.fresh(case.but(**options), max_positions=n, attention_dropout=0.1)
    sources = tiny.sentences(n, n, n), tiny.sentences(n, 5, 1)
    for training in (True, False):
        model.train(training)
        for batch in sources:
            for left_pad in (True, False):
                with torch.set_grad_enabled(training), Sizes() as sizes:
                    out = tiny.logits(model, batch, left_source=left_pad)
                    if training:
                        out.sum().backward()
                assert not sizes.square, sizes.square[:3]


@tiny.each(COMPRESSED)
def test_nothing_is_as_large_as_n_x_n(case):
    check_linear(case)


@tiny.each(FIRST)
def test_pytorch_s_fused_attention_makes_nothing_as_large_as_n_x_n(case, monkeypatch):
    fused, original = [], torch.nn.functional.scaled_dot_product_attention

    def counted(*args, **options):
        fused.append(args[1].size(2))
        return original(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    model = tiny.fresh(case.but(projection_length=131), max_positions=N * 3)
    with torch.no_grad(), Sizes() as sizes:
        tiny.logits(model, tiny.sentences(N * 3, N * 3))
    assert fused == [131] * tiny.LAYERS  # from 128 keys on
    assert not sizes.square


# --- parameters ------------------------------------------------------------------------------

SIZES = {
    "none": ["layers.0.self_attn.compress_k", "layers.0.self_attn.compress_v",
             "layers.1.self_attn.compress_k", "layers.1.self_attn.compress_v"],
    "key-value": ["layers.0.self_attn.compress_k", "layers.1.self_attn.compress_k"],
    "layer": ["compress_layer"],
}  # fmt: skip


def compressing(model) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if "compress" in name}


def check_projection_sharing(case: Case) -> None:
    """Two matrices a layer, one, or one for all; after a copy and a load as well."""
    model = tiny.model_of(case)
    k = case.option("projection_length") or LIMIT // 4
    names = [
        f"encoder.sentence_encoder.{n}.weight" for n in SIZES[case.option("projection_sharing")]
    ]
    for copied in (model, copy.deepcopy(model), tiny.copy_of(model, case)):
        matrices = compressing(copied)
        assert sorted(matrices) == sorted(names)
        assert sorted(name for name in copied.state_dict() if "compress" in name) == sorted(names)
        assert {tuple(weight.shape) for weight in matrices.values()} == {(k, LIMIT)}
        assert len({weight.data_ptr() for weight in matrices.values()}) == len(names)


@tiny.each(COMPRESSED)
def test_projections_are_shared_as_their_option_says(case):
    check_projection_sharing(case)


def check_compression_learns(case: Case) -> None:
    """Every matrix has a gradient in each column of a position that occurs."""
    model = tiny.model_of(case)
    gradients = tiny.gradients(model, tiny.some_loss(tiny.logits(model)))
    for name in compressing(model):
        assert name in gradients, name
        assert (gradients[name][:, :9].abs().amax(dim=0) > 1e-4).all(), name
        assert gradients[name][:, 9:].count_nonzero() == 0, name


@tiny.each(COMPRESSED)
def test_every_matrix_learns_where_tokens_stand(case):
    check_compression_learns(case)


def long(case: Case):
    """A model as it starts, of 512 positions."""
    args = tiny.arguments(case, max_positions=512)
    return tiny.ARCH_MODEL_REGISTRY[args.arch].build_model(args, tiny.Task)


BLIND = Case("diet_abs_lin", family="roberta").but(position_start="blind")


@pytest.mark.parametrize("case", [LINFORMER, BLIND], ids=str)
def test_projections_start_as_all_of_bert_s_matrices(case):
    for weight in compressing(long(case)).values():
        assert weight.shape == (128, 512)
        assert float(weight.std()) == pytest.approx(0.02, rel=0.05)


def test_with_a_local_start_a_compressed_key_is_the_mean_of_its_neighbours():
    for weight in compressing(long(Case("diet_abs_lin", family="roberta"))).values():
        close(weight[1, :9], torch.tensor([0.0] * 4 + [0.25] * 4 + [0.0]))
        close(weight.sum(dim=1), torch.ones(128))
        assert weight.is_contiguous()  # FSDP takes no other
    uneven = Compression(7, 3, "local").weight
    close(uneven @ torch.arange(7.0), torch.tensor([1.0, 3.5, 5.5]))


def test_an_input_of_one_position_has_one_key():
    model = tiny.fresh(LINFORMER, max_positions=1)
    assert {tuple(weight.shape) for weight in compressing(model).values()} == {(1, 1)}


def test_diet_abs_lin_has_a_position_for_every_token_and_for_every_key():
    model = tiny.model_of(Case("diet_abs_lin", (("position_rank", 3),), "roberta"))
    shapes = {name: tuple(p.shape) for name, p in tiny.position_parameters(model).items()}
    assert shapes == {
        "encoder.sentence_encoder.positions.query": (tiny.HEADS, LIMIT, 3),
        "encoder.sentence_encoder.positions.key": (tiny.HEADS, LIMIT // 4, 3),
    }


# --- starting from another model, loading ----------------------------------------------------


def warm(case: Case, model, **options):
    started = tiny.fresh(case, seed=2, **options)
    with warm_start.checkpoint_loading(started):
        started.load_state_dict(model.state_dict())
    return started


@torch.no_grad()
def check_start(case: Case) -> None:
    """DIET-ABS-LIN starts as the Linformer that it comes from, whose input positions stay."""
    linformer = tiny.model_of(LINFORMER)
    started = warm(case, linformer)
    for left_pad, _ in SIDES:
        close(
            tiny.logits(started, left_source=left_pad),
            tiny.logits(linformer, left_source=left_pad),
            **TOLERANCE,
        )


@tiny.each([case for case in COMPRESSED if str(case) == "diet_abs_lin-roberta-input=learned"])
def test_a_warm_start_out_of_linformer_changes_nothing_yet(case):
    check_start(case)


@tiny.each(FIRST)
def test_a_warm_start_out_of_full_attention_takes_all_but_the_projections(case):
    full = tiny.stock("roberta")
    started = warm(case, full)
    parameters = started.state_dict()
    for name, value in full.state_dict().items():
        if "embed_positions" not in name or case.scheme == "linformer":
            assert torch.equal(parameters[name], value), name
    assert compressing(started)


def test_a_part_of_the_projections_is_not_taken_for_a_start_from_elsewhere():
    key_value, separate = LINFORMER.but(projection_sharing="key-value"), LINFORMER
    for before, after, keys in (
        (key_value, separate, "Missing"),
        (separate, key_value, "Unexpected"),
    ):
        with pytest.raises(
            RuntimeError, match=rf"{keys} key\(s\) in state_dict: .*compress_v\.weight"
        ):
            warm(after, tiny.model_of(before))


@pytest.mark.parametrize("load", [tiny.copy_of, lambda model, case: warm(case, model)])
@pytest.mark.parametrize("scheme", ["linformer", "diet_abs_lin"])
def test_a_checkpoint_of_another_k_is_refused(scheme, load):
    case = Case(scheme, family="roberta")
    shapes = r"\[7, 16\]\) from checkpoint, .* is torch\.Size\(\[4, 16\]"
    with pytest.raises(RuntimeError, match=rf"compress_k\.weight: copying a param .*{shapes}"):
        load(tiny.model_of(case.but(projection_length=7)), case)


MUTANTS: mutants.Table = [
    (check_identity, mutants.an_average_of_all_tokens, "linformer-roberta"),
    (check_padding_gets_nothing, mutants.padding_is_compressed, "linformer-roberta"),
    (check_linear, mutants.keys_that_are_not_compressed, "linformer-roberta"),
    (check_projection_sharing, mutants.values_are_compressed_as_keys, "linformer-roberta"),
    (check_compression_learns, mutants.compression_without_gradient, "diet_abs_lin-roberta"),
    (check_start, mutants.a_start_with_random_products, "diet_abs_lin-roberta-input=learned"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)

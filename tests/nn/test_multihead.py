"""Multi-head attention: the fused path equals the open one, both equal torch's, and a cache changes nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.nn.attention import attend, scaled_dot_scores
from seqloom.nn.masks import causal_mask, length_mask
from seqloom.nn.multihead import CrossAttention, KeysValues, SelfAttention, attend_heads, join_heads, split_heads
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS, NoPositions

BATCH, HEADS, QUERIES, KEYS, HEAD = 3, 5, 7, 11, 6  # a head is even, for rotary positions
SIZE = HEADS * HEAD
LENGTHS = torch.tensor([11, 4, 6])

# name -> (mask, bias, causal); a causal case has as many queries as keys
CASES = {
    "nothing": (None, None, False),
    "padding": ("padding", None, False),
    "causal": (None, None, True),
    "padding-causal": ("padding", None, True),
    "bias": (None, "all", False),
    "bias-of-heads": (None, "heads", False),
    "bias-padding": ("padding", "all", False),
    "bias-of-heads-padding": ("padding", "heads", False),
    "bias-causal": (None, "all", True),
    "bias-padding-causal": ("padding", "all", True),
    "blind": ("blind", None, False),
    "blind-causal": ("blind", None, True),
    "blind-bias": ("blind", "all", False),
    "blind-bias-of-heads-causal": ("blind", "heads", True),
    "blind-queries": ("blind queries", None, False),
    "blind-queries-bias": ("blind queries", "all", False),
    "left-padding-causal": ("left", None, True),
    "left-padding-bias-causal": ("left", "all", True),
}
every_case = pytest.mark.parametrize("case", sorted(CASES))
every_encoding = pytest.mark.parametrize("name", sorted(POSITIONS))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(43)


def unwatched(weights: Tensor) -> None:
    """Asks for the path in the open."""


def mask_of(kind: str | None, queries: int, keys: int) -> Tensor | None:
    lengths = LENGTHS.clamp(max=keys)
    if kind is None:
        return None
    if kind == "padding":
        return length_mask(lengths, keys)[:, None, None]
    if kind == "blind":  # one sentence has no real key at all
        return length_mask(lengths * torch.tensor([1, 0, 1]), keys)[:, None, None]
    if kind == "left":  # with a causal mask, the first queries see nothing
        return length_mask(lengths, keys).flip(1)[:, None, None]
    seen = torch.rand(BATCH, 1, queries, keys) < 0.5
    seen[0, :, 2] = seen[2, :, 5] = False  # queries that see nothing among queries that see something
    return seen


def make(
    case: str, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, KeysValues, Tensor | None, Tensor | None, bool]:
    """Query, memory, mask, bias, causal; whatever can have a gradient asks for one."""
    mask_kind, bias_kind, causal = CASES[case]
    queries = KEYS if causal else QUERIES
    query = torch.randn(BATCH, HEADS, queries, HEAD, dtype=dtype, requires_grad=True)
    keys, values = (torch.randn(BATCH, HEADS, KEYS, HEAD, dtype=dtype, requires_grad=True) for _ in range(2))
    bias = None
    if bias_kind is not None:
        shape = (HEADS, queries, KEYS) if bias_kind == "heads" else (BATCH, HEADS, queries, KEYS)
        bias = torch.randn(shape, dtype=dtype, requires_grad=True)
    return query, KeysValues(keys, values), mask_of(mask_kind, queries, KEYS), bias, causal


def joint(mask: Tensor | None, causal: bool, queries: int) -> Tensor:
    """Every mask there is, as (batch, 1, queries, keys)."""
    seen = torch.ones(BATCH, 1, queries, KEYS, dtype=torch.bool)
    if mask is not None:
        seen = seen & mask
    return seen & causal_mask(KEYS) if causal else seen


# -- fused and in the open -------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fused_equals_open_in_values_and_gradients(case: str, dtype: torch.dtype) -> None:
    query, memory, mask, bias, causal = make(case, dtype)
    leaves = [query, *memory] + ([] if bias is None else [bias])
    factor = torch.randn_like(query)
    found = []
    for watch in (None, unwatched):
        context = attend_heads(query, memory, mask, bias=bias, causal=causal, watch=watch)
        found.append((context, *torch.autograd.grad((context * factor).sum(), leaves)))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found[0], found[1], atol=tolerance, rtol=tolerance)


@every_case
def test_both_equal_attention_one_head_and_one_query_at_a_time(case: str) -> None:
    query, memory, mask, bias, causal = make(case)
    seen = joint(mask, causal, query.shape[2])
    kept: list[Tensor] = []
    fused = attend_heads(query, memory, mask, bias=bias, causal=causal)
    opened = attend_heads(query, memory, mask, bias=bias, causal=causal, watch=kept.append)
    (weights,) = kept
    for head in range(HEADS):
        for row in range(query.shape[2]):
            scores = scaled_dot_scores(query[:, head, row : row + 1], memory.keys[:, head])
            if bias is not None:
                scores = scores + (bias[head, row] if bias.ndim == 3 else bias[:, head, row : row + 1])
            expected = attend(scores, memory.values[:, head], seen[:, :, row])
            torch.testing.assert_close(fused[:, head, row], expected.context[:, 0])
            torch.testing.assert_close(opened[:, head, row], expected.context[:, 0])
            torch.testing.assert_close(weights[:, head, row], expected.weights[:, 0])


@every_case
def test_weights_sum_to_one_where_something_is_seen_and_are_zero_where_not(case: str) -> None:
    query, memory, mask, bias, causal = make(case)
    kept: list[Tensor] = []
    attend_heads(query, memory, mask, bias=bias, causal=causal, watch=kept.append)
    (weights,) = kept
    seen = joint(mask, causal, query.shape[2])
    assert weights.shape == (BATCH, HEADS, query.shape[2], KEYS)
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).double().expand(-1, HEADS, -1))
    assert not weights.masked_select(~seen).any()
    assert (weights >= 0).all()


BLIND = sorted(name for name in CASES if "blind" in name or "left" in name)


@pytest.mark.parametrize("case", BLIND)
@pytest.mark.parametrize("watch", [None, unwatched])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_who_sees_nothing_says_nothing_and_learns_nothing(case: str, watch: object, dtype: torch.dtype) -> None:
    query, memory, mask, bias, causal = make(case, dtype)
    blind = ~joint(mask, causal, query.shape[2]).any(-1)[:, 0]  # (batch, queries)
    assert blind.any()
    context = attend_heads(query, memory, mask, bias=bias, causal=causal, watch=watch)
    assert not context.transpose(1, 2)[blind].any()  # exactly zero, as there is nothing to average
    assert context.transpose(1, 2)[~blind].all()
    leaves = [query, *memory] + ([] if bias is None else [bias])
    only_blind = torch.autograd.grad(context.transpose(1, 2)[blind].sum(), leaves, retain_graph=True)
    assert not any(gradient.any() for gradient in only_blind)
    query_gradient, *others = torch.autograd.grad(context.square().sum(), leaves)
    assert not query_gradient.transpose(1, 2)[blind].any()
    for gradient in (query_gradient, *others):
        assert gradient.isfinite().all()
        assert gradient.any()


@pytest.mark.parametrize("watch", [None, unwatched])
def test_a_fully_hidden_sentence_has_no_gradient_at_all(watch: object) -> None:
    query, memory, mask, bias, _ = make("blind-bias")
    assert bias is not None
    leaves = [query, *memory, bias]
    context = attend_heads(query, memory, mask, bias=bias, watch=watch)
    for gradient in torch.autograd.grad(context.square().sum(), leaves):
        assert not gradient[1].any()
        assert gradient[0].any()
        assert gradient[2].any()


@pytest.mark.parametrize("watch", [None, unwatched])
@pytest.mark.parametrize("case", ["padding-causal", "bias-padding-causal", "blind-queries-bias"])
def test_gradients_by_differences(case: str, watch: object) -> None:
    query, memory, mask, bias, causal = make(case)
    rows, heads = slice(0, 2), slice(0, 1)
    leaves = [
        leaf[rows, heads].detach().requires_grad_() for leaf in (query, *memory, *([] if bias is None else [bias]))
    ]
    mask = None if mask is None else mask[rows]

    def run(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        return attend_heads(query, KeysValues(keys, values), mask, bias=bias, causal=causal, watch=watch)

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@settings(max_examples=40)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    queries=st.integers(1, 5),
    keys=st.integers(1, 6),
    head=st.integers(1, 9),
    causal=st.booleans(),
    biased=st.booleans(),
    share=st.sampled_from([None, 0.0, 0.3, 0.9, 1.0]),
)
def test_fused_equals_open_for_any_shape_and_mask(
    batch: int, heads: int, queries: int, keys: int, head: int, causal: bool, biased: bool, share: float | None
) -> None:
    torch.manual_seed(batch + 10 * queries + 100 * keys)
    queries = keys if causal else queries
    query = torch.randn(batch, heads, queries, head, requires_grad=True)
    memory = KeysValues(*(torch.randn(batch, heads, keys, head, requires_grad=True) for _ in range(2)))
    bias = torch.randn(heads, queries, keys, requires_grad=True) if biased else None
    mask = None if share is None else torch.rand(batch, 1, queries, keys) < share
    leaves = [query, *memory] + ([] if bias is None else [bias])
    found = []
    for watch in (None, unwatched):
        context = attend_heads(query, memory, mask, bias=bias, causal=causal, watch=watch)
        found.append((context, *torch.autograd.grad(context.square().sum(), leaves)))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_heads_are_split_and_joined() -> None:
    vectors = torch.arange(2 * 3 * 6).view(2, 3, 6)
    heads = split_heads(vectors, 2)
    assert heads.shape == (2, 2, 3, 3)
    assert heads[1, 0, 2].tolist() == vectors[1, 2, :3].tolist()
    assert heads[1, 1, 2].tolist() == vectors[1, 2, 3:].tolist()
    assert torch.equal(join_heads(heads), vectors)


# -- parity with torch's module --------------------------------------------------------------------------------------


def shake(module: nn.Module) -> None:
    """At their start biases are zero, which would hide mistakes."""
    for weight in module.parameters():
        weight.data += 0.3 * torch.randn_like(weight)


def self_attention(
    name: str = "none", *, causal: bool = False, dropout: float = 0.0, num_heads: int = HEADS
) -> SelfAttention:
    positions = POSITIONS[name](size=SIZE, num_heads=num_heads, max_length=4, distance=3)
    made = SelfAttention(size=SIZE, num_heads=num_heads, positions=positions, causal=causal, dropout=dropout).double()
    shake(made)
    return made.eval()


def cross_attention(dropout: float = 0.0) -> CrossAttention:
    made = CrossAttention(size=SIZE, num_heads=HEADS, dropout=dropout).double()
    shake(made)
    return made.eval()


def torchs(weight: Tensor, bias: Tensor, output: nn.Linear) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(SIZE, HEADS, batch_first=True).double().eval()
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = weight.detach(), bias.detach()
    theirs.out_proj.load_state_dict(output.state_dict())
    return theirs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_self_attention_equals_torchs(causal: bool, padded: bool, plain: bool) -> None:
    ours, inputs = self_attention(causal=causal), torch.randn(BATCH, KEYS, SIZE, dtype=torch.float64)
    use_plain_paths(ours, plain)
    theirs = torchs(ours.project.weight, ours.project.bias, ours.output)
    real = length_mask(LENGTHS, KEYS)
    expected, expected_weights = theirs(
        inputs,
        inputs,
        inputs,
        key_padding_mask=~real if padded else None,
        attn_mask=~causal_mask(KEYS) if causal else None,
        average_attn_weights=False,
    )
    mask, kept = real[:, None, None] if padded else None, []
    torch.testing.assert_close(ours(inputs, mask)[0], expected)
    torch.testing.assert_close(ours(inputs, mask, watch=kept.append)[0], expected)
    torch.testing.assert_close(kept[0], expected_weights)
    factor = torch.randn_like(expected)
    mine = torch.autograd.grad((ours(inputs, mask)[0] * factor).sum(), [ours.project.weight, ours.output.weight])
    other = torch.autograd.grad((expected * factor).sum(), [theirs.in_proj_weight, theirs.out_proj.weight])
    torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_cross_attention_equals_torchs(padded: bool, plain: bool) -> None:
    ours = cross_attention()
    use_plain_paths(ours, plain)
    inputs, memory = (torch.randn(BATCH, time, SIZE, dtype=torch.float64) for time in (QUERIES, KEYS))
    theirs = torchs(
        torch.cat([ours.query.weight, ours.memory.weight]), torch.cat([ours.query.bias, ours.memory.bias]), ours.output
    )
    real = length_mask(LENGTHS, KEYS)
    expected, expected_weights = theirs(
        inputs, memory, memory, key_padding_mask=~real if padded else None, average_attn_weights=False
    )
    mask, kept, prepared = real[:, None, None] if padded else None, [], ours.prepare(memory)
    torch.testing.assert_close(ours(inputs, prepared, mask), expected)
    torch.testing.assert_close(ours(inputs, prepared, mask, watch=kept.append), expected)
    torch.testing.assert_close(kept[0], expected_weights)


def test_attention_starts_as_that_of_torch() -> None:
    """As wide: torch draws queries, keys and values as one product of three times as many units."""
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(256, 4)
    nowhere = NoPositions(size=256, num_heads=4, max_length=1, distance=1)
    ours, across = SelfAttention(size=256, num_heads=4, positions=nowhere), CrossAttention(size=256, num_heads=4)
    bound = float(theirs.in_proj_weight.abs().max())
    for weight in (ours.project.weight, across.query.weight, across.memory.weight):
        assert float(weight.abs().max()) == pytest.approx(bound, rel=0.01)
        assert float(weight.std()) == pytest.approx(float(theirs.in_proj_weight.std()), rel=0.02)
    for layer in (ours.output, across.output):
        assert float(layer.weight.std()) > 1.3 * float(theirs.in_proj_weight.std())
    for layer in (ours.project, ours.output, across.query, across.memory, across.output):
        assert not layer.bias.any()


# -- a past that is kept ---------------------------------------------------------------------------------------------


def in_chunks(attention: SelfAttention, inputs: Tensor, mask: Tensor | None, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """Output and weights of a causal attention that reads its input a few positions at a time."""
    past, outputs, looked, read = None, [], [], 0
    for size in sizes:
        kept: list[Tensor] = []
        so_far = None if mask is None else mask[..., : read + size]
        part = inputs[:, read : read + size]
        fused, now = attention(part, so_far, past)
        watched, past = attention(part, so_far, past, watch=kept.append)
        torch.testing.assert_close(fused, watched)
        torch.testing.assert_close(now, past)
        outputs.append(watched)
        read += size
        looked.append(nn.functional.pad(kept[0], (0, inputs.shape[1] - read)))
    return torch.cat(outputs, 1), torch.cat(looked, 2)


@every_encoding
@pytest.mark.parametrize("masked", [None, "padding", "left"])
@pytest.mark.parametrize("sizes", [[1] * KEYS, [3, 1, 5, 2], [1, 10], [10, 1], [KEYS]], ids=str)
def test_reading_in_parts_equals_reading_at_once(name: str, masked: str | None, sizes: list[int]) -> None:
    attention, inputs = self_attention(name, causal=True), torch.randn(BATCH, KEYS, SIZE, dtype=torch.float64)
    mask, kept = mask_of(masked, KEYS, KEYS), []
    whole, memory = attention(inputs, mask, watch=kept.append)
    found, weights = in_chunks(attention, inputs, mask, sizes)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(weights, kept[0])
    assert memory.keys.shape == memory.values.shape == (BATCH, HEADS, KEYS, HEAD)


@settings(max_examples=25)
@given(name=st.sampled_from(sorted(POSITIONS)), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_reading_in_any_parts_equals_reading_at_once(name: str, sizes: list[int]) -> None:
    torch.manual_seed(sum(sizes))
    attention, inputs = self_attention(name, causal=True), torch.randn(2, sum(sizes), SIZE, dtype=torch.float64)
    torch.testing.assert_close(in_chunks(attention, inputs, None, sizes)[0], attention(inputs)[0])


@every_encoding
def test_the_past_of_an_attention_that_sees_everything(name: str) -> None:
    """Not causal: the later rows look at all keys there are, as their rows do when all is read at once."""
    attention, inputs = self_attention(name), torch.randn(BATCH, KEYS, SIZE, dtype=torch.float64)
    _, past = attention(inputs[:, :4])
    found, memory = attention(inputs[:, 4:], None, past)
    torch.testing.assert_close(found, attention(inputs)[0][:, 4:])
    torch.testing.assert_close(memory, attention(inputs)[1])


# -- dropout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watch", [None, unwatched])
@pytest.mark.parametrize("plain", [False, True])
def test_attention_dropout_is_for_training_only(watch: object, plain: bool) -> None:
    inputs, memory = (torch.randn(BATCH, time, SIZE, dtype=torch.float64) for time in (QUERIES, KEYS))
    for kind in (self_attention, cross_attention):
        dropping, never = kind(dropout=0.5), kind()
        never.load_state_dict(dropping.state_dict())
        use_plain_paths(dropping, plain)

        def run(module: nn.Module) -> Tensor:
            if isinstance(module, CrossAttention):
                return module(inputs, module.prepare(memory), None, watch=watch)
            return module(inputs, watch=watch)[0]

        torch.testing.assert_close(run(dropping), run(never))
        assert torch.equal(run(dropping), run(dropping))
        dropping.train()
        never.train()
        assert (run(dropping) - run(never)).abs().max() > 1e-2
        assert not torch.equal(run(dropping), run(dropping))
        torch.testing.assert_close(run(never), run(never.eval()))


@pytest.mark.parametrize("watched", [False, True])
def test_dropout_leaves_weights_out_and_keeps_the_mean(watched: bool) -> None:
    """Of 5 equal weights some are left out and the others grow; over many draws the context is the same."""
    draws, rate, keys = 4_001, 0.3, 5
    query, values = torch.zeros(draws, 1, 1, keys), torch.eye(keys).expand(draws, 1, keys, keys)
    kept: list[Tensor] = []
    context = attend_heads(
        query, KeysValues(values, values), dropout=rate, watch=kept.append if watched else None
    )  # values are unit vectors, so the context is the weights
    expected = 1 / keys / (1 - rate)
    assert ((context == 0) | ((context - expected).abs() < 1e-6)).all()
    dropped = (context == 0).double().mean().item()
    assert abs(dropped - rate) < 6 * (rate * (1 - rate) / context.numel()) ** 0.5
    if watched:  # what is shown is what attention chose, not what chance left of it
        torch.testing.assert_close(kept[0], torch.full((draws, 1, 1, keys), 1 / keys))

"""Compiled attention, gelu and turning against the open path in double precision, whatever the shapes and layouts."""

from __future__ import annotations

import copy
import hashlib
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import seqloom.kernels
from seqloom.nn.bending import bent_at_once
from seqloom.nn.heads import LONGEST, heads_fit, look_at_once
from seqloom.nn.multihead import KeysValues, SelfAttention, attend_heads
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS, rotated, turned
from seqloom.nn.transformer import FEED_FORWARDS, FeedForward

numba = pytest.importorskip("numba")


pytestmark = pytest.mark.usefixtures("one_thread")


def vectors(layout: str, batch: int, heads: int, time: int, size: int) -> tuple[Tensor, Tensor]:
    """A leaf, and its view (batch, heads, time, size)."""
    if layout == "heads":
        leaf = torch.randn(batch, heads, time, size, requires_grad=True)
        return leaf, leaf
    if layout == "apart":  # other numbers stand between
        leaf = torch.randn(batch, time, 3, heads * size, requires_grad=True)
        return leaf, leaf[:, :, 1].unflatten(-1, (heads, size)).transpose(1, 2)
    leaf = torch.randn(batch, time, heads * size, requires_grad=True)
    return leaf, leaf.unflatten(-1, (heads, size)).transpose(1, 2)


def open_path(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    memory = KeysValues(keys.double(), values.double())
    return attend_heads(query.double(), memory, mask, causal=causal, watch=lambda weights: None)


layouts = st.sampled_from(["heads", "together", "apart"])


@settings(max_examples=120, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    num_queries=st.integers(1, 40),
    num_keys=st.integers(1, 40),
    size=st.sampled_from([1, 2, 6, 8, 13, 16, 32, 40]),
    causal=st.booleans(),
    masked=st.booleans(),
    spread=st.sampled_from([0.01, 1.0, 20.0]),
    layout=st.tuples(layouts, layouts, layouts),
    seed=st.integers(0, 2**32),
)
def test_looking_at_once_is_looking_in_the_open(
    batch: int,
    heads: int,
    num_queries: int,
    num_keys: int,
    size: int,
    causal: bool,
    masked: bool,
    spread: float,
    layout: tuple[str, str, str],
    seed: int,
) -> None:
    torch.manual_seed(seed)
    num_keys = num_queries if causal else num_keys
    mask = torch.rand(batch, 1, 1, num_keys) < 0.6 if masked else None  # holes, and sometimes nothing at all is seen
    times = (num_queries, num_keys, num_keys)
    leaves, views = zip(
        *(vectors(name, batch, heads, time, size) for name, time in zip(layout, times, strict=True)), strict=True
    )
    query, keys, values = views
    assert heads_fit(query, keys, values, mask)
    pull = torch.randn(batch, num_queries, heads, size).transpose(1, 2)
    found = look_at_once(query * spread, keys, values, mask, causal)
    expected = open_path(query * spread, keys, values, mask, causal)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * max(1.0, spread))
    ours = torch.autograd.grad(found, leaves, pull)
    theirs = torch.autograd.grad(expected, leaves, pull.double())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * max(1.0, spread))


def test_one_head_by_hand() -> None:
    """Scores 0 and ln 3 of the second query: weights 1/4 and 3/4. The first sees itself only."""
    query = torch.tensor([[[[5.0], [1.0]]]], requires_grad=True)
    keys = torch.tensor([[[[0.0], [math.log(3)]]]], requires_grad=True)
    values = torch.tensor([[[[8.0], [4.0]]]], requires_grad=True)
    context = look_at_once(query, keys, values, None, True)
    torch.testing.assert_close(context.flatten(), torch.tensor([8.0, 2.0 + 3.0]))
    of_values = torch.autograd.grad(context[0, 0, 1, 0], values)[0]
    torch.testing.assert_close(of_values.flatten(), torch.tensor([0.25, 0.75]))


def test_a_hidden_key_may_hold_anything() -> None:
    query, keys, values = (torch.randn(2, 3, 5, 8) for _ in range(3))
    mask = torch.tensor([[True, True, False, True, True]] * 2)[:, None, None]
    first = look_at_once(query.requires_grad_(), keys, values, mask, False)
    keys[:, :, 2], values[:, :, 2] = 1e30, 1e30
    assert torch.equal(look_at_once(query, keys, values, mask, False), first)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 8])
def test_numbers_that_are_none_are_not_hidden(which: int, size: int) -> None:
    """Whichever of the three is spoiled, whoever looks at it is, and nobody else."""
    given = [torch.randn(2, 1, 3, size) for _ in range(3)]
    given[which][1] = float("nan")
    context = look_at_once(given[0].requires_grad_(), given[1], given[2], None, True)
    assert context[1].isnan().all()
    assert context[0].isfinite().all()


@settings(max_examples=80, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    time=st.integers(1, 20),
    half=st.sampled_from([1, 3, 8, 20]),
    positions=st.sampled_from(["none", "rotary"]),
    causal=st.booleans(),
    masked=st.booleans(),
    used=st.sampled_from(["output", "memory", "both"]),
    seed=st.integers(0, 2**32),
)
def test_a_whole_self_attention_at_once(
    batch: int, heads: int, time: int, half: int, positions: str, causal: bool, masked: bool, used: str, seed: int
) -> None:
    """Output, keys and values and the gradients through any of them, against the open path in double precision."""
    torch.manual_seed(seed)
    size = heads * 2 * half
    encoding = POSITIONS[positions](size=size, num_heads=heads, max_length=8, distance=4)
    attention = SelfAttention(size=size, num_heads=heads, positions=encoding, causal=causal).train()
    for bias in (attention.project.bias, attention.output.bias):
        torch.nn.init.normal_(bias)
    inputs = torch.randn(batch, time, size, requires_grad=True)
    mask = torch.rand(batch, 1, 1, time) < 0.6 if masked else None
    pulls = [torch.randn(batch, time, size), *torch.randn(2, batch, heads, time, 2 * half)]

    def through(attention: SelfAttention, inputs: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        output, memory = attention(inputs, mask)
        found = [output, memory.keys, memory.values]
        wanted = {"output": found[:1], "memory": found[1:], "both": found}[used]
        given = {"output": pulls[:1], "memory": pulls[1:], "both": pulls}[used]
        total = torch.stack([(one * pull.to(one)).sum() for one, pull in zip(wanted, given, strict=True)]).sum()
        leaves = (inputs, *attention.parameters())
        return found, torch.autograd.grad(total, leaves, allow_unused=True)

    found, ours = through(attention, inputs)
    assert "LookAround" in type(found[0].grad_fn).__name__
    open_one = copy.deepcopy(attention).double()
    use_plain_paths(open_one)
    expected, theirs = through(open_one, inputs.detach().double().requires_grad_())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        if other is None:
            assert one is None or not one.any()
        else:
            torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("why", ["long", "mask of queries", "no gradient", "double", "two threads", "not dense"])
def test_what_it_does_not_serve(why: str) -> None:
    length = LONGEST + 1 if why == "long" else 5
    query, keys, values = (torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3))
    assert heads_fit(query[:, :, :5], keys[:, :, :5], values[:, :, :5], None)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool) if why == "mask of queries" else None
    if why == "no gradient":
        query = query.detach()
    if why == "double":
        query, keys, values = query.double(), keys.double(), values.double()
    if why == "two threads":
        torch.set_num_threads(2)
    if why == "not dense":
        keys = torch.randn(2, 3, 8, length, requires_grad=True).transpose(2, 3)
    assert not heads_fit(query, keys, values, mask)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 5), size=st.sampled_from([8, 16, 24, 120]), spread=st.sampled_from([1e-3, 1.0, 5.0, 50.0]))
def test_gelu_and_its_slope(rows: int, size: int, spread: float) -> None:
    from seqloom.kernels.gelu import bend

    torch.manual_seed(rows * size)
    values, bias = torch.randn(rows, size) * spread, torch.randn(size)
    exact = (values.double() + bias).requires_grad_()
    expected = F.gelu(exact)
    slopes = torch.autograd.grad(expected.sum(), exact)[0]
    out = torch.empty_like(values)
    bend(values.view(-1).numpy(), bias.numpy(), out.view(-1).numpy(), values.view(-1).numpy())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6 * max(1.0, spread))
    torch.testing.assert_close(values.double(), slopes, rtol=1e-4, atol=2e-6 * max(1.0, spread))


@pytest.mark.parametrize("kind", sorted(FEED_FORWARDS))
@pytest.mark.parametrize("shape", [(3,), (2, 5), (0, 4)])
def test_a_feed_forward_layer_at_once_is_its_plain_twin(kind: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    layer = FeedForward(size=6, hidden_size=16, kind=kind)
    for bias in (layer.inner.bias, layer.outer.bias):
        torch.nn.init.normal_(bias)
    inputs = torch.randn(*shape, 6, requires_grad=True)
    assert (bent_at_once(inputs, layer.inner, layer.outer, kind) is None) == layer.gated
    found = []
    for plain in (False, True):
        use_plain_paths(layer, plain)
        output = layer(inputs)
        found.append((output, *torch.autograd.grad(output.square().sum(), [inputs, *layer.parameters()])))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_feed_forward_layer_that_drops_units_does_it_step_by_step() -> None:
    torch.manual_seed(4)
    layer = FeedForward(size=6, hidden_size=16, kind="gelu", dropout=0.5).train()
    inputs = torch.randn(4, 6, requires_grad=True)
    assert not torch.equal(layer(inputs), layer(inputs))
    layer.eval()
    assert torch.equal(layer(inputs), layer(inputs))


@settings(max_examples=60, deadline=None)
@given(
    heads=st.integers(1, 3),
    time=st.integers(1, 9),
    half=st.sampled_from([1, 3, 8, 12, 16]),
    layout=layouts,
    seed=st.integers(0, 99),
)
def test_turning_is_rotating(heads: int, time: int, half: int, layout: str, seed: int) -> None:
    torch.manual_seed(seed)
    leaf, view = vectors(layout, 2, heads, time, 2 * half)
    angles = torch.randn(time, half) * 3
    cosines, sines = torch.stack([angles.cos(), angles.sin()])
    found, expected = turned(view, cosines, sines), rotated(view, cosines, sines)
    assert "Turned" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    pull = torch.randn(2, heads, time, 2 * half)
    ours, theirs = (torch.autograd.grad(output, leaf, pull)[0] for output in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_kept_code_is_compiled_again_when_the_lanes_change() -> None:
    """Numba looks at a module's own text only, so each module that uses the lanes names which it was made with."""
    folder = Path(seqloom.kernels.__file__).parent
    lanes = hashlib.sha256((folder / "lanes.py").read_bytes()).hexdigest()[:12]
    users = [path for path in folder.glob("*.py") if "kernels.lanes import" in path.read_text(encoding="utf-8")]
    assert len(users) >= 4
    for path in users:
        assert f"lanes of {lanes}" in path.read_text(encoding="utf-8"), f"{path.name}: write `lanes of {lanes}`"

"""Position encodings: their papers' formulas by hand and by loops, and one contract for every entry of the table."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.nn.positions import (
    POSITIONS,
    NoPositions,
    Relative,
    Rotary,
    acts_inside,
    alibi_slopes,
    distances,
    sinusoids,
)
from seqloom.nn.transformer import TransformerStack

BATCH, HEADS, HEAD, TIME, KEYS = 2, 3, 10, 11, 13
SIZE = HEADS * HEAD
TABLE, DISTANCE = 7, 5  # both smaller than the time, so that what lies beyond is seen as well

HOOKS = ("embed", "rotate", "bias")
every_encoding = pytest.mark.parametrize("name", sorted(POSITIONS))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(37)


def build(name: str, *, num_heads: int = HEADS, max_length: int = TABLE, distance: int = DISTANCE) -> NoPositions:
    made = POSITIONS[name](size=num_heads * HEAD, num_heads=num_heads, max_length=max_length, distance=distance)
    return made.double()


def embedded() -> Tensor:
    return torch.randn(BATCH, TIME, SIZE, dtype=torch.float64)


def by_head(time: int = TIME) -> Tensor:
    return torch.randn(BATCH, HEADS, time, HEAD, dtype=torch.float64)


def overridden(kind: type[NoPositions]) -> list[str]:
    return [hook for hook in HOOKS if getattr(kind, hook) is not getattr(NoPositions, hook)]


# -- formulas on paper -----------------------------------------------------------------------------------------------


def test_sinusoids_by_hand() -> None:
    """With four columns there are two waves: one radian a position, and a hundredth of it."""
    expected = [[f(position / rate) for rate in (1, 100) for f in (math.sin, math.cos)] for position in (0, 1, 2, 3)]
    assert expected[0] == [0, 1, 0, 1]
    torch.testing.assert_close(sinusoids(4, 4), torch.tensor(expected))
    torch.testing.assert_close(sinusoids(2, 4, offset=2), torch.tensor(expected[2:]))


@pytest.mark.parametrize("size", [1, 2, 5, 12, 17])
def test_sinusoids_equal_the_papers_formula(size: int) -> None:
    table = sinusoids(TIME, size, offset=3)
    for row in range(TIME):
        for column in range(size):
            angle = (row + 3) / 10_000 ** (2 * (column // 2) / size)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[row, column].item() == pytest.approx(wave, abs=1e-6)


def test_sinusoids_stay_exact_far_out() -> None:
    """In single precision the angle itself would be off by more than a hundredth of a radian out here."""
    assert sinusoids(1, 2, offset=1_000_003)[0, 0].item() == pytest.approx(math.sin(1_000_003), abs=1e-6)


def test_distances_by_hand() -> None:
    assert distances(2, 4).tolist() == [[0, 1, 2, 3], [-1, 0, 1, 2]]
    assert distances(2, 4, offset=2).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),  # those of 4 heads, then every other one of 8
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_of_the_paper(num_heads: int, exponents: list[float]) -> None:
    torch.testing.assert_close(alibi_slopes(num_heads), torch.tensor([2.0**-e for e in exponents]))


def test_alibi_by_hand() -> None:
    found = build("alibi", num_heads=2).bias(torch.zeros(1, 2, 2, HEAD, dtype=torch.float64), 4, offset=1)
    away = torch.tensor([[1, 0, 1, 2], [2, 1, 0, 1]], dtype=torch.float64)  # positions 1 and 2 look at 0, 1, 2, 3
    torch.testing.assert_close(found, torch.stack([-away / 16, -away / 256]))


def test_shaw_equals_a_double_loop() -> None:
    """Shaw et al. 2018, eq. 5: the query is compared with the vector of the clipped distance to each key."""
    encoding, query, offset = build("relative"), by_head(), 2
    assert isinstance(encoding, Relative)
    assert encoding.table.shape == (2 * DISTANCE + 1, HEAD)
    found = encoding.bias(query, KEYS, offset)
    assert found.shape == (BATCH, HEADS, TIME, KEYS)
    for row in range(TIME):
        for key in range(KEYS):
            distance = max(-DISTANCE, min(DISTANCE, key - (row + offset)))
            expected = (query[:, :, row] * encoding.table[distance + DISTANCE]).sum(-1) / math.sqrt(HEAD)
            torch.testing.assert_close(found[:, :, row, key], expected)


def test_rotary_equals_complex_multiplication() -> None:
    """Su et al. 2021, eq. 13: each pair of components is a number in the plane, turned by position times rate."""
    encoding, vectors, offset = build("rotary"), by_head(), 3
    found = encoding.rotate(vectors, offset)
    half = HEAD // 2
    for index in range(half):
        rate = 10_000 ** (-2 * index / HEAD)
        for row in range(TIME):
            angle = torch.tensor((row + offset) * rate, dtype=torch.float64)
            number = torch.complex(vectors[:, :, row, index], vectors[:, :, row, index + half])
            turned = number * torch.polar(torch.ones_like(angle), angle)
            torch.testing.assert_close(found[:, :, row, index], turned.real, atol=1e-6, rtol=1e-6)
            torch.testing.assert_close(found[:, :, row, index + half], turned.imag, atol=1e-6, rtol=1e-6)


@settings(max_examples=30)
@given(query_at=st.integers(0, 40), key_at=st.integers(0, 40), shift=st.integers(1, 40))
def test_rotary_scores_depend_on_the_distance_only_and_lengths_stay(query_at: int, key_at: int, shift: int) -> None:
    torch.manual_seed(41)  # the fixture seeds once a test, not once an example
    encoding, (query, key) = build("rotary", max_length=60), torch.randn(2, 1, HEADS, 1, HEAD, dtype=torch.float64)

    def score(query_at: int, key_at: int) -> Tensor:
        return (encoding.rotate(query, query_at) * encoding.rotate(key, key_at)).sum(-1)

    torch.testing.assert_close(score(query_at + shift, key_at + shift), score(query_at, key_at), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(encoding.rotate(query, query_at).norm(dim=-1), query.norm(dim=-1), atol=1e-6, rtol=1e-6)
    assert (score(query_at + shift, key_at) - score(query_at, key_at)).abs().max() > 1e-5


def test_rotary_leaves_the_first_position_alone() -> None:
    vectors = by_head(1)
    assert torch.equal(build("rotary").rotate(vectors), vectors)


# -- beyond the table ------------------------------------------------------------------------------------------------


def test_sinusoidal_and_rotary_go_on_beyond_their_table() -> None:
    inputs, vectors = embedded(), by_head()
    for offset in (0, 5, 500):
        for small in (1, TABLE, offset + 1):
            short, long = (build("sinusoidal", max_length=length) for length in (small, 997))
            assert torch.equal(short.embed(inputs, offset), long.embed(inputs, offset))
            short, long = (build("rotary", max_length=length) for length in (small, 997))
            assert torch.equal(short.rotate(vectors, offset), long.rotate(vectors, offset))


def test_learned_positions_repeat_their_last_row() -> None:
    encoding, nothing = build("learned"), torch.zeros(1, TIME, SIZE, dtype=torch.float64)
    found = encoding.embed(nothing)[0]
    assert torch.equal(found[:TABLE], encoding.table)
    assert torch.equal(found[TABLE:], encoding.table[-1].expand(TIME - TABLE, -1))
    assert torch.equal(encoding.embed(nothing, offset=97)[0], encoding.table[-1].expand(TIME, -1))
    assert encoding.max_length == TABLE
    assert len({tuple(row.tolist()) for row in encoding.table}) == TABLE


def test_relative_positions_are_one_beyond_their_distance() -> None:
    found = build("relative").bias(by_head(1), KEYS)[:, :, 0]
    assert torch.equal(found[..., DISTANCE:], found[..., DISTANCE : DISTANCE + 1].expand(-1, -1, KEYS - DISTANCE))
    assert (found[..., 1 : DISTANCE + 1] - found[..., :DISTANCE]).abs().min() > 1e-6


def test_only_learned_positions_have_an_end() -> None:
    assert {name for name in POSITIONS if build(name).max_length is not None} == {"learned"}


# -- the contract of every entry -------------------------------------------------------------------------------------


@every_encoding
def test_each_acts_at_exactly_one_place(name: str) -> None:
    """None can silently do nothing, and none can act twice."""
    kind, encoding, inputs, vectors = POSITIONS[name], build(name), embedded(), by_head()
    hooks = overridden(kind)
    assert len(hooks) == (0 if name == "none" else 1)
    bias = encoding.bias(vectors, KEYS)
    acts = {
        "embed": not torch.equal(encoding.embed(inputs), inputs),
        "rotate": not torch.equal(encoding.rotate(vectors), vectors),
        "bias": bias is not None and bool(bias.any()),
    }
    assert [hook for hook in HOOKS if acts[hook]] == hooks
    assert acts_inside(kind) == (
        hooks in (["rotate"], ["bias"])
    )  # a stack puts these into its layers, others below them


@every_encoding
def test_an_offset_gives_the_later_rows(name: str) -> None:
    """What a decoder reads step by step is what it read at once: also in chunks, also across the end of the table."""
    encoding, inputs, vectors = build(name), embedded(), by_head()
    hooks: list[tuple[Callable[[Tensor, int], Tensor | None], Tensor, int]] = [
        (encoding.embed, inputs, 1),
        (encoding.rotate, vectors, 2),
        (lambda query, offset: encoding.bias(query, KEYS, offset), vectors, 2),
    ]
    for act, given_rows, axis in hooks:
        whole = act(given_rows, 0)
        for offset in range(TIME):
            for end in {offset + 1, (offset + TIME + 1) // 2, TIME}:
                rows = slice(offset, end)
                part = act(given_rows[:, rows] if axis == 1 else given_rows[:, :, rows], offset)
                if whole is None:
                    assert part is None
                else:
                    expected = whole[:, rows] if axis == 1 else whole[..., rows, :]
                    torch.testing.assert_close(part, expected, atol=0, rtol=0)


@every_encoding
def test_shapes_are_kept_and_biases_fit_the_scores(name: str) -> None:
    encoding, inputs, vectors = build(name), embedded(), by_head()
    assert encoding.embed(inputs).shape == inputs.shape
    assert encoding.rotate(vectors).shape == vectors.shape
    bias = encoding.bias(vectors, KEYS)
    if bias is not None:
        assert torch.broadcast_shapes(bias.shape, (BATCH, HEADS, TIME, KEYS)) == (BATCH, HEADS, TIME, KEYS)


@every_encoding
def test_only_what_is_learned_is_saved(name: str) -> None:
    """Tables that follow from a formula are made anew; a checkpoint holds weights only."""
    encoding = build(name)
    assert list(encoding.state_dict()) == (["table"] if name in ("learned", "relative") else [])
    assert [key for key, _ in encoding.named_parameters()] == list(encoding.state_dict())


@every_encoding
def test_gradients_reach_inputs_and_tables(name: str) -> None:
    encoding, inputs, vectors = build(name), embedded().requires_grad_(), by_head().requires_grad_()
    bias = encoding.bias(vectors, KEYS)
    total = encoding.embed(inputs).square().sum() + encoding.rotate(vectors).pow(3).sum()
    total = total if bias is None else total + bias.square().sum()
    leaves = [inputs, vectors, *encoding.parameters()]
    for gradient in torch.autograd.grad(total, leaves):
        assert gradient.abs().sum() > 0


@every_encoding
@pytest.mark.parametrize("norm_first", [True, False])
def test_only_without_positions_is_the_order_unseen(name: str, norm_first: bool) -> None:
    """Without them an encoder permutes with its input; with any of them the same words in another order differ."""
    stack = TransformerStack(
        size=SIZE,
        num_layers=2,
        num_heads=HEADS,
        feed_forward_size=17,
        positions=name,
        norm_first=norm_first,
        max_positions=TIME if name == "learned" else None,
        max_distance=DISTANCE if name == "relative" else None,
    ).double()
    for weight in stack.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    order = torch.tensor([4, 0, 9, 2, 10, 6, 1, 8, 3, 7, 5])  # keeps few distances: a reversal would keep them all
    inputs = embedded()
    straight, permuted = stack(inputs)[0], stack(inputs[:, order])[0]
    difference = (permuted - straight[:, order]).abs().amax()
    assert difference < 1e-10 if name == "none" else difference > 1e-2


def test_a_stack_puts_each_encoding_in_its_place() -> None:
    for name, kind in POSITIONS.items():
        stack = TransformerStack(size=SIZE, num_layers=2, num_heads=HEADS, feed_forward_size=17, positions=name)
        inside = [type(layer.attention.positions) for layer in stack.layers]
        assert type(stack.positions) is (NoPositions if acts_inside(kind) else kind)
        assert inside == [kind if acts_inside(kind) else NoPositions] * 2


def test_rotary_turns_pairs_at_rates_from_one_to_almost_a_ten_thousandth() -> None:
    """The first pair turns by one radian a position, the last by 10,000^(-(d - 2) / d)."""
    encoding = build("rotary", max_length=2)
    assert isinstance(encoding, Rotary)
    unit = torch.zeros(1, 1, 2, HEAD, dtype=torch.float64)
    unit[..., : HEAD // 2] = 1.0  # every pair points along its first axis
    angles = encoding.rotate(unit)[0, 0, 1, HEAD // 2 :].asin()
    torch.testing.assert_close(angles[0].item(), 1.0, atol=1e-6, rtol=0)
    torch.testing.assert_close(angles[-1].item(), 10_000 ** (-(HEAD - 2) / HEAD), atol=1e-6, rtol=0)

"""What is new needs its formula and a line in its table, nothing else: it computes, learns and goes on without a twin.

Each kind is tried with classes made from nothing and with classes made from one that has a fast twin: those must not be
computed by the twin of what they were made from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn import recurrent
from seqloom.nn.attention import SCORES, Additive, Attended, Dot, Multiplicative, Score, attend
from seqloom.nn.cells import CELLS, LSTM, Cell, Gates, HiddenState, LSTMState, _HiddenCell
from seqloom.nn.connections import CONNECTIONS, Residual
from seqloom.nn.counting import count_parameters
from seqloom.nn.fused_decoder import can_decode
from seqloom.nn.masks import length_mask
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.narrow import narrow_products
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS, NoPositions, Rotary, distances, rotated
from seqloom.nn.recurrent import RecurrentLayer, RecurrentStack, unroll
from seqloom.nn.transformer import FEED_FORWARDS, NORMS, TransformerStack

BATCH, TIME, SOURCE, INPUT, HIDDEN = 4, 6, 5, 3, 8
LENGTHS, SOURCE_LENGTHS = torch.tensor([4, 6, 1, 2]), torch.tensor([5, 1, 3, 2])
NEW = "new"

one_or_both = pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "both"])
padded_or_not = pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(61)


def shake(module: nn.Module) -> None:
    """At their start some weights are zero or one, which would hide mistakes."""
    for weight in module.parameters():
        weight.data += 0.3 * torch.randn_like(weight)


def vectors(time: int, size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(BATCH, time, size, dtype=dtype)


def garbage_at_padding(inputs: Tensor, lengths: Tensor) -> Tensor:
    return torch.where(length_mask(lengths, inputs.shape[1])[..., None], inputs, 1e3 * torch.randn_like(inputs))


def assert_all_learn(module: nn.Module, output: Tensor) -> None:
    """Gradients reach every weight."""
    factor = torch.randn_like(output)
    for weight in module.parameters():
        weight.grad = None
    (output * factor).sum().backward()
    for name, weight in module.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


def assert_counted(module: nn.Module) -> None:
    """What has no formula is counted all the same."""
    counted = sum(part.count for part in count_parameters(module))
    assert counted == sum(weight.numel() for weight in module.parameters())


# -- cells -----------------------------------------------------------------------------------------------------------


class MinimalGated(_HiddenCell):
    """Zhou et al. 2016: one gate both forgets and lets through."""

    num_blocks = 2
    keep_block, keep_bias = 0, 1.0

    def step(self, projected: Tensor, state: HiddenState, weight_hidden: Tensor | None = None) -> Any:
        weight_gate, weight_candidate = self._hidden(weight_hidden).chunk(2)
        x_gate, x_candidate = projected.chunk(2, -1)
        gate = (x_gate + state.hidden @ weight_gate.T).sigmoid()
        candidate = (x_candidate + (gate * state.hidden) @ weight_candidate.T).tanh()
        hidden = (1 - gate) * state.hidden + gate * candidate
        return HiddenState(hidden), {"gate": gate, "hidden": hidden}


class TwoSpeeds(NamedTuple):
    quick: Tensor
    hidden: Tensor
    slow: Tensor


class Averages(nn.Module):
    """A cell made from nothing, with a state of its own: a quick and a slow average."""

    keep_block: int | None = None

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_input = nn.Parameter(torch.randn(hidden_size, input_size) / input_size)
        self.weight_hidden = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size)
        self.rate = nn.Parameter(torch.randn(hidden_size))

    def start(self, like: Tensor) -> TwoSpeeds:
        zeros = like.new_zeros(len(like), self.hidden_size)
        return TwoSpeeds(zeros, zeros, zeros)

    def project(self, inputs: Tensor) -> Tensor:
        return inputs @ self.weight_input.T

    def step(self, projected: Tensor, state: TwoSpeeds, weight_hidden: Tensor | None = None) -> tuple[TwoSpeeds, Gates]:
        weight, rate = self.weight_hidden if weight_hidden is None else weight_hidden, self.rate.sigmoid()
        given = (projected + state.hidden @ weight.T).tanh()
        quick, slow = (state.quick + given) / 2, torch.lerp(state.slow, given, 0.1 * rate)
        hidden = quick - slow
        return TwoSpeeds(quick, hidden, slow), {"quick": quick, "hidden": hidden, "slow": slow}


class LSTMWithoutTanh(LSTM):
    """Made from a cell with a compiled loop and steps by hand, but shows its memory as it is."""

    def step(self, projected: Tensor, state: LSTMState, weight_hidden: Tensor | None = None) -> Any:
        state, gates = super().step(projected, state, weight_hidden)
        hidden = gates["output_gate"] * state.cell
        return LSTMState(hidden, state.cell), {**gates, "hidden": hidden}


class ElmanRectified(_HiddenCell):
    """Torch has a loop for it, and `fused.py` has no steps."""

    num_blocks = 1
    kernel = "rnn_relu"

    def step(self, projected: Tensor, state: HiddenState, weight_hidden: Tensor | None = None) -> Any:
        hidden = (projected + state.hidden @ self._hidden(weight_hidden).T).relu()
        return HiddenState(hidden), {"hidden": hidden}


every_cell = pytest.mark.parametrize("kind", [MinimalGated, Averages, LSTMWithoutTanh, ElmanRectified])


@pytest.fixture
def new_cell(kind: type[Cell], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(CELLS, NEW, kind)
    return NEW


def stack_of(bidirectional: bool = False, **more: Any) -> RecurrentStack:
    size = 2 * HIDDEN if bidirectional else HIDDEN
    stack = RecurrentStack(
        cell=NEW, input_size=INPUT, hidden_size=size, num_layers=2, bidirectional=bidirectional, **more
    ).double()
    shake(stack)
    return stack


@every_cell
@one_or_both
@padded_or_not
@pytest.mark.parametrize("fused_from", [1, 1000], ids=["large", "small"])
def test_a_new_cell_computes_as_it_is_written(
    new_cell: str, bidirectional: bool, lengths: Tensor | None, fused_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training and without gradients: what a layer gives is its formula, step by step."""
    monkeypatch.setattr(recurrent, "FUSED_FROM", fused_from)
    layer = RecurrentLayer(cell=new_cell, input_size=INPUT, hidden_size=HIDDEN, bidirectional=bidirectional).double()
    shake(layer)
    inputs, cells = vectors(TIME, INPUT).requires_grad_(), list(layer.cells)
    starts = [cell.start(inputs) for cell in cells]
    states = [start._make(torch.randn_like(part) for part in start) for start in starts]
    runs = [
        unroll(cell, inputs, state, lengths, backward=index == 1)
        for index, (cell, state) in enumerate(zip(cells, states, strict=True))
    ]
    expected = torch.cat([run.outputs for run in runs], -1), [run.state for run in runs]
    found = layer(inputs, states, lengths)
    torch.testing.assert_close(found, expected)
    leaves, factor = [inputs, *layer.parameters()], torch.randn_like(found[0])
    torch.testing.assert_close(
        torch.autograd.grad(found[0], leaves, factor), torch.autograd.grad(expected[0], leaves, factor)
    )
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(layer(inputs, states, lengths), expected)


@every_cell
@one_or_both
def test_a_new_cell_learns_and_is_counted(new_cell: str, bidirectional: bool) -> None:
    stack = stack_of(bidirectional, connections="residual", weight_drop=0.3)
    assert_all_learn(stack, stack(vectors(TIME, INPUT), lengths=LENGTHS)[0])
    assert_counted(stack)


@every_cell
@one_or_both
def test_padding_changes_nothing_for_a_new_cell(new_cell: str, bidirectional: bool) -> None:
    stack, inputs = stack_of(bidirectional), vectors(TIME, INPUT)
    for watch in (None, lambda name, gates: None):
        outputs, finals = stack(inputs, lengths=LENGTHS, watch=watch)
        again, same = stack(garbage_at_padding(inputs, LENGTHS), lengths=LENGTHS, watch=watch)
        torch.testing.assert_close(again, outputs)
        torch.testing.assert_close(same, finals)
        assert not outputs[~length_mask(LENGTHS, TIME)].any()
        for row, length in enumerate(LENGTHS.tolist()):
            torch.testing.assert_close(stack(inputs[row : row + 1, :length])[0][0], outputs[row, :length])


@every_cell
def test_a_new_cell_goes_on_from_its_state(new_cell: str) -> None:
    """Step by step, in two pieces and as a whole: one result, with the state in the cell's own type."""
    stack, inputs = stack_of().eval(), vectors(TIME, INPUT)
    outputs, finals = stack(inputs)
    kind = type(stack.layers[0].cells[0].start(inputs))
    assert {type(state) for state in finals} == {kind}
    for pieces in ([1] * TIME, [2, TIME - 2]):
        for recording in (True, False):
            with torch.set_grad_enabled(recording):
                states, found = None, []
                for piece in inputs.split(pieces, 1):
                    output, states = stack(piece, states)
                    found.append(output)
            torch.testing.assert_close(torch.cat(found, 1), outputs)
            torch.testing.assert_close(states, finals)
    states = tuple(layer.cell.start(inputs) for layer in stack.layers)
    for time in range(TIME):
        output, states = stack.step(inputs[:, time], states)
        torch.testing.assert_close(output, outputs[:, time])
    torch.testing.assert_close(states, finals)


@every_cell
def test_a_new_cell_shows_its_gates(new_cell: str) -> None:
    stack, inputs, seen = stack_of(bidirectional=True), vectors(TIME, INPUT), {}
    torch.testing.assert_close(stack(inputs, lengths=LENGTHS, watch=seen.__setitem__), stack(inputs, lengths=LENGTHS))
    assert list(seen) == ["0.forward", "0.backward", "1.forward", "1.backward"]
    assert all(gate.shape == (BATCH, TIME, HIDDEN) for gates in seen.values() for gate in gates.values())


@every_cell
def test_a_new_cell_trains_where_narrow_products_are_asked_for(new_cell: str) -> None:
    stack = stack_of().float()
    with narrow_products():
        assert_all_learn(stack, stack(vectors(TIME, INPUT, torch.float32), lengths=LENGTHS)[0])


# -- scores, and decoders that look ----------------------------------------------------------------------------------


class Nearness(nn.Module):
    """A score made from nothing: near keys are seen."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(query_size, memory_size))

    def prepare(self, memory: Tensor) -> Tensor:
        return memory @ self.weight.T

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return -torch.cdist(query, keys)


class Cosine(Dot):
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return 3 * F.normalize(query, dim=-1) @ F.normalize(keys, dim=-1).transpose(-1, -2)


class MultiplicativeAbsolute(Multiplicative):
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().forward(query, keys).abs()


class AdditiveRectified(Additive):
    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return ((query @ self.weight_query.T)[:, :, None] + keys[:, None]).relu() @ self.direction


NEW_SCORES = [Nearness, Cosine, MultiplicativeAbsolute, AdditiveRectified]
every_score = pytest.mark.parametrize("kind", NEW_SCORES)
either_order = pytest.mark.parametrize("context_first", [False, True], ids=["luong", "bahdanau"])


def look(score: Score, query: Tensor, values: Tensor, mask: Tensor) -> Attended:
    return attend(score(query, score.prepare(values)), values, mask[:, None])


class Decoder(nn.Module):
    """The smallest decoder that looks at a memory, one step after the other."""

    def __init__(self, cell: str, score: str, context_first: bool) -> None:
        super().__init__()
        self.context_first = context_first
        width = INPUT + (HIDDEN if context_first else 0)
        self.stack = RecurrentStack(cell=cell, input_size=width, hidden_size=HIDDEN, num_layers=1)
        self.score: Any = SCORES[score](query_size=HIDDEN, memory_size=HIDDEN)
        shake(self)

    def forward(self, inputs: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        states, shown = tuple(layer.cell.start(inputs) for layer in self.stack.layers), []
        for time in range(inputs.shape[1]):
            given = inputs[:, time]
            if self.context_first:
                context = look(self.score, states[-1].hidden[:, None], values, mask).context[:, 0]
                given = torch.cat([given, context], -1)
            hidden, states = self.stack.step(given, states)
            if not self.context_first:
                context = look(self.score, hidden[:, None], values, mask).context[:, 0]
            shown.append(torch.cat([hidden, context], -1))
        return torch.stack(shown, 1)


@every_score
def test_a_new_score_attends_and_learns(kind: type[Score], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, NEW, kind)
    score: Any = SCORES[NEW](query_size=HIDDEN, memory_size=HIDDEN).double()
    query, values = vectors(TIME, HIDDEN).requires_grad_(), vectors(SOURCE, HIDDEN).requires_grad_()
    mask = length_mask(SOURCE_LENGTHS, SOURCE)
    context, weights = look(score, query, values, mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, TIME, dtype=torch.float64))
    assert not weights.masked_select(~mask[:, None]).any()
    torch.testing.assert_close(look(score, query, garbage_at_padding(values, SOURCE_LENGTHS), mask).context, context)
    for row, length in enumerate(SOURCE_LENGTHS.tolist()):
        for time in range(TIME):
            one = slice(row, row + 1)
            alone = look(score, query[one, time : time + 1], values[one, :length], mask[one, :length])
            torch.testing.assert_close(alone.context[0, 0], context[row, time])
    use_plain_paths(score)
    torch.testing.assert_close(look(score, query, values, mask).context, context)
    assert_all_learn(score, context)
    assert query.grad is not None
    assert query.grad.any()
    assert values.grad is not None
    assert values.grad.any()
    assert_counted(score)
    with torch.no_grad():
        torch.testing.assert_close(look(score, query, values, mask).context, context)


@every_score
@either_order
def test_a_decoder_with_a_new_score(kind: type[Score], context_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, NEW, kind)
    check_decoder(Decoder("gru", NEW, context_first).double())


@every_cell
@either_order
def test_a_decoder_with_a_new_cell(new_cell: str, context_first: bool) -> None:
    check_decoder(Decoder(new_cell, "multiplicative", context_first).double())


def check_decoder(decoder: Decoder) -> None:
    inputs, values, mask = vectors(TIME, INPUT), vectors(SOURCE, HIDDEN), length_mask(SOURCE_LENGTHS, SOURCE)
    shown = decoder(inputs, values, mask)
    torch.testing.assert_close(decoder(inputs, garbage_at_padding(values, SOURCE_LENGTHS), mask), shown)
    later = torch.cat([inputs[:, :-1], vectors(1, INPUT)], 1)
    torch.testing.assert_close(decoder(later, values, mask)[:, :-1], shown[:, :-1])
    if not decoder.context_first:  # nothing waits: all steps and all looks at once
        hidden, _ = decoder.stack(inputs)
        at_once = torch.cat([hidden, look(decoder.score, hidden, values, mask).context], -1)
        torch.testing.assert_close(at_once, shown)
    assert_all_learn(decoder, shown)
    with torch.no_grad():
        torch.testing.assert_close(decoder(inputs, values, mask), shown)


@pytest.mark.parametrize("cell", [*CELLS.values(), MinimalGated, Averages, LSTMWithoutTanh, ElmanRectified])
@pytest.mark.parametrize("score", [*SCORES.values(), *NEW_SCORES])
def test_the_fused_decoder_knows_what_it_knows(cell: type[Cell], score: type[Score]) -> None:
    made, scorer = cell(input_size=INPUT, hidden_size=HIDDEN), score(query_size=HIDDEN, memory_size=HIDDEN)
    keys = scorer.prepare(vectors(SOURCE, HIDDEN, torch.float32))
    assert can_decode(made, scorer, keys) == (cell in CELLS.values() and score in SCORES.values())
    assert can_decode(made, scorer, 100 * keys) == (can_decode(made, scorer, keys) and score is not Additive)


# -- positions -------------------------------------------------------------------------------------------------------

HEADS = 2


class AddedRamp(NoPositions):
    """Acts at the bottom, with weights."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.slope = nn.Parameter(torch.randn(size))

    def embed(self, inputs: Tensor, offset: int = 0) -> Tensor:
        return inputs + torch.arange(offset, offset + inputs.shape[1]).to(inputs)[:, None] * self.slope


class LearnedDecay(NoPositions):
    """Acts on the scores, with weights."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.slopes = nn.Parameter(torch.rand(num_heads, 1, 1))

    def bias(self, query: Tensor, num_keys: int, offset: int = 0) -> Tensor:
        return -self.slopes * distances(query.shape[2], num_keys, offset).to(query)


class LearnedTurns(NoPositions):
    """Acts on queries and keys, with weights: angles that nobody else knows."""

    def __init__(self, *, size: int, num_heads: int, max_length: int, distance: int) -> None:
        super().__init__(size=size, num_heads=num_heads, max_length=max_length, distance=distance)
        self.rates = nn.Parameter(torch.rand(size // num_heads // 2))

    def rotate(self, vectors: Tensor, offset: int = 0) -> Tensor:
        angles = torch.arange(offset, offset + vectors.shape[2]).to(vectors)[:, None] * self.rates
        return rotated(vectors, angles.cos(), angles.sin())


class PartlyRotary(Rotary):
    """Made from an encoding that the compiled kernel knows: half of each head stands still."""

    def rotate(self, vectors: Tensor, offset: int = 0) -> Tensor:
        still, turned = vectors.chunk(2, -1)
        cosines, sines = self.turns(vectors.shape[2], offset)
        quarter = turned.shape[-1] // 2
        return torch.cat([still, rotated(turned, cosines[:, :quarter], sines[:, :quarter])], -1)


every_encoding = pytest.mark.parametrize("kind", [AddedRamp, LearnedDecay, LearnedTurns, PartlyRotary])
ROLES: dict[str, dict[str, bool]] = {
    "encoder": {},
    "language": {"causal": True},
    "decoder": dict(causal=True, cross=True),
}
every_role = pytest.mark.parametrize("role", ROLES)


def transformer(role: str = "encoder", **more: Any) -> TransformerStack:
    """Single precision: so are the compiled kernels."""
    stack = TransformerStack(
        size=HEADS * HIDDEN, num_layers=2, num_heads=HEADS, feed_forward_size=16, **{**ROLES[role], **more}
    )
    shake(stack)
    return stack


def read(stack: TransformerStack, role: str, inputs: Tensor, source: Tensor, **more: Any) -> Tensor:
    """All but a causal stack, which hides what follows, need a mask for the padding of what they read."""
    if role != "decoder":
        return stack(inputs, length_mask(LENGTHS, TIME)[:, None, None] if role == "encoder" else None, **more)[0]
    mask = length_mask(SOURCE_LENGTHS, SOURCE)[:, None, None]
    return stack(inputs, memory=stack.prepare(source), memory_mask=mask, **more)[0]


def check_transformer(stack: TransformerStack, role: str) -> None:
    """Training, inference and the open path agree; all learn; padding is nothing; a past goes on."""
    size = HEADS * HIDDEN
    inputs, source = vectors(TIME, size, torch.float32).requires_grad_(), vectors(SOURCE, size, torch.float32)
    real, close = length_mask(LENGTHS, TIME), dict(atol=2e-4, rtol=2e-3)
    factor = torch.randn(BATCH, TIME, size) * real[..., None]
    leaves, found = [inputs, *stack.parameters()], []
    for plain in (False, True):
        use_plain_paths(stack, plain)
        output = read(stack, role, inputs, source)
        found.append((output[real], *torch.autograd.grad((output * factor).sum(), leaves)))
    torch.testing.assert_close(*found, **close)
    for plain in (False, True):
        use_plain_paths(stack.eval(), plain)
        with torch.no_grad():
            torch.testing.assert_close(read(stack, role, inputs, source)[real], output[real], **close)
    use_plain_paths(stack.train(), False)
    padded, hidden = garbage_at_padding(inputs, LENGTHS), garbage_at_padding(source, SOURCE_LENGTHS)
    torch.testing.assert_close(read(stack, role, padded, hidden)[real], output[real], **close)
    output = read(stack, role, inputs, source)
    assert_all_learn(stack, output)
    assert_counted(stack)
    if role != "encoder":
        for pieces in ([1] * TIME, [2, TIME - 2]):
            memory = stack.prepare(source) if role == "decoder" else None
            mask = length_mask(SOURCE_LENGTHS, SOURCE)[:, None, None] if role == "decoder" else None
            past, parts = None, []
            for piece in inputs.split(pieces, 1):
                part, past = stack(piece, past=past, memory=memory, memory_mask=mask)
                parts.append(part)
            torch.testing.assert_close(torch.cat(parts, 1), output, **close)


@every_encoding
@every_role
def test_a_new_encoding_in_a_stack(kind: type[NoPositions], role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITIONS, NEW, kind)
    stack = transformer(role, positions=NEW)
    assert sum(type(part) is kind for part in stack.modules()) == (1 if kind is AddedRamp else 2)
    check_transformer(stack, role)
    order, inputs = torch.tensor([3, 0, 5, 1, 4, 2]), vectors(TIME, HEADS * HIDDEN, torch.float32)
    if role == "encoder":  # the order is seen: the same vectors in another order are not the same results in that order
        assert (stack(inputs[:, order])[0] - stack(inputs)[0][:, order]).abs().max() > 1e-2


@every_encoding
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_new_encoding_in_one_attention(kind: type[NoPositions], causal: bool, training: bool) -> None:
    """Watched and unwatched: in training the compiled kernel may serve only encodings that it knows."""
    size = HEADS * HIDDEN
    positions = kind(size=size, num_heads=HEADS, max_length=9, distance=3)
    attention = SelfAttention(size=size, num_heads=HEADS, positions=positions, causal=causal).train(training)
    shake(attention)
    inputs = vectors(TIME, size, torch.float32).requires_grad_()
    with torch.set_grad_enabled(training):
        found, memory = attention(inputs)
        expected, same = attention(inputs, watch=lambda weights: None)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(memory, same, atol=1e-5, rtol=1e-4)


def test_an_encoding_acts_at_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Both(LearnedDecay):
        embed = AddedRamp.embed

    monkeypatch.setitem(POSITIONS, NEW, Both)
    with pytest.raises(AssertionError, match="Both overrides `embed` and another hook"):
        transformer(positions=NEW)


# -- feed-forward layers, norms, connections -------------------------------------------------------------------------


@every_role
@pytest.mark.parametrize("gated", [False, True])
def test_a_new_activation(role: str, gated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def squared(values: Tensor) -> Tensor:
        return F.relu(values).square()

    monkeypatch.setitem(FEED_FORWARDS, NEW, (squared, gated))
    stack = transformer(role, feed_forward=NEW)
    assert stack.layers[0].feed_forward.activation is squared
    check_transformer(stack, role)


class Centred(nn.Module):
    """A norm made from nothing."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, values: Tensor) -> Tensor:
        centred = values - values.mean(-1, keepdim=True)
        return self.weight * centred / (centred.abs().mean(-1, keepdim=True) + self.eps)


class Squashed(nn.LayerNorm):
    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values).tanh()


@every_role
@pytest.mark.parametrize("kind", [Centred, Squashed])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_new_norm(
    role: str, kind: Callable[..., nn.Module], norm_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NORMS, NEW, kind)
    check_transformer(transformer(role, norm=NEW, norm_first=norm_first), role)


class Weighed(nn.Module):
    """A connection made from nothing, with weights: Bachlechner et al. 2021, and the bottom once more."""

    def __init__(self, *, size: int, num_seen: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.rand(size))

    def forward(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        return seen[-1] + self.share * output + 0.1 * seen[0]


class Halved(Residual):
    def forward(self, seen: Sequence[Tensor], output: Tensor) -> Tensor:
        return super().forward(seen, output) / 2


every_connection = pytest.mark.parametrize("kind", [Weighed, Halved])


@every_connection
@every_role
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_new_connection_in_a_transformer(
    kind: type[nn.Module], role: str, norm_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONNECTIONS, NEW, kind)
    check_transformer(transformer(role, connections=NEW, norm_first=norm_first), role)


@every_connection
@one_or_both
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_a_new_connection_between_recurrent_layers(
    kind: type[nn.Module], bidirectional: bool, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONNECTIONS, NEW, kind)
    stack = RecurrentStack(
        cell=cell,
        input_size=INPUT,
        hidden_size=2 * HIDDEN,
        num_layers=3,
        bidirectional=bidirectional,
        connections=NEW,
    ).double()
    shake(stack)
    inputs, found = vectors(TIME, INPUT), []
    for plain in (False, True):
        use_plain_paths(stack, plain)
        outputs, finals = stack(inputs, lengths=LENGTHS)
        again, same = stack(garbage_at_padding(inputs, LENGTHS), lengths=LENGTHS)
        real = length_mask(LENGTHS, TIME)
        torch.testing.assert_close((again[real], same), (outputs[real], finals))
        found.append((outputs[real], *torch.autograd.grad(outputs[real].square().sum(), list(stack.parameters()))))
    torch.testing.assert_close(*found)
    assert_all_learn(stack, stack(inputs, lengths=LENGTHS)[0])
    assert_counted(stack)
    if not bidirectional:
        outputs, finals = stack(inputs)
        states = tuple(layer.cell.start(inputs) for layer in stack.layers)
        for time in range(TIME):
            output, states = stack.step(inputs[:, time], states)
            torch.testing.assert_close(output, outputs[:, time])
        torch.testing.assert_close(states, finals)

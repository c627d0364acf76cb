"""Whole sequences: the textbook loop equals torch.nn and both fast loops; padding is nothing; steps equal runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.nn import recurrent
from seqloom.nn.cells import CELLS, Cell, State
from seqloom.nn.masks import length_mask
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.recurrent import RecurrentLayer, RecurrentStack, run_compiled, run_fused, select_rows, unroll

BATCH, TIME, INPUT, HIDDEN = 5, 7, 3, 11
LENGTHS = torch.tensor([4, 7, 1, 2, 6])

every_cell = pytest.mark.parametrize("name", sorted(CELLS))
compiled_cells = pytest.mark.parametrize("name", sorted(name for name, kind in CELLS.items() if kind.kernel))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(23)


def randomised(name: str, input_size: int = INPUT, hidden_size: int = HIDDEN) -> Cell:
    cell = CELLS[name](input_size=input_size, hidden_size=hidden_size).double()
    for weight in cell.parameters():
        weight.data.normal_(std=0.5)
    return cell


def random_state(cell: Cell, rows: int = BATCH) -> State:
    state = cell.start(torch.zeros(rows, 1, dtype=torch.float64))
    return type(state)(*(torch.randn_like(part) for part in state))


def sequences() -> Tensor:
    return torch.randn(BATCH, TIME, INPUT, dtype=torch.float64)


def garbage_after(inputs: Tensor, lengths: Tensor, more: int) -> Tensor:
    """The same real steps, noise at padding, and `more` steps of padding."""
    noise = 1e3 * torch.randn(inputs.shape[0], inputs.shape[1] + more, inputs.shape[2], dtype=inputs.dtype)
    longer = torch.cat([inputs, noise[:, inputs.shape[1] :]], 1)
    return torch.where(length_mask(lengths, longer.shape[1])[..., None], longer, noise)


# -- parity with torch.nn --------------------------------------------------------------------------------------------

TORCH = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


@pytest.mark.parametrize("name", sorted(TORCH))
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_unroll_equals_torch_in_both_directions(name: str, lengths: Tensor | None) -> None:
    cells, inputs = [randomised(name), randomised(name)], sequences()
    states = [random_state(cell) for cell in cells]
    reference = TORCH[name](INPUT, HIDDEN, batch_first=True, bidirectional=True).double()
    for cell, suffix in zip(cells, ("", "_reverse"), strict=True):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for weight_name, weight in zip(names, cell.kernel_weights(), strict=True):
            getattr(reference, f"{weight_name}_l0{suffix}").data = weight.detach().clone()
    start = [torch.stack(parts) for parts in zip(*states, strict=True)]
    given = tuple(start) if len(start) == 2 else start[0]
    if lengths is None:
        outputs, final = reference(inputs, given)
    else:
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        data, final = reference(packed, given)
        outputs, _ = pad_packed_sequence(data, batch_first=True, total_length=TIME)
    finals = final if isinstance(final, tuple) else (final,)
    for direction, (cell, state) in enumerate(zip(cells, states, strict=True)):
        found = unroll(cell, inputs, state, lengths, backward=direction == 1)
        torch.testing.assert_close(found.outputs, outputs[..., direction * HIDDEN :][..., :HIDDEN])
        torch.testing.assert_close(tuple(found.state), tuple(part[direction] for part in finals))


# -- the compiled loop equals the textbook ---------------------------------------------------------------------------


@compiled_cells
@settings(deadline=None, max_examples=30)
@given(
    lengths=st.one_of(st.none(), st.lists(st.integers(1, TIME), min_size=1, max_size=BATCH)),
    directions=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)
def test_compiled_equals_unrolled_in_values_and_gradients(
    name: str, lengths: list[int] | None, directions: int, seed: int
) -> None:
    torch.manual_seed(seed)
    rows = BATCH if lengths is None else len(lengths)
    real = None if lengths is None else torch.tensor(lengths)
    cells = [randomised(name) for _ in range(directions)]
    inputs = torch.randn(rows, TIME, INPUT, dtype=torch.float64, requires_grad=True)
    states = [type(s)(*(p.requires_grad_() for p in s)) for s in (random_state(cell, rows) for cell in cells)]
    leaves = [inputs, *(p for s in states for p in s), *(w for cell in cells for w in cell.parameters())]

    runs = [unroll(c, inputs, s, real, backward=i == 1) for i, (c, s) in enumerate(zip(cells, states, strict=True))]
    textbook = [torch.cat([run.outputs for run in runs], -1), *(part for run in runs for part in run.state)]
    outputs, finals = run_compiled(cells, inputs, states, real)
    compiled = [outputs, *(part for final in finals for part in final)]
    torch.testing.assert_close(compiled, textbook)
    pulls = [torch.randn_like(tensor) for tensor in textbook]
    torch.testing.assert_close(
        torch.autograd.grad(compiled, leaves, pulls), torch.autograd.grad(textbook, leaves, pulls)
    )


# -- the fused loop equals the textbook ------------------------------------------------------------------------------


@every_cell
@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.integers(0, TIME), min_size=1, max_size=BATCH),
    padded=st.booleans(),
    directions=st.integers(1, 2),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    seed=st.integers(0, 2**31),
)
def test_fused_equals_unrolled_in_values_and_gradients(
    name: str, lengths: list[int], padded: bool, directions: int, sizes: tuple[int, int], seed: int
) -> None:
    torch.manual_seed(seed)
    real = torch.tensor(lengths) if padded else None
    for dtype, tolerance in ((torch.float64, {}), (torch.float32, dict(atol=2e-4, rtol=2e-4))):
        cells = [randomised(name, *sizes).to(dtype) for _ in range(directions)]
        inputs = torch.randn(len(lengths), TIME, sizes[0], dtype=dtype, requires_grad=True)
        starts = [random_state(cell, len(lengths)) for cell in cells]
        states = [type(s)(*(p.to(dtype).requires_grad_() for p in s)) for s in starts]
        leaves = [inputs, *(p for s in states for p in s), *(w for cell in cells for w in cell.parameters())]
        runs = [unroll(c, inputs, s, real, backward=i == 1) for i, (c, s) in enumerate(zip(cells, states, strict=True))]
        textbook = [torch.cat([run.outputs for run in runs], -1), *(part for run in runs for part in run.state)]
        outputs, finals = run_fused(cells, inputs, states, real)
        assert [type(final) for final in finals] == [type(state) for state in states]
        fused = [outputs, *(part for final in finals for part in final)]
        torch.testing.assert_close(fused, textbook, **tolerance)
        pulls = [torch.randn_like(tensor) for tensor in textbook]
        torch.testing.assert_close(
            torch.autograd.grad(fused, leaves, pulls), torch.autograd.grad(textbook, leaves, pulls), **tolerance
        )


@every_cell
def test_fused_gradients_agree_with_finite_differences(name: str) -> None:
    cells = [randomised(name, 2, 3) for _ in range(2)]
    inputs = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    parts = [part.requires_grad_() for cell in cells for part in random_state(cell, 3)]
    share = len(parts) // 2

    def run(inputs: Tensor, *parts: Tensor) -> Tensor:
        states = [type(cell.start(inputs))(*parts[i * share :][:share]) for i, cell in enumerate(cells)]
        return run_fused(cells, inputs, states, torch.tensor([2, 4, 1]))[0]

    torch.autograd.gradcheck(run, (inputs, *parts))


def test_a_fused_sequence_needs_no_gradient_of_its_inputs_and_can_go_backward_twice() -> None:
    cells = [randomised("lstm")]
    outputs, _ = run_fused(cells, sequences(), [random_state(cells[0])], LENGTHS)
    outputs.sum().backward(retain_graph=True)
    once = cells[0].weight_hidden.grad.clone()
    outputs.sum().backward()
    torch.testing.assert_close(cells[0].weight_hidden.grad, 2 * once)


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_layer_gives_the_same_plainly_and_watched(name: str, bidirectional: bool) -> None:
    layer = RecurrentLayer(cell=name, input_size=INPUT, hidden_size=HIDDEN, bidirectional=bidirectional).double()
    inputs, seen = sequences(), {}
    fast = layer(inputs, None, LENGTHS)
    use_plain_paths(layer)
    torch.testing.assert_close(layer(inputs, None, LENGTHS), fast)
    torch.testing.assert_close(layer(inputs, None, LENGTHS, watch=seen.__setitem__), fast)
    assert list(seen) == (["forward", "backward"] if bidirectional else ["forward"])
    for gates in seen.values():
        assert all(values.shape == (BATCH, TIME, HIDDEN) for values in gates.values())


# -- padding, rows, directions ---------------------------------------------------------------------------------------


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing(name: str, bidirectional: bool) -> None:
    stack = RecurrentStack(
        cell=name, input_size=INPUT, hidden_size=2 * HIDDEN, num_layers=2, bidirectional=bidirectional
    ).double()
    inputs = sequences()
    for plain in (False, True):
        use_plain_paths(stack, plain)
        outputs, finals = stack(inputs, lengths=LENGTHS)
        longer, same = stack(garbage_after(inputs, LENGTHS, 6), lengths=LENGTHS)
        torch.testing.assert_close(longer[:, :TIME], outputs)
        assert not longer[:, TIME:].any()
        assert not outputs[~length_mask(LENGTHS, TIME)].any()
        torch.testing.assert_close(same, finals)


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
def test_batched_equals_single(name: str, bidirectional: bool) -> None:
    stack = RecurrentStack(
        cell=name, input_size=INPUT, hidden_size=2 * HIDDEN, num_layers=2, bidirectional=bidirectional
    ).double()
    inputs = sequences()
    outputs, finals = stack(inputs, lengths=LENGTHS)
    for r, length in enumerate(LENGTHS.tolist()):
        alone, ends = stack(inputs[r : r + 1, :length])
        torch.testing.assert_close(alone[0], outputs[r, :length])
        torch.testing.assert_close(ends, select_rows(finals, torch.tensor([r])))


@every_cell
def test_a_final_state_is_forward_at_the_last_real_step_beside_backward_at_the_first(name: str) -> None:
    stack = RecurrentStack(
        cell=name, input_size=INPUT, hidden_size=2 * HIDDEN, num_layers=3, bidirectional=True
    ).double()
    outputs, finals = stack(sequences(), lengths=LENGTHS)
    assert outputs.shape == (BATCH, TIME, 2 * HIDDEN)
    forward = outputs[torch.arange(BATCH), LENGTHS - 1, :HIDDEN]
    backward = outputs[:, 0, HIDDEN:]
    torch.testing.assert_close(finals[-1].hidden, torch.cat([forward, backward], -1))


# -- steps -----------------------------------------------------------------------------------------------------------


@every_cell
@pytest.mark.parametrize("num_layers", [1, 3])
def test_stepping_equals_the_whole_sequence(name: str, num_layers: int) -> None:
    stack = RecurrentStack(cell=name, input_size=INPUT, hidden_size=HIDDEN, num_layers=num_layers, dropout=0.5)
    stack.double().eval()
    inputs = sequences()
    starts = tuple(random_state(layer.cells[0]) for layer in stack.layers)
    outputs, finals = stack(inputs, starts)
    states, seen = starts, []
    for time in range(TIME):
        output, states = stack.step(inputs[:, time], states, lambda layer, gates: seen.append(layer))
        torch.testing.assert_close(output, outputs[:, time])
        assert output is states[-1].hidden
    torch.testing.assert_close(states, finals)
    assert seen == [f"{layer}.forward" for layer in range(num_layers)] * TIME


def test_watched_layers_are_told_apart() -> None:
    stack = RecurrentStack(cell="gru", input_size=INPUT, hidden_size=2 * HIDDEN, num_layers=2, bidirectional=True)
    seen: list[str] = []
    stack(sequences().float(), watch=lambda layer, gates: seen.append(layer))
    assert seen == ["0.forward", "0.backward", "1.forward", "1.backward"]


def test_dropout_only_between_layers_and_only_in_training() -> None:
    inputs = sequences().float()
    stack = RecurrentStack(cell="lstm", input_size=INPUT, hidden_size=HIDDEN, num_layers=2, dropout=0.5)
    assert not torch.equal(stack(inputs)[0], stack(inputs)[0])
    torch.testing.assert_close(stack(inputs)[1][0], stack(inputs)[1][0])  # the first layer comes before any dropout
    stack.eval()
    assert torch.equal(stack(inputs)[0], stack(inputs)[0])
    single = RecurrentStack(cell="lstm", input_size=INPUT, hidden_size=HIDDEN, num_layers=1, dropout=0.5)
    assert torch.equal(single(inputs)[0], single(inputs)[0])


@every_cell
def test_gradients_flow_to_every_weight(name: str) -> None:
    stack = RecurrentStack(cell=name, input_size=INPUT, hidden_size=2 * HIDDEN, num_layers=2, bidirectional=True)
    outputs, _ = stack(sequences().float(), lengths=LENGTHS)
    outputs.square().sum().backward()
    for label, weight in stack.named_parameters():
        assert weight.grad is not None, label
        assert weight.grad.abs().sum() > 0, label


# -- dropped weights -------------------------------------------------------------------------------------------------


@every_cell
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_all_paths_take_a_weight_in_place_of_the_cells_own(name: str, directions: int, lengths: Tensor | None) -> None:
    """In values and in gradients, which reach the weight that was given and not the cell's own."""
    cells, inputs = [randomised(name) for _ in range(directions)], sequences()
    states = [random_state(cell) for cell in cells]
    masks = [(torch.rand_like(cell.weight_hidden) < 0.6) / 0.6 for cell in cells]
    pull, found = torch.randn(BATCH, TIME, directions * HIDDEN, dtype=torch.float64), []

    def run_unrolled(*given: Any) -> tuple[Tensor, None]:
        runs = [
            unroll(cell, inputs, state, lengths, backward=index == 1, hidden_weight=weight)
            for index, (cell, state, weight) in enumerate(zip(cells, states, given[-1], strict=True))
        ]
        return torch.cat([run.outputs for run in runs], -1), None

    for run in (run_unrolled, run_fused, *([run_compiled] if cells[0].kernel else [])):
        dropped = [cell.weight_hidden * mask for cell, mask in zip(cells, masks, strict=True)]
        outputs, _ = run(cells, inputs, states, lengths, dropped)
        gradients = torch.autograd.grad(outputs, [cell.weight_hidden for cell in cells], pull)
        for gradient, mask in zip(gradients, masks, strict=True):
            assert torch.equal(gradient != 0, mask != 0), "the undropped weights, and they only"
        found.append((outputs, *gradients))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("way", ["compiled", "fused", "plain", "watched"])
def test_a_layer_drops_weights_on_every_path_while_it_trains(
    name: str, bidirectional: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "FUSED_FROM", 1 if way == "fused" else 1000)
    layer = RecurrentLayer(
        cell=name, input_size=INPUT, hidden_size=HIDDEN, bidirectional=bidirectional, weight_drop=0.4
    ).double()
    layer.plain = way == "plain"  # not its dropout: it must draw the same mask as on the other paths
    watch = (lambda *_: None) if way == "watched" else None
    inputs = sequences()
    torch.manual_seed(5)
    outputs, _ = layer(inputs, None, LENGTHS, watch=watch)
    torch.manual_seed(5)
    dropped = [layer.weight_dropout(cell.weight_hidden) for cell in layer.cells]
    runs = [
        unroll(cell, inputs, cell.start(inputs), LENGTHS, backward=index == 1, hidden_weight=weight)
        for index, (cell, weight) in enumerate(zip(layer.cells, dropped, strict=True))
    ]
    torch.testing.assert_close(outputs, torch.cat([run.outputs for run in runs], -1))
    assert not torch.equal(layer(inputs, None, LENGTHS, watch=watch)[0], outputs), "each call draws anew"
    layer.eval()
    whole = [unroll(cell, inputs, cell.start(inputs), LENGTHS, backward=i == 1) for i, cell in enumerate(layer.cells)]
    expected = torch.cat([run.outputs for run in whole], -1)
    torch.testing.assert_close(layer(inputs, None, LENGTHS, watch=watch)[0], expected)


@compiled_cells
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_dropped_weights_in_single_precision(name: str, lengths: Tensor | None) -> None:
    """The loops torch takes for float are others than those for double."""
    layer = RecurrentLayer(cell=name, input_size=INPUT, hidden_size=HIDDEN, weight_drop=0.4)
    inputs, found = sequences().float(), []
    for layer.plain in (False, True):
        torch.manual_seed(5)
        outputs, _ = layer(inputs, None, lengths)
        found.append((outputs, *torch.autograd.grad(outputs.square().sum(), [*layer.parameters()])))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


@compiled_cells
def test_who_trains_fused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large cells, but an LSTM only over padded rows; a single step without gradient takes no loop at all."""
    taken: list[str] = []
    for way in ("run_fused", "run_compiled", "unroll"):
        run = getattr(recurrent, way)
        monkeypatch.setattr(recurrent, way, lambda *a, way=way, run=run, **k: (taken.append(way), run(*a, **k))[1])
    monkeypatch.setattr(recurrent, "FUSED_FROM", HIDDEN)
    inputs = sequences().float()
    for size in (HIDDEN - 1, HIDDEN):
        layer = RecurrentLayer(cell=name, input_size=INPUT, hidden_size=size)
        layer(inputs)
        layer(inputs, None, LENGTHS)
        with torch.no_grad():
            layer(inputs)
            one = layer(inputs[:, :1])[0]
            torch.testing.assert_close(one, run_compiled([layer.cell], inputs[:, :1], layer.start(inputs), None)[0])
    small = ["run_compiled"] * 3 + ["unroll"]
    large = ["run_compiled" if name == "lstm" else "run_fused", "run_fused", "run_compiled", "unroll"]
    assert taken == small + large


# -- states ----------------------------------------------------------------------------------------------------------


class Inner(NamedTuple):
    left: Tensor
    right: Tensor | None


class Outer(NamedTuple):
    many: tuple[Inner, ...]
    one: Tensor
    none: None


def test_select_rows_reaches_every_tensor_and_keeps_the_types() -> None:
    table = torch.arange(15).view(5, 3)
    state = Outer((Inner(table, None), Inner(table + 100, table + 200)), table[:, 0], None)
    rows = torch.tensor([4, 0, 0])
    found = select_rows(state, rows)
    assert type(found) is Outer
    assert type(found.many) is tuple
    assert type(found.many[0]) is Inner
    assert found.many[0].right is None
    assert found.none is None
    assert found.one.tolist() == [12, 0, 0]
    assert found.many[0].left.tolist() == [[12, 13, 14], [0, 1, 2], [0, 1, 2]]
    assert torch.equal(found.many[1].right, (table + 200)[rows])
    assert select_rows(state, torch.tensor([], dtype=torch.long)).one.shape == (0,)

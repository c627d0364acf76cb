"""Each cell's step by hand, with `math` alone; gradients by differences; what the gates promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seqloom.nn.cells import (
    CELLS,
    GRU,
    LSTM,
    HiddenState,
    LSTMState,
    coupled_step,
    elman_step,
    gru_step,
    lstm_step,
    peephole_step,
)

ROWS, INPUT, HIDDEN = 3, 5, 7
every_cell = pytest.mark.parametrize("name", sorted(CELLS))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(19)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def row(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def column(*numbers: float) -> Tensor:
    return row(*numbers).T


def randomised(name: str) -> torch.nn.Module:
    """A cell in double precision whose every weight, biases too, is random."""
    cell = CELLS[name](input_size=INPUT, hidden_size=HIDDEN).double()
    for weight in cell.parameters():
        weight.data.normal_(std=0.5)
    return cell


# -- one unit, by hand -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("squash", "f"), [("tanh", math.tanh), ("sigmoid", sigmoid)])
def test_elman_by_hand(squash: str, f: Callable[[float], float]) -> None:
    state, gates = elman_step(row(0.3), HiddenState(row(0.5)), column(-0.8), squash)
    assert state.hidden.item() == pytest.approx(f(0.3 - 0.8 * 0.5))
    assert gates["hidden"] is state.hidden


def test_lstm_by_hand() -> None:
    h, c = 0.5, -1.25
    x_i, x_f, x_g, x_o = 0.1, 0.2, 0.3, 0.4
    u_i, u_f, u_g, u_o = 1.0, -2.0, 3.0, -4.0
    i, f, o = sigmoid(x_i + u_i * h), sigmoid(x_f + u_f * h), sigmoid(x_o + u_o * h)
    g = math.tanh(x_g + u_g * h)
    cell = f * c + i * g
    hidden = o * math.tanh(cell)
    state, gates = lstm_step(row(x_i, x_f, x_g, x_o), LSTMState(row(h), row(c)), column(u_i, u_f, u_g, u_o))
    assert (state.hidden.item(), state.cell.item()) == pytest.approx((hidden, cell))
    found = {name: value.item() for name, value in gates.items()}
    expected = dict(input_gate=i, forget_gate=f, output_gate=o, candidate=g, cell=cell, hidden=hidden)
    assert found == pytest.approx(expected)


def test_peephole_by_hand() -> None:
    h, c = 0.5, -1.25
    p_i, p_f, p_o = 0.7, -0.6, 0.9
    i, f = sigmoid(0.1 + 1.0 * h + p_i * c), sigmoid(0.2 - 2.0 * h + p_f * c)
    g = math.tanh(0.3 + 3.0 * h)
    cell = f * c + i * g
    o = sigmoid(0.4 - 4.0 * h + p_o * cell)  # the output gate sees the new cell
    state, gates = peephole_step(
        row(0.1, 0.2, 0.3, 0.4), LSTMState(row(h), row(c)), column(1.0, -2.0, 3.0, -4.0), column(p_i, p_f, p_o)
    )
    assert (state.hidden.item(), state.cell.item()) == pytest.approx((o * math.tanh(cell), cell))
    found = (gates["input_gate"].item(), gates["forget_gate"].item(), gates["output_gate"].item())
    assert found == pytest.approx((i, f, o))


def test_coupled_by_hand() -> None:
    h, c = 0.5, -1.25
    f, g, o = sigmoid(0.2 - 2.0 * h), math.tanh(0.3 + 3.0 * h), sigmoid(0.4 - 4.0 * h)
    cell = f * c + (1 - f) * g
    state, _ = coupled_step(row(0.2, 0.3, 0.4), LSTMState(row(h), row(c)), column(-2.0, 3.0, -4.0))
    assert (state.hidden.item(), state.cell.item()) == pytest.approx((o * math.tanh(cell), cell))


def test_gru_by_hand() -> None:
    h, bias = 0.5, 0.25
    r, z = sigmoid(0.1 + 1.0 * h), sigmoid(0.2 - 2.0 * h)
    n = math.tanh(0.3 + r * (3.0 * h + bias))
    state, gates = gru_step(row(0.1, 0.2, 0.3), HiddenState(row(h)), column(1.0, -2.0, 3.0), row(bias)[0])
    assert state.hidden.item() == pytest.approx((1 - z) * n + z * h)
    found = {name: value.item() for name, value in gates.items()}
    assert found == pytest.approx(dict(reset_gate=r, update_gate=z, candidate=n, hidden=state.hidden.item()))


# -- parity with torch's own cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("elman", torch.nn.RNNCell), ("gru", torch.nn.GRUCell)])
def test_hidden_cells_equal_torch(name: str, kind: type) -> None:
    cell, reference = randomised(name), kind(INPUT, HIDDEN).double()
    reference.weight_ih.data, reference.weight_hh.data, reference.bias_ih.data, reference.bias_hh.data = (
        weight.detach() for weight in cell.kernel_weights()
    )
    inputs, hidden = torch.randn(ROWS, INPUT).double(), torch.randn(ROWS, HIDDEN).double()
    state, _ = cell.step(cell.project(inputs), HiddenState(hidden))
    torch.testing.assert_close(state.hidden, reference(inputs, hidden))


def test_lstm_equals_torch() -> None:
    cell, reference = randomised("lstm"), torch.nn.LSTMCell(INPUT, HIDDEN).double()
    reference.weight_ih.data, reference.weight_hh.data, reference.bias_ih.data, reference.bias_hh.data = (
        weight.detach() for weight in cell.kernel_weights()
    )
    inputs, start = torch.randn(ROWS, INPUT).double(), torch.randn(2, ROWS, HIDDEN).double()
    state, _ = cell.step(cell.project(inputs), LSTMState(*start))
    torch.testing.assert_close(tuple(state), reference(inputs, tuple(start)))


def test_a_peephole_that_is_shut_is_an_lstm() -> None:
    plain, peeping = randomised("lstm"), randomised("lstm_peephole")
    peeping.load_state_dict({**plain.state_dict(), "peep": torch.zeros(3, HIDDEN)})
    inputs, start = torch.randn(ROWS, INPUT).double(), LSTMState(*torch.randn(2, ROWS, HIDDEN).double())
    torch.testing.assert_close(
        peeping.step(peeping.project(inputs), start)[0], plain.step(plain.project(inputs), start)[0]
    )


# -- the contract of every entry -------------------------------------------------------------------------------------


@every_cell
def test_gates_are_named_bounded_and_end_in_the_state(name: str) -> None:
    cell = randomised(name)
    start = type(cell.start(torch.zeros(ROWS, 1)))
    state = start(*(torch.randn(ROWS, HIDDEN).double() for _ in start._fields))
    new, gates = cell.step(cell.project(torch.randn(ROWS, INPUT).double()), state)
    for gate, values in gates.items():
        assert values.shape == (ROWS, HIDDEN), gate
        if gate.endswith("_gate"):
            assert ((values > 0) & (values < 1)).all(), gate
    for field, value in new._asdict().items():
        torch.testing.assert_close(gates[field], value)


def test_coupled_gates_sum_to_one() -> None:
    cell = randomised("lstm_coupled")
    state = LSTMState(*torch.randn(2, ROWS, HIDDEN).double())
    _, gates = cell.step(cell.project(torch.randn(ROWS, INPUT).double()), state)
    torch.testing.assert_close(gates["input_gate"] + gates["forget_gate"], torch.ones(ROWS, HIDDEN).double())


@every_cell
def test_batched_equals_single(name: str) -> None:
    cell = randomised(name)
    kind = type(cell.start(torch.zeros(ROWS, 1)))
    inputs = torch.randn(ROWS, INPUT).double()
    state = kind(*(torch.randn(ROWS, HIDDEN).double() for _ in kind._fields))
    together, _ = cell.step(cell.project(inputs), state)
    for r in range(ROWS):
        alone, _ = cell.step(cell.project(inputs[r : r + 1]), kind(*(part[r : r + 1] for part in state)))
        torch.testing.assert_close(alone, kind(*(part[r : r + 1] for part in together)))


@every_cell
def test_gradients_are_right(name: str) -> None:
    cell = randomised(name)
    kind = type(cell.start(torch.zeros(ROWS, 1)))
    inputs = torch.randn(ROWS, INPUT, dtype=torch.float64, requires_grad=True)
    state = [torch.randn(ROWS, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in kind._fields]

    def run(inputs: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return tuple(cell.step(cell.project(inputs), kind(*rest[: len(state)]))[0])

    assert torch.autograd.gradcheck(run, (inputs, *state, *cell.parameters()), fast_mode=True)


@every_cell
def test_starts_from_zeros_and_remembers_by_default(name: str) -> None:
    cell = CELLS[name](input_size=INPUT, hidden_size=HIDDEN)
    state = cell.start(torch.randn(ROWS, INPUT, dtype=torch.float64))
    for part in state:
        assert part.shape == (ROWS, HIDDEN)
        assert part.dtype == torch.float64
        assert not part.any()
    if name.startswith("lstm"):
        _, gates = cell.step(cell.project(torch.zeros(1, INPUT)), cell.start(torch.zeros(1, 1)))
        torch.testing.assert_close(gates["forget_gate"], torch.full((1, HIDDEN), sigmoid(1.0)))
    for block in cell.weight_hidden.chunk(cell.num_blocks):
        torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if cell.keep_block is not None])
def test_gates_can_start_with_long_memories(name: str) -> None:
    """What a unit holds decays by 1 - 1/T a step, with T between 2 and the number that was asked for."""
    torch.manual_seed(3)
    cell = CELLS[name](input_size=INPUT, hidden_size=400).double()
    cell.start_remembering(100)
    cell.weight_hidden.data.zero_()
    before = cell.start(torch.zeros(1, 1, dtype=torch.float64))
    held = before._replace(**{before._fields[-1]: torch.ones_like(before[-1])})
    after = cell.step(cell.project(torch.zeros(1, INPUT, dtype=torch.float64)), held)[0][-1]  # candidates are 0
    times = 1 / (1 - after[0])
    assert times.min() >= 2 - 1e-9
    assert times.max() <= 100 + 1e-9
    assert times.max() > 95
    assert 45 < times.mean() < 56
    if cell.write_block is not None:
        blocks = cell.bias.chunk(cell.num_blocks)
        torch.testing.assert_close(blocks[cell.write_block], -blocks[cell.keep_block])


@pytest.mark.parametrize(("m", "n"), [(5, 7), (1, 1), (13, 2)])
def test_number_of_weights(m: int, n: int) -> None:
    def count(name: str) -> int:
        return sum(weight.numel() for weight in CELLS[name](input_size=m, hidden_size=n).parameters())

    once = m * n + n * n + n
    assert count("elman") == count("elman_sigmoid") == once
    assert count("lstm") == 4 * once
    assert count("lstm_peephole") == 4 * once + 3 * n
    assert count("lstm_coupled") == 3 * once
    assert count("gru") == 3 * once + n  # torch's form: the candidate has a bias inside the reset gate


def test_compiled_loops_take_these_weights() -> None:
    gru, lstm = GRU(input_size=INPUT, hidden_size=HIDDEN), LSTM(input_size=INPUT, hidden_size=HIDDEN)
    assert not lstm.kernel_weights()[3].any()
    gru.bias_candidate.data.fill_(2.0)
    second = gru.kernel_weights()[3]
    assert not second[: 2 * HIDDEN].any()
    assert (second[2 * HIDDEN :] == 2.0).all()

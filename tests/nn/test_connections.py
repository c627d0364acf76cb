"""Connections: worked examples, a way around layers that let nothing through, and stacks built with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.cells import CELLS
from seqloom.nn.connections import CONNECTIONS, GATE_BIAS
from seqloom.nn.masks import length_mask
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.recurrent import RecurrentLayer, RecurrentStack

BATCH, TIME, INPUT, HIDDEN, DEPTH = 5, 7, 3, 10, 12
LENGTHS = torch.tensor([4, 7, 1, 2, 6])

every_connection = pytest.mark.parametrize("name", sorted(CONNECTIONS))
ways_around = pytest.mark.parametrize("name", sorted(CONNECTIONS.keys() - {"plain"}))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(31)


def sequences(size: int = INPUT) -> Tensor:
    return torch.randn(BATCH, TIME, size, dtype=torch.float64)


def build(connections: str, *, cell: str = "gru", num_layers: int = 3, bidirectional: bool = False) -> RecurrentStack:
    """A stack in double precision whose weights are all in use; dropout waits for training."""
    stack = RecurrentStack(
        cell=cell,
        input_size=INPUT,
        hidden_size=HIDDEN,
        num_layers=num_layers,
        bidirectional=bidirectional,
        connections=connections,
        dropout=0.5,
    ).double()
    for weight in stack.parameters():  # at their start, some are zero and would hide mistakes
        weight.data += 0.3 * torch.randn_like(weight)
    return stack.eval()


def silence(stack: RecurrentStack) -> None:
    """Every layer but the first gives zeros, whatever it is given."""
    for layer in stack.layers[1:]:
        for weight in layer.parameters():
            weight.data.zero_()


# -- worked examples -------------------------------------------------------------------------------------------------

SEEN = [[1.0, 2.0], [3.0, -4.0]]
OUTPUT = [5.0, 0.5]
LOG3 = 1.0986122886681098  # the logistic function is 3/4 there, and 1/4 at its negative
WEIGHTS: dict[str, dict[str, list[list[float]] | list[float]]] = {
    # dense reads [1, 2, 3, -4, 5, 0.5]
    "dense": {"weight": [[1.0, 0.0, 0.0, 2.0, 0.0, -1.0], [0.0, 0.5, 1.0, 0.0, 3.0, 0.0]]},
    # before the logistic function, in units of log 3: 3 - 4/2 + 0 = 1 and -4/2 + 1 = -1
    "highway": {"gate.weight": [[LOG3, LOG3 / 2], [0.0, LOG3 / 2]], "gate.bias": [0.0, LOG3]},
    "plain": {},
    "residual": {},
}
EXPECTED = {
    "dense": [1 - 2 * 4 - 0.5, 0.5 * 2 + 3 + 3 * 5],
    "highway": [0.75 * 5 + 0.25 * 3, 0.25 * 0.5 + 0.75 * -4],
    "plain": [5.0, 0.5],
    "residual": [3 + 5.0, -4 + 0.5],
}


@every_connection
def test_worked_example(name: str) -> None:
    connection = CONNECTIONS[name](size=2, num_seen=2).double()
    connection.load_state_dict({key: torch.tensor(value) for key, value in WEIGHTS[name].items()})
    found = connection([torch.tensor(row).double() for row in SEEN], torch.tensor(OUTPUT).double())
    torch.testing.assert_close(found, torch.tensor(EXPECTED[name]).double())


def test_highway_starts_by_carrying_most_of_its_input() -> None:
    connection = CONNECTIONS["highway"](size=HIDDEN, num_seen=1)
    carried = connection([torch.zeros(HIDDEN)], torch.ones(HIDDEN))  # a gate that is given zeros shows its bias
    torch.testing.assert_close(carried, torch.full((HIDDEN,), GATE_BIAS).sigmoid())
    assert carried.max() < 0.3


@pytest.mark.parametrize("num_seen", [1, 2, 7])
def test_dense_starts_as_residual(num_seen: int) -> None:
    seen, output = [torch.randn(BATCH, HIDDEN) for _ in range(num_seen)], torch.randn(BATCH, HIDDEN)
    found, expected = (
        CONNECTIONS[name](size=HIDDEN, num_seen=num_seen)(seen, output) for name in ("dense", "residual")
    )
    torch.testing.assert_close(found, expected)


# -- the contract ----------------------------------------------------------------------------------------------------


@every_connection
def test_whole_sequences_and_single_steps_agree_and_padding_stays_zero(name: str) -> None:
    connection = CONNECTIONS[name](size=HIDDEN, num_seen=3).double()
    *seen, output = (sequences(HIDDEN) * length_mask(LENGTHS, TIME)[..., None] for _ in range(4))
    found = connection(seen, output)
    assert found.shape == output.shape
    assert not found[~length_mask(LENGTHS, TIME)].any()
    for time in range(TIME):
        torch.testing.assert_close(connection([one[:, time] for one in seen], output[:, time]), found[:, time])


@every_connection
def test_gradients_reach_the_bottom_past_layers_that_give_zeros(name: str) -> None:
    bottom = sequences(HIDDEN).requires_grad_()
    seen = [bottom]
    for _ in range(DEPTH):
        connection = CONNECTIONS[name](size=HIDDEN, num_seen=len(seen)).double()
        seen.append(connection(seen, 0 * seen[-1]))
    (gradient,) = torch.autograd.grad(seen[-1].sum(), bottom)
    if name == "plain":
        assert not gradient.any()
    elif name == "highway":
        assert gradient.norm(dim=-1).min() > 1e-3  # each gate lets about 3/4 pass
    else:
        torch.testing.assert_close(gradient, torch.ones_like(gradient))


@every_connection
@pytest.mark.parametrize("layers", ["zero", "saturated"])
@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_gradients_reach_the_bottom_of_a_deep_stack(name: str, layers: str, cell: str) -> None:
    """Eleven layers that give zeros, or that large biases have driven to the flat end of every gate."""
    stack, inputs = build(name, cell=cell, num_layers=DEPTH), sequences().requires_grad_()
    if layers == "zero":
        silence(stack)
    else:
        for layer in stack.layers[1:]:
            layer.cells[0].bias.data += 1e3
    (gradient,) = torch.autograd.grad(stack(inputs)[0].sum(), inputs)
    assert gradient.isfinite().all()
    assert bool(gradient.any()) == (name != "plain")


# -- stacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", sorted(CELLS))
def test_plain_stacks_are_layers_and_nothing_else(cell: str) -> None:
    """The same names, the same first weights and the same bits as layers that were put on top of each other by hand."""
    torch.manual_seed(37)
    stack = RecurrentStack(cell=cell, input_size=INPUT, hidden_size=HIDDEN, num_layers=3)
    torch.manual_seed(37)
    sizes = (INPUT, HIDDEN, HIDDEN)
    layers = nn.ModuleList(RecurrentLayer(cell=cell, input_size=size, hidden_size=HIDDEN) for size in sizes)
    names = [f"layers.{name}" for name in layers.state_dict()]
    assert list(stack.state_dict()) == names
    for name, weight in layers.state_dict().items():
        assert torch.equal(stack.state_dict()[f"layers.{name}"], weight)
    outputs = inputs = sequences().float()
    for layer in layers:
        outputs, _ = layer(outputs, None, LENGTHS)
    assert torch.equal(stack(inputs, lengths=LENGTHS)[0], outputs)


@every_connection
def test_the_layers_of_a_stack_start_the_same_whatever_connects_them(name: str) -> None:
    stacks = []
    for connections in ("plain", name):
        torch.manual_seed(37)
        stacks.append(
            RecurrentStack(cell="gru", input_size=INPUT, hidden_size=HIDDEN, num_layers=3, connections=connections)
        )
    plain, other = (stack.layers.state_dict() for stack in stacks)
    assert all(torch.equal(plain[key], other[key]) for key in plain)


@every_connection
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_stack_connects_every_layer_but_the_first(name: str, bidirectional: bool) -> None:
    stack, inputs = build(name, bidirectional=bidirectional), sequences()
    bottom, middle, top = stack.layers
    lower, upper = stack.connections
    first, _ = bottom(inputs, None, LENGTHS)
    second = lower([first], middle(first, None, LENGTHS)[0])
    third = upper([first, second], top(second, None, LENGTHS)[0])
    torch.testing.assert_close(stack(inputs, lengths=LENGTHS)[0], third)


def test_a_dense_stack_starts_as_a_residual_one() -> None:
    found = []
    for connections in ("dense", "residual"):
        torch.manual_seed(37)
        stack = RecurrentStack(
            cell="lstm", input_size=INPUT, hidden_size=HIDDEN, num_layers=4, connections=connections
        ).double()
        found.append(stack)
    inputs = sequences()
    torch.testing.assert_close(found[0](inputs), found[1](inputs))


@every_connection
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("cell", ["elman", "gru", "lstm", "lstm_peephole"])
def test_stepping_equals_the_whole_sequence(name: str, cell: str, lengths: Tensor | None) -> None:
    stack, inputs = build(name, cell=cell), sequences()
    real = torch.ones(BATCH, TIME).bool() if lengths is None else length_mask(lengths, TIME)
    for plain in (False, True):
        use_plain_paths(stack, plain)
        outputs, finals = stack(inputs, lengths=lengths)
        assert not outputs[~real].any()
        states = tuple(layer.start(inputs)[0] for layer in stack.layers)
        for time in range(TIME):
            output, states = stack.step(inputs[:, time], states)
            going = real[:, time]
            torch.testing.assert_close(output[going], outputs[going, time])
            ends = going if time == TIME - 1 else going & ~real[:, time + 1]
            for found, expected in zip(states, finals, strict=True):
                torch.testing.assert_close([part[ends] for part in found], [part[ends] for part in expected])


@ways_around
def test_the_output_is_what_was_connected_and_the_state_the_layers_own(name: str) -> None:
    stack, inputs = build(name), sequences()
    output, states = stack.step(inputs[:, 0], tuple(layer.start(inputs)[0] for layer in stack.layers))
    assert (output - states[-1].hidden).abs().max() > 1e-2


@every_connection
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing(name: str, bidirectional: bool) -> None:
    stack, inputs = build(name, bidirectional=bidirectional), sequences()
    noisy = torch.where(length_mask(LENGTHS, TIME)[..., None], inputs, 1e3 * torch.randn_like(inputs))
    torch.testing.assert_close(stack(noisy, lengths=LENGTHS), stack(inputs, lengths=LENGTHS))


@every_connection
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_flow_to_every_weight(name: str, bidirectional: bool) -> None:
    stack = build(name, bidirectional=bidirectional).train()
    stack(sequences(), lengths=LENGTHS)[0].square().sum().backward()
    for label, weight in stack.named_parameters():
        assert weight.grad is not None, label
        assert weight.grad.abs().sum() > 0, label


def test_dropout_is_on_the_way_into_a_layer_not_on_the_way_around() -> None:
    stack, inputs = build("residual").train(), sequences()
    assert not torch.equal(stack(inputs)[0], stack(inputs)[0])
    silence(stack)
    assert torch.equal(stack(inputs)[0], stack.layers[0](inputs)[0])
    starts = tuple(layer.start(inputs)[0] for layer in stack.layers)
    output, states = stack.step(inputs[:, 0], starts)
    assert torch.equal(output, states[0].hidden)


@every_connection
def test_a_single_layer_has_nothing_to_connect(name: str) -> None:
    stack = build(name, num_layers=1)
    assert not any("connections" in key for key in stack.state_dict())
    inputs = sequences()
    assert torch.equal(stack(inputs)[0], stack.layers[0](inputs)[0])

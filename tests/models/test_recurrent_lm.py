"""Recurrent language models beside the same models made of torch.nn; their start and their kinds of dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.errors import RecipeError
from seqloom.models.recurrent_lm import RecurrentLanguageModel, RecurrentLanguageModelSettings
from seqloom.nn import recurrent
from seqloom.nn.connections import CONNECTIONS
from seqloom.settings import validated

SYMBOLS, SIZE, HIDDEN, ROWS, TIME = 13, 5, 7, 3, 9
TORCH = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(97)


def build(**given: Any) -> RecurrentLanguageModel:
    settings = RecurrentLanguageModelSettings(**(dict(size=SIZE, hidden_size=HIDDEN) | given))
    return RecurrentLanguageModel(settings, num_symbols=SYMBOLS)


def text() -> Tensor:
    return torch.randint(4, SYMBOLS, (ROWS, TIME))


# -- beside torch.nn -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", sorted(TORCH))
@pytest.mark.parametrize("fused_from", [1, 1000], ids=["fused", "compiled"])
@pytest.mark.parametrize("init_range", [None, 0.1])
def test_logits_and_gradients_are_those_of_torch(
    cell: str, fused_from: int, init_range: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "FUSED_FROM", fused_from)
    model = build(cell=cell, num_layers=3, init_range=init_range).double()
    symbols = text()
    embedding, output = nn.Embedding(SYMBOLS, SIZE, padding_idx=0).double(), nn.Linear(HIDDEN, SYMBOLS).double()
    stack = TORCH[cell](SIZE, HIDDEN, num_layers=3, batch_first=True).double()
    with torch.no_grad():
        embedding.weight.copy_(model.embedding.weight * (1.0 if init_range else SIZE**0.5))
        output.load_state_dict(model.output.state_dict())
        for index, layer in enumerate(model.decoder.layers):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            for name, weight in zip(names, layer.cell.kernel_weights(), strict=True):
                getattr(stack, f"{name}_l{index}").copy_(weight)
    expected = output(stack(embedding(symbols))[0])
    features, _ = model(symbols)
    logits = model.output(features)
    torch.testing.assert_close(logits, expected)
    for found in (logits, expected):
        F.cross_entropy(found[:, :-1].flatten(0, 1), symbols[:, 1:].flatten()).backward()
    scale = 1.0 if init_range else SIZE**0.5
    torch.testing.assert_close(model.embedding.weight.grad, embedding.weight.grad * scale)
    torch.testing.assert_close(model.output.weight.grad, output.weight.grad)
    for index, layer in enumerate(model.decoder.layers):
        torch.testing.assert_close(layer.cell.weight_input.grad, getattr(stack, f"weight_ih_l{index}").grad)
        torch.testing.assert_close(layer.cell.weight_hidden.grad, getattr(stack, f"weight_hh_l{index}").grad)
        torch.testing.assert_close(layer.cell.bias.grad, getattr(stack, f"bias_ih_l{index}").grad)


# -- the start -------------------------------------------------------------------------------------------------------


def test_all_weights_start_within_the_range_that_was_asked_for() -> None:
    model = build(init_range=0.05, num_layers=2, size=64, hidden_size=64)
    cells = [layer.cell for layer in model.decoder.layers]
    weights = [model.embedding.weight, model.output.weight]
    weights += [weight for cell in cells for weight in (cell.weight_input, cell.weight_hidden)]
    for weight in weights:
        assert weight.abs().max() <= 0.05
        assert weight.abs().max() > 0.045
        assert abs(weight.std() * 3**0.5 - 0.05) < 0.005  # that of a uniform distribution
    assert not model.embedding.weight[0].any()
    assert all(cell.bias.data.chunk(4)[1].eq(1).all() for cell in cells), "biases stay as the cells have them"
    symbols = text()
    torch.testing.assert_close(model.embedding(symbols), model.embedding.weight[symbols])
    assert build(init_range=0.05, tie=True, size=HIDDEN).output.weight.abs().max() <= 0.05


# -- dropout ---------------------------------------------------------------------------------------------------------


def dropped_inputs(model: RecurrentLanguageModel, symbols: Tensor) -> Tensor:
    """What the stack is given, as a share of what it is given without dropout."""
    given: list[Tensor] = []
    model.decoder.register_forward_hook(lambda _, inputs, __: given.append(inputs[0].detach()))
    model.train()(symbols)
    model.eval()(symbols)
    return given[0] / given[1]


def test_dropout_on_the_inputs_is_that_of_the_rest_unless_it_is_said() -> None:
    assert build(dropout=0.5).input_dropout.rate == 0.5
    assert build(dropout=0.5, input_dropout=0.0).input_dropout.rate == 0.0
    model = build(dropout=0.0, input_dropout=0.5)
    assert (model.input_dropout.rate, model.dropout.rate, model.decoder.dropout.rate) == (0.5, 0.0, 0.0)


def test_variational_masks_are_the_same_at_every_step() -> None:
    model = build(dropout=0.5, dropout_kind="variational", num_layers=3, size=40)
    share = dropped_inputs(model, text())
    assert torch.allclose(share, share[:, :1].expand_as(share))
    assert not torch.equal(share[0, 0], share[1, 0])
    assert set(share.round(decimals=4).unique().tolist()) == {0.0, 2.0}
    independent = dropped_inputs(build(dropout=0.5, size=40), text())
    assert not torch.equal(independent[:, 0], independent[:, 1])
    model.train()
    features, _ = model(text())
    assert ((features == 0).all(1) | (features != 0).all(1)).all(), "a unit is dropped for a whole row or not at all"
    assert 0 < (features == 0).float().mean() < 1


def test_dropped_words_are_dropped_wherever_they_stand() -> None:
    symbols = torch.arange(4, SYMBOLS).repeat(2, 3)
    share = dropped_inputs(build(embedding_dropout=0.5), symbols)
    share = share.view(2, 3, SYMBOLS - 4, SIZE)
    assert torch.allclose(share, share[:1, :1, :, :1].expand_as(share))
    assert set(share.round(decimals=4).unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("given", [dict(), dict(dropout=0.5), dict(weight_drop=0.5), dict(embedding_dropout=0.5)])
@pytest.mark.parametrize("kind", ["independent", "variational"])
def test_chance_comes_from_torchs_generator_and_only_in_training(given: dict[str, float], kind: str) -> None:
    model, symbols = build(**given, dropout_kind=kind), text()
    state = torch.get_rng_state()
    first = model(symbols)[0]
    assert torch.equal(torch.get_rng_state(), state) == (not given)
    torch.set_rng_state(state)
    assert torch.equal(model(symbols)[0], first)
    assert torch.equal(model(symbols)[0], first) == (not given)
    model.eval()
    state = torch.get_rng_state()
    assert torch.equal(model(symbols)[0], model(symbols)[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_dropped_weights_are_the_same_for_all_steps_of_a_call() -> None:
    """With the same input at every step, an Elman network is a map applied again and again, whatever was dropped."""
    model = build(cell="elman", num_layers=1, weight_drop=0.5).double()
    _, (one,) = model(torch.full((1, 1), 5))
    cell = model.decoder.layers[0].cell
    torch.manual_seed(3)
    outputs, _ = model(torch.full((1, 6), 5), (one,))
    torch.manual_seed(3)
    dropped = model.decoder.layers[0].weight_dropout(cell.weight_hidden)
    assert 0 < (dropped == 0).sum() < dropped.numel()
    hidden = one.hidden
    for time in range(6):
        hidden = (cell.project(model.embedding(torch.tensor([5]))) + hidden @ dropped.T).tanh()
        torch.testing.assert_close(outputs[:, time], hidden)


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(tie=True, size=5, hidden_size=7), "tie needs size and hidden_size to be equal; got 5 and 7"),
        *(
            (
                dict(connections=name, num_layers=1),
                f"connections: {name} has no layer to lead around with num_layers: 1; raise it, or leave connections "
                "plain",
            )
            for name in sorted(CONNECTIONS)
            if name != "plain"
        ),
        (
            dict(dropout_kind="variatonal"),
            "dropout_kind must be one of independent, variational; got 'variatonal' (did you mean 'variational'?)",
        ),
        (dict(weight_drop=1.0), "weight_drop: must be less than 1; got 1.0"),
        (dict(embedding_dropout=-0.1), "embedding_dropout: must be greater than or equal to 0; got -0.1"),
        (dict(input_dropout=1.5), "input_dropout: must be less than 1; got 1.5"),
        (dict(init_range=0.0), "init_range: must be greater than 0; got 0.0"),
        (dict(wight_drop=0.5), "wight_drop is not a setting (did you mean 'weight_drop'?)"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validated(RecurrentLanguageModelSettings, given)
    assert caught.value.problems == [message]


def test_the_settings_name_every_connection_and_kind_of_dropout() -> None:
    fields = RecurrentLanguageModelSettings.model_fields
    assert set(fields["connections"].annotation.__args__) == set(CONNECTIONS)
    assert set(fields["dropout_kind"].annotation.__args__) == set(recurrent.DROPOUTS)

"""The language model with a window, by hand; and the settings that do not fit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from seqloom.errors import RecipeError
from seqloom.models.feed_forward_lm import FeedForwardLanguageModel, FeedForwardLanguageModelSettings
from seqloom.settings import validated


@pytest.mark.parametrize("direct", [False, True])
def test_by_hand(direct: bool) -> None:
    """One number a symbol, a window of two, one hidden unit: tanh(d + H1 x1 + H2 x2)."""
    model = FeedForwardLanguageModel(
        FeedForwardLanguageModelSettings(size=1, hidden_size=1, window=2, direct=direct), num_symbols=6
    )
    with torch.no_grad():
        model.embedding.weight.copy_(torch.tensor([[0.0], [0.1], [0.2], [0.3], [0.5], [-0.4]]))
        model.hidden.weight.copy_(torch.tensor([[2.0, -1.0]]))  # of the older symbol, of the newer
        model.hidden.bias.fill_(0.25)
        model.output.weight.copy_(
            torch.arange(6.0)[:, None] * torch.tensor([[1.0, 10.0, 100.0]])[:, : 3 if direct else 1]
        )
        model.output.bias.copy_(torch.tensor([0.5, 0, 0, 0, 0, 0]))
        features, last = model(torch.tensor([[4, 5, 3]]))
        logits = model.output(features)
    hidden = [math.tanh(0.25 - 0.5), math.tanh(0.25 + 2 * 0.5 + 0.4), math.tanh(0.25 + 2 * -0.4 - 0.3)]
    seen = [(0.0, 0.5), (0.5, -0.4), (-0.4, 0.3)]
    expected = [[h, *x] if direct else [h] for h, x in zip(hidden, seen, strict=True)]
    torch.testing.assert_close(features, torch.tensor([expected]))
    assert last.tolist() == [[3]]
    slope = hidden[1] + (10 * 0.5 + 100 * -0.4 if direct else 0)
    torch.testing.assert_close(logits[0, 1], torch.tensor([0.5, slope, 2 * slope, 3 * slope, 4 * slope, 5 * slope]))


def test_it_is_the_formula_of_2003() -> None:
    """b + W x + U tanh(d + H x), with x gathered window by window in a plain loop."""
    torch.manual_seed(79)
    size, window, hidden_size = 3, 4, 5
    model = FeedForwardLanguageModel(
        FeedForwardLanguageModelSettings(size=size, window=window, hidden_size=hidden_size, direct=True), num_symbols=11
    ).double()
    torch.nn.init.normal_(model.hidden.bias)
    symbols = torch.randint(4, 11, (2, 9))
    found = model.output(model(symbols)[0])
    vectors = model.embedding.weight * math.sqrt(size)
    u, w = model.output.weight[:, :hidden_size], model.output.weight[:, hidden_size:]
    for row in range(2):
        for time in range(9):
            places = range(time - window + 1, time + 1)
            x = torch.cat([vectors[symbols[row, p]] if p >= 0 else torch.zeros(size).double() for p in places])
            expected = model.output.bias + w @ x + u @ (model.hidden.bias + model.hidden.weight @ x).tanh()
            torch.testing.assert_close(found[row, time], expected)


def test_it_sees_its_window_and_nothing_else() -> None:
    torch.manual_seed(83)
    model = FeedForwardLanguageModel(FeedForwardLanguageModelSettings(window=3), num_symbols=11).eval()
    symbols = torch.randint(4, 11, (1, 9))
    changed = symbols.clone()
    changed[0, 2] = 4 + (symbols[0, 2] - 3) % 7
    moved = (model(symbols)[0] - model(changed)[0]).abs().amax(-1)[0] > 1e-6
    assert moved.tolist() == [2 <= time <= 4 for time in range(9)]


def test_before_the_beginning_there_is_nothing_even_if_the_output_layer_teaches_padding() -> None:
    torch.manual_seed(89)
    settings = FeedForwardLanguageModelSettings(size=6, hidden_size=6, window=3, tie=True)
    model = FeedForwardLanguageModel(settings, num_symbols=11)
    symbols = torch.randint(4, 11, (2, 5))
    before = model(symbols)[0]
    model.embedding.weight.data[0] = 7.0
    assert torch.equal(model(symbols)[0], before)
    F.cross_entropy(model.output(before).flatten(0, 1), symbols.flatten()).backward()
    assert model.embedding.weight.grad[0].any(), "which it does"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(tie=True, size=5, hidden_size=7), "tie needs size and hidden_size to be equal; got 5 and 7"),
        (
            dict(tie=True, direct=True, size=5, hidden_size=5),
            "tie needs direct: false: with direct connections the output layer is wider than a vector",
        ),
        (dict(window=0), "window: must be greater than or equal to 1; got 0"),
        (dict(windw=3), "windw is not a setting (did you mean 'window'?)"),
        (dict(dropout=1.0), "dropout: must be less than 1; got 1.0"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validated(FeedForwardLanguageModelSettings, given)
    assert caught.value.problems == [message]


def test_all_weights_start_within_the_range_that_was_asked_for() -> None:
    torch.manual_seed(1)
    settings = FeedForwardLanguageModelSettings(size=40, hidden_size=40, window=2, init_range=0.05)
    model = FeedForwardLanguageModel(settings, num_symbols=50)
    for weight in (model.embedding.weight, model.hidden.weight, model.output.weight):
        assert 0.045 < weight.abs().max() <= 0.05
    assert not model.embedding.weight[0].any()
    symbols = torch.tensor([[4, 5]])
    torch.testing.assert_close(model.embedding(symbols), model.embedding.weight[symbols])

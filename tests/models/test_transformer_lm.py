"""The decoder-only Transformer beside torch.nn, and how it reads what is longer than its context."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.errors import RecipeError
from seqloom.models.transformer_lm import Ragged, TransformerLanguageModel, TransformerLanguageModelSettings
from seqloom.nn.positions import POSITIONS
from seqloom.nn.recurrent import select_rows
from seqloom.settings import validated

SYMBOLS, SIZE, HEADS, INNER, ROWS = 13, 12, 3, 10, 2
WINDOWED = ("learned", "sinusoidal")
ENDLESS = tuple(sorted(set(POSITIONS) - set(WINDOWED)))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(101)


def build(**given: Any) -> TransformerLanguageModel:
    basic = dict(size=SIZE, num_heads=HEADS, feed_forward_size=INNER, num_layers=2, dropout=0.2, context=6)
    model = TransformerLanguageModel(TransformerLanguageModelSettings(**(basic | given)), num_symbols=SYMBOLS)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def text(time: int) -> Tensor:
    return torch.randint(4, SYMBOLS, (ROWS, time))


def assert_near(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


# -- beside torch.nn -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [True, False])
def test_features_are_those_of_torch(norm_first: bool) -> None:
    model = build(norm_first=norm_first, context=20).double()
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(SIZE, HEADS, INNER, dropout=0.0, batch_first=True, norm_first=norm_first)
        for _ in range(2)
    ).double()
    with torch.no_grad():
        for ours, theirs in zip(model.decoder.layers, layers, strict=True):
            theirs.self_attn.in_proj_weight.copy_(ours.attention.project.weight)
            theirs.self_attn.in_proj_bias.copy_(ours.attention.project.bias)
            theirs.self_attn.out_proj.load_state_dict(ours.attention.output.state_dict())
            theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
            theirs.norm1.load_state_dict(ours.around[0].norm.state_dict())
            theirs.norm2.load_state_dict(ours.around[1].norm.state_dict())
    symbols = text(9)
    hidden = model.decoder.positions.embed(model.embedding(symbols))
    hidden_ahead = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    for layer in layers:
        hidden = layer(hidden, src_mask=hidden_ahead)
    if norm_first:
        hidden = model.decoder.norm(hidden)
    torch.testing.assert_close(model(symbols)[0], hidden)


# -- longer than the context -----------------------------------------------------------------------------------------


def in_one_pass(model: TransformerLanguageModel, symbols: Tensor) -> Tensor:
    """All positions at once, each looking at the last `context` symbols: no state, no pieces."""
    places = torch.arange(symbols.shape[1])
    in_sight = places > places[:, None] - model.settings.context
    return model.decoder(model.embedding(symbols), in_sight)[0]


@pytest.mark.parametrize("positions", ENDLESS)
@pytest.mark.parametrize("cut", [1, 3, 5, 6, 7, 40])
@torch.no_grad()
def test_what_is_older_than_the_context_is_dropped_and_reading_goes_on(positions: str, cut: int) -> None:
    model, symbols, state, features = build(positions=positions), text(40), None, []
    for piece in symbols.split(cut, 1):
        found, state = model(piece, state)
        features.append(found)
        assert model.room(state) is None
        assert state[0].keys.shape[2] <= 5 + min(cut, 6), "those that the piece's first symbol saw, and a piece of 6"
    assert_near(torch.cat(features, 1), in_one_pass(model, symbols))


@pytest.mark.parametrize("positions", ENDLESS)
@torch.no_grad()
def test_a_layer_sees_its_context_and_nothing_older(positions: str) -> None:
    model, symbols = build(positions=positions, num_layers=1, context=4), text(12)
    changed = symbols.clone()
    changed[:, 3] = 4 + (symbols[:, 3] - 3) % (SYMBOLS - 4)
    moved = (model(symbols)[0] - model(changed)[0]).abs().amax((0, 2)) > 1e-5
    assert moved.tolist() == [3 <= time <= 6 for time in range(12)]


@torch.no_grad()
def test_many_turns_of_rotary_keys_stay_exact() -> None:
    model, symbols, state = build(positions="rotary", context=64), text(400), None
    for time in range(400):
        features, state = model(symbols[:, time : time + 1], state)
    assert_near(features[:, 0], in_one_pass(model, symbols)[:, -1])


@pytest.mark.parametrize("positions", WINDOWED)
@pytest.mark.parametrize("cut", [1, 4, 6, 17])
@torch.no_grad()
def test_counted_positions_are_read_in_windows(positions: str, cut: int) -> None:
    """17 symbols with a context of 6 are windows of 6, 6 and 5 that know nothing of each other."""
    model, symbols, state, features = build(positions=positions), text(17), None, []
    for piece in symbols.split(cut, 1):
        found, state = model(piece, state)
        features.append(found)
    windows = [model.decoder(model.embedding(window))[0] for window in symbols.split(6, 1)]
    assert_near(torch.cat(features, 1), torch.cat(windows, 1))
    assert model.room(state) == 1


@pytest.mark.parametrize("positions", WINDOWED)
@torch.no_grad()
def test_the_state_says_how_much_room_is_left(positions: str) -> None:
    model, symbols = build(positions=positions), text(6)
    assert model.room(None) == 6
    _, state = model(symbols[:, :4])
    assert model.room(state) == 2
    _, full = model(symbols[:, 4:], state)
    assert full is None
    assert model.room(full) == 6
    assert model(symbols)[1] is None


def test_a_table_of_learned_positions_has_a_row_for_each_place_in_the_context() -> None:
    assert build(positions="learned", context=9).decoder.positions.table.shape == (9, SIZE)


def test_rows_of_different_lengths_cannot_go_on_together() -> None:
    model, symbols = build(positions="rotary"), text(5)
    _, state = model(symbols, lengths=torch.tensor([5, 3]))
    assert select_rows(state, torch.tensor([0])) == Ragged()
    with pytest.raises(AssertionError, match="different lengths"):
        model(symbols, state)
    _, state = model(symbols, lengths=torch.tensor([5, 5]))
    assert model(symbols, state)[0].shape == (ROWS, 5, SIZE)


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            dict(positions="learned", max_positions=99),
            "max_positions: here context says how many positions there are; set context: 99",
        ),
        (dict(max_positions=99), "max_positions is for learned positions; got positions: sinusoidal"),
        (dict(context=0), "context: must be greater than or equal to 1; got 0"),
        (dict(size=10, num_heads=3), "size must be a multiple of num_heads; got 10 and 3"),
        (dict(contxt=9), "contxt is not a setting (did you mean 'context'?)"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validated(TransformerLanguageModelSettings, given)
    assert caught.value.problems == [message]

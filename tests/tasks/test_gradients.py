"""Gradients through time are exact: by closed forms, by hand, and by finite differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import RecipeError
from seqloom.inspection.gradients import EMBEDDING
from seqloom.models import LANGUAGE_MODELS
from seqloom.nn.cells import CELLS
from seqloom.settings import validated
from seqloom.sources.running_text import RunningText
from seqloom.tasks.gradients import (
    BLOCKS,
    Asked,
    asked_of_corpus,
    asked_of_text,
    measure_gradients,
    recurrent_matrices,
)
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID

NUM = 11


def network(seed: int = 1, **settings: Any) -> Any:
    torch.manual_seed(seed)
    kind = settings.setdefault("kind", "recurrent_lm")
    return LANGUAGE_MODELS[kind][1](validated(LANGUAGE_MODELS[kind][0], settings), num_symbols=NUM).eval()


def rows(count: int, length: int, shorter: int = 3) -> list[Asked]:
    """Rows of up to `shorter` different lengths."""
    random = np.random.default_rng(2)
    lengths = [length - row % shorter for row in range(count)]
    return [Asked(random.integers(4, NUM, length), int(random.integers(4, NUM))) for length in lengths]


# -- closed forms -----------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.floats(0.2, 5.0), st.integers(1, 6), st.integers(2, 15))
def test_where_nothing_bends_every_step_multiplies_by_the_scale(scale: float, size: int, length: int) -> None:
    """h stays 0 where nothing is read; tanh is then the identity, and an orthogonal matrix keeps every length."""
    model = network(cell="elman", size=3, hidden_size=size, num_layers=1, recurrent_scale=scale)
    model.embedding.weight.data.zero_()
    found = measure_gradients(model, rows(4, length + 1, shorter=1), steps=length)
    norms = found.norms["layer 0 hidden"]
    assert norms == pytest.approx(norms[0] * scale ** np.arange(len(norms)), rel=1e-5)
    assert norms[0] > 0
    assert found.matrices[0].singular == pytest.approx([scale] * size, rel=1e-5)
    assert found.matrices[0].radius == pytest.approx(scale, rel=1e-5)


def test_there_is_one_way_to_start() -> None:
    with pytest.raises(RecipeError, match="recurrent_scale and init_range are two ways to start"):
        network(cell="elman", recurrent_scale=2.0, init_range=0.1)
    with pytest.raises(RecipeError, match="remember needs a cell with gates, such as lstm or gru; elman has none"):
        network(cell="elman", remember=20)
    assert network(cell="gru", size=3, hidden_size=4, remember=50).decoder.layers[1].cells[0].bias[4:8].min() > 0
    gates = network(cell="lstm", size=3, hidden_size=4, num_layers=2, recurrent_scale=2.5).decoder
    assert all(matrix.singular == pytest.approx([2.5] * 4, rel=1e-5) for matrix in recurrent_matrices(gates))


def test_one_unit_by_hand() -> None:
    """d loss / d h(t - k) = sum over symbols of (p - gold) w, times the product of u (1 - h²) over the k steps."""
    model = network(cell="elman", size=1, hidden_size=1, num_layers=1, recurrent_scale=1.7)
    model.output.bias.data.normal_()
    asked = rows(5, 9)
    w, u, b = (
        float(getattr(model.decoder.layers[0].cells[0], n).detach()) for n in ("weight_input", "weight_hidden", "bias")
    )
    table, out, out_bias = (t.detach().double().numpy() for t in (model.embedding.weight, *model.output.parameters()))
    sums, counts = np.zeros(9), np.zeros(9)
    for read, said in asked:
        h, states = 0.0, []
        for symbol in read:
            h = np.tanh(w * table[symbol, 0] * model.embedding.scale + b + u * h)
            states.append(h)
        logits = out[:, 0] * h + out_bias
        p = np.exp(logits) / np.exp(logits).sum()
        pull = p @ out[:, 0] - out[said, 0]
        for back, state in enumerate(reversed(states)):
            sums[back] += abs(pull)
            counts[back] += 1
            pull *= u * (1 - state**2)
    norms = measure_gradients(model, asked, steps=8).norms["layer 0 hidden"]
    assert norms == pytest.approx(sums / counts, rel=1e-6)


# -- finite differences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("connections", ["plain", "residual"])
def test_every_state_of_every_layer_by_finite_differences(cell: str, connections: str) -> None:
    """A state is moved a little at one step, and the loss at the end is computed again."""
    model = network(cell=cell, size=4, hidden_size=5, num_layers=2, connections=connections)
    if hasattr(model.decoder.layers[0].cells[0], "peep"):
        for layer in model.decoder.layers:
            layer.cells[0].peep.data.normal_()
    read, said, back = np.array([5, 7, 4, 9, 10, 6]), 8, 3
    found = measure_gradients(model, [Asked(read, said)], steps=5).norms
    model = model.double()

    def loss(layer: int, part: str, unit: int, by: float) -> float:
        with torch.no_grad():
            embedded = model.embedding(torch.from_numpy(read)[None])
            states = tuple(one.start(embedded[:, 0])[0] for one in model.decoder.layers)
            for time in range(len(read)):
                moved = time == len(read) - 1 - back
                states, features = stepped(embedded[:, time], states, (layer, part, unit, by) if moved else None)
            return -float(model.output(features).log_softmax(-1)[0, said])

    def stepped(inputs: torch.Tensor, states: Any, move: Any) -> Any:
        """One step by the layers themselves, with a unit of one state moved before anyone has seen it."""
        new, below = [], None
        for index, layer in enumerate(model.decoder.layers):
            state, _ = layer.step(inputs, states[index])
            if move is not None and move[0] == index:
                _, part, unit, by = move
                parts = {name: value.clone() for name, value in state._asdict().items()}
                if part == "cell":  # what is shown of the cell moves with it
                    before = parts["cell"].clone()
                    parts["cell"][0, unit] += by
                    gate = output_gate(layer, inputs, states[index], parts["cell"])
                    assert torch.allclose(output_gate(layer, inputs, states[index], before) * before.tanh(), state[0])
                    parts["hidden"] = gate * parts["cell"].tanh()
                else:
                    parts["hidden"][0, unit] += by
                state = type(state)(**parts)
            inputs = state.hidden if below is None or connections == "plain" else state.hidden + below
            below = inputs
            new.append(state)
        return tuple(new), inputs

    def output_gate(layer: Any, inputs: torch.Tensor, state: Any, after: torch.Tensor) -> torch.Tensor:
        own = layer.cells[0]
        total = (own.project(inputs) + state.hidden @ own.weight_hidden.T).chunk(own.num_blocks, -1)[-1]
        return (total + own.peep[2] * after if hasattr(own, "peep") else total).sigmoid()

    parts = ("hidden", "cell") if cell.startswith("lstm") else ("hidden",)
    assert set(found) == {EMBEDDING, *(f"layer {layer} {part}" for layer in (0, 1) for part in parts)}
    for layer in (0, 1):
        for part in parts:
            slopes = [(loss(layer, part, unit, 1e-5) - loss(layer, part, unit, -1e-5)) / 2e-5 for unit in range(5)]
            assert found[f"layer {layer} {part}"][back] == pytest.approx(np.linalg.norm(slopes), rel=1e-5), (
                layer,
                part,
            )


MODELS = {
    "transformer": {"kind": "transformer_lm", "size": 8, "num_heads": 2, "num_layers": 2, "feed_forward_size": 12},
    "feed_forward": {"kind": "feed_forward_lm", "size": 4, "hidden_size": 6, "window": 3},
    "lstm": {"cell": "lstm", "size": 4, "hidden_size": 5, "num_layers": 2},
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_embeddings_by_finite_differences(name: str) -> None:
    """The vector of a symbol that occurs once is moved; the loss is computed by the model's own forward."""
    model = network(**MODELS[name])
    if name == "transformer":
        model.output.weight = torch.nn.Parameter(torch.randn_like(model.output.weight))  # untied: only reading moves
    model, read, said = model.double(), np.array([5, 7, 4, 9, 10, 6]), 8
    norms = measure_gradients(model, [Asked(read, said)], steps=9).norms[EMBEDDING]
    assert len(norms) == len(read)
    for back, symbol in enumerate(reversed(read)):
        slopes = []
        for unit in range(model.embedding.weight.shape[1]):
            values = []
            for by in (1e-5, -1e-5):
                with torch.no_grad():
                    model.embedding.weight[symbol, unit] += by / model.embedding.scale
                    features = model(torch.from_numpy(read)[None])[0][0, -1]
                    values.append(-float(model.output(features).log_softmax(-1)[said]))
                    model.embedding.weight[symbol, unit] -= by / model.embedding.scale
            slopes.append((values[0] - values[1]) / 2e-5)
        assert norms[back] == pytest.approx(np.linalg.norm(slopes), rel=1e-4, abs=1e-9), back
    if name == "feed_forward":
        assert (norms[:3] > 0).all()
        assert (norms[3:] == 0).all()


# -- the means --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MODELS))
def test_rows_together_are_the_mean_of_rows_alone(name: str) -> None:
    model, asked = network(**MODELS[name]), rows(7, 12)
    together = measure_gradients(model, asked, steps=6).norms
    alone = [measure_gradients(model, [row], steps=6).norms for row in asked]
    for kind, norms in together.items():
        assert norms == pytest.approx(np.mean([one[kind] for one in alone], axis=0), rel=1e-5), kind


def test_the_model_is_left_as_it_was() -> None:
    model = network(**MODELS["lstm"]).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure_gradients(model, rows(3, 5), steps=4)
    assert model.training
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    after = model.state_dict()
    assert all(after[name].dtype == value.dtype and torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("positions", ["alibi", "learned", "none", "relative", "rotary", "sinusoidal"])
def test_every_transformer_can_be_asked_up_to_its_context(positions: str) -> None:
    model = network(**MODELS["transformer"], positions=positions, context=6)
    norms = measure_gradients(model, rows(4, 30), steps=20).norms[EMBEDDING]
    assert len(norms) == 6
    assert (norms > 0).all()


@pytest.mark.parametrize("cell", sorted(CELLS))
def test_matrices_are_named_by_gate(cell: str) -> None:
    stack = network(cell=cell, size=3, hidden_size=4, num_layers=2).decoder
    found, kind = recurrent_matrices(stack), CELLS[cell]
    assert [matrix.name for matrix in found] == [f"layer {i} {gate}" for i in (0, 1) for gate in BLOCKS[kind]]
    last = stack.layers[1].cells[0].weight_hidden.detach()[-4:].double()
    assert found[-1].singular == pytest.approx(torch.linalg.svdvals(last).numpy())
    assert found[-1].radius == pytest.approx(float(torch.linalg.eigvals(last).abs().max()))


# -- which symbols are asked for --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source() -> RunningText:
    return RunningText.learn(PlainTextSettings(text="recall:3/train", limit=50), TextSettings(tokenizer="spaces"))


def test_of_a_text_every_symbol_is_asked_for(source: RunningText) -> None:
    ids = source.tokenizer.encode("A b ? A")
    asked = asked_of_text(source, "A b ? A")
    assert [row.symbol for row in asked] == [*ids, EOS_ID]
    assert [row.read.tolist() for row in asked] == [[source.first, *ids[:end]] for end in range(5)]


@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_of_a_corpus_symbols_are_spread_evenly(source: RunningText, tmp_path: Path, count: int) -> None:
    lines = ["A b c ? A", "C ? C", "D e f g h i ? D"]
    (tmp_path / "some.txt").write_text("\n".join(lines) + "\n")
    corpus = PlainTextSettings(text=str(tmp_path / "some.txt"))
    encoded = source.encode_lines(lines)
    flat = [symbol for ids in encoded for symbol in ids]
    asked = asked_of_corpus(source, corpus, "stream", False, count)
    places = [len(row.read) - 1 for row in asked]  # nothing is so far back that it is left out
    assert len(asked) == min(count, len(flat))
    assert [row.symbol for row in asked] == [flat[place] for place in places]
    assert [row.read.tolist() for row in asked] == [[source.first, *flat[:place]] for place in places]
    assert max(np.diff([-1, *places, len(flat)])) <= len(flat) / len(asked) + 1
    for row, place in zip(asked_of_corpus(source, corpus, "sentences", False, count), places, strict=True):
        start = max(s for s in (0, len(encoded[0]), len(encoded[0] + encoded[1])) if s <= place)
        assert row.symbol == flat[place]
        assert row.read.tolist() == [source.first, *flat[start:place]]
    last = asked_of_corpus(source, corpus, "sentences", True, count)
    chosen = {1: [1], 3: [0, 1, 2], 7: [0, 1, 2], 100: [0, 1, 2]}[count]
    assert [row.symbol for row in last] == [encoded[i][-2] for i in chosen]
    assert [row.read.tolist() for row in last] == [[source.first, *encoded[i][:-2]] for i in chosen]

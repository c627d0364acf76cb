"""What makes each recurrent decoder and encoder what it is, and which paths compute it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from encoder_decoders import (
    EMBEDDING,
    HIDDEN,
    KINDS,
    RECURRENT,
    TARGET_SYMBOLS,
    pairs,
    real_steps,
    stepped,
    stretched,
)
from encoder_decoders import build as build_any
from torch import Tensor

from seqloom.batches.collate import collate_pairs
from seqloom.errors import RecipeError
from seqloom.models.encoder_decoder import EncoderDecoder, RecurrentTranslatorSettings
from seqloom.models.recurrent_decoder import SAME_SIZE, RecurrentDecoder, RecurrentDecoderSettings
from seqloom.models.recurrent_encoder import RecurrentEncoderSettings
from seqloom.models.settings import CellName, ConnectionName, ScoreName
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.recurrent import RecurrentStack
from seqloom.settings import validated
from seqloom.training.checkpoints import model_tensors


def build(kind: str, **more: Any) -> EncoderDecoder:
    return build_any(kind if kind in KINDS else f"recurrent: {kind}", **more)


# -- which path computes it ------------------------------------------------------------------------------------------

AT_ONCE = [
    name
    for name, given in RECURRENT.items()
    if not given.get("input_feeding") and (given.get("decoder", "attention") != "attention" or "order" not in given)
] + [name for name, given in RECURRENT.items() if given.get("order") == "luong" and not given["input_feeding"]]


@pytest.mark.parametrize("kind", sorted(AT_ONCE))
def test_no_loop_over_target_steps_where_none_is_needed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build(kind), pairs()
    expected = model(batch)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(RecurrentStack, "step", refuse)
    monkeypatch.setattr(RecurrentDecoder, "_advance", refuse)
    assert torch.equal(model(batch), expected)


@pytest.mark.parametrize("kind", ["lstm-state", "gru-context", "lstm-attention"])
def test_a_longer_target_does_not_cost_more_python(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder's stack is called once, and so is its cell's compiled loop, however long the target is."""
    model, calls = build(kind), []
    forward = RecurrentStack.forward
    monkeypatch.setattr(
        RecurrentStack,
        "forward",
        lambda self, *a, **k: calls.append(self is model.decoder.stack) or forward(self, *a, **k),
    )
    model(collate_pairs([[4]], [[5] * 31]))
    assert calls == [False, True]


WAITING = sorted(n for n, g in RECURRENT.items() if g.get("order") == "bahdanau" or g.get("input_feeding"))


@pytest.mark.parametrize("kind", [*WAITING, "embeddings -> dot-bahdanau", "transformer -> additive-luong-fed"])
def test_where_steps_wait_for_each_other_the_plain_path_takes_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, taken = build(kind), pairs(), []
    step = RecurrentStack.step
    monkeypatch.setattr(RecurrentStack, "step", lambda self, *a: taken.append(1) or step(self, *a))
    model(batch)
    one_layer = model.decoder.settings.num_layers == 1
    assert len(taken) == (0 if one_layer else batch.target.inputs.shape[1])  # one layer is fused
    taken.clear()
    use_plain_paths(model)
    model(batch)
    assert len(taken) == batch.target.inputs.shape[1]


FUSED = [
    dict(cell=cell, attention=score, order=order, input_feeding=fed)
    for cell in CELLS
    for score in SCORES
    for order in ("luong", "bahdanau")
    for fed in (False, True)
]


def assert_paths_agree(model: EncoderDecoder, dtype: torch.dtype) -> None:
    model, batch = model.to(dtype), stretched(pairs(), 2, 1)
    real, found = real_steps(batch), {}
    factor = torch.randn(int(real.sum()), model.output.in_features, dtype=dtype)
    for plain in (False, True):
        use_plain_paths(model, plain)
        features = model(batch)[real]
        grads = torch.autograd.grad(features, [w for n, w in model.named_parameters() if "output" not in n], factor)
        found[plain] = (features.detach(), grads, model.align(batch)[real])
    tolerance = dict(atol=1e-4, rtol=1e-3) if dtype == torch.float32 else {}
    torch.testing.assert_close(found[False], found[True], **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("given", FUSED, ids=lambda given: "-".join(map(str, given.values())))
def test_the_fast_path_equals_the_plain_one_in_values_and_gradients(given: dict[str, Any], dtype: torch.dtype) -> None:
    assert_paths_agree(build("readout", **given), dtype)


@pytest.mark.parametrize("given", FUSED, ids=lambda given: "-".join(map(str, given.values())))
def test_the_fast_path_looks_at_a_memory_of_any_width(given: dict[str, Any]) -> None:
    """Of a Transformer, whose values are not as wide as the decoder's state where the score allows it."""
    same = given["attention"] in SAME_SIZE
    encoder = dict(kind="transformer", size=HIDDEN if same else 12, num_heads=2, feed_forward_size=11, num_layers=1)
    decoder = dict(kind="recurrent", embedding_size=EMBEDDING, hidden_size=HIDDEN, readout_size=13, dropout=0.0)
    assert_paths_agree(build("transformer -> state", encoder=encoder, decoder=decoder | given), torch.float64)


@pytest.mark.parametrize("order", ["luong", "bahdanau"])
def test_fed_features_are_dropped_once_and_fed_as_they_are_shown(order: str) -> None:
    """With the same units dropped at every step, both paths of a training model agree in values and gradients."""
    model, batch = build(f"additive-{order}-fed").double().train(), pairs()
    mask = (torch.rand(HIDDEN) < 0.6) / 0.6
    for dropout in (model.encoder.dropout, model.decoder.dropout):
        dropout.forward = lambda values: values * (mask if values.shape[-1] == HIDDEN else 1)
    real, found = real_steps(batch), []
    for plain in (False, True):
        use_plain_paths(model, plain)
        features = model(batch)[real]
        features.square().sum().backward()
        found.append((features.detach(), [w.grad for w in model.parameters()]))
        model.zero_grad(set_to_none=True)
    torch.testing.assert_close(*found)
    assert not features[:, mask == 0].any()


def test_keys_too_large_for_powers_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build("additive-bahdanau"), pairs()
    model.decoder.score.weight_key.data *= 1000
    monkeypatch.setattr(RecurrentDecoder, "_force_fused", None)
    with torch.no_grad():
        torch.testing.assert_close(model(batch), stepped(model, batch)[0])


# -- what makes each kind what it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("score", sorted(SCORES))
def test_bahdanau_looks_with_where_it_comes_from_luong_with_where_it_is(score: str) -> None:
    first = {}
    for order in ("bahdanau", "luong"):
        model, batch = build(f"{score}-{order}"), pairs()
        with torch.no_grad():
            looked = [model.advance(torch.full((3,), token), model.start(batch.source))[2] for token in (2, 11)]
        first[order] = looked
    assert torch.equal(*first["bahdanau"])
    assert (first["luong"][0] - first["luong"][1]).abs().max() > 1e-4


@pytest.mark.parametrize(("num_layers", "connections"), [(1, "plain"), *((3, name) for name in sorted(CONNECTIONS))])
def test_bahdanau_starts_from_the_initial_state_of_the_top_layer(num_layers: int, connections: str) -> None:
    deep = dict(encoder_layers=num_layers, decoder_layers=num_layers, connections=connections)
    model, batch = build("dot-bahdanau", **deep), pairs()
    with torch.no_grad():
        memory = model.encoder.encode(batch.source)
        expected = torch.einsum("bd,btd->bt", memory.states[-1].hidden, memory.values)
        expected = expected.masked_fill(~memory.mask, float("-inf")).softmax(-1)
        torch.testing.assert_close(model.align(batch)[:, 0], expected)


@pytest.mark.parametrize("connections", sorted(CONNECTIONS))
def test_a_step_reads_out_what_was_connected(connections: str) -> None:
    """Without a readout the features of a `state` decoder are its stack's output: the top hidden state if plain."""
    model, batch = build(f"{connections}-state"), pairs()
    with torch.no_grad():
        state, tokens = model.start(batch.source), torch.full((3,), 2)
        features, after, _ = model.advance(tokens, state)
        assert torch.equal(features, model.decoder.stack.step(model.decoder.embedding(tokens), state.layers)[0])
    assert torch.equal(features, after.layers[-1].hidden) == (connections == "plain")


def test_input_feeding_feeds_the_last_features() -> None:
    model, batch = build("dot-luong-fed"), pairs()
    with torch.no_grad():
        state = model.start(batch.source)
        assert not state.fed.any()
        features, after, _ = model.advance(torch.full((3,), 2), state)
        assert torch.equal(after.fed, features)
        changed = model.advance(torch.full((3,), 4), after._replace(fed=-after.fed))[0]
        assert not torch.allclose(changed, model.advance(torch.full((3,), 4), after)[0])


@pytest.mark.parametrize("encoder", ["recurrent", "transformer", "embeddings"])
@pytest.mark.parametrize(("decoder", "sees"), [("state", False), ("context", True), ("multiplicative-luong", True)])
def test_who_sees_the_source_after_the_start(encoder: str, decoder: str, sees: bool) -> None:
    """A `state` decoder knows the source only by its starting state; the others look at it at every step."""
    model, batch = build(f"{encoder} -> {decoder}"), pairs()
    with torch.no_grad():
        state = model.start(batch.source)
        seen = state.source
        summary = None if seen.summary is None else -seen.summary
        turned = state._replace(source=seen._replace(values=-seen.values, summary=summary))
        one, two = (model.advance(torch.full((3,), 2), s)[0] for s in (state, turned))
    assert torch.equal(one, two) == (not sees)


@pytest.mark.parametrize("kind", ["deeper-encoder-state", "deeper-encoder-attention", "deeper-decoder", "deep"])
def test_layers_start_from_the_encoder_from_the_top_down(kind: str) -> None:
    """Of a deeper encoder the top layers count; a deeper decoder's extra layers start from the encoder's top."""
    model, batch = build(kind), pairs()
    finals = model.encoder.encode(batch.source).states
    used = finals[-model.decoder.settings.num_layers :]
    layers = model.start(batch.source).layers
    assert model.decoder.bridge is None
    for index, layer in enumerate(layers):
        torch.testing.assert_close(layer, used[min(index, len(used) - 1)])


@pytest.mark.parametrize("kind", ["embeddings -> deep", "transformer -> deep-state", "recurrent -> other-sizes"])
def test_layers_start_from_the_summary_where_the_states_are_no_states_of_theirs(kind: str) -> None:
    """tanh(W summary + b): a hidden state for each layer; a memory cell begins empty."""
    model, batch = build(kind), pairs()
    with torch.no_grad():
        summary = model.encoder.encode(batch.source).summarise()
        expected = (summary @ model.decoder.bridge.weight.T + model.decoder.bridge.bias).tanh()
        layers = model.start(batch.source).layers
    torch.testing.assert_close(torch.cat([layer.hidden for layer in layers], -1), expected)
    for layer in layers:
        assert not any(part.any() for name, part in layer._asdict().items() if name != "hidden")


def test_a_trace_gets_gates_and_attention() -> None:
    model, batch, shown = build("deep"), pairs(), {}

    class Trace:
        def add(self, name: str, values: Tensor, *, rows: str, columns: str) -> None:
            shown[name] = (tuple(values.shape), rows, columns)

        def append(self, name: str, values: Tensor, *, rows: str, columns: str) -> None:
            steps = shown.get(name, ((0,),))[0][0]
            shown[name] = ((steps + 1, *values.shape), rows, columns)

    with torch.no_grad():
        model(batch, Trace())
    source, target = batch.source.ids.shape[1], batch.target.inputs.shape[1]
    assert shown["decoder.attention"] == ((target, source), "target", "source")
    assert shown["decoder.1.forward.forget_gate"] == ((target, HIDDEN), "target", "unit")
    assert shown["encoder.1.backward.cell"] == ((source, HIDDEN // 2), "source", "unit")


def test_a_tied_output_counts_its_weights_once() -> None:
    tied, free = build("tied"), build("tied", tie_output=False, readout_size=EMBEDDING)
    count = {model: sum(w.numel() for w in model.parameters()) for model in (tied, free)}
    assert count[free] - count[tied] == TARGET_SYMBOLS * EMBEDDING
    assert "decoder.output.weight" not in model_tensors(tied)
    assert tied.output.weight is tied.decoder.embedding.weight


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(hidden_size=11), "hidden_size must be even when bidirectional; got 11"),
        (
            dict(tie_output=True, readout_size=13, embedding_size=7),
            "tie_output needs readout_size equal to embedding_size (or leave readout_size out)",
        ),
        (
            dict(input_feeding=True, decoder="context"),
            "input_feeding needs decoder: attention; got decoder: context",
        ),
        (
            dict(attention="aditive"),
            "attention must be one of additive, dot, multiplicative, scaled_dot; got 'aditive' "
            "(did you mean 'additive'?)",
        ),
        (
            dict(connections="residul"),
            "connections must be one of dense, highway, plain, residual; got 'residul' (did you mean 'residual'?)",
        ),
        (
            dict(share_embeddings=True, pretrained=dict(source="a.txt", target="b.txt")),
            "pretrained: both sides are one table here; name vectors for source or for target, not both",
        ),
        *(
            (
                dict(connections=connections, encoder_layers=layers, decoder=decoder),
                f"connections: {connections} has no layer to lead around with encoder_layers: {layers} and "
                "decoder_layers: 1; raise one of them, or leave connections plain",
            )
            for connections, layers, decoder in [
                ("residual", 1, "attention"),
                ("dense", 1, "state"),
                ("highway", 2, "state"),  # of the encoder's top layer only the state is used
                ("highway", 2, "context"),
            ]
        ),
        (dict(cel="gru"), "cel is not a setting (did you mean 'cell'?)"),
        (dict(dropout=1.0), "dropout: must be less than 1; got 1.0"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validated(RecurrentTranslatorSettings, given)
    assert caught.value.problems == [message]


def test_settings_that_fit() -> None:
    def features(**given: Any) -> int:
        return RecurrentTranslatorSettings(**given).expanded().decoder.features_size

    assert features(hidden_size=11, bidirectional=False) == 11
    assert features(tie_output=True, embedding_size=7, readout_size=7) == 7
    assert features(tie_output=True, embedding_size=7) == 7
    assert features(readout_size=13) == 13
    for fits in (dict(encoder_layers=2), dict(decoder_layers=2), dict(encoder_layers=3, decoder="state")):
        assert RecurrentTranslatorSettings(connections="residual", **fits).connections == "residual"


def test_the_settings_name_every_cell_score_and_connection() -> None:
    assert set(CellName.__args__) == set(CELLS)
    assert set(ScoreName.__args__) == set(SCORES)
    assert set(ConnectionName.__args__) == set(CONNECTIONS)
    for settings in (RecurrentTranslatorSettings, RecurrentEncoderSettings, RecurrentDecoderSettings):
        assert settings.model_fields["cell"].annotation == CellName
        assert settings.model_fields["connections"].annotation == ConnectionName
    for settings in (RecurrentTranslatorSettings, RecurrentDecoderSettings):
        assert settings.model_fields["attention"].annotation == ScoreName

"""One contract for every recurrent translator: forcing equals stepping, padding is nothing, gradients arrive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batches.collate import PairBatch, SourceBatch, collate_pairs
from seqloom.errors import RecipeError
from seqloom.models import MODELS
from seqloom.models.recurrent_translator import CellName, RecurrentTranslator, RecurrentTranslatorSettings
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.masks import length_mask
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.recurrent import RecurrentStack
from seqloom.settings import validated
from seqloom.training.checkpoints import load_tensors, model_tensors, put_weights, save_tensors

SOURCE_SYMBOLS, TARGET_SYMBOLS, EMBEDDING, HIDDEN = 17, 19, 7, 10
SOURCES = [[4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14]]
TARGETS = [[5, 4], [6, 7, 8, 9, 10, 11], [12, 13, 14]]

KINDS: dict[str, dict[str, Any]] = {}
for _cell in CELLS:
    for _decoder in ("state", "context", "attention"):
        KINDS[f"{_cell}-{_decoder}"] = dict(cell=_cell, decoder=_decoder)
for _score in SCORES:
    for _order in ("luong", "bahdanau"):
        for _fed in (False, True):
            name = f"{_score}-{_order}" + ("-fed" if _fed else "")
            KINDS[name] = dict(cell="gru", attention=_score, order=_order, input_feeding=_fed)
for _connections in CONNECTIONS:
    KINDS |= {
        _connections: dict(connections=_connections, encoder_layers=3, decoder_layers=3),
        f"{_connections}-bahdanau-fed": dict(
            connections=_connections, encoder_layers=2, decoder_layers=3, order="bahdanau", input_feeding=True
        ),
        f"{_connections}-state": dict(connections=_connections, decoder_layers=3, decoder="state"),
        f"{_connections}-context": dict(connections=_connections, decoder_layers=2, decoder="context"),
    }
KINDS |= {
    "deep": dict(encoder_layers=2, decoder_layers=2, order="bahdanau", input_feeding=True),
    "deeper-decoder": dict(encoder_layers=1, decoder_layers=3),
    "deeper-encoder-state": dict(encoder_layers=3, decoder_layers=2, decoder="state"),
    "deeper-encoder-context": dict(encoder_layers=3, decoder_layers=1, decoder="context"),
    "deeper-encoder-attention": dict(encoder_layers=2, decoder_layers=1),
    "one-direction": dict(bidirectional=False, hidden_size=11),
    "readout": dict(readout_size=13),
    "readout-state": dict(readout_size=13, decoder="state"),
    "tied": dict(tie_output=True, input_feeding=True),
    "tied-state": dict(tie_output=True, decoder="state"),
    "shared": dict(share_embeddings=True, tie_output=True),
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))
ATTENDING = sorted(name for name, given in KINDS.items() if given.get("decoder", "attention") == "attention")


def build(kind: str, **more: Any) -> RecurrentTranslator:
    torch.manual_seed(29)
    given = dict(embedding_size=EMBEDDING, hidden_size=HIDDEN, dropout=0.3) | KINDS[kind] | more
    settings = RecurrentTranslatorSettings(**given)
    source_symbols = TARGET_SYMBOLS if settings.share_embeddings else SOURCE_SYMBOLS
    model = RecurrentTranslator(settings, source_symbols=source_symbols, target_symbols=TARGET_SYMBOLS)
    for weight in model.parameters():  # at their start, biases and peepholes are zero and would hide mistakes
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def pairs() -> PairBatch:
    return collate_pairs(SOURCES, TARGETS)


def stretched(batch: PairBatch, source: int, target: int) -> PairBatch:
    """The same batch with more padding on both sides."""
    return replace(
        batch,
        source=F.pad(batch.source, (0, source)),
        target_in=F.pad(batch.target_in, (0, target)),
        target_out=F.pad(batch.target_out, (0, target)),
    )


def real_steps(batch: PairBatch) -> Tensor:
    """(batch, target): what a decoder says of padding is not defined."""
    return length_mask(batch.target_lengths, batch.target_in.shape[1])


def stepped(model: RecurrentTranslator, batch: PairBatch) -> tuple[Tensor, Tensor | None]:
    state = model.start(SourceBatch(batch.source, batch.source_lengths))
    features, looked = [], []
    for time in range(batch.target_in.shape[1]):
        step, state, weights = model.advance(batch.target_in[:, time], state)
        features.append(step)
        looked.append(weights)
    return torch.stack(features, 1), None if looked[0] is None else torch.stack(looked, 1)


# -- the contract ----------------------------------------------------------------------------------------------------


@every_kind
def test_forcing_equals_stepping(kind: str) -> None:
    model, batch = build(kind), pairs()
    real = real_steps(batch)
    with torch.no_grad():
        features, weights = stepped(model, batch)
        torch.testing.assert_close(model(batch)[real], features[real], atol=1e-5, rtol=1e-5)
        assert features.shape == (*batch.target_in.shape, model.settings.features_size)
        aligned = model.align(batch)
        if weights is None:
            assert aligned is None
        else:
            torch.testing.assert_close(aligned[real], weights[real], atol=1e-5, rtol=1e-5)


@every_kind
def test_gradients_reach_every_weight(kind: str) -> None:
    model, batch = build(kind), pairs()
    model.train()
    real = real_steps(batch)
    logits = model.output(model(batch)[real])
    F.cross_entropy(logits, batch.target_out[real]).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name
        assert weight.grad.isfinite().all(), name


@every_kind
def test_padding_changes_nothing(kind: str) -> None:
    model, batch = build(kind), pairs()
    with torch.no_grad():
        longer, real = model(stretched(batch, 3, 5))[:, : batch.target_in.shape[1]], real_steps(batch)
        torch.testing.assert_close(longer[real], model(batch)[real], atol=1e-5, rtol=1e-5)


@every_kind
def test_batched_equals_single(kind: str) -> None:
    model, batch = build(kind), pairs()
    with torch.no_grad():
        together, weights = model(batch), model.align(batch)
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            alone = collate_pairs([source], [target])
            steps = len(target) + 1
            torch.testing.assert_close(model(alone)[0], together[row, :steps], atol=1e-5, rtol=1e-5)
            if weights is not None:
                found = model.align(alone)
                torch.testing.assert_close(found[0], weights[row, :steps, : len(source) + 1], atol=1e-5, rtol=1e-5)


@every_kind
def test_alignment_is_a_distribution_over_real_source_positions(kind: str) -> None:
    model, batch = build(kind), stretched(pairs(), 2, 0)
    weights = model.align(batch)
    assert (weights is not None) == model.attends == (kind in ATTENDING)
    if weights is not None:
        assert weights.shape == (len(batch), batch.target_in.shape[1], batch.source.shape[1])
        sums = weights.sum(-1)[real_steps(batch)]
        torch.testing.assert_close(sums, torch.ones_like(sums))
        hidden = ~length_mask(batch.source_lengths, batch.source.shape[1])
        assert not weights.transpose(1, 2)[hidden].any()
        assert (weights >= 0).all()


@every_kind
def test_saving_and_loading_agree(kind: str, tmp_path: Path) -> None:
    model, batch = build(kind), pairs()
    save_tensors(tmp_path / "model.safetensors", model_tensors(model))
    other = build(kind)
    for weight in other.parameters():
        weight.data.normal_()
    put_weights(other, load_tensors(tmp_path / "model.safetensors"))
    with torch.no_grad():
        assert torch.equal(model(batch), other(batch))
        assert torch.equal(model.output(model(batch)), other.output(other(batch)))
    assert (other.output.weight is other.target_embedding.weight) == other.settings.tie_output
    assert (other.source_embedding is other.target_embedding) == other.settings.share_embeddings


@every_kind
def test_a_state_can_be_reordered(kind: str) -> None:
    model, batch = build(kind), pairs()
    rows = torch.tensor([2, 0, 0, 1])
    tokens = torch.tensor([4, 5, 6])
    with torch.no_grad():
        _, state, _ = model.advance(torch.full((3,), 2), model.start(batch))
        straight = model.advance(tokens, state)[0]
        picked = model.advance(tokens[rows], state.follow(rows, rows))[0]
        wide = state.follow(torch.arange(3).repeat_interleave(2))  # two hypotheses of each sentence, one memory
        twice, after, _ = model.advance(tokens.repeat_interleave(2), wide)
    torch.testing.assert_close(picked, straight[rows], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(twice, straight.repeat_interleave(2, 0), atol=1e-5, rtol=1e-5)
    assert after.memory is state.memory


@every_kind
def test_dropout_is_for_training_only(kind: str) -> None:
    model, batch = build(kind), pairs()
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))


@every_kind
def test_words_that_are_not_seen_are_those_that_are_read_on_either_side(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = build(kind, dropout=0.0, word_dropout=0.5), pairs()
    other = replace(batch, source=batch.source + 1, target_in=batch.target_in + 1)
    assert not torch.allclose(model(batch), model(other))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    monkeypatch.setattr(model.word_dropout, "forward", torch.zeros_like)
    assert torch.equal(model(batch), model(other))


# -- what makes each kind what it is ---------------------------------------------------------------------------------

AT_ONCE = [
    name
    for name, given in KINDS.items()
    if not given.get("input_feeding") and (given.get("decoder", "attention") != "attention" or "order" not in given)
] + [name for name, given in KINDS.items() if given.get("order") == "luong" and not given["input_feeding"]]


@pytest.mark.parametrize("kind", sorted(AT_ONCE))
def test_no_loop_over_target_steps_where_none_is_needed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build(kind), pairs()
    expected = model(batch)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a step was taken")

    monkeypatch.setattr(RecurrentStack, "step", refuse)
    monkeypatch.setattr(RecurrentTranslator, "_advance", refuse)
    assert torch.equal(model(batch), expected)


@pytest.mark.parametrize("kind", ["lstm-state", "gru-context", "lstm-attention"])
def test_a_longer_target_does_not_cost_more_python(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder's stack is called once, and so is its cell's compiled loop, however long the target is."""
    model, calls = build(kind), []
    forward = RecurrentStack.forward
    monkeypatch.setattr(
        RecurrentStack, "forward", lambda self, *a, **k: calls.append(self is model.decoder) or forward(self, *a, **k)
    )
    model(collate_pairs([[4]], [[5] * 31]))
    assert calls == [False, True]


WAITING = sorted(n for n, g in KINDS.items() if g.get("order") == "bahdanau" or g.get("input_feeding"))


@pytest.mark.parametrize("kind", WAITING)
def test_where_steps_wait_for_each_other_the_plain_path_takes_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, taken = build(kind), pairs(), []
    step = RecurrentStack.step
    monkeypatch.setattr(RecurrentStack, "step", lambda self, *a: taken.append(1) or step(self, *a))
    model(batch)
    assert len(taken) == (0 if model.settings.decoder_layers == 1 else batch.target_in.shape[1])  # one layer is fused
    taken.clear()
    use_plain_paths(model)
    model(batch)
    assert len(taken) == batch.target_in.shape[1]


FUSED = [
    dict(cell=cell, attention=score, order=order, input_feeding=fed)
    for cell in CELLS
    for score in SCORES
    for order in ("luong", "bahdanau")
    for fed in (False, True)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("given", FUSED, ids=lambda given: "-".join(map(str, given.values())))
def test_the_fast_path_equals_the_plain_one_in_values_and_gradients(given: dict[str, Any], dtype: torch.dtype) -> None:
    model, batch = build("readout", **given).to(dtype), stretched(pairs(), 2, 1)
    real, found = real_steps(batch), {}
    pull = torch.randn(int(real.sum()), 13, dtype=dtype)
    for plain in (False, True):
        use_plain_paths(model, plain)
        features = model(batch)[real]
        grads = torch.autograd.grad(features, [w for n, w in model.named_parameters() if "output" not in n], pull)
        found[plain] = (features.detach(), grads, model.align(batch)[real])
    tolerance = dict(atol=1e-4, rtol=1e-3) if dtype == torch.float32 else {}
    torch.testing.assert_close(found[False], found[True], **tolerance)


@pytest.mark.parametrize("order", ["luong", "bahdanau"])
def test_fed_features_are_dropped_once_and_fed_as_they_are_shown(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same units dropped at every step, both paths of a training model agree in values and gradients."""
    model, batch = build(f"additive-{order}-fed").double().train(), pairs()
    mask = (torch.rand(HIDDEN) < 0.6) / 0.6
    model.dropout.forward = lambda values: values * (mask if values.shape[-1] == HIDDEN else 1)  # type: ignore[method-assign]
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
    model.score.weight_key.data *= 1000
    monkeypatch.setattr(RecurrentTranslator, "_force_fused", None)
    with torch.no_grad():
        torch.testing.assert_close(model(batch), stepped(model, batch)[0])


@pytest.mark.parametrize("score", sorted(SCORES))
def test_bahdanau_looks_with_where_it_comes_from_luong_with_where_it_is(score: str) -> None:
    first = {}
    for order in ("bahdanau", "luong"):
        model, batch = build(f"{score}-{order}"), pairs()
        with torch.no_grad():
            looked = [model.advance(torch.full((3,), token), model.start(batch))[2] for token in (2, 11)]
        first[order] = looked
    assert torch.equal(*first["bahdanau"])
    assert (first["luong"][0] - first["luong"][1]).abs().max() > 1e-4


@pytest.mark.parametrize(("num_layers", "connections"), [(1, "plain"), *((3, name) for name in sorted(CONNECTIONS))])
def test_bahdanau_starts_from_the_initial_state_of_the_top_layer(num_layers: int, connections: str) -> None:
    deep = dict(encoder_layers=num_layers, decoder_layers=num_layers, connections=connections)
    model, batch = build("dot-bahdanau", **deep), pairs()
    with torch.no_grad():
        memory, finals = model.encode(batch)
        expected = torch.einsum("bd,btd->bt", finals[-1].hidden, memory.values)
        expected = expected.masked_fill(~memory.mask, float("-inf")).softmax(-1)
        torch.testing.assert_close(model.align(batch)[:, 0], expected)


@pytest.mark.parametrize("connections", sorted(CONNECTIONS))
def test_a_step_reads_out_what_was_connected(connections: str) -> None:
    """Without a readout the features of a `state` decoder are its stack's output: the top hidden state if plain."""
    model, batch = build(f"{connections}-state"), pairs()
    with torch.no_grad():
        state, tokens = model.start(batch), torch.full((3,), 2)
        features, after, _ = model.advance(tokens, state)
        assert torch.equal(features, model.decoder.step(model.target_embedding(tokens), state.layers)[0])
    assert torch.equal(features, after.layers[-1].hidden) == (connections == "plain")


def test_input_feeding_feeds_the_last_features() -> None:
    model, batch = build("dot-luong-fed"), pairs()
    with torch.no_grad():
        state = model.start(batch)
        assert not state.fed.any()
        features, after, _ = model.advance(torch.full((3,), 2), state)
        assert torch.equal(after.fed, features)
        changed = model.advance(torch.full((3,), 4), after._replace(fed=-after.fed))[0]
        assert not torch.allclose(changed, model.advance(torch.full((3,), 4), after)[0])


@pytest.mark.parametrize(("kind", "sees"), [("lstm-state", False), ("lstm-context", True), ("lstm-attention", True)])
def test_who_sees_the_source_after_the_start(kind: str, sees: bool) -> None:
    """A `state` decoder knows the source only by its starting state; the others look at it at every step."""
    model, batch = build(kind), pairs()
    with torch.no_grad():
        state = model.start(batch)
        memory = state.memory._replace(values=-state.memory.values, summary=-state.memory.summary)
        one, two = (model.advance(torch.full((3,), 2), s)[0] for s in (state, state._replace(memory=memory)))
    assert torch.equal(one, two) == (not sees)


@pytest.mark.parametrize("kind", ["deeper-encoder-state", "deeper-encoder-attention", "deeper-decoder", "deep"])
def test_layers_start_from_the_encoder_from_the_top_down(kind: str) -> None:
    """Of a deeper encoder the top layers count; a deeper decoder's extra layers start from the encoder's top."""
    model, batch = build(kind), pairs()
    _, finals = model.encode(batch)
    used = finals[-model.settings.decoder_layers :]
    layers = model.start(batch).layers
    for index, layer in enumerate(layers):
        torch.testing.assert_close(layer, used[min(index, len(used) - 1)])


def test_a_trace_gets_gates_and_attention_and_changes_nothing() -> None:
    model, batch, shown = build("deep"), pairs(), {}

    class Trace:
        def add(self, name: str, values: Tensor, *, rows: str, columns: str) -> None:
            shown[name] = (tuple(values.shape), rows, columns)

        def append(self, name: str, values: Tensor, *, rows: str, columns: str) -> None:
            steps = shown.get(name, ((0,),))[0][0]
            shown[name] = ((steps + 1, *values.shape), rows, columns)

    with torch.no_grad():
        real = real_steps(batch)
        torch.testing.assert_close(model(batch, Trace())[real], model(batch)[real], atol=1e-5, rtol=1e-5)
    source, target = batch.source.shape[1], batch.target_in.shape[1]
    assert shown["decoder.attention"] == ((target, source), "target", "source")
    assert shown["decoder.1.forward.forget_gate"] == ((target, HIDDEN), "target", "unit")
    assert shown["encoder.1.backward.cell"] == ((source, HIDDEN // 2), "source", "unit")


def test_a_tied_output_counts_its_weights_once() -> None:
    tied, free = build("tied"), build("tied", tie_output=False, readout_size=EMBEDDING)
    count = {model: sum(w.numel() for w in model.parameters()) for model in (tied, free)}
    assert count[free] - count[tied] == TARGET_SYMBOLS * EMBEDDING
    assert "output.weight" not in model_tensors(tied)
    assert tied.output.weight is tied.target_embedding.weight


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
    assert RecurrentTranslatorSettings(hidden_size=11, bidirectional=False).features_size == 11
    assert RecurrentTranslatorSettings(tie_output=True, embedding_size=7, readout_size=7).features_size == 7
    assert RecurrentTranslatorSettings(tie_output=True, embedding_size=7).features_size == 7
    assert RecurrentTranslatorSettings(readout_size=13).features_size == 13
    for fits in (dict(encoder_layers=2), dict(decoder_layers=2), dict(encoder_layers=3, decoder="state")):
        assert RecurrentTranslatorSettings(connections="residual", **fits).connections == "residual"


def test_the_settings_name_every_cell_score_and_connection() -> None:
    fields = RecurrentTranslatorSettings.model_fields
    assert set(CellName.__args__) == set(CELLS)
    assert set(fields["attention"].annotation.__args__) == set(SCORES)
    assert set(fields["connections"].annotation.__args__) == set(CONNECTIONS)
    assert MODELS["recurrent_translator"] == (RecurrentTranslatorSettings, RecurrentTranslator)

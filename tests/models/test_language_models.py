"""One contract for every causal language model: pieces give what the whole gives, and nothing looks ahead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.inspection.trace import Trace
from seqloom.losses import projected_cross_entropy
from seqloom.models import CLASSIFIERS, LANGUAGE_MODELS, READERS, TRANSLATORS
from seqloom.models.language import detach
from seqloom.models.settings import CellName
from seqloom.nn.cells import CELLS
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.positions import POSITIONS
from seqloom.nn.recurrent import select_rows
from seqloom.text.special import PAD_ID
from seqloom.training.checkpoints import load_tensors, model_tensors, put_weights, save_tensors

SYMBOLS, ROWS, TIME, CONTEXT = 13, 3, 17, 6

WINDOW = dict(kind="feed_forward_lm", size=7, hidden_size=11, dropout=0.3)
RECURRENT = dict(kind="recurrent_lm", size=7, hidden_size=11, num_layers=2, dropout=0.3, weight_drop=0.3)
TRANSFORMER = dict(
    kind="transformer_lm", size=12, num_heads=3, feed_forward_size=10, num_layers=2, context=CONTEXT, dropout=0.3,
    attention_dropout=0.2,
)  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {f"window-{size}": WINDOW | dict(window=size) for size in (1, 2, 4)}
KINDS |= {
    "window-direct": WINDOW | dict(direct=True),
    "window-tied": WINDOW | dict(size=11, tie=True),
    "window-longer-than-the-text": WINDOW | dict(window=TIME + 2),
}
KINDS |= {name: RECURRENT | dict(cell=name) for name in CELLS}
KINDS |= {f"recurrent-{name}": RECURRENT | dict(connections=name, num_layers=3) for name in CONNECTIONS}
KINDS |= {
    "recurrent-tied": RECURRENT | dict(size=11, tie=True),
    "recurrent-variational": RECURRENT | dict(dropout_kind="variational", input_dropout=0.1, embedding_dropout=0.1),
    "recurrent-uniform": RECURRENT | dict(init_range=0.1),
    "recurrent-one-layer": RECURRENT | dict(num_layers=1),
}
KINDS |= {name: TRANSFORMER | dict(positions=name) for name in POSITIONS}
KINDS |= {f"{name}-all-in-sight": TRANSFORMER | dict(positions=name, context=40) for name in POSITIONS}
KINDS |= {f"{name}-one": TRANSFORMER | dict(positions=name, context=1) for name in POSITIONS}
KINDS |= {f"transformer-{name}": TRANSFORMER | dict(connections=name) for name in CONNECTIONS}
KINDS |= {
    "transformer-post-norm": TRANSFORMER | dict(norm_first=False),
    "transformer-untied": TRANSFORMER | dict(tie=False),
    "transformer-clipped": TRANSFORMER | dict(positions="relative", max_distance=2),
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))


def build(kind: str, **more: Any) -> Any:
    """A random model with opinions strong enough that its answers differ."""
    torch.manual_seed(61)
    given = KINDS[kind] | more
    settings_kind, model_kind = LANGUAGE_MODELS[given["kind"]]
    model = model_kind(settings_kind(**given), num_symbols=SYMBOLS)
    for weight in model.parameters():  # at their start, biases are zero and would hide mistakes
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def text(rows: int = ROWS, time: int = TIME) -> Tensor:
    return torch.randint(4, SYMBOLS, (rows, time), generator=torch.Generator().manual_seed(67))


def read_in_pieces(model: Any, symbols: Tensor, cuts: list[int]) -> tuple[Tensor, Any]:
    features, state = [], None
    for piece in symbols.split(cuts, 1):
        found, state = model(piece, state)
        features.append(found)
    return torch.cat(features, 1), state


def assert_near(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


# -- the contract ----------------------------------------------------------------------------------------------------


def test_the_kinds_hold_every_model_and_no_kind_is_in_two_tables() -> None:
    others = {"ngram_lm"}  # counted, with tests of its own
    causal = {kind: both for kind, both in LANGUAGE_MODELS.items() if kind not in others}
    assert {given["kind"] for given in KINDS.values()} == set(causal)
    tables = [LANGUAGE_MODELS, TRANSLATORS, READERS, CLASSIFIERS]
    assert len(set().union(*tables)) == sum(map(len, tables))
    for kind, (settings_kind, model_kind) in causal.items():
        assert settings_kind().kind == kind
        assert model_kind.attends is False
    assert set(get_args(CellName)) == set(CELLS)


@every_kind
@torch.no_grad()
def test_pieces_give_what_the_whole_gives(kind: str) -> None:
    model, symbols = build(kind), text()
    whole, after = model(symbols)
    assert whole.shape == (ROWS, TIME, model.output.in_features)
    following = model(symbols[:, :4], after)[0]  # a state is what follows from it
    for cuts in ([1] * TIME, [5, 12], [12, 5], [CONTEXT] * 2 + [5], [3, 1, 9, 4]):
        features, state = read_in_pieces(model, symbols, cuts)
        assert_near(features, whole)
        assert_near(model(symbols[:, :4], state)[0], following)


@every_kind
@torch.no_grad()
def test_nothing_looks_ahead(kind: str) -> None:
    model, symbols = build(kind), text()
    whole = model(symbols)[0]
    for place in (1, 7, TIME - 1):
        changed = symbols.clone()
        changed[:, place] = 4 + (symbols[:, place] - 4 + 1) % (SYMBOLS - 4)
        features = model(changed)[0]
        assert_near(features[:, :place], whole[:, :place])
        assert (features[:, place] - whole[:, place]).abs().amax(-1).min() > 1e-3, "what is read now must matter"


@every_kind
@torch.no_grad()
def test_rows_know_nothing_of_each_other_and_can_be_picked(kind: str) -> None:
    model, symbols = build(kind), text()
    whole = model(symbols)[0]
    _, state = model(symbols[:, :9])
    rows = torch.tensor([2, 0, 0, 1])
    assert_near(model(symbols[rows, 9:], select_rows(state, rows))[0], whole[rows, 9:])
    for row in range(ROWS):
        assert_near(model(symbols[row : row + 1])[0], whole[row : row + 1])


@every_kind
@torch.no_grad()
def test_padding_changes_nothing(kind: str) -> None:
    model, symbols = build(kind), text()
    lengths = torch.tensor([4, TIME, 11])
    padded = symbols.clone()
    for row, length in enumerate(lengths.tolist()):
        padded[row, length:] = PAD_ID
    features, state = model(padded, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, after = model(symbols[row : row + 1, :length])
        assert_near(features[row, :length], alone[0])
        if model.settings.kind != "transformer_lm":
            assert_near(select_rows(state, torch.tensor([row])), after)


@every_kind
def test_gradients_reach_every_weight(kind: str) -> None:
    model, symbols = build(kind).train(), text()
    features, _ = model(symbols[:, :-1])
    loss = projected_cross_entropy(
        features.flatten(0, 1), model.output.weight, model.output.bias, symbols[:, 1:].flatten()
    ).loss
    loss.backward()
    for name, weight in model.named_parameters():
        if name.endswith("positions.table") and kind.endswith("-one"):
            continue  # with one position in sight there are no distances
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


@every_kind
def test_the_readable_twin_says_the_same(kind: str) -> None:
    model, symbols = build(kind), text()
    found = []
    for plain in (False, True):
        use_plain_paths(model, plain)
        features, _ = model(symbols)
        found.append((features.detach(), torch.autograd.grad(features.square().sum(), model.embedding.weight)[0]))
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rotary", "learned"])
def test_a_detached_state_is_the_same_and_lets_no_gradient_through(kind: str) -> None:
    model, symbols = build(kind), text()
    _, state = model(symbols[:, :4])
    cut = detach(state)
    assert_near(cut, state)
    assert [type(layer) for layer in cut] == [type(layer) for layer in state]
    assert all(part.requires_grad for layer in state for part in layer)
    assert not any(part.requires_grad for layer in cut for part in layer)


def test_what_has_no_gradient_is_detached_too() -> None:
    model, symbols = build("window-4"), text()
    state = model(symbols)[1]
    assert torch.equal(detach(state), state)
    assert detach(None) is None


@every_kind
def test_weights_that_were_saved_say_the_same(kind: str, tmp_path: Path) -> None:
    model, symbols = build(kind), text()
    save_tensors(tmp_path / "model.safetensors", model_tensors(model))
    settings_kind, model_kind = LANGUAGE_MODELS[KINDS[kind]["kind"]]
    fresh = model_kind(settings_kind(**KINDS[kind]), num_symbols=SYMBOLS).eval()
    put_weights(fresh, load_tensors(tmp_path / "model.safetensors"))
    with torch.no_grad():
        assert torch.equal(fresh.output(fresh(symbols)[0]), model.output(model(symbols)[0]))


@pytest.mark.parametrize("kind", ["window-tied", "recurrent-tied", "rotary"])
def test_tied_tables_are_one_tensor(kind: str) -> None:
    model, free = build(kind), build(kind, tie=False)
    assert model.output.weight is model.embedding.weight
    assert free.output.weight is not free.embedding.weight
    held = [sum(weight.numel() for weight in each.parameters()) for each in (model, free)]
    assert held[1] - held[0] == model.embedding.weight.numel()
    assert "output.weight" not in model_tensors(model)


# -- pieces, chosen by someone else ----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["window-4", "gru", *POSITIONS]),
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    context=st.integers(1, 9),
)
def test_any_pieces_give_what_the_whole_gives(kind: str, cuts: list[int], context: int) -> None:
    model = build(kind, **({"context": context} if kind in POSITIONS else {}))
    symbols = text(2, sum(cuts))
    with torch.no_grad():
        assert_near(read_in_pieces(model, symbols, cuts)[0], model(symbols)[0])


# -- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        dict(kind="feed_forward_lm", size=8, hidden_size=16, window=3),
        dict(kind="feed_forward_lm", size=8, hidden_size=16, window=3, direct=True),
        *(dict(kind="recurrent_lm", size=8, hidden_size=16, cell=cell, num_layers=1) for cell in sorted(CELLS)),
        dict(kind="recurrent_lm", size=16, hidden_size=16, tie=True, dropout=0.1, dropout_kind="variational",
             weight_drop=0.1, embedding_dropout=0.05, init_range=0.1),
        *(
            dict(kind="transformer_lm", size=16, num_heads=2, feed_forward_size=16, num_layers=2, dropout=0.0,
                 positions=positions, context=12)
            for positions in sorted(POSITIONS)
        ),
    ],
    ids=lambda given: "-".join(str(given[key]) for key in ("kind", "cell", "positions", "direct") if key in given),
)  # fmt: skip
def test_it_learns_to_count(given: dict[str, Any]) -> None:
    """a b b c c c and again: the next letter needs the last three, and there is no doubt after them."""
    torch.manual_seed(71)
    settings_kind, model_kind = LANGUAGE_MODELS[given["kind"]]
    model = model_kind(settings_kind(**given), num_symbols=7)
    stream = torch.tensor([4, 5, 5, 6, 6, 6]).repeat(20)
    rows = torch.stack([stream[start : start + 25] for start in range(6)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    def loss() -> Tensor:
        features, _ = model(rows[:, :-1])
        logits = model.output(features)[:, 3:12]  # the first ones cannot know where they are
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 4:13].flatten())

    for _ in range(400):
        optimizer.zero_grad()
        now = loss()
        if now.item() < 0.03:
            break
        now.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        assert loss().item() < 0.05


@pytest.mark.parametrize("kind", ["window-4", "lstm", "rotary"])
def test_truncated_back_propagation_trains_with_a_carried_state(kind: str) -> None:
    """Two symbols at a time of a b b c c c: what comes after a `b` is known only from the piece before."""
    model = build(
        kind, dropout=0.0, **{"lstm": {"weight_drop": 0.0}, "rotary": {"attention_dropout": 0.0}}.get(kind, {})
    )
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.03)
    stream = torch.tensor([4, 5, 5, 6, 6, 6]).repeat(5)[None]
    losses: list[float] = []  # of each time through
    while len(losses) < 20 and min(losses, default=1.0) > 0.1:
        state, total = None, 0.0
        for start in range(0, 24, 2):
            features, state = model(stream[:, start : start + 2], detach(state))
            loss = F.cross_entropy(model.output(features)[0], stream[0, start + 1 : start + 3])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 12
        losses.append(total)
    assert losses[-1] < 0.1 < losses[0]


# -- looking inside --------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_trace_of_a_recurrent_model_holds_its_gates_and_changes_nothing() -> None:
    model, symbols, trace = build("lstm"), text(), Trace()
    assert_near(model(symbols, trace=trace)[0], model(symbols)[0])
    view = trace["decoder.1.forward.forget_gate"]
    assert (view.values.shape, view.axes) == ((TIME, 11), ("target_in", "unit"))
    assert {name.split(".")[1] for name in trace.names()} == {"0", "1"}
    trace.labels["target_in"] = ["x"] * TIME
    assert trace["decoder.0.forward.cell"].rows == ["x"] * TIME


@pytest.mark.parametrize("positions", sorted(POSITIONS))
@torch.no_grad()
def test_a_trace_of_a_transformer_holds_its_heads_and_changes_nothing(positions: str) -> None:
    model, trace = build(positions), Trace()
    symbols = text(ROWS, CONTEXT)
    assert_near(model(symbols, trace=trace)[0], model(symbols)[0])
    assert trace.names() == ["decoder.0.self", "decoder.1.self"]
    view = trace["decoder.1.self"]
    assert (view.values.shape, view.axes) == ((3, CONTEXT, CONTEXT), ("head", "target", "target_in"))
    torch.testing.assert_close(torch.from_numpy(view.values).sum(-1), torch.ones(3, CONTEXT))
    assert not torch.from_numpy(view.values).triu(1).any()
    with pytest.raises(AssertionError, match="one window"):
        model(text(), trace=Trace())


def test_a_window_has_nothing_to_show() -> None:
    trace = Trace()
    build("window-4")(text(), trace=trace)
    assert len(trace) == 0

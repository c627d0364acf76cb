"""Parameter formulas: worked out by hand, and for every model and table entry held against the tensors."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from seqloom.models import CLASSIFIERS, LANGUAGE_MODELS, READERS, TRANSLATORS
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS, LSTM
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.counting import FORMULAS, LEGEND, Part, Written, count_parameters
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.positions import POSITIONS
from seqloom.nn.recurrent import RecurrentStack
from seqloom.nn.transformer import FEED_FORWARDS, NORMS, TransformerStack

SOURCE, TARGET = 17, 19

RECURRENT = dict(kind="recurrent_translator", embedding_size=7, hidden_size=10)
TRANSFORMER = dict(
    kind="transformer_translator", size=12, num_heads=3, feed_forward_size=23, encoder_layers=1, decoder_layers=2
)
KINDS: dict[str, dict[str, Any]] = {"recurrent": RECURRENT, "transformer": TRANSFORMER}
KINDS |= {f"cell-{name}": RECURRENT | dict(cell=name, encoder_layers=2, decoder_layers=2) for name in CELLS}
KINDS |= {f"score-{name}": RECURRENT | dict(attention=name, order="bahdanau", input_feeding=True) for name in SCORES}
KINDS |= {f"decoder-{name}": RECURRENT | dict(decoder=name) for name in ("state", "context", "attention")}
KINDS |= {
    f"recurrent-{name}": RECURRENT | dict(connections=name, encoder_layers=3, decoder_layers=2) for name in CONNECTIONS
}
KINDS |= {
    "one-direction": RECURRENT | dict(bidirectional=False, hidden_size=11),
    "readout": RECURRENT | dict(readout_size=13, decoder="state"),
    "tied": RECURRENT | dict(tie_output=True),
    "shared": RECURRENT | dict(share_embeddings=True),
    "shared-tied": RECURRENT | dict(share_embeddings=True, tie_output=True),
}
KINDS |= {f"transformer-{name}": TRANSFORMER | dict(connections=name) for name in CONNECTIONS}
KINDS |= {f"positions-{name}": TRANSFORMER | dict(positions=name) for name in POSITIONS}
KINDS |= {f"norm-{name}": TRANSFORMER | dict(norm=name) for name in NORMS}
KINDS |= {f"feed-forward-{name}": TRANSFORMER | dict(feed_forward=name) for name in FEED_FORWARDS}
KINDS |= {
    "sizes-of-positions": TRANSFORMER | dict(positions="learned", max_positions=29),
    "clipped": TRANSFORMER | dict(positions="relative", max_distance=5),
    "post-norm": TRANSFORMER | dict(norm_first=False),
}
for _tie in [(), ("source", "target"), ("output", "target"), ("source", "output"), ("source", "target", "output")]:
    KINDS[f"tie-{'-'.join(_tie) or 'nothing'}"] = TRANSFORMER | dict(tie=_tie)
WINDOW, SEQUENCE = (
    dict(kind="feed_forward_lm", size=7, hidden_size=10),
    dict(kind="recurrent_lm", size=7, hidden_size=10),
)
CAUSAL = dict(kind="transformer_lm", size=12, num_heads=3, feed_forward_size=23, num_layers=2, context=29)
KINDS |= {f"language-cell-{name}": SEQUENCE | dict(cell=name, num_layers=2) for name in CELLS}
KINDS |= {f"language-{name}": SEQUENCE | dict(connections=name, num_layers=3) for name in CONNECTIONS}
KINDS |= {f"language-positions-{name}": CAUSAL | dict(positions=name) for name in POSITIONS}
KINDS |= {
    "window": WINDOW,
    "window-direct": WINDOW | dict(direct=True, window=3),
    "window-tied": WINDOW | dict(size=10, tie=True),
    "language-tied": SEQUENCE | dict(size=10, tie=True),
    "language-untied": CAUSAL | dict(tie=False),
    "both-ways": dict(kind="bidirectional_lm", size=7, num_layers=2),
    "both-ways-tied": dict(kind="bidirectional_lm", size=7, num_layers=1, tie=True),
    "masked": dict(kind="masked_lm", size=12, num_heads=3, feed_forward_size=23, num_layers=2),
    "language-dropping": SEQUENCE
    | dict(weight_drop=0.5, dropout=0.5, dropout_kind="variational", embedding_dropout=0.1),
}
PARTS: dict[str, Any] = {
    "convolution": dict(kind="convolution", size=6, kernel_size=5, num_layers=2),
    "embeddings": dict(kind="embeddings", size=6),
    "recurrent": dict(kind="recurrent", embedding_size=7, hidden_size=10),
    "text_convolution": dict(kind="text_convolution", embedding_size=7, widths=(2, 3), filters=5),
    "transformer": dict(kind="transformer", size=12, num_heads=3, feed_forward_size=23, num_layers=1),
}
KINDS |= {f"classifier-{name}": dict(kind="classifier", encoder=encoder) for name, encoder in PARTS.items()}
KINDS |= {
    "classifier-ngrams": dict(kind="classifier", encoder=dict(PARTS["embeddings"], word_ngrams=2, buckets=11)),
    "classifier-attention": dict(kind="classifier", encoder=PARTS["recurrent"], pooling="attention"),
    "documents": dict(kind="hierarchical_classifier", embedding_size=7, word_size=10, sentence_size=12),
}
for _encoder in PARTS:
    for _decoder in ("recurrent", "transformer"):
        KINDS[f"{_encoder}-{_decoder}"] = dict(kind="encoder_decoder", encoder=PARTS[_encoder], decoder=PARTS[_decoder])
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))
MODELS = TRANSLATORS | LANGUAGE_MODELS | READERS | CLASSIFIERS


def build(kind: str) -> nn.Module:
    settings_kind, model_kind = MODELS[KINDS[kind]["kind"]]
    settings: Any = settings_kind(**KINDS[kind])
    if settings.kind in CLASSIFIERS:
        return model_kind(settings, num_symbols=SOURCE, num_labels=5)
    if settings.kind not in TRANSLATORS:
        return model_kind(settings, num_symbols=TARGET)
    one = settings.expanded().one_vocabulary
    return model_kind(settings, source_symbols=TARGET if one else SOURCE, target_symbols=TARGET)


def num_weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def typed_in(numbers: str) -> int:
    """What a calculator makes of `4(128·64 + 64² + 64)`."""
    text = re.sub(r"(?<=[\d)])\(", "*(", numbers.replace("·", "*").replace("²", "**2"))
    return int(eval(text, {"__builtins__": {}}))


# -- the contract ----------------------------------------------------------------------------------------------------


def test_the_kinds_hold_every_model() -> None:
    counted = {"ngram_lm"}  # it has n-grams
    assert {given["kind"] for given in KINDS.values()} == MODELS.keys() - counted


@every_kind
def test_formulas_sum_to_what_the_tensors_hold(kind: str) -> None:
    model = build(kind)
    parts = count_parameters(model)
    assert sum(part.count for part in parts) == num_weights(model)
    covered = [name for part in parts if part.tied_to is None for name in part.tensors]
    assert sorted(covered) == sorted(name for name, _ in model.named_parameters()), "each tensor in exactly one part"


@every_kind
def test_what_is_shown_is_what_is_counted(kind: str) -> None:
    for part in count_parameters(build(kind)):
        if part.tied_to is None:
            assert typed_in(part.numbers) == part.count, part
            assert set(re.findall("[a-zA-Z]", part.formula)) == part.sizes.keys()
            assert part.sizes.keys() <= LEGEND.keys()


@every_kind
def test_every_part_has_a_formula_of_its_own(kind: str) -> None:
    """Tensors stand alone only where another tensor of their module is tied."""
    rules = {kind.__name__ for kind in FORMULAS}
    parts = count_parameters(build(kind))
    tied = {part.name.rpartition(".")[0] for part in parts if part.tied_to}
    for part in parts:
        if part.name == "mask":  # one vector, which belongs to the model itself
            continue
        assert part.kind in rules
        assert len(part.tensors) > 1 or part.tensors[0] != part.name or part.name.rpartition(".")[0] in tied


@every_kind
def test_a_tie_names_the_tensor_that_is_counted(kind: str) -> None:
    model = build(kind)
    tensors = dict(model.named_parameters(remove_duplicate=False))
    counted = dict(model.named_parameters())
    ties = {part.name: part.tied_to for part in count_parameters(model) if part.tied_to}
    assert ties.keys() == tensors.keys() - counted.keys()
    for name, first in ties.items():
        assert first in counted
        assert tensors[name] is tensors[first]


# -- from the settings alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", sorted(CELLS))
def test_a_recurrent_translator_from_its_settings(cell: str) -> None:
    e, n, half = 7, 10, 5
    blocks = {"elman": 1, "elman_sigmoid": 1, "gru": 3, "lstm": 4, "lstm_coupled": 3, "lstm_peephole": 4}[cell]
    more = {"gru": 1, "lstm_peephole": 3}.get(cell, 0)

    def layer(reads: int, gives: int) -> int:
        return blocks * gives * (reads + gives + 1) + more * gives

    encoder = 2 * layer(e, half) + 2 * layer(n, half)
    decoder = layer(e, n) + layer(n, n)
    rest = SOURCE * e + TARGET * e + n * n + (2 * n * n + n) + (n * TARGET + TARGET)
    assert sum(part.count for part in count_parameters(build(f"cell-{cell}"))) == encoder + decoder + rest


@pytest.mark.parametrize("positions", sorted(POSITIONS))
def test_a_transformer_from_its_settings(positions: str) -> None:
    d, f, head = 12, 23, 4
    attention, feed_forward, norm = 4 * d * (d + 1), d * f + f + f * d + d, 2 * d
    encoder = attention + feed_forward + 2 * norm + norm
    decoder = 2 * (2 * attention + feed_forward + 3 * norm) + norm
    table = {"learned": 2 * 512 * d, "relative": 3 * 33 * head}.get(positions, 0)
    rest = SOURCE * d + TARGET * d + TARGET + table
    assert sum(part.count for part in count_parameters(build(f"positions-{positions}"))) == encoder + decoder + rest


def test_a_window_from_its_settings() -> None:
    """Bengio et al. 2003, section 2, with direct connections: |V| (1 + n m + h) + h (1 + (n - 1) m)."""
    m, h, n = 7, 10, 4
    direct = TARGET * (1 + n * m + h) + h * (1 + (n - 1) * m)
    assert sum(part.count for part in count_parameters(build("window-direct"))) == direct
    n = 5
    without = TARGET * (1 + m + h) + h * (1 + (n - 1) * m)
    assert sum(part.count for part in count_parameters(build("window"))) == without


def test_language_models_from_their_settings() -> None:
    lstm = TARGET * 7 + 4 * 10 * (7 + 10 + 1) + 4 * 10 * (10 + 10 + 1) + (10 * TARGET + TARGET)
    assert sum(part.count for part in count_parameters(build("language-cell-lstm"))) == lstm
    d, f = 12, 23
    layer = 4 * d * (d + 1) + (d * f + f + f * d + d) + 2 * 2 * d
    transformer = TARGET * d + TARGET + 2 * layer + 2 * d
    assert sum(part.count for part in count_parameters(build("language-positions-none"))) == transformer
    assert sum(part.count for part in count_parameters(build("language-positions-learned"))) == transformer + 29 * d


# -- by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "formula", "numbers", "count"),
    [
        ("elman", "mn + n² + n", "3·5 + 5² + 5", 45),
        ("elman_sigmoid", "mn + n² + n", "3·5 + 5² + 5", 45),
        ("gru", "3(mn + n² + n) + n", "3(3·5 + 5² + 5) + 5", 140),
        ("lstm", "4(mn + n² + n)", "4(3·5 + 5² + 5)", 180),
        ("lstm_coupled", "3(mn + n² + n)", "3(3·5 + 5² + 5)", 135),
        ("lstm_peephole", "4(mn + n² + n) + 3n", "4(3·5 + 5² + 5) + 3·5", 195),
    ],
)
def test_cells_by_hand(cell: str, formula: str, numbers: str, count: int) -> None:
    (part,) = count_parameters(CELLS[cell](input_size=3, hidden_size=5))
    assert (part.formula, part.numbers, part.count) == (formula, numbers, count)


def test_two_lstm_layers_by_hand() -> None:
    """Both ways: each direction reads 6, then 8, and gives 4."""
    stack = RecurrentStack(cell="lstm", input_size=6, hidden_size=8, num_layers=2, bidirectional=True)
    assert [(part.name, part.count) for part in count_parameters(stack)] == [
        ("layers.0.cells.0", 176),  # 4 (24 + 16 + 4)
        ("layers.0.cells.1", 176),
        ("layers.1.cells.0", 208),  # 4 (32 + 16 + 4)
        ("layers.1.cells.1", 208),
    ]


def test_a_layer_of_transformer_tiny_by_hand() -> None:
    sizes = dict(size=128, num_layers=1, num_heads=4, feed_forward_size=256)
    parts = count_parameters(TransformerStack(**sizes, causal=True, cross=True))
    assert [(part.name, part.formula, part.numbers, part.count) for part in parts] == [
        ("layers.0.attention", "4d² + 4d", "4·128² + 4·128", 66_048),
        ("layers.0.cross", "4d² + 4d", "4·128² + 4·128", 66_048),
        ("layers.0.feed_forward", "2df + d + f", "2·128·256 + 128 + 256", 65_920),
        ("layers.0.around.0.norm", "2d", "2·128", 256),
        ("layers.0.around.1.norm", "2d", "2·128", 256),
        ("layers.0.around.2.norm", "2d", "2·128", 256),
        ("norm", "2d", "2·128", 256),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "formula", "numbers"),
    [
        ("recurrent", "encoder.reader.embedding", "Vd", "17·7"),
        ("recurrent", "decoder.score", "qk", "10·10"),
        ("recurrent", "decoder.readout", "mn + n", "20·10 + 10"),
        ("score-additive", "decoder.score", "q² + qk + q", "10² + 10·10 + 10"),
        ("recurrent-highway", "encoder.stack.connections.1", "d² + d", "10² + 10"),
        ("recurrent-dense", "encoder.stack.connections.1", "(s + 1)d²", "(2 + 1)·10²"),
        ("transformer-dense", "decoder.stack.layers.1.around.0.connection", "(s + 1)d²", "(4 + 1)·12²"),
        ("feed-forward-swiglu", "encoder.stack.layers.0.feed_forward", "3df + d + 2f", "3·12·23 + 12 + 2·23"),
        ("norm-rms", "decoder.stack.norm", "d", "12"),
        ("sizes-of-positions", "encoder.stack.positions", "pd", "29·12"),
        ("clipped", "decoder.stack.layers.1.attention.positions", "(2c + 1)h", "(2·5 + 1)·4"),
        ("recurrent-transformer", "decoder.bridge", "mn + n", "10·12 + 12"),
        ("transformer-recurrent", "decoder.bridge", "mn + n", "12·10 + 10"),
        ("classifier-embeddings", "output", "mn + n", "6·5 + 5"),
        ("tied", "decoder.output.bias", "n", "19"),
    ],
)
def test_parts_by_hand(kind: str, name: str, formula: str, numbers: str) -> None:
    found = {part.name: part for part in count_parameters(build(kind))}
    assert (found[name].formula, found[name].numbers) == (formula, numbers)


def test_ties_by_hand() -> None:
    def ties(kind: str) -> dict[str, str]:
        return {part.name: part.tied_to for part in count_parameters(build(kind)) if part.tied_to}

    assert ties("recurrent") == ties("tie-nothing") == {}
    assert ties("tied") == ties("tie-output-target") == {"decoder.output.weight": "decoder.embedding.weight"}
    assert ties("shared") == {"decoder.embedding.weight": "encoder.reader.embedding.weight"}
    assert ties("tie-source-target-output") == {
        "decoder.embedding.weight": "encoder.reader.embedding.weight",
        "decoder.output.weight": "encoder.reader.embedding.weight",
    }


# -- the pieces ------------------------------------------------------------------------------------------------------


def test_terms_write_themselves() -> None:
    a, b, three, ten = Written("a"), Written("b"), Written("3"), Written("10")
    assert str(4 * (a * b + b**2 + b)) == "4(ab + b² + b)"
    assert str(4 * (three * ten + ten**2)) == "4(3·10 + 10²)"
    assert str((a + 1) * (b + a) ** 2) == "(a + 1)(b + a)²"
    assert str((three + 1) * ten) == "(3 + 1)·10"
    assert str((a * b) ** 2 + 2 * (a * b)) == "(ab)² + 2ab"


def test_what_has_no_formula_is_counted_by_its_shapes() -> None:
    class Strange(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cube, self.number = nn.Parameter(torch.empty(2, 3, 5)), nn.Parameter(torch.empty(()))
            self.inner = nn.Linear(7, 11)

    parts = count_parameters(Strange())
    assert [(part.name, part.formula, part.numbers, part.count) for part in parts] == [
        ("cube", "nma", "2·3·5", 30),
        ("number", "1", "1", 1),
        ("inner", "mn + n", "7·11 + 11", 88),
    ]


@pytest.mark.parametrize("part", [LSTM(input_size=3, hidden_size=5), nn.LayerNorm(5), nn.Linear(3, 5)])
def test_a_formula_that_has_grown_old_is_found_out(part: nn.Module) -> None:
    assert len(count_parameters(part)) == 1
    part.forgotten = nn.Parameter(torch.empty(2))
    with pytest.raises(AssertionError, match="is not the"):
        count_parameters(part)


def test_a_linear_map_belongs_to_the_part_around_it_and_nothing_else_does() -> None:
    relative = POSITIONS["relative"](size=6, num_heads=2, max_length=9, distance=4)
    parts: list[Part] = count_parameters(SelfAttention(size=6, num_heads=2, positions=relative))
    assert {part.kind: part.count for part in parts} == {"Relative": 27, "SelfAttention": 168}

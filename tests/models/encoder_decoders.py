"""What the tests of encoder-decoders share: every kind of them, random models, batches with padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batches.collate import Batch, Target, Tokens, collate_pairs
from seqloom.models import TRANSLATORS
from seqloom.models.encoder_decoder import EncoderDecoder
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.nn.connections import CONNECTIONS
from seqloom.nn.dropout import Dropout
from seqloom.nn.masks import length_mask
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.positions import POSITIONS
from seqloom.nn.transformer import FEED_FORWARDS

SOURCE_SYMBOLS, TARGET_SYMBOLS, EMBEDDING, HIDDEN, HEADS, HEAD, INNER = 17, 19, 7, 10, 3, 4, 11
SIZE = HEADS * HEAD
SOURCES = [[4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14]]
TARGETS = [[5, 4], [6, 7, 8, 9, 10, 11], [12, 13, 14]]
TABLES = ("source", "target", "output")

# -- the short form of two recurrent parts ---------------------------------------------------------------------------

RECURRENT: dict[str, dict[str, Any]] = {}
for _cell in CELLS:
    for _decoder in ("state", "context", "attention"):
        RECURRENT[f"{_cell}-{_decoder}"] = dict(cell=_cell, decoder=_decoder)
for _score in SCORES:
    for _order in ("luong", "bahdanau"):
        for _fed in (False, True):
            _name = f"{_score}-{_order}" + ("-fed" if _fed else "")
            RECURRENT[_name] = dict(cell="gru", attention=_score, order=_order, input_feeding=_fed)
for _connections in CONNECTIONS:
    RECURRENT |= {
        _connections: dict(connections=_connections, encoder_layers=3, decoder_layers=3),
        f"{_connections}-bahdanau-fed": dict(
            connections=_connections, encoder_layers=2, decoder_layers=3, order="bahdanau", input_feeding=True
        ),
        f"{_connections}-state": dict(connections=_connections, decoder_layers=3, decoder="state"),
        f"{_connections}-context": dict(connections=_connections, decoder_layers=2, decoder="context"),
    }
RECURRENT |= {
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

# -- the short form of two Transformers ------------------------------------------------------------------------------

TRANSFORMER: dict[str, dict[str, Any]] = {
    **{name: dict(positions=name) for name in POSITIONS},
    **{f"{name}-post-norm": dict(positions=name, norm_first=False) for name in POSITIONS},
    **{name: dict(connections=name) for name in sorted(CONNECTIONS)},
    **{name: dict(feed_forward=name) for name in FEED_FORWARDS},
    "rms": dict(norm="rms"),
    "few-positions": dict(positions="learned", max_positions=3),
    "few-distances": dict(positions="relative", max_distance=2),
    "one-layer": dict(encoder_layers=1, decoder_layers=1),
    "one-head": dict(num_heads=1),
    "deeper-decoder": dict(encoder_layers=1, decoder_layers=3),
    "untied": dict(tie=()),
    "all-tied": dict(tie=TABLES),
}

# -- any encoder with any decoder ------------------------------------------------------------------------------------

ENCODER_PARTS: dict[str, dict[str, Any]] = {
    "convolution": dict(kind="convolution", size=HIDDEN, kernel_size=3, num_layers=2, dropout=0.3),
    "embeddings": dict(kind="embeddings", size=HIDDEN, dropout=0.3),
    "recurrent": dict(kind="recurrent", cell="gru", embedding_size=EMBEDDING, hidden_size=HIDDEN, dropout=0.3),
    "text_convolution": dict(kind="text_convolution", embedding_size=EMBEDDING, widths=(1, 4), filters=5),
    "transformer": dict(
        kind="transformer", size=HIDDEN, num_heads=2, feed_forward_size=INNER, num_layers=2, dropout=0.3
    ),
}
_recurrent = dict(kind="recurrent", cell="gru", embedding_size=EMBEDDING, hidden_size=HIDDEN, dropout=0.3)
_transformer = dict(kind="transformer", size=SIZE, num_heads=HEADS, feed_forward_size=INNER, num_layers=2, dropout=0.3)
DECODER_PARTS: dict[str, dict[str, Any]] = {
    f"{score}-{order}" + ("-fed" if fed else ""): dict(_recurrent, attention=score, order=order, input_feeding=fed)
    for score in SCORES
    for order in ("luong", "bahdanau")
    for fed in (False, True)
}
DECODER_PARTS |= {
    "state": dict(_recurrent, looks="state"),
    "context": dict(_recurrent, looks="context"),
    "lstm": dict(_recurrent, cell="lstm"),
    "other-sizes": dict(_recurrent, cell="lstm", embedding_size=5, hidden_size=13, attention="additive"),
    "deep": dict(_recurrent, num_layers=3, connections="residual", order="bahdanau", input_feeding=True),
    "deep-state": dict(_recurrent, cell="lstm", num_layers=2, looks="state"),
    "readout": dict(_recurrent, readout_size=5),
    "transformer": _transformer,
    "transformer-rotary": dict(_transformer, positions="rotary", num_layers=3, norm_first=False),
    "transformer-same-size": dict(_transformer, size=HIDDEN, num_heads=2, positions="relative"),
}
PARTS: dict[str, dict[str, Any]] = {
    f"{encoder} -> {decoder}": dict(encoder=ENCODER_PARTS[encoder], decoder=DECODER_PARTS[decoder])
    for encoder in ENCODER_PARTS
    for decoder in DECODER_PARTS
}
PARTS |= {
    "recurrent -> transformer, tied": dict(
        encoder=dict(ENCODER_PARTS["recurrent"], embedding_size=SIZE), decoder=_transformer, tie=TABLES
    ),
    "transformer -> luong, tied": dict(
        encoder=ENCODER_PARTS["transformer"], decoder=dict(_recurrent, embedding_size=HIDDEN), tie=("output", "source")
    ),
}

_BASES = {
    "recurrent_translator": dict(embedding_size=EMBEDDING, hidden_size=HIDDEN, dropout=0.3),
    "transformer_translator": dict(
        size=SIZE, num_heads=HEADS, feed_forward_size=INNER, encoder_layers=2, decoder_layers=2, dropout=0.3,
        attention_dropout=0.2, activation_dropout=0.2,
    ),
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    **{f"recurrent: {name}": dict(given, kind="recurrent_translator") for name, given in RECURRENT.items()},
    **{f"transformer: {name}": dict(given, kind="transformer_translator") for name, given in TRANSFORMER.items()},
    **{name: dict(given, kind="encoder_decoder") for name, given in PARTS.items()},
}
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))


def build_settings(kind: str, **more: Any) -> Any:
    given = KINDS[kind] | more
    return TRANSLATORS[given["kind"]][0](**(_BASES.get(given["kind"], {}) | given))


def model_of(settings: Any, seed: int = 29, noise: float = 0.3) -> EncoderDecoder:
    """A random model with opinions strong enough that its answers differ."""
    torch.manual_seed(seed)
    source_symbols = TARGET_SYMBOLS if settings.expanded().one_vocabulary else SOURCE_SYMBOLS
    model = EncoderDecoder(settings, source_symbols=source_symbols, target_symbols=TARGET_SYMBOLS)
    for weight in model.parameters():  # at their start, biases and peepholes are zero and would hide mistakes
        weight.data += noise * torch.randn_like(weight)
    return model.eval()


def build(kind: str, **more: Any) -> EncoderDecoder:
    return model_of(build_settings(kind, **more))


def pairs() -> Batch:
    return collate_pairs(SOURCES, TARGETS)


def stretched(batch: Batch, source: int, target: int) -> Batch:
    """The same batch with more padding on both sides."""
    return Batch(
        replace(batch.source, ids=F.pad(batch.source.ids, (0, source))),
        replace(
            batch.target,
            inputs=F.pad(batch.target.inputs, (0, target)),
            outputs=F.pad(batch.target.outputs, (0, target)),
        ),
    )


def with_symbols(batch: Batch, *, source: Tensor | None = None, target: Tensor | None = None) -> Batch:
    """The same batch with other symbols that are read."""
    read, made = batch.source, batch.target
    return Batch(
        Tokens(read.ids if source is None else source, read.lengths, read.context),
        Target(made.inputs if target is None else target, made.outputs, made.lengths),
    )


def real_steps(batch: Batch) -> Tensor:
    """(batch, target): what comes out at padding is not defined."""
    return length_mask(batch.target.lengths, batch.target.inputs.shape[1])


def loss_of(model: EncoderDecoder, batch: Batch) -> Tensor:
    real = real_steps(batch)
    return F.cross_entropy(model.output(model(batch)[real]), batch.target.outputs[real])


def stepped(model: EncoderDecoder, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Features and attention, one symbol after the other."""
    state = model.start(batch.source)
    features, looked = [], []
    for time in range(batch.target.inputs.shape[1]):
        step, state, weights = model.advance(batch.target.inputs[:, time], state)
        features.append(step)
        looked.append(weights)
    return torch.stack(features, 1), None if looked[0] is None else torch.stack(looked, 1)


def without_dropout(model: nn.Module) -> None:
    """No vector is dropped any more; words still are."""
    for part in model.modules():
        if isinstance(part, Dropout):
            part.rate = 0.0
        elif isinstance(part, SelfAttention | CrossAttention):
            part.dropout = 0.0


def assert_near(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

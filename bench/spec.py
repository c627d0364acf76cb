"""The two models every trainer builds. Needs nothing but Python: each peer reads this in its own environment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
NEVER = -1e4  # the bias of symbols that must never come


@dataclass(frozen=True)
class TransformerSpec:
    """Transformer-tiny: pre-norm, sinusoidal positions, one table for source, target and output."""

    symbols: int
    encoder_layers: int = 4
    decoder_layers: int = 4
    size: int = 128
    heads: int = 4
    feed_forward: int = 256
    dropout: float = 0.3


@dataclass(frozen=True)
class RNNSpec:
    """Bidirectional LSTM, decoder LSTM, multiplicative attention after the decoder's step; no table is shared."""

    symbols: int
    embedding: int = 256
    hidden: int = 512
    dropout: float = 0.2


SPECS: dict[str, type[TransformerSpec] | type[RNNSpec]] = {"transformer": TransformerSpec, "rnn": RNNSpec}


def spec_values(spec: TransformerSpec | RNNSpec) -> dict[str, Any]:
    return asdict(spec)


def spec_from(model: str, values: dict[str, Any]) -> Any:
    return SPECS[model](**values)

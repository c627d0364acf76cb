"""How well hidden symbols were guessed: figures of masked language models, which have no probability of a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from seqloom.evaluation.figures import Report
from seqloom.evaluation.language import MOST_NATS

NOT_A_PERPLEXITY = (
    "This is not the perplexity of the text: each hidden symbol was guessed from all that stands around it. Compare it "
    "only with other masked models of the same symbols on the same text."
)


@dataclass(frozen=True)
class MaskedReport(Report):
    """What a model made of the hidden symbols of a text: `nll` is the sum over them, in nats."""

    name: str
    nll: float
    hidden: int
    symbols: int
    reading: str

    @property
    def loss(self) -> float:
        """Nats a hidden symbol."""
        return self.nll / self.hidden

    @property
    def pseudo_perplexity(self) -> float:
        """Of the hidden symbols."""
        return math.exp(min(MOST_NATS, self.loss))

    @property
    def figures(self) -> dict[str, float]:
        return {"loss": self.loss, "pseudo_perplexity": self.pseudo_perplexity}

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "loss": self.loss,
            "pseudo_perplexity": self.pseudo_perplexity,
            "hidden": self.hidden,
            "symbols": self.symbols,
            "reading": self.reading,
            "note": NOT_A_PERPLEXITY,
        }

    def render(self) -> str:
        share = f"{100 * self.hidden / self.symbols:.1f} %"
        return "\n".join(
            [
                f"{self.name}: read {self.reading}, {self.hidden:,} of {self.symbols:,} symbols ({share}) hidden",
                f"{'loss':<17} {self.loss:>9.4f}  nats a hidden symbol",
                f"{'pseudo-perplexity':<17} {self.pseudo_perplexity:>9.2f}  of the hidden symbols",
                NOT_A_PERPLEXITY,
            ]
        )

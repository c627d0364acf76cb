"""What every model of ours gives back, whichever engine it runs on. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from seqloom.errors import UserError

CLOSED = "an exported model cannot be looked into; ask the model folder that it was made from"


@dataclass(frozen=True)
class Answer:
    """What the model said to one text.

    `alternatives` holds the other answers when more than one was asked for; `trace` shows how the answer came about.
    What not everybody asks for is computed when it is first asked for.
    """

    source: str
    text: str
    sums: Callable[[], tuple[float, float]] = field(repr=False, compare=False)
    labels: Callable[[], list[str]] = field(repr=False, compare=False)
    finished: bool
    chances: Callable[[], list[float]] = field(repr=False, compare=False)
    alternatives: list[Answer] = field(default_factory=list, repr=False)
    tracer: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def _sums(self) -> tuple[float, float]:
        return self.sums()

    @property
    def score(self) -> float:
        """What answers are ranked by."""
        return self._sums[0]

    @property
    def log_probability(self) -> float:
        """The sum over `tokens` and the end symbol."""
        return self._sums[1]

    @cached_property
    def tokens(self) -> list[str]:
        """The answer's symbols as they are shown."""
        return self.labels()

    @cached_property
    def token_log_probabilities(self) -> list[float]:
        """One a token, and one for the end symbol."""
        return self.chances()

    @cached_property
    def trace(self) -> Any:
        """Attention and gates."""
        if self.tracer is None:
            raise UserError(CLOSED)
        return self.tracer()

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": round(self.score, 6),
            "log_probability": round(self.log_probability, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
            "finished": self.finished,
        }
        if self.alternatives:
            values["alternatives"] = [other.to_dict() for other in self.alternatives]
        return values

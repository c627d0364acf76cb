"""What every model of ours gives back, whichever engine it runs on. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol


class Details(Protocol):
    """What is known of an answer beyond its text, computed when it is asked for."""

    def sums(self) -> tuple[float, float]:
        """What it is ranked by, and its log probability."""
        ...

    def labels(self) -> list[str]:
        """Its symbols as they are shown."""
        ...

    def chances(self) -> list[float]:
        """The log probability of each symbol and of the end."""
        ...

    def trace(self) -> Any:
        """Attention and gates on the way to it."""
        ...


class Answer:
    """What the model said to one text.

    `alternatives` holds the other answers when more than one was asked for; `trace` shows how the answer came about.
    What not everybody asks for is computed when it is first asked for.
    """

    def __init__(
        self, source: str, text: str, finished: bool, details: Details, alternatives: Sequence[Answer] = ()
    ) -> None:
        self.source, self.text, self.finished, self.details = source, text, finished, details
        self.alternatives = list(alternatives)

    def __repr__(self) -> str:
        return f"Answer(source={self.source!r}, text={self.text!r}, finished={self.finished})"

    @cached_property
    def _sums(self) -> tuple[float, float]:
        return self.details.sums()

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
        return self.details.labels()

    @cached_property
    def token_log_probabilities(self) -> list[float]:
        """One a token, and one for the end symbol."""
        return self.details.chances()

    @cached_property
    def trace(self) -> Any:
        """Attention and gates."""
        return self.details.trace()

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

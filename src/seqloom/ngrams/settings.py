"""What can be said about n-gram models in a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from seqloom.settings import ModelSettings

MAX_ORDER = 6


class NGramSettings(ModelSettings):
    """The next word given the few before it, from counts."""

    kind: Literal["ngram_lm"]
    order: int = Field(5, ge=1, le=MAX_ORDER, description="words of the longest n-gram, the predicted one included")
    smoothing: Literal["kneser_ney", "add_k"] = Field(
        "kneser_ney",
        description="kneser_ney: interpolated, modified (Chen and Goodman 1998); add_k: k more of everything",
    )
    k: float = Field(1.0, ge=1e-12, le=1e12, description="add_k: added to every count; 1 is Laplace's rule")
    min_counts: tuple[int, ...] = Field(
        (),
        description="rarer n-grams are dropped; a number for each order, the last one for all above; empty keeps all",
    )

    @field_validator("min_counts")
    @classmethod
    def _rising(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(number < 1 for number in value):
            raise ValueError(f"every number must be at least 1; got {list(value)}")
        # What an n-gram begins and ends with is at least as frequent as itself, so it is kept wherever the n-gram is.
        if list(value) != sorted(value):
            raise ValueError(f"a longer n-gram cannot be kept more easily than a shorter one; got {list(value)}")
        return value

    @model_validator(mode="after")
    def _fitting(self) -> NGramSettings:
        if len(self.min_counts) > self.order:
            raise ValueError(f"min_counts has {len(self.min_counts)} numbers for {self.order} orders")
        return self

    def min_count(self, order: int) -> int:
        """How often an n-gram of this order must occur to be kept."""
        return self.min_counts[min(order, len(self.min_counts)) - 1] if self.min_counts else 1

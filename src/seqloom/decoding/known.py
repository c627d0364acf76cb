"""Decoding settings without the library that checks them. No torch.

Loading that library takes longer than answering many sentences on CTranslate2; settings that were checked when they
were written need not be checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqloom.decoding.lengths import length_limit

if TYPE_CHECKING:
    from seqloom.decoding.settings import DecodingSettings

FIELDS = frozenset(
    [
        "method",
        "beam_size",
        "n_best",
        "length_penalty",
        "coverage_penalty",
        "early_stop",
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "seed",
        "max_length",
        "max_ratio",
        "unknown",
        "batch_tokens",
        "precision",
    ]
)


class KnownDecoding:
    """The attributes of `DecodingSettings`, with values that are known to be sound."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def limit(self, source_length: int) -> int:
        """As `DecodingSettings.limit`."""
        return length_limit(self.max_length, self.max_ratio, source_length)

    def overridden(self, values: Mapping[str, Any]) -> KnownDecoding | DecodingSettings:
        """As `DecodingSettings.overridden`, which is asked wherever there is something to check."""
        if self.n_best == 1 and all(_is_sound(name, value) for name, value in values.items()):
            return KnownDecoding({**vars(self), **values})
        from seqloom.decoding.settings import DecodingSettings

        return DecodingSettings(**vars(self)).overridden(values)


def _is_sound(name: str, value: object) -> bool:
    """Whether a new value can be nothing but right: true of what is changed most."""
    if name == "method":
        return value in ("greedy", "beam")
    return name == "beam_size" and type(value) is int and 1 <= value <= 1000

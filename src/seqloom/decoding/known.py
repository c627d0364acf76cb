"""Decoding settings without the library that checks them. No torch.

Loading that library takes longer than answering many sentences on CTranslate2. Values that are plainly sound need not
be checked by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from seqloom.decoding.lengths import length_limit

if TYPE_CHECKING:
    from seqloom.decoding.settings import DecodingSettings


def _word(*choices: str) -> Callable[[Any], bool]:
    return lambda value: value in choices


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: type(value) is float and low <= value <= high


FIELDS: dict[str, Callable[[Any], bool]] = {
    "method": _word("greedy", "beam", "sample"),
    "beam_size": _whole(1, 1000),
    "n_best": _whole(1, 1),  # more may need a wider beam
    "length_penalty": _number(0.0, 10.0),
    "coverage_penalty": _number(0.0, 10.0),
    "early_stop": lambda value: type(value) is bool,
    "temperature": _number(0.01, 100.0),
    "top_k": _whole(0, 1_000_000),
    "top_p": _number(0.01, 1.0),
    "repetition_penalty": _number(1.0, 10.0),
    "seed": _whole(0, 2**63),
    "max_length": _whole(1, 100_000),
    "max_ratio": _number(0.01, 100.0),
    "unknown": _word("replace", "forbid", "keep"),
    "batch_tokens": _whole(1, 1_000_000_000),
    "precision": _word("float32", "int8"),
}
"""The settings, and which values of each are sound beyond doubt."""


def is_sound(values: Any) -> bool:
    """Whether these are all the settings, and `DecodingSettings` would take them as they are."""
    return (
        isinstance(values, dict)
        and values.keys() == FIELDS.keys()
        and all(sound(values[name]) for name, sound in FIELDS.items())
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
        changed = {**vars(self), **values}
        if is_sound(changed):
            return KnownDecoding(changed)
        from seqloom.decoding.settings import DecodingSettings

        return DecodingSettings(**vars(self)).overridden(values)

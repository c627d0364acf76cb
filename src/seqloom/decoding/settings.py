"""The choices a user has about the search. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from seqloom.decoding.lengths import length_limit
from seqloom.settings import Settings, validated


class DecodingSettings(Settings):
    """How answers are searched for."""

    method: Literal["greedy", "beam", "sample"] = "beam"
    beam_size: int = Field(5, ge=1, le=1000)
    n_best: int = Field(1, ge=1, le=1000)
    length_penalty: float = Field(
        1.0, ge=0.0, le=10.0, description="0: none; larger favours longer answers (Wu et al. 2016)"
    )
    coverage_penalty: float = Field(0.0, ge=0.0, description="punish leaving source words unattended (Wu et al. 2016)")
    early_stop: bool = Field(True, description="stop once beam_size answers ended; false: until none could still win")
    temperature: float = Field(1.0, gt=0.0)
    top_k: int = Field(0, ge=0, description="sample among the k likeliest symbols; 0: all")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="sample among the likeliest symbols that sum to p")
    repetition_penalty: float = Field(
        1.0, ge=1.0, description="above 1: symbols that came before become less likely (after Keskar et al. 2019)"
    )
    seed: int = 0
    max_length: int = Field(200, ge=1, le=1_000_000)
    max_ratio: float = Field(
        3.0, gt=0.0, le=1000.0, description="an answer has at most this many symbols a source symbol, plus 10"
    )
    unknown: Literal["replace", "forbid", "keep"] = Field(
        "replace", description="in place of UNK: the most attended source word (or UNK never comes)"
    )
    batch_tokens: int = Field(2048, ge=1)
    precision: Literal["float32", "int8"] = Field(
        "float32", description="int8: products of rounded numbers; faster, and a slightly different model"
    )

    @model_validator(mode="after")
    def _fits(self) -> DecodingSettings:
        if self.method == "greedy" and self.n_best > 1:
            raise ValueError("method: greedy finds one answer; n_best needs beam or sample")
        return self

    def limit(self, source_length: int) -> int:
        """The most symbols an answer to a source of this length may have, end symbol included."""
        return length_limit(self.max_length, self.max_ratio, source_length)

    def overridden(self, values: Mapping[str, Any]) -> DecodingSettings:
        """These settings with some changed; a beam is at least as wide as the number of answers asked for."""
        settings: DecodingSettings = validated(DecodingSettings, {**self.model_dump(), **values}, "decoding")
        if settings.method == "beam" and settings.n_best > settings.beam_size:
            return settings.model_copy(update={"beam_size": settings.n_best})
        return settings

"""Which vectors a model's embeddings start from, said in its settings."""

from __future__ import annotations

from pydantic import Field, model_validator

from seqloom.settings import Settings


class PretrainedSettings(Settings):
    """Vectors of words for the embeddings of a new model. A finished model has them inside and needs no file."""

    source: str | None = Field(None, description="file or folder of vectors for the source embedding")
    target: str | None = Field(None, description="file or folder of vectors for the target embedding")
    freeze: bool = Field(False, description="symbols that have a vector keep it; the others learn")

    @model_validator(mode="after")
    def _something(self) -> PretrainedSettings:
        if self.source is None and self.target is None:
            raise ValueError("name vectors for source, target or both")
        return self

    def paths(self) -> dict[str, str]:
        """Side -> path."""
        sides = {"source": self.source, "target": self.target}
        return {side: path for side, path in sides.items() if path is not None}


class TextVectorsSettings(Settings):
    """Vectors of words for the one embedding of a language model."""

    text: str = Field(description="file or folder of vectors")
    freeze: bool = Field(False, description="symbols that have a vector keep it; the others learn")


def refuse_two_for_one(pretrained: PretrainedSettings | None, one_table: bool) -> None:
    """One table cannot start from two sets of vectors."""
    if one_table and pretrained is not None and len(pretrained.paths()) == 2:
        raise ValueError("pretrained: both sides are one table here; name vectors for source or for target, not both")

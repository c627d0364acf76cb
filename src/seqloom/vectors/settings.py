"""What can be said about word vectors in a recipe. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seqloom.settings import ModelSettings, Settings


class SubwordSettings(Settings):
    """Pieces of words with vectors of their own (Bojanowski et al. 2017): a word is the mean of itself and them."""

    shortest: int = Field(3, ge=1, le=10, description="characters of the shortest piece, the marks < and > included")
    longest: int = Field(6, ge=1, le=20, description="characters of the longest piece")
    buckets: int = Field(2_000_000, ge=1, le=100_000_000, description="rows of the table that pieces are hashed into")

    @model_validator(mode="after")
    def _ordered(self) -> SubwordSettings:
        if self.longest < self.shortest:
            raise ValueError(f"longest ({self.longest}) is less than shortest ({self.shortest})")
        return self


class Word2VecSettings(ModelSettings):
    """Skip-gram and CBOW (Mikolov et al. 2013)."""

    kind: Literal["skipgram", "cbow"]
    size: int = Field(100, ge=1, le=10_000, description="of a vector")
    window: int = Field(5, ge=1, le=1000, description="words on each side")
    dynamic_window: bool = Field(True, description="draw each word's window uniformly from 1 to window")
    objective: Literal["negative_sampling", "hierarchical_softmax", "softmax"] = Field(
        "negative_sampling", description="how a word is predicted; softmax is for small vocabularies"
    )
    negatives: int = Field(5, ge=1, le=100, description="negative_sampling: wrong words for each right one")
    noise_power: float = Field(0.75, ge=0.0, le=1.0, description="negative_sampling: frequencies to this power")
    subwords: SubwordSettings | None = Field(None, description="fastText: words share their pieces")


class GloveSettings(ModelSettings):
    """Global vectors (Pennington et al. 2014)."""

    kind: Literal["glove"]
    size: int = Field(100, ge=1, le=10_000, description="of a vector")
    window: int = Field(10, ge=1, le=1000, description="words on each side, each counted 1/distance")
    x_max: float = Field(100.0, gt=0, description="co-occurrences above this count fully")
    alpha: float = Field(0.75, ge=0.0, le=1.0, description="how quickly rarer ones count less")


class PpmiSettings(ModelSettings):
    """Counts turned into positive pointwise mutual information, and these into short vectors by an SVD."""

    kind: Literal["ppmi"]
    size: int = Field(100, ge=1, le=10_000, description="of a vector")
    window: int = Field(5, ge=1, le=1000, description="words on each side")
    shift: float = Field(1.0, ge=1.0, description="log(shift) is taken from every value, like so many negatives")
    smoothing: float = Field(0.75, ge=0.0, le=1.0, description="context frequencies to this power")
    eigenvalue_power: float = Field(0.5, ge=0.0, le=1.0, description="of the singular values in the vectors")


VECTOR_MODELS: dict[str, type[ModelSettings]] = {
    "skipgram": Word2VecSettings,
    "cbow": Word2VecSettings,
    "glove": GloveSettings,
    "ppmi": PpmiSettings,
}


class WordsSettings(Settings):
    """Which words of the text get a vector."""

    split: Literal["words", "spaces"] = Field(
        "words", description="words: words and punctuation marks apart, punctuation dropped; spaces: as the text has it"
    )
    lowercase: bool = True
    min_count: int = Field(5, ge=1, description="rarer words have no vector")
    max_words: int | None = Field(None, ge=1, description="only the most frequent ones")
    phrases: int = Field(0, ge=0, le=5, description="passes that glue frequent pairs together: new_york")
    phrase_threshold: float = Field(10.0, gt=0, description="how much more often than by chance a phrase occurs")


class VectorTrainingSettings(Settings):
    """How long and how."""

    epochs: int = Field(5, ge=1)
    learning_rate: float | None = Field(None, gt=0, description="skipgram 0.025, cbow and glove 0.05 when absent")
    subsample: float = Field(1e-3, ge=0.0, description="words more frequent than this are left out at times; 0: never")
    threads: int | None = Field(None, ge=1, description="all cores when absent")
    deterministic: bool = Field(False, description="one thread, the same vectors every time")
    checkpoint_every: float = Field(120.0, gt=0, description="seconds")

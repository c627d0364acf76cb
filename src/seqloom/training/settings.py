"""Everything about a training run that is not the model or the data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seqloom.settings import Settings

StopMetric = Literal[
    "loss",
    "perplexity",
    "bleu",
    "chrf",
    "ter",
    "exact_match",
    "sequence_error_rate",
    "word_error_rate",
    "character_error_rate",
    "phone_error_rate",
    "aer",
]


TOKENS_OF_SHARD = 2048
MOST_SHARDS = 16  # unless a recipe says so


class FittingSettings(Settings):
    """How the weights of any model are fitted."""

    epochs: int | None = Field(None, ge=1)
    steps: int | None = Field(None, ge=1, description="updates; training ends at whichever limit comes first")
    minutes: float | None = Field(None, gt=0, description="of training, over all resumptions")
    accumulate: int = Field(1, ge=1, description="batches an update")

    optimizer: Literal["adam", "adamw", "muon", "sgd"] = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "inverse_square_root", "cosine", "plateau"] = "constant"
    warmup_steps: int = Field(0, ge=0, description="the rate rises linearly over the first steps")
    min_learning_rate: float = Field(0.0, ge=0)
    decay_steps: int | None = Field(None, ge=1, description="cosine: steps until the lowest rate (default: all)")
    plateau_factor: float = Field(0.5, gt=0, lt=1)
    plateau_patience: int = Field(1, ge=0, description="validations without improvement before the rate falls")

    clip_norm: float | None = Field(1.0, gt=0, description="global norm of the gradient, at most")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    candidates: int | None = Field(
        None,
        ge=1,
        description="sampled softmax: an update chooses among the batch's own symbols and so many drawn by frequency, "
        "not among all; quality is always measured over all",
    )

    validate_every: int = Field(500, ge=1, description="steps")
    checkpoint_every: int | None = Field(None, ge=1, description="steps (default: validate_every)")
    samples: int = Field(2, ge=0, description="answers shown at a validation")
    metric: str = Field("loss", description="decides which weights are kept and when to stop early")
    patience: int | None = Field(None, ge=1, description="validations without improvement before stopping")
    average: int = Field(1, ge=1, description="the mean of the last so many checkpoints is tried at the end")
    moving_average: float | None = Field(
        None, gt=0, lt=1, description="decay of a moving average of the weights, which is validated and kept instead"
    )

    shards: int | None = Field(
        None,
        ge=1,
        le=256,
        description="parts that every batch is cut into, each computed by one thread: the numbers depend on how many "
        "there are, not on who computes them (default: one for 2,048 tokens, but 2 to 16)",
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=256,
        description="threads of each process that compute shards side by side (default: one per core, but no more "
        "than there are shards)",
    )
    log_every: int = Field(50, ge=1, description="steps between two lines of the journal")
    precision: Literal["bfloat16", "float32"] | None = Field(
        "float32",
        description="of the numbers that matrix products multiply in training; sums, weights and everything else are "
        "float32",
    )
    plain: bool = Field(False, description="use the readable reference of every fast path")

    @model_validator(mode="after")
    def _fits(self) -> FittingSettings:
        if self.epochs is None and self.steps is None and self.minutes is None:
            raise ValueError("give at least one of epochs, steps, minutes")
        if self.schedule == "inverse_square_root" and not self.warmup_steps:
            raise ValueError("the inverse_square_root schedule needs warmup_steps")
        if self.moving_average is not None and self.average > 1:
            raise ValueError(f"moving_average and average: {self.average} are two ways to one end; choose one")
        if self.learning_rate < self.min_learning_rate:
            raise ValueError("min_learning_rate must not be above learning_rate")
        if self.plain and self.precision == "bfloat16":
            raise ValueError("plain: true computes in float32; leave precision: bfloat16 out")
        return self

    @property
    def num_shards(self) -> int:
        """Parts of a batch: as many as the settings say, else a power of two that the size of a batch gives."""
        fitting = max(2, self.tokens_of_batch // TOKENS_OF_SHARD)
        return self.shards or min(MOST_SHARDS, 2 ** (fitting.bit_length() - 1))

    @property
    def tokens_of_batch(self) -> int:
        """About how many a batch has."""
        return 0

    def num_pieces(self, num_tokens: int, suitable: int) -> int:
        """In how many pieces the gradients of so many target symbols are computed; `suitable` for the model."""
        return 1


class ExampleTrainingSettings(FittingSettings):
    """How a model is fitted that learns from examples of a source and a target."""

    batch_tokens: int = Field(4096, ge=8, description="padded tokens of the longer side in a batch, at most")
    piece_tokens: int | None = Field(
        None,
        ge=8,
        description="target symbols a worker computes with at once: larger batches are put together of such pieces "
        "(default: what suits the model)",
    )
    max_length: int = Field(200, ge=2, description="longer examples are left out of training")
    precision: Literal["bfloat16", "float32"] | None = Field(
        None,
        description="of the numbers that matrix products multiply in training; sums, weights and everything else are "
        "float32 (default: bfloat16 for a million weights and more, where the processor has instructions for it)",
    )
    validation_sentences: int = Field(
        500, ge=0, description="how many examples are answered at a validation; 0: only the loss"
    )

    @model_validator(mode="after")
    def _validates(self) -> ExampleTrainingSettings:
        if self.metric not in ("loss", "perplexity") and not self.validation_sentences:
            raise ValueError(f"metric: {self.metric} needs validation_sentences above 0")
        return self

    @property
    def tokens_of_batch(self) -> int:
        return self.batch_tokens

    def num_pieces(self, num_tokens: int, suitable: int) -> int:
        return 1 if self.plain else max(1, round(num_tokens / (self.piece_tokens or suitable)))


class TrainingSettings(ExampleTrainingSettings):
    """How a model that answers texts with texts is fitted."""

    consistency: float = Field(
        0.0, ge=0, description="R-Drop: every sentence is read twice, and how far the answers differ counts this much"
    )
    scheduled_sampling: float = Field(0.0, ge=0, le=1, description="chance of reading the model's own last symbol")
    metric: StopMetric = Field("loss", description="decides which weights are kept and when to stop early")

    def num_pieces(self, num_tokens: int, suitable: int) -> int:
        return super().num_pieces(num_tokens * (2 if self.consistency else 1), suitable)


class RunningTextTrainingSettings(FittingSettings):
    """How a model is fitted that reads running text."""

    batching: Literal["stream", "windows", "sentences"] = Field(
        "stream",
        description="stream: long rows of running text, the state carried on from batch to batch; windows: pieces of "
        "running text in random order; sentences: a line each",
    )
    rows: int = Field(20, ge=1, description="of a batch of stream or windows")
    length: int = Field(35, ge=1, description="symbols of a row of stream or windows; gradients go back no further")
    batch_tokens: int = Field(2048, ge=8, description="padded symbols in a batch of sentences, at most")
    max_length: int = Field(500, ge=2, description="of sentences: longer ones are left out")

    @property
    def num_shards(self) -> int:
        rows = self.batch_tokens if self.batching == "sentences" else self.rows
        return self.shards or min(rows, super().num_shards)

    @property
    def tokens_of_batch(self) -> int:
        return self.batch_tokens if self.batching == "sentences" else self.rows * self.length


class LanguageTrainingSettings(RunningTextTrainingSettings):
    """How a language model is fitted."""

    predict: Literal["all", "last"] = Field(
        "all", description="of sentences: every symbol of a line, or only the last one, which is before its end"
    )
    metric: Literal["loss", "perplexity", "bits_per_character", "accuracy"] = Field(
        "perplexity", description="decides which weights are kept and when to stop early (accuracy: of predict: last)"
    )

    @model_validator(mode="after")
    def _asks(self) -> LanguageTrainingSettings:
        last = self.predict == "last"
        if last and self.batching != "sentences":
            raise ValueError(f"predict: last needs batching: sentences; batching: {self.batching} knows no lines")
        if self.metric == "accuracy" and not last:
            raise ValueError("metric: accuracy is measured only with predict: last")
        if self.metric == "bits_per_character" and last:
            raise ValueError("metric: bits_per_character is of whole texts, not of predict: last; use accuracy or loss")
        return self


class MaskedTrainingSettings(RunningTextTrainingSettings):
    """How a masked language model is fitted."""

    batching: Literal["windows", "sentences"] = Field(
        "sentences", description="windows: pieces of running text in random order; sentences: a line each"
    )
    metric: Literal["loss", "pseudo_perplexity"] = Field(
        "loss", description="decides which weights are kept and when to stop early"
    )


class BidirectionalTrainingSettings(RunningTextTrainingSettings):
    """How a bidirectional language model is fitted."""

    batching: Literal["sentences"] = Field("sentences", description="a line each: it is read from its end, too")
    metric: Literal["loss", "perplexity", "bits_per_character"] = Field(
        "perplexity", description="decides which weights are kept and when to stop early"
    )

"""What tasks share that learn from examples of a source and a target, whatever these are."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batches.collate import Batch
from seqloom.batches.samplers import BucketSampler, Position, padding_share, sorted_batches
from seqloom.batches.shards import Field, Sequences, SymbolCounts, write_shard
from seqloom.corpus.examples import Pair, paired
from seqloom.corpus.kinds import KINDS, corpus_of, describe, fingerprint, is_corpus, kind_of, read_pairs
from seqloom.errors import UserError
from seqloom.losses import Loss
from seqloom.parallel import side_by_side, spread
from seqloom.tasks.base import Examined, PairDataSettings, Progress, Say
from seqloom.tasks.network import Network, NetworkRecipe
from seqloom.training.loop import Validation
from seqloom.training.settings import ExampleTrainingSettings

VALIDATION_TOKENS = 1024
BATCHES = 32  # of a search, at least: the shorter the last ones are, the less one thread waits for another
SEARCHED_AT_LEAST = 512  # tokens of a batch, however few there are for each thread

Compute = Callable[[Any, Batch], tuple[Tensor, Tensor]]  # model, batch -> summed loss to minimise, and to report


class ExampleRecipe(NetworkRecipe):
    """Examples of a source and a target."""

    data: PairDataSettings
    training: ExampleTrainingSettings


class Examples:
    """An encoded corpus, on disk."""

    def __init__(self, source: Any, target: Any, sequences: dict[str, Sequences]) -> None:
        self.sides = {"source": source, "target": target}
        self.rows: dict[str, dict[str, Sequences]] = {side: {} for side in self.sides}
        for name, sequence in sequences.items():
            side, _, field = name.partition(".")
            self.rows[side][field] = sequence

    @property
    def lengths(self) -> SymbolCounts:
        """How long each example is on each side that has a length, ends included."""
        first = {side: next(iter(rows.values())) for side, rows in self.rows.items()}
        long = {side: rows for side, rows in first.items() if rows.depth}
        return SymbolCounts(*long.values(), ends=[self.sides[side].ends for side in long])

    def __len__(self) -> int:
        return len(next(iter(self.rows["source"].values())))

    def batch(self, indices: np.ndarray) -> Batch:
        sides = (
            kind.collate({name: [rows[int(i)] for i in indices] for name, rows in self.rows[side].items()})
            for side, kind in self.sides.items()
        )
        return Batch(*sides)


class Supervised(Network):
    """A task with a source and a target; what it learned of the data is in these two."""

    verbs: ClassVar[frozenset[str]] = frozenset({"predict", "evaluate", "trace"})

    def __init__(self, source: Any, target: Any) -> None:
        self.source, self.target = source, target
        self.one_input = getattr(source, "one_input", self.one_input)

    # -- data --------------------------------------------------------------------------------------------------------

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, Any]:
        return {"data": corpus_of(data, None if recipe is None else recipe.data.train)}

    target_type: ClassVar[type] = str
    """What is given as the target of an example."""

    def examples(self, inputs: Any, targets: Any) -> list[Pair]:
        return paired(inputs, targets, self.is_input, self.one_input, self.target_type)

    @classmethod
    def describe(cls, corpus: Any) -> str:
        return describe(corpus)

    @classmethod
    def fingerprint(cls, corpus: Any) -> str:
        return fingerprint(corpus)

    @classmethod
    def read(cls, corpus: Any) -> list[Any]:
        return list(read_pairs(corpus))

    @classmethod
    def examine(cls, recipe: Any, say: Say, **limits: Any) -> Examined:
        kind = KINDS[kind_of(recipe.data.train)]
        if kind.has_symbols:
            limits |= cls._symbols(recipe, say)
        return Examined(*kind.examine(recipe.data.corpora(), **limits))

    @classmethod
    def _symbols(cls, recipe: Any, say: Say) -> dict[str, Any]:
        """What the doctor must know to count unknown symbols."""
        try:
            say("learning the vocabulary to count unknown words …")
            task = cls.learn(recipe, lambda text: None)
        except UserError:
            say("… which is not possible: the training data cannot be read (see below)")
            return {}
        sides = {"source": task.source, "target": task.target}
        found: dict[str, Any] = {} if task.target.is_text else {"max_ratio": float("inf")}
        return found | {"unknown_rate": lambda side, values: sides[side].unknown_rate(values)}

    # -- examples as numbers -----------------------------------------------------------------------------------------

    def encode(
        self,
        corpus: Any,
        progress: Callable[[int], None] | None = None,
        *,
        times: int = 1,
        recut: int | None = None,
    ) -> Examples:
        """The corpus as numbers, from the cache where it was encoded before.

        Args:
            corpus: where the examples come from.
            progress: is told how many were encoded.
            times: how often every example is written.
            recut: a seed, where texts are cut in another way each time.
        """
        how = {} if recut is None else {"recut": recut}
        sides: dict[str, dict[str, Field]] = {
            "source": self.source.fields(**how),
            "target": self.target.fields(**how),
        }
        fields = {f"{side}.{name}": field for side, own in sides.items() for name, field in own.items()}
        place = [0 if side == "source" else 1 for side, own in sides.items() for _ in own]
        examples = ([pair[at] for at in place] for _ in range(times) for pair in read_pairs(corpus))
        key = "\n".join([fingerprint(corpus), self.source.key(), self.target.key(), f"{times} {recut}"])
        return Examples(self.source, self.target, write_shard(examples, fields, key, progress))

    def encode_for_training(self, recipe: Any) -> Examples:
        return self.encode(recipe.data.train)

    # -- what is minimised -------------------------------------------------------------------------------------------

    def work(self, recipe: Any) -> ExampleWork:
        return ExampleWork(self, recipe)

    def of_loss(self, loss: float) -> dict[str, float]:
        """The figures that follow from the mean loss."""
        return {"loss": loss}

    def losses(self, train: Examples, s: Any) -> Compute:
        """How the loss of a batch is computed in a run with these training settings."""
        raise NotImplementedError

    def validate(
        self, model: Any, pairs: list[Any], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        """Figures besides the loss on some validation examples, and a few answers to read."""
        raise NotImplementedError

    # -- answering ---------------------------------------------------------------------------------------------------

    def warnings(self, raw: Any) -> list[str]:
        """What somebody should know before believing an answer to an input, where the source has anything to say."""
        of_source = getattr(self.source, "warnings", None)
        return [] if of_source is None else of_source(raw)

    def answered(
        self,
        raw: Sequence[Any],
        answer: Callable[[Any, list[int]], dict[int, Any]],
        *,
        batch_tokens: int,
        silent: Any = None,
        rows: int = 1,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Answers in batches of inputs of similar length, several threads side by side; input numbers come along.

        `answer` gets what an encoder reads and the numbers of its inputs; `silent`, where given, answers an empty one.
        `rows` are what a search has for each input. `progress` hears how many are done, by their length: long inputs,
        which come first, take longer.
        """
        encoded = self.source.encode(raw)
        first = next(iter(encoded.values()))
        lengths = np.array([_num_symbols(row) + self.source.ends for row in first], np.int64)

        def compute(indices: np.ndarray) -> dict[int, Any]:
            asked = [int(i) for i in indices if silent is None or len(first[i])]
            found = {int(i): silent for i in indices if silent is not None and not len(first[i])}
            if asked:
                some = {name: [values[i] for i in asked] for name, values in encoded.items()}
                found |= answer(self.source.collate(some), asked)
            return found

        shares = max(SEARCHED_AT_LEAST, int(lengths.sum()) // BATCHES)
        size, done = min(batch_tokens, shares) * 5 // max(rows, 5), 0
        for found in side_by_side(compute, sorted_batches(lengths, max(1, size))):
            done += int(lengths[list(found)].sum())
            if progress is not None:
                progress(len(raw) * done // int(lengths.sum()))
            yield from found.items()


def _num_symbols(row: Any) -> int:
    """Of a sequence, or of a sequence of sequences."""
    return sum(map(len, row)) if isinstance(row, list) and row and isinstance(row[0], list) else len(row)


def read_some(corpus: Any, most: int) -> list[Any]:
    """At most so many examples, spread over the corpus, always the same ones."""
    return sample_pairs(list(read_pairs(corpus)), most) if most else []


def read_examples(data: Any, name: str) -> list[Any]:
    """A corpus, or examples that were read before; there must be some."""
    pairs = list(read_pairs(data)) if is_corpus(data) else list(data)
    if not pairs:
        raise UserError(f"{name}: there is no example in it")
    return pairs


def counted(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Tells how many of all examples are answered, as an evaluation does."""

    def heard(done: int) -> None:
        if progress is not None:
            progress(done / total, f"{done:,} of {total:,}")

    return heard


def sample_pairs(pairs: Sequence[Any], most: int) -> list[Any]:
    """At most so many pairs, spread over all of them, always the same ones."""
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[i] for i in sorted(random.Random(0).sample(range(len(pairs)), most))]


class ExampleWork:
    """What such a task brings to the training loop."""

    def __init__(self, task: Supervised, recipe: Any) -> None:
        s = recipe.training
        self.task, self.recipe, self.settings = task, recipe, s
        self.train, self.valid = task.encode_for_training(recipe), task.encode(recipe.data.valid)
        self.sampler = BucketSampler(
            self.train.lengths, batch_tokens=s.batch_tokens, seed=recipe.seed, max_length=s.max_length
        )
        if not self.sampler.num_examples:
            raise UserError(
                f"{describe(recipe.data.train)}: no example is left to train on ({self.sampler.num_dropped} are empty "
                f"or longer than training.max_length {s.max_length} or training.batch_tokens {s.batch_tokens})"
            )
        self.valid_batches = sorted_batches(self.valid.lengths[:].max(1), VALIDATION_TOKENS)
        self.pairs = read_some(recipe.data.valid, s.validation_sentences)
        self.compute = task.losses(self.train, s)

    def batches(self, position: Position) -> Iterator[tuple[Position, Batch]]:
        for after, indices in self.sampler.batches_from(position):
            yield after, self.train.batch(indices)

    def batches_per_epoch(self) -> float:
        return self.sampler.batches_per_epoch()

    def epochs_done(self, position: Position) -> float:
        return self.sampler.epochs_done(position)

    def loss(self, model: nn.Module, batch: Batch, carried: Any = None) -> Loss:
        """Examples stand for themselves: nothing is carried on."""
        return Loss(*self.compute(model, batch))

    def restored(self, model: nn.Module, tensors: list[Tensor]) -> None:
        assert not tensors

    def validate(self, model: nn.Module, *, final: bool = False) -> Validation:
        def loss(indices: np.ndarray) -> tuple[float, int]:
            batch = self.valid.batch(indices)
            with torch.inference_mode():
                return float(self.loss(model, batch).nll), batch.num_tokens

        losses, counts = zip(*spread(loss, self.valid_batches), strict=True)
        figures, samples = self.task.validate(model, self.pairs, self.recipe, final=final)
        return Validation({**self.task.of_loss(sum(losses) / sum(counts)), **figures}, samples)

    def overview(self) -> str:
        """What is worth knowing before step 1, for a person."""
        dropped = self.sampler.num_dropped
        left_out = f" ({dropped:,} left out: empty or too long)" if dropped else ""
        return (
            f"{len(self.train):,} examples{left_out}, {round(self.batches_per_epoch()):,} batches an epoch, "
            f"vocabulary: {self.task.vocabulary()}"
        )

    def summary(self) -> dict[str, Any]:
        """The same and more, for the run's folder."""
        padding = padding_share(self.sampler.pool(0, 0)[:200], self.train.lengths)
        return {
            "examples": len(self.train),
            "left_out": self.sampler.num_dropped,
            "batches_per_epoch": round(self.batches_per_epoch()),
            "vocabulary": self.task.vocabulary(),
            "padding": [round(float(share), 4) for share in padding],
        }

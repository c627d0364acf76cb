"""Training of skip-gram, CBOW and fastText vectors: what is drawn, how fast it learns, in how many threads, and how a
stopped training goes on.

The text is worked through in parts of some thousand words. What happens in a part is a function of the vectors, the
seed, the epoch and the part's place in the text, so one thread always ends with the same bits. Several threads change
the same vectors without waiting for each other (Hogwild; Recht et al. 2011). A checkpoint stands between two blocks of
parts: all parts before it are done, none after it has begun.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from seqloom.errors import RunError, UserError
from seqloom.files import folder_written_aside, read_json
from seqloom.kernels.compiling import can_compile
from seqloom.machine import num_cores
from seqloom.vectors import reference
from seqloom.vectors.huffman import build_tree
from seqloom.vectors.reference import OBJECTIVES, SOFTMAX, Plan, Random
from seqloom.vectors.settings import VectorTrainingSettings, Word2VecSettings
from seqloom.vectors.subwords import buckets_of

PART_TOKENS, SOFTMAX_PART_TOKENS = 10_000, 250
PARTS_IN_BLOCK = 20
LAST_RATE = 1e-4  # the learning rate at the end, as a share of the first
RATES = {"skipgram": 0.025, "cbow": 0.05}
TELL_EVERY = 1.0  # seconds
QUICK = 2.0  # seconds that loading compiled code may take; compiling takes longer
LANES = 8  # rows are padded to a multiple, as the compiled loops want it
CHECKPOINT = "word2vec-checkpoint"


class Corpus(Protocol):
    """A text as numbers, each sentence ended by -1: `seqloom.batches.tokens.TokenCorpus`, or anything like it."""

    @property
    def num_words(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    def blocks(self, size: int, start: int = 0) -> Iterator[tuple[int, np.ndarray]]: ...


class Counts(Protocol):
    """The words and how often they occur: `seqloom.text.counts.WordCounts`."""

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def counts(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Progressed:
    """How far a training is."""

    words_done: int
    words_in_all: int  # epochs times the corpus
    words_per_second: float
    loss: float  # mean per prediction since the last report; NaN when there was none
    learning_rate: float
    compiling: bool


@dataclass(frozen=True)
class Trained:
    """What a training leaves."""

    input: np.ndarray  # float32 (words, size); with subwords the words' own rows
    output: np.ndarray  # float32 (words, size); hierarchical softmax: (words - 1, size), a row for each inner node
    buckets: np.ndarray | None  # float32 (buckets, size), with subwords
    words_seen: int
    seconds: float
    losses: tuple[float, ...]  # mean per prediction, of each epoch


class Part(NamedTuple):
    """Some sentences and how they are to be trained on."""

    epoch: int
    tokens: np.ndarray
    words: int
    seed: int
    first_rate: float
    last_rate: float


def train_word2vec(
    corpus: Corpus,
    counts: Counts,
    model: Word2VecSettings,
    training: VectorTrainingSettings,
    *,
    seed: int,
    folder: Path | None,
    resume: bool,
    tell: Callable[[Progressed], None] | None,
) -> Trained:
    """Train from the beginning, or from the checkpoint in `folder` when `resume` is true and there is one.

    With a folder, a checkpoint is written every `training.checkpoint_every` seconds and when Ctrl-C ends the training.
    """
    if not len(counts.words) or not corpus.num_words:
        raise UserError("there is no word to train a vector for; lower words.min_count or give more text")
    work = Training(corpus, counts, model, training, seed, folder, tell)
    if resume:
        work.load()
    elif folder is not None:
        shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
    work.run()
    return work.finished()


def make_plan(counts: Counts, model: Word2VecSettings, subsample: float) -> tuple[Plan, np.ndarray]:
    """The draws, paths and pieces in arrays; and the buckets that the pieces of these words fall into.

    Only those buckets have rows in training, after the words' own, in the order of the most frequent word with them.
    """
    words = len(counts.words)
    tree = build_tree(counts.counts if model.objective == "hierarchical_softmax" else counts.counts[:1])
    shares, others = reference.alias_table(counts.counts.astype(np.float64) ** model.noise_power)
    pieces = [buckets_of(word, model.subwords) for word in counts.words] if model.subwords else []
    lengths = np.array([len(rows) for rows in pieces] if pieces else [0] * words, np.int64)
    every = np.concatenate([*pieces, np.zeros(0, np.int64)])
    used, first_seen, which = np.unique(every, return_index=True, return_inverse=True)
    rank = np.empty(len(used), np.int64)
    rank[np.argsort(first_seen)] = np.arange(len(used))
    owner_first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    plan = Plan(
        cbow=model.kind == "cbow",
        objective=OBJECTIVES[model.objective],
        window=model.window,
        dynamic=model.dynamic_window,
        negatives=model.negatives,
        subwords=model.subwords is not None,
        keep=reference.keep_limits(counts.counts, subsample),
        shares=shares,
        others=others,
        path_starts=tree.starts.astype(np.int64),
        path_nodes=tree.nodes,
        path_signs=(1.0 - 2.0 * tree.codes).astype(np.float32),
        piece_starts=np.concatenate([[0], np.cumsum(lengths + 1)]).astype(np.int64),
        piece_rows=np.insert(words + rank[which], owner_first, np.arange(words)).astype(np.int32),
    )
    return plan, used[np.argsort(rank)]


def cut(block: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Parts of at most `size` tokens that end with a sentence; a sentence longer than that is cut."""
    ends = np.flatnonzero(block < 0) + 1
    start = 0
    while start < len(block):
        limit = start + size
        end = len(block)
        if limit < end:
            before = int(np.searchsorted(ends, limit, "right")) - 1
            end = int(ends[before]) if before >= 0 and ends[before] > start else limit
        yield block[start:end]
        start = end


def part_seed(seed: int, epoch: int, offset: int) -> int:
    """64 bits that differ from part to part."""
    return Random(Random(Random(seed).bits() ^ epoch).bits() ^ offset).bits()


class Training:
    """The vectors, how far they are, and the threads that change them."""

    def __init__(
        self,
        corpus: Corpus,
        counts: Counts,
        model: Word2VecSettings,
        training: VectorTrainingSettings,
        seed: int,
        folder: Path | None,
        tell: Callable[[Progressed], None] | None,
    ) -> None:
        self.corpus, self.model, self.training = corpus, model, training
        self.seed, self.folder, self.tell = seed, folder, tell
        self.words = len(counts.words)
        self.plan, self.used_buckets = make_plan(counts, model, training.subsample)
        self.first_rate = training.learning_rate or RATES[model.kind]
        self.words_in_all = training.epochs * corpus.num_words
        self.part_tokens = SOFTMAX_PART_TOKENS if self.plan.objective == SOFTMAX else PART_TOKENS
        self.identity = {
            "model": model.model_dump(mode="json"),
            "training": training.model_dump(
                mode="json", include={"epochs", "learning_rate", "subsample", "deterministic"}
            ),
            "seed": seed,
            "tokens": corpus.num_tokens,
            "words": zlib.crc32("\n".join(counts.words).encode() + counts.counts.astype("<i8").tobytes()),
        }
        self.inputs, self.outputs = self._first_vectors()
        # where the stream of parts is: everything before is handed out, and between two blocks it is done
        self.epoch, self.offset, self.words_given = 0, 0, 0
        self.losses, self.predictions = np.zeros(training.epochs), np.zeros(training.epochs, np.int64)
        self.words_done, self.seconds = 0, 0.0
        self.failure: BaseException | None = None
        self.lock = threading.Lock()  # for the stream and the sums, not for the vectors
        self.pausing, self.gate, self.stream, self.crew = False, threading.Event(), self.parts(), list[Thread]()

    def _first_vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs (words and used buckets) random, outputs 0; columns that only fill up a row are 0 and stay it."""
        size, width = self.model.size, -(-self.model.size // LANES) * LANES
        limit = (1.0 if self.plan.subwords else 0.5) / size
        random = np.random.default_rng(self.seed)
        inputs = np.zeros((self.words + len(self.used_buckets), width), np.float32)
        for start in range(0, len(inputs), 10_000):  # not all twice in memory
            rows = inputs[start : start + 10_000]
            rows[:, :size] = random.uniform(-limit, limit, (len(rows), size))
        nodes = self.words - 1 if self.model.objective == "hierarchical_softmax" else self.words
        return inputs, np.zeros((nodes, width), np.float32)

    def rate_at(self, words: int) -> float:
        """The learning rate after so many words: from its start straight down to a ten thousandth of it."""
        return self.first_rate * (1.0 - (1.0 - LAST_RATE) * min(1.0, words / self.words_in_all))

    def parts(self) -> Generator[Part, None, None]:
        """All parts from where the stream is, until the end or until a block ends and a pause is wanted."""
        while self.epoch < self.training.epochs:
            size = self.part_tokens * PARTS_IN_BLOCK
            blocks = self.corpus.blocks(size, self.offset) if self.offset < self.corpus.num_tokens else iter(())
            for offset, block in blocks:
                inside = 0
                for tokens in cut(block, self.part_tokens):
                    words = int(np.count_nonzero(tokens >= 0))
                    yield Part(
                        self.epoch,
                        tokens,
                        words,
                        part_seed(self.seed, self.epoch, offset + inside),
                        self.rate_at(self.words_given),
                        self.rate_at(self.words_given + words),
                    )
                    inside += len(tokens)
                    self.words_given += words
                self.offset = offset + len(block)
                if self.pausing:
                    return
            self.epoch, self.offset = self.epoch + 1, 0

    def run(self) -> None:
        """Until the last part is done. Whatever stops it, what has begun is finished and kept."""
        train_part = self._ready()
        self.begun, self.words_before, self.seconds_before = time.monotonic(), self.words_done, self.seconds
        self.saved = self.told = self.begun
        self.told_loss, self.told_predictions = float(self.losses.sum()), int(self.predictions.sum())
        try:
            while self.epoch < self.training.epochs:
                self._start(train_part)
                while any(thread.is_alive() for thread in self.crew):
                    for thread in self.crew:
                        thread.join(0.05)
                    now = time.monotonic()
                    if now - self.told >= TELL_EVERY:
                        self._report()
                    if self.folder is not None and now - self.saved >= self.training.checkpoint_every:
                        self.pausing = True
                if self.failure is not None:
                    raise self.failure
                self._check()
                if self.epoch < self.training.epochs:
                    self.save()
            self._report()
        except BaseException as error:
            self._settle()
            if self.failure is None and not isinstance(error, RunError):
                self.save()
            raise
        self.seconds = self._seconds_so_far()

    def _start(self, train_part: Callable[..., tuple[float, int]]) -> None:
        """Threads that take parts, all behind a gate: a Ctrl-C while they are started finds none at work."""
        threads = 1 if self.training.deterministic else self.training.threads or num_cores()
        self.pausing, self.gate, self.stream = False, threading.Event(), self.parts()
        self.crew = [
            Thread(target=self._work, args=(train_part, self.stream, self.gate), daemon=True) for _ in range(threads)
        ]
        for thread in self.crew:
            thread.start()
        self.gate.set()

    def _settle(self) -> None:
        """Let the threads come to the end of the block."""
        self.pausing = True
        if self.gate.is_set():
            for thread in self.crew:
                thread.join()
        else:  # some may not have been started; those that were find nothing to do
            self.stream.close()
            self.gate.set()

    def _work(
        self, train_part: Callable[..., tuple[float, int]], stream: Iterator[Part], gate: threading.Event
    ) -> None:
        """One thread: part after part."""
        gate.wait()
        try:
            while self.failure is None:
                with self.lock:
                    part = next(stream, None)
                if part is None:
                    return
                loss, predictions = train_part(
                    self.plan,
                    part.tokens,
                    np.uint64(part.seed),
                    part.first_rate,
                    part.last_rate,
                    self.inputs,
                    self.outputs,
                )
                with self.lock:
                    self.losses[part.epoch] += loss
                    self.predictions[part.epoch] += predictions
                    self.words_done += part.words
        except BaseException as error:  # the main thread raises it
            self.failure = error

    def _seconds_so_far(self) -> float:
        return self.seconds_before + time.monotonic() - self.begun

    def _report(self) -> None:
        """Tell how far it is, and the mean loss since this was told last."""
        self.told = time.monotonic()
        if self.tell is None:
            return
        with self.lock:
            loss, predictions, words = float(self.losses.sum()), int(self.predictions.sum()), self.words_done
        new = predictions - self.told_predictions
        mean = (loss - self.told_loss) / new if new else math.nan
        self.told_loss, self.told_predictions = loss, predictions
        speed = (words - self.words_before) / max(self.told - self.begun, 1e-9)
        self.tell(Progressed(words, self.words_in_all, speed, mean, self.rate_at(words), compiling=False))

    def _ready(self) -> Callable[..., tuple[float, int]]:
        """What trains on a part; compiled now if it never was, and said so if that takes its time."""
        if not can_compile():
            return reference.train_part
        made: list[Any] = []

        def compile_it() -> None:
            try:
                from seqloom.kernels.word2vec import train_part

                nothing = np.zeros(0, np.int32)
                train_part(self.plan, nothing, np.uint64(0), 0.0, 0.0, self.inputs, self.outputs)
                made.append(train_part)
            except BaseException as error:  # the main thread raises it
                made.append(error)

        thread = Thread(target=compile_it, daemon=True)
        thread.start()
        thread.join(QUICK)
        if thread.is_alive() and self.tell is not None:
            rate = self.rate_at(self.words_done)
            self.tell(Progressed(self.words_done, self.words_in_all, 0.0, math.nan, rate, compiling=True))
        thread.join()
        if isinstance(made[0], BaseException):
            raise made[0]
        compiled: Callable[..., tuple[float, int]] = made[0]
        return compiled

    def _check(self) -> None:
        """Numbers that exploded are no vectors."""
        if not (np.isfinite(self.inputs).all() and np.isfinite(self.outputs).all()):
            raise RunError(
                f"the vectors are no longer numbers after {self.words_done:,} words; "
                f"lower training.learning_rate (it was {self.first_rate:g})"
            )

    def save(self) -> None:
        """A checkpoint between two blocks, written aside."""
        if self.folder is None:
            return
        state = {
            "identity": self.identity,
            "epoch": self.epoch,
            "offset": self.offset,
            "words": self.words_given,
            "losses": self.losses.tolist(),
            "predictions": self.predictions.tolist(),
            "seconds": self._seconds_so_far(),
        }
        try:
            with folder_written_aside(self.folder / CHECKPOINT) as aside:
                save_file({"inputs": self.inputs, "outputs": self.outputs}, aside / "vectors.safetensors")
                (aside / "state.json").write_text(json.dumps(state), encoding="utf-8")
        except SafetensorError as error:
            raise RunError(f"cannot write {self.folder / CHECKPOINT}: {error}") from None
        self.saved = time.monotonic()

    def load(self) -> None:
        """Go on from the checkpoint, if there is one; it must be of the same training."""
        if self.folder is None or not (self.folder / CHECKPOINT).exists():
            return
        place = self.folder / CHECKPOINT
        state = read_json(place / "state.json")
        changed = _differences(state.get("identity") if isinstance(state, dict) else None, self.identity)
        if changed:
            raise UserError(f"{place}: of another training ({changed}); start anew, or take back the change")
        try:
            arrays = load_file(place / "vectors.safetensors")
            inputs, outputs = arrays["inputs"], arrays["outputs"]
            if inputs.shape != self.inputs.shape or outputs.shape != self.outputs.shape:
                raise ValueError
            self.inputs[:], self.outputs[:] = inputs, outputs
            self.epoch, self.offset, self.words_given = (int(state[name]) for name in ("epoch", "offset", "words"))
            self.losses[:], self.predictions[:] = state["losses"], state["predictions"]
            self.seconds, self.words_done = float(state["seconds"]), self.words_given
        except (SafetensorError, OSError, KeyError, TypeError, ValueError):
            raise UserError(f"{place}: damaged; delete it and start anew") from None

    def finished(self) -> Trained:
        """The vectors without what only fills up rows, and a row for every bucket."""
        size, subwords = self.model.size, self.model.subwords
        buckets = None
        if subwords is not None:
            random = np.random.default_rng([self.seed, 1])
            buckets = random.random((subwords.buckets, size), np.float32)  # what no word of the text has stays random
            buckets *= 2.0 / size
            buckets -= 1.0 / size
            buckets[self.used_buckets] = self.inputs[self.words :, :size]
        return Trained(
            input=np.ascontiguousarray(self.inputs[: self.words, :size]),
            output=np.ascontiguousarray(self.outputs[:, :size]),
            buckets=buckets,
            words_seen=self.words_done,
            seconds=self.seconds,
            losses=tuple((self.losses / np.maximum(self.predictions, 1)).tolist()),
        )


def _differences(old: Any, new: dict[str, Any]) -> str:
    """Which parts of a training's identity are not the same: `model.size 100, now 50`."""
    if not isinstance(old, dict):
        return "its state is not readable"
    flat_old, flat_new = _flat(old), _flat(new)
    names = [name for name in flat_new if flat_old.get(name) != flat_new[name]]
    return ", ".join(f"{name} {flat_old.get(name)}, now {flat_new[name]}" for name in names)


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found.update(_flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value})
    return found

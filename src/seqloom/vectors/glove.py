"""GloVe (Pennington et al. 2014): vectors whose products are the logarithms of how often words meet.

The co-occurrences are counted once, thrown into random buckets on disk, and learned from bucket by bucket: every epoch
in another order, with one bucket in memory.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from seqloom.errors import RunError, UserError
from seqloom.files import folder_written_aside, read_json
from seqloom.kernels.compiling import can_compile
from seqloom.kernels.glove import glove_steps, plain_glove_steps
from seqloom.machine import num_cores
from seqloom.text.counts import WordCounts
from seqloom.vectors.cooccurrence import Cooccurrences, Corpus, Tell, count_cooccurrences
from seqloom.vectors.settings import GloveSettings, VectorTrainingSettings

BUCKET_PAIRS = 1_000_000
RATE = 0.05
PAIR = np.dtype([("row", "<i4"), ("column", "<i4"), ("value", "<f4")])
NAMES = ("input", "output", "input_bias", "output_bias")
SQUARES = "_squares"
_CHECKPOINT = re.compile(r"glove-\d{5}-\d{7}")


@dataclass(frozen=True)
class GloveResult:
    """Two vectors for each word, as a word and as another word's context; their sum is the word's vector."""

    input: np.ndarray
    """(words, size) float32"""
    output: np.ndarray
    """(words, size) float32"""
    losses: list[float]
    """For each epoch, the mean over the co-occurrences of what eq. 8 sums, each as it was before its step."""
    seconds: float
    """Of learning, without counting."""
    num_pairs: int
    """Co-occurrences, each of which is learned from once an epoch."""

    @property
    def vectors(self) -> np.ndarray:
        return self.input + self.output


@dataclass
class GloveState:
    """All that learning changes."""

    tensors: dict[str, np.ndarray]
    """The values by NAMES, and with SQUARES added AdaGrad's sums."""
    epoch: int = 0
    bucket: int = 0
    """Buckets of this epoch that are done."""
    loss: float = 0.0
    """The sum over them."""
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0


def train_glove(
    corpus: Corpus,
    counts: WordCounts,
    model: GloveSettings,
    training: VectorTrainingSettings,
    *,
    seed: int,
    folder: Path,
    resume: bool = False,
    tell: Tell | None = None,
) -> GloveResult:
    """Count and learn.

    Args:
        corpus: the text as numbers.
        counts: its words.
        model: size, window and weights.
        training: epochs, learning rate, threads.
        seed: of the first vectors and of the order of the co-occurrences.
        folder: for co-occurrences (removed in the end) and checkpoints.
        resume: go on from the last checkpoint in `folder`, where there is one.
        tell: told about the progress.
    """
    told = tell or (lambda share, figures: None)
    key = _key(corpus, counts, model, training, seed)
    state = load_newest(folder, key) if resume else None
    if state is None:
        remove_checkpoints(folder)
        state = first_state(len(counts), model.size, seed)
    buckets = prepare_buckets(corpus, len(counts), model.window, seed, folder / f"pairs-{key}", told)
    threads = 1 if training.deterministic else training.threads or num_cores()
    with ThreadPoolExecutor(threads) as workers:
        learn(state, buckets, model, training, seed, workers, threads, lambda: save_state(folder, key, state), told)
    num_pairs = sum(_size(bucket) for bucket in buckets)
    shutil.rmtree(folder / f"pairs-{key}", ignore_errors=True)
    return GloveResult(state.tensors["input"], state.tensors["output"], state.losses, state.seconds, num_pairs)


def first_state(num_words: int, size: int, seed: int) -> GloveState:
    """Small random vectors, biases of 0, AdaGrad's sums at 1."""
    random = np.random.default_rng([seed, 0])
    tensors = {name: (random.random((num_words, size), np.float32) - 0.5) / size for name in NAMES[:2]}
    tensors |= {name: np.zeros(num_words, np.float32) for name in NAMES[2:]}
    return GloveState(tensors | {name + SQUARES: np.ones_like(values) for name, values in tensors.items()})


def weight_of(values: np.ndarray, x_max: float, alpha: float) -> np.ndarray:
    """f of eq. 9: how much a co-occurrence counts, by its number."""
    return np.minimum(1.0, (values / x_max) ** alpha).astype(np.float32)


def learn(
    state: GloveState,
    buckets: list[Path],
    model: GloveSettings,
    training: VectorTrainingSettings,
    seed: int,
    workers: Executor,
    threads: int,
    save: Callable[[], None],
    tell: Tell,
) -> None:
    """Learn what is left of all epochs; `state` is changed. The order is a function of seed and epoch alone."""
    num_pairs = sum(_size(bucket) for bucket in buckets)
    rate = RATE if training.learning_rate is None else training.learning_rate
    steps = glove_steps if can_compile() else plain_glove_steps
    if can_compile():
        tell(state.epoch / training.epochs, "compiling, once a machine")
        none = [np.empty(0, dtype) for dtype in (np.int32, np.int32, np.float32, np.float32)]
        steps(*none, rate, *_values(state))  # here, before several threads want to
    saved = last = time.monotonic()
    learned = 0
    began = state.seconds
    while state.epoch < training.epochs:
        visits = np.random.default_rng([seed, 1, state.epoch]).permutation(len(buckets))
        while state.bucket < len(buckets):
            number = int(visits[state.bucket])
            pairs = np.fromfile(buckets[number], PAIR)
            pairs = pairs[np.random.default_rng([seed, 2, state.epoch, number]).permutation(len(pairs))]
            targets, weights = np.log(pairs["value"]), weight_of(pairs["value"], model.x_max, model.alpha)
            columns = [np.ascontiguousarray(pairs["row"]), np.ascontiguousarray(pairs["column"]), targets, weights]
            values = _values(state)
            edges = np.linspace(0, len(pairs), threads + 1).astype(int)
            shares = [[part[a:b] for part in columns] for a, b in pairwise(edges)]
            futures = [workers.submit(steps, *share, rate, *values) for share in shares]
            stopped: KeyboardInterrupt | None = None
            try:
                wait(futures)
            except KeyboardInterrupt as interrupt:  # what has begun is finished: a checkpoint is between two buckets
                stopped = interrupt
                wait(futures)
            state.loss += sum(future.result() for future in futures)
            state.bucket += 1
            learned += len(pairs)
            now = time.monotonic()
            state.seconds, last = state.seconds + now - last, now
            if not np.isfinite(state.loss):
                raise RunError(f"the loss is {state.loss}; lower training.learning_rate (it is {rate:g})")
            if stopped is not None:
                save()
                raise stopped
            done = sum(_size(buckets[index]) for index in visits[: state.bucket])
            speed = learned / max(1e-9, state.seconds - began)
            tell(
                (state.epoch + done / num_pairs) / training.epochs,
                f"epoch {state.epoch + 1}  loss {state.loss / done:.4f}  {speed:,.0f} pairs/s",
            )
            if now - saved >= training.checkpoint_every:
                save()
                saved = time.monotonic()
        state.losses.append(state.loss / num_pairs)
        state.epoch, state.bucket, state.loss = state.epoch + 1, 0, 0.0


def prepare_buckets(corpus: Corpus, num_words: int, window: int, seed: int, folder: Path, tell: Tell) -> list[Path]:
    """Co-occurrences in files of about BUCKET_PAIRS, each in a random one; written unless they are there already."""
    if not (folder / "buckets.json").is_file():
        counted = folder.with_name(f"{folder.name}-counted")
        shutil.rmtree(counted, ignore_errors=True)

        def progress(share: float) -> None:
            tell(0.0, f"counting co-occurrences {share:4.0%}")

        try:
            pairs = count_cooccurrences(corpus, num_words, window, counted, progress=progress)
            if not len(pairs):
                raise UserError("no word has a neighbour; give sentences of more than one word")
            with folder_written_aside(folder) as aside:
                number = scatter(pairs, aside, seed)
                (aside / "buckets.json").write_text(json.dumps({"buckets": number}), encoding="utf-8")
        finally:
            shutil.rmtree(counted, ignore_errors=True)
    return [_bucket(folder, number) for number in range(int(read_json(folder / "buckets.json")["buckets"]))]


def scatter(pairs: Cooccurrences, folder: Path, seed: int) -> int:
    """Throw every co-occurrence into a random bucket -> how many buckets there are."""
    number = -(-len(pairs) // BUCKET_PAIRS)
    random = np.random.default_rng([seed, 3])
    for index in range(number):
        _bucket(folder, index).touch()
    for rows, columns, values in pairs.blocks(max(BUCKET_PAIRS, 20_000 * number)):
        chosen = random.integers(number, size=len(rows))
        order = np.argsort(chosen, kind="stable")
        block = np.empty(len(rows), PAIR)
        block["row"], block["column"], block["value"] = rows[order], columns[order], values[order]
        edges = np.searchsorted(chosen[order], np.arange(number + 1))
        for index in range(number):
            with _bucket(folder, index).open("ab") as file:
                file.write(block[edges[index] : edges[index + 1]].tobytes())
    return number


def _values(state: GloveState) -> list[np.ndarray]:
    return [state.tensors[name + ending] for ending in ("", SQUARES) for name in NAMES]


def _bucket(folder: Path, number: int) -> Path:
    return folder / f"bucket-{number:06d}.bin"


def _size(bucket: Path) -> int:
    return bucket.stat().st_size // PAIR.itemsize


# --- checkpoints ---------------------------------------------------------------------------------------------------


def _key(corpus: Corpus, counts: WordCounts, model: GloveSettings, training: VectorTrainingSettings, seed: int) -> str:
    """A hash of what a checkpoint depends on; more epochs or threads may be asked for later."""
    facts = [model.model_dump(mode="json"), training.learning_rate, seed, corpus.num_tokens, counts.counts.tolist()]
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8)
    digest.update("\0".join(counts.words).encode())
    return digest.hexdigest()


def save_state(folder: Path, key: str, state: GloveState) -> None:
    """Write a checkpoint aside, then remove those before it."""
    before = _checkpoints(folder)
    final = folder / f"glove-{state.epoch:05d}-{state.bucket:07d}"
    values = {name: getattr(state, name) for name in ("epoch", "bucket", "loss", "losses", "seconds")}
    with folder_written_aside(final) as aside:
        try:
            save_file(state.tensors, aside / "state.safetensors")
        except (OSError, SafetensorError) as error:
            raise RunError(f"cannot write {final}: {error}") from None
        (aside / "state.json").write_text(json.dumps({"key": key, **values}), encoding="utf-8")
    for old in before:
        if old != final:
            shutil.rmtree(old, ignore_errors=True)


def load_newest(folder: Path, key: str) -> GloveState | None:
    """The last checkpoint of the same training; None where there is none."""
    found = _checkpoints(folder)
    if not found:
        return None
    values = read_json(found[-1] / "state.json")
    if not isinstance(values, dict) or values.pop("key", None) != key:
        raise UserError(f"{found[-1]}: made with other text or settings; start anew, or restore what they were")
    try:
        return GloveState(load_file(found[-1] / "state.safetensors"), **values)
    except (OSError, SafetensorError, TypeError) as error:
        raise UserError(f"{found[-1]}: damaged ({error}); remove it and start anew") from None


def remove_checkpoints(folder: Path) -> None:
    for path in _checkpoints(folder):
        shutil.rmtree(path, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(path for path in folder.glob("glove-*") if _CHECKPOINT.fullmatch(path.name))

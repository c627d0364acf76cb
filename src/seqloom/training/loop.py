"""The training loop. It knows no task: `Work` brings batches, loss and validation.

A batch is always cut into the same number of shards, which the recipe alone decides. Each shard draws from a generator
of its own, seeded by (seed, step, shard), is computed by one thread, and carries on its own rows; gradients are added
up in a fixed binary tree. Threads, processes and machines only decide who computes which shard, so the weights have the
same bits however many there are.

Exact resumption rests on that, and on two more things: the batches are a function of (seed, epoch, position), and what
a task carries on from batch to batch is in the checkpoint.
"""

from __future__ import annotations

import math
import platform
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batches.prefetch import Prefetch
from seqloom.batches.samplers import Position
from seqloom.errors import RunError, Stopped
from seqloom.evaluation.figures import METRICS
from seqloom.files import read_json
from seqloom.losses import Loss
from seqloom.machine import num_cores
from seqloom.nn.adding import adding_to_tables
from seqloom.nn.drawing import drawing_from
from seqloom.nn.narrow import has_narrow_products, narrow_products
from seqloom.parallel import dividing, one_thread_each
from seqloom.training.checkpoints import (
    average_weights,
    checkpoints_in,
    load_checkpoint,
    load_tensors,
    prune_checkpoints,
    put_weights,
    save_checkpoint,
    save_weights,
    scheduled,
)
from seqloom.training.distributed import Ranks
from seqloom.training.journal import Journal
from seqloom.training.moving_average import PREFIX as MOVING
from seqloom.training.moving_average import MovingAverage
from seqloom.training.optimizers import build_optimizer, clip, gradient_norm, optimizer_tensors, restore_optimizer
from seqloom.training.progress import Progress, Silence, duration, say
from seqloom.training.schedules import Plateau
from seqloom.training.settings import FittingSettings
from seqloom.training.workers import Gradients, Worker, Workers, branches_within, tree_sum

BEST = Path("checkpoints", "best.safetensors")
CARRIED = "carried/"
WORTH_NARROWING = 1_000_000  # weights


class Batch(Protocol):
    @property
    def num_tokens(self) -> int: ...

    def __len__(self) -> int: ...

    def part(self, number: int, of: int) -> Batch: ...


class Validation(NamedTuple):
    """What a validation found: numbers by metric name, and a few samples to read."""

    metrics: dict[str, float]
    samples: list[dict[str, str]]


class Work(Protocol):
    """What a task brings to the loop."""

    def batches(self, position: Position) -> Iterator[tuple[Position, Batch]]: ...

    def batches_per_epoch(self) -> float: ...

    def epochs_done(self, position: Position) -> float: ...

    def loss(self, model: nn.Module, batch: Any, carried: Any) -> Loss:
        """`carried` is what the loss of the batch before gave back; None at the beginning.

        Threads ask for losses side by side: all chance comes from `own_generator()`.
        """
        ...

    def restored(self, model: nn.Module, tensors: list[Tensor]) -> Any:
        """What a loss carries on, put together again from its tensors in order; each has a row for a row of a shard."""
        ...

    def validate(self, model: nn.Module, *, final: bool = False) -> Validation:
        """Quality on the validation data; `final`: searched for as the finished model will search, not quickly."""
        ...


@dataclass
class Progressed:
    """How far a run is: the part of a checkpoint that is not tensors."""

    step: int = 0
    position: Position = field(default_factory=Position)
    plateau: Plateau = field(default_factory=Plateau)
    best: float | None = None
    best_step: int = 0
    averaged: int = 0  # checkpoints whose mean was kept, if it was
    waited: int = 0
    seconds: float = 0.0
    tokens: int = 0
    finished: bool = False
    shards: int = 0
    made_with: dict[str, str] = field(default_factory=dict)
    journal_bytes: int = 0
    window_loss: float = 0.0  # sums since the last line of the journal
    window_tokens: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "position": list(self.position), "plateau": self.plateau.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progressed:
        position, plateau = Position(*values["position"]), Plateau(**values["plateau"])
        return cls(**{**values, "position": position, "plateau": plateau})


class Interrupts:
    """While active, Ctrl-C and SIGTERM are only noted, so that a step ends and a checkpoint is written."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        def note(number: int, frame: FrameType | None) -> None:
            if self.caught is not None and number == signal.SIGINT:
                raise KeyboardInterrupt  # asked twice: stop at once
            self.caught = number

        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.before[number] = signal.signal(number, note)
            except ValueError:  # not in the main thread: the caller handles signals
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


class Updated(NamedTuple):
    """What an update found: the summed loss without smoothing, the norm of the gradient before clipping, and the notes.

    `notes` are the sums of what all ranks noted beside their losses, so that all of them know.
    """

    nll: float
    norm: float
    notes: list[float]


class Learner:
    """One process's part in every update: gradients of its shards, added up over all ranks, clipped, applied."""

    def __init__(
        self,
        model: nn.Module,
        work: Work,
        s: FittingSettings,
        seed: int,
        *,
        shards: int | None = None,
        workers: int = 1,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.work, self.settings, self.seed = model, work, s, seed
        self.ranks = Ranks() if ranks is None else ranks
        self.shards = s.num_shards if shards is None else shards
        self.own = self.ranks.owned(self.shards)
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = build_optimizer(model, s)
        self.narrow = multiplies_narrow(s, sum(weight.numel() for weight in self.weights))
        self.workers = Workers(model, max(1, min(workers, len(self.own))))
        self.carried: dict[int, Any] = {}  # of each shard's rows, from batch to batch

    def gradients(
        self, batches: Sequence[Batch], step: int, notes: Sequence[float] = ()
    ) -> tuple[float, Gradients, list[float]]:
        """Of the mean loss over all batches of an update; beside them the summed loss, and all ranks' notes."""
        num_tokens = sum(batch.num_tokens for batch in batches)
        losses = [0.0] * self.shards

        def compute(worker: Worker, shard: int) -> None:
            """The gradients of a shard, into the worker's weights."""
            worker.generator.manual_seed(_seed_of(self.seed, step, shard))
            draws = drawing_from(worker.generator)
            with narrow_products(self.narrow), adding_to_tables(not self.settings.plain), draws:
                for batch in batches:
                    for piece in self._pieces(batch, shard):
                        found = self.work.loss(worker.model, piece, self.carried.get(shard))
                        self.carried[shard] = found.carried
                        (found.loss / num_tokens).backward()
                        losses[shard] += float(found.nll)

        own = self.workers.run(compute, branches_within(self.own, 0, self.shards))
        agreed = self.ranks.agree([*losses, *notes])
        leaves = {(shard, shard + 1): agreed[shard] for shard in range(self.shards)}
        total = tree_sum(leaves, lambda one, other: one + other, 0, self.shards)
        return total, self.ranks.add_up(own, self.shards, self.weights), agreed[self.shards :]

    def _pieces(self, batch: Batch, shard: int) -> Iterator[Batch]:
        """The rows of a shard of a batch, as many at once as memory close to the processor holds well."""
        own = batch.part(shard, self.shards) if self.shards > 1 else batch
        if not len(own):  # fewer rows than shards
            return
        count = self.settings.num_pieces(own.num_tokens, getattr(self.model, "piece_tokens", own.num_tokens))
        for piece in [own] if count == 1 else (own.part(number, count) for number in range(count)):
            if len(piece):
                yield piece

    def update(self, batches: Sequence[Batch], step: int, rate: float, notes: Sequence[float] = ()) -> Updated:
        """The weights after this update; left alone where the numbers are not finite."""
        total, gradients, agreed = self.gradients(batches, step, notes)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.grad = gradient
        found = [gradient for gradient in gradients if gradient is not None]
        norm = gradient_norm(found)
        updated = Updated(total, float(norm), agreed)
        if math.isfinite(updated.nll) and math.isfinite(updated.norm):
            if self.settings.clip_norm is not None:
                clip(found, norm, self.settings.clip_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with narrow_products(self.narrow), dividing(1 if self.settings.optimizer == "muon" else self.workers.size):
                self.optimizer.step()  # Muon multiplies matrices; the others look at each number by itself
        self.optimizer.zero_grad(set_to_none=True)
        return updated


def multiplies_narrow(s: FittingSettings, num_weights: int) -> bool:
    """Whether matrix products multiply bfloat16 numbers: as the settings say, else where that is faster.

    A small model spends its time elsewhere, and may be one that learns something delicate.
    """
    if s.precision is not None:
        return s.precision == "bfloat16"
    return num_weights >= WORTH_NARROWING and not s.plain and has_narrow_products()


def _seed_of(seed: int, step: int, shard: int) -> int:
    return int(np.random.SeedSequence([seed, step, shard]).generate_state(1, np.uint64)[0])


def made_with() -> dict[str, str]:
    """What the bits of a training depend on besides recipe, seed and data."""
    return {
        "torch": torch.__version__,
        "processor": platform.machine(),
        "products": torch.backends.cpu.get_cpu_capability(),
    }


def seconds_an_update(model: nn.Module, work: Work, s: FittingSettings, rehearsed: int = 6) -> float:
    """How long an update takes this process: the median of a few after the first. The model is spoilt by it."""
    learner, batches, times = Learner(model, work, s, 0, workers=s.workers or num_cores()), work.batches(Position()), []
    model.train()
    for step in range(1, rehearsed + 1):
        group = [batch for _, batch in islice(batches, s.accumulate)]
        began = time.monotonic()
        learner.update(group, step, s.learning_rate)
        times.append(time.monotonic() - began)
    learner.workers.close()
    return statistics.median(times[1:])


def fit(
    model: nn.Module,
    work: Work,
    s: FittingSettings,
    run: Path,
    *,
    resume: bool = False,
    ranks: Ranks | None = None,
    seed: int = 0,
) -> Progressed:
    """Train until a limit, early stopping or an interrupt; leaves the best weights in the model.

    With several ranks all of them call this, with the same model, work and settings; rank 0 writes.
    """
    ranks = Ranks() if ranks is None else ranks
    at = Progressed() if not resume else _progressed(run)
    at.shards = at.shards or s.num_shards
    learner = Learner(
        model, work, s, seed, shards=at.shards, workers=s.workers or max(1, num_cores() // ranks.here), ranks=ranks
    )
    moving = None if s.moving_average is None else MovingAverage(model, s.moving_average)
    if at.step:
        _restore(run, learner, moving)
    leads = ranks.rank == 0
    journal = Journal(run / "journal.jsonl", at.journal_bytes) if leads else Journal(None)
    checkpoint_every = s.checkpoint_every or s.validate_every
    began = time.monotonic() - at.seconds
    batches = Prefetch(work.batches(at.position))
    last_log, last_log_step = time.monotonic(), at.step
    here = made_with()
    if not at.step:
        journal.write(
            "start",
            parameters=sum(weight.numel() for weight in learner.weights),
            shards=at.shards,
            workers=learner.workers.size,
            ranks=ranks.size,
            precision="bfloat16" if learner.narrow else "float32",
            **here,
        )
    elif here != at.made_with:
        changed = ", ".join(f"{name} {at.made_with.get(name)} -> {here[name]}" for name in here)
        journal.write("resume", step=at.step, differs=changed)
        if leads:
            say(f"resumed on another machine or torch ({changed}): the weights may differ in their last bits")
    at.made_with = here

    def checkpoint() -> None:
        at.journal_bytes = journal.size()
        kept = {} if moving is None else moving.tensors()
        kept |= {CARRIED + name: tensor for name, tensor in _carried(learner).items()}
        if leads:
            save_checkpoint(run, at.step, model, {**optimizer_tensors(model, learner.optimizer), **kept}, at.to_dict())
            prune_checkpoints(run, keep=s.average + 1, every=checkpoint_every)

    with (
        closing(batches),
        closing(learner.workers),
        one_thread_each(learner.workers.size, ranks),
        Progress("training", start=_share(at, s, work)) if leads else Silence() as progress,
        Interrupts() as interrupts,
    ):
        while not at.finished:
            model.train()
            group = list(islice(batches, s.accumulate))
            num_tokens = sum(batch.num_tokens for _, batch in group)
            rate = at.plateau.rate(at.step + 1, s, _share(at, s, work))
            notes = [float(interrupts.caught or 0), time.monotonic() - began if leads else 0.0]
            found = learner.update([batch for _, batch in group], at.step + 1, rate, notes)
            if not (math.isfinite(found.nll) and math.isfinite(found.norm)):
                raise RunError(_explosion(at.step + 1, found.nll, found.norm, rate, run))
            stopped, at.seconds = found.notes
            at.step, at.position = at.step + 1, group[-1][0]
            if moving is not None:
                moving.update(at.step)
            at.tokens += num_tokens
            at.window_loss, at.window_tokens = at.window_loss + found.nll, at.window_tokens + num_tokens
            progress.update(_share(at, s, work), f"step {at.step:,}  loss {found.nll / num_tokens:.3f}")

            if at.step % s.log_every == 0:
                now = time.monotonic()
                journal.write(
                    "train",
                    step=at.step,
                    epoch=at.position.epoch,
                    loss=round(at.window_loss / at.window_tokens, 5),
                    gradient_norm=round(found.norm, 5),
                    learning_rate=rate,
                    tokens_per_second=round(
                        at.window_tokens / (now - last_log) if at.step - last_log_step >= s.log_every else 0.0, 1
                    ),
                    seconds=round(at.seconds, 2),
                )
                progress.detail(
                    f"step {at.step:>6,}  loss {at.window_loss / at.window_tokens:.4f}  gradient norm {found.norm:.3f}"
                    f"  learning rate {rate:.3g}  {duration(at.seconds)}"
                )
                at.window_loss, at.window_tokens, last_log, last_log_step = 0.0, 0, now, at.step
            over = _over(at, s)
            if at.step % s.validate_every == 0 or over:
                before = time.monotonic()
                with nullcontext() if moving is None else moving.in_place():
                    _validate(model, work, s, at, run, journal, progress, leads)
                last_log += time.monotonic() - before  # pace is measured over training steps only
                over = over or (s.patience is not None and at.waited >= s.patience)
            at.finished = over
            if at.step % checkpoint_every == 0 or over or stopped:
                checkpoint()
                progress.detail(f"step {at.step:>6,}  checkpoint written")
            if stopped and not over:
                caught = interrupts.caught or signal.SIGTERM
                journal.write("stop", step=at.step, signal=signal.Signals(caught).name)
                raise Stopped(f"step {at.step:,}", caught)
        ranks.wait()  # for the best weights to be written
        _keep_best(model, work, s, at, run, journal)
    journal.close()
    return at


def _explosion(step: int, loss: float, norm: float, rate: float, run: Path) -> str:
    found = checkpoints_in(run)
    kept = f"the last good checkpoint is step {found[-1].step:,} in {run}" if found else "no checkpoint was written yet"
    return (
        f"step {step:,}: the numbers left the finite range (loss {loss}, gradient norm {norm}, learning rate "
        f"{rate:g}); {kept}. Lower training.learning_rate, add training.warmup_steps or lower training.clip_norm."
    )


def _progressed(run: Path) -> Progressed:
    """How far a run is by its last checkpoint."""
    found = checkpoints_in(run)
    return Progressed.from_dict(read_json(found[-1].folder / "state.json")) if found else Progressed()


def _restore(run: Path, learner: Learner, moving: MovingAverage | None) -> None:
    model, last = learner.model, checkpoints_in(run)[-1]
    tensors, state_tensors, _ = load_checkpoint(last)
    put_weights(model, tensors, str(last.folder))
    if moving is not None:
        moving.take(state_tensors)
    state_tensors = {name: tensor for name, tensor in state_tensors.items() if not name.startswith(MOVING)}
    carried = {name: state_tensors.pop(name) for name in list(state_tensors) if name.startswith(CARRIED)}
    if carried:
        whole = [carried[f"{CARRIED}{index}"] for index in range(len(carried))]
        for shard in learner.own:
            own = [tensor[shard :: learner.shards].contiguous() for tensor in whole]
            if len(own[0]):
                learner.carried[shard] = learner.work.restored(model, own)
    restore_optimizer(model, learner.optimizer, state_tensors)


def _carried(learner: Learner) -> dict[str, Tensor]:
    """What the next batch goes on from, as tensors by their number, with the rows of all shards in their places."""
    own = {shard: flat(learner.carried[shard]) for shard in learner.own if learner.carried.get(shard) is not None}
    shards = learner.ranks.gather_tensors(own)
    if not shards:
        return {}
    whole = {}
    for index, first in enumerate(next(iter(shards.values()))):
        rows = sum(len(tensors[index]) for tensors in shards.values())
        tensor = whole[str(index)] = first.new_empty(rows, *first.shape[1:])
        for shard, tensors in shards.items():
            tensor[shard :: learner.shards] = tensors[index]
    return whole


def flat(state: Any) -> list[Tensor]:
    """The tensors of nested tuples, in order."""
    if state is None:
        return []
    return [state] if isinstance(state, Tensor) else [tensor for item in state for tensor in flat(item)]


def rebuilt(like: Any, tensors: Iterator[Tensor]) -> Any:
    """Tensors in the form of other nested tuples."""
    if like is None:
        return None
    if isinstance(like, Tensor):
        return next(tensors)
    items = [rebuilt(item, tensors) for item in like]
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def _over(at: Progressed, s: FittingSettings) -> bool:
    return (
        (s.steps is not None and at.step >= s.steps)
        or (s.epochs is not None and at.position.epoch >= s.epochs)
        or (s.minutes is not None and at.seconds >= 60 * s.minutes)
    )


def _share(at: Progressed, s: FittingSettings, work: Work) -> float:
    """How much of the run is done, by the limit that is nearest."""
    shares = [0.0]
    if s.steps is not None:
        shares.append(at.step / s.steps)
    if s.minutes is not None:
        shares.append(at.seconds / (60 * s.minutes))
    if s.epochs is not None:
        shares.append(work.epochs_done(at.position) / s.epochs)
    return max(shares)


def _validate(
    model: nn.Module,
    work: Work,
    s: FittingSettings,
    at: Progressed,
    run: Path,
    journal: Journal,
    progress: Progress,
    leads: bool,
) -> None:
    model.eval()
    found = work.validate(model)
    value = found.metrics[s.metric]
    if not math.isfinite(value):
        rate = at.plateau.rate(at.step, s, _share(at, s, work))
        raise RunError(_explosion(at.step, found.metrics["loss"], float("nan"), rate, run))
    improved = METRICS[s.metric].improves(value, at.best)
    if improved:
        at.best, at.best_step, at.waited = value, at.step, 0
        if leads:
            save_weights(run / BEST, model)
    else:
        at.waited += 1
    at.plateau.hear(improved, s)
    journal.write(
        "validation",
        step=at.step,
        epoch=at.position.epoch,
        **{name: round(number, 5) for name, number in found.metrics.items()},
        best=improved,
        samples=found.samples,
        seconds=round(at.seconds, 2),
    )
    figures = "  ".join(f"{name} {number:.2f}" for name, number in found.metrics.items())
    progress.say(f"step {at.step:>6,}  valid {figures}{'  *' if improved else ''}")
    for sample in found.samples:
        progress.say("".join(f"\n      {name:>9}: {text}" for name, text in sample.items()).lstrip("\n"))


def _keep_best(model: nn.Module, work: Work, s: FittingSettings, at: Progressed, run: Path, journal: Journal) -> None:
    """End with the best weights seen, or with the mean of the last checkpoints where validation likes that better.

    These two are judged as the finished model will be used: quick answers may like one and careful ones the other.
    """
    every = s.checkpoint_every or s.validate_every
    found = scheduled(checkpoints_in(run), every)[-s.average :]
    put_weights(model, load_tensors(run / BEST))
    model.eval()
    if s.average < 2 or len(found) < 2:
        return
    single = work.validate(model, final=True).metrics
    put_weights(model, average_weights([c.folder for c in found]))
    metrics = work.validate(model, final=True).metrics
    chosen = METRICS[s.metric].improves(metrics[s.metric], single[s.metric])
    at.best = (metrics if chosen else single)[s.metric]
    journal.write("average", checkpoints=[c.step for c in found], chosen=chosen, **metrics, best_step=single)
    if chosen:
        at.best_step, at.averaged = at.step, len(found)
    else:
        put_weights(model, load_tensors(run / BEST))

"""The training loop. It knows no task: `Work` brings batches, loss and validation.

Exact resumption rests on four things: the batches are a function of (seed, epoch, position), every random draw comes
from torch's generator, whose state is in the checkpoint (or, where several processes train together, is set at every
step), what a task carries on from batch to batch is in the checkpoint too, and nothing else influences the weights.
"""

from __future__ import annotations

import math
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
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
from seqloom.losses import Loss
from seqloom.machine import num_cores
from seqloom.nn.adding import adding_to_tables
from seqloom.nn.drawing import drawing_from
from seqloom.nn.narrow import has_narrow_products, narrow_products
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
from seqloom.training.journal import Journal
from seqloom.training.moving_average import PREFIX as MOVING
from seqloom.training.moving_average import MovingAverage
from seqloom.training.optimizers import build_optimizer, clip, gradient_norm, optimizer_tensors, restore_optimizer
from seqloom.training.progress import Progress
from seqloom.training.schedules import Plateau
from seqloom.training.settings import FittingSettings
from seqloom.training.team import JoinedTeam, Team
from seqloom.training.workers import Worker, Workers

BEST = Path("checkpoints", "best.safetensors")
REHEARSAL = -1.0  # in place of a learning rate: compute, but learn nothing
COLLECT = -2.0  # in place of a learning rate: gather what is carried on from batch to batch
CARRIED = "carried/"
REHEARSED = 10
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
        """`carried` is what the loss of the batch before gave back; None at the beginning."""
        ...

    def fits_threads(self, model: nn.Module) -> bool:
        """Whether threads may ask for losses side by side: nothing is carried on, and all chance is `drawing_from`."""
        ...

    def restored(self, model: nn.Module, tensors: list[Tensor]) -> Any:
        """What a loss carries on, put together again from its tensors in order; each has a row for a row of a batch."""
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
    threads: int = 0
    processes: int = 1
    workers: int = 1
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
    """What an update found: the summed loss without smoothing, and the norm of the gradient before clipping."""

    nll: float
    norm: float


class Learner:
    """One process's part in every update: gradients of its share, added up over the team, clipped, applied.

    A process's share is divided once more among its `workers`, threads that compute side by side.
    """

    def __init__(
        self, model: nn.Module, work: Work, s: FittingSettings, team: Team, seed: int, workers: int = 1
    ) -> None:
        self.model, self.work, self.settings, self.team, self.seed = model, work, s, team, seed
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.optimizer = build_optimizer(model, s)
        self.narrow = multiplies_narrow(s, sum(weight.numel() for weight in self.weights))
        self.workers = Workers(model, workers)
        self.num_parts = team.size * workers
        self.carried: list[Any] = [None] * workers  # of each worker's rows, from batch to batch

    def gradients(self, batches: Sequence[Batch], step: int) -> tuple[float, list[Tensor]]:
        """Of the mean loss over all batches of an update, into `grad` of every weight; -> the summed loss, and they."""
        self.optimizer.zero_grad(set_to_none=True)
        num_tokens = sum(batch.num_tokens for batch in batches)

        def compute(worker: Worker) -> float:
            """Its part of the gradients, into its own weights."""
            number, total = self.team.rank * self.workers.size + worker.number, 0.0
            if self.workers.size > 1:
                worker.generator.manual_seed(_seed_of(self.seed, step, number))
            elif self.team.size > 1:  # whoever computes alone goes on with torch's generator
                torch.manual_seed(_seed_of(self.seed, step, number))
            draws = drawing_from(worker.generator if self.workers.size > 1 else None)
            with narrow_products(self.narrow), adding_to_tables(not self.settings.plain), draws:
                for batch in batches:
                    for piece in self._pieces(batch, number):
                        found = self.work.loss(worker.model, piece, self.carried[worker.number])
                        self.carried[worker.number] = found.carried
                        (found.loss / num_tokens).backward()
                        total += float(found.nll)
            return total

        return self.team.all_reduce(self.weights, self.workers.run(compute))

    def _pieces(self, batch: Batch, number: int) -> Iterator[Batch]:
        """The rows of a part of a batch, as many at once as memory close to the processor holds well."""
        own = batch.part(number, self.num_parts) if self.num_parts > 1 else batch
        if not len(own):  # fewer rows than parts
            return
        count = self.settings.num_pieces(own.num_tokens, getattr(self.model, "piece_tokens", own.num_tokens))
        for piece in [own] if count == 1 else (own.part(number, count) for number in range(count)):
            if len(piece):
                yield piece

    def rehearse(self, batches: Sequence[Batch], step: int) -> None:
        """Compute gradients and forget them."""
        kept = list(self.carried)
        self.gradients(batches, step)
        self.carried = kept

    def update(self, batches: Sequence[Batch], step: int, rate: float) -> Updated:
        """The weights after this update; left alone where the numbers are not finite."""
        total, gradients = self.gradients(batches, step)
        norm = gradient_norm(gradients)
        found = Updated(total, float(norm))
        if not (math.isfinite(found.nll) and math.isfinite(found.norm)):
            return found
        if self.settings.clip_norm is not None:
            clip(gradients, norm, self.settings.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with narrow_products(self.narrow), all_threads(torch.get_num_threads() * self.workers.size):
            self.optimizer.step()
        return found


def multiplies_narrow(s: FittingSettings, num_weights: int) -> bool:
    """Whether matrix products multiply bfloat16 numbers: as the settings say, else where that is faster.

    A small model spends its time elsewhere, and may be one that learns something delicate.
    """
    if s.precision is not None:
        return s.precision == "bfloat16"
    return num_weights >= WORTH_NARROWING and not s.plain and has_narrow_products()


def _seed_of(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])


def follow(model: nn.Module, work: Work, s: FittingSettings, run: Path, team: JoinedTeam, seed: int) -> None:
    """Take every step the leader takes, from the same state, with another share of each batch."""
    learner = Learner(model, work, s, team, seed, s.divided or 1)
    at = _restore(run, learner, None)
    rehearsal = work.batches(at.position)
    batches, step = Prefetch(work.batches(at.position)), at.step
    model.train()
    while (rate := team.receive_rate()) is not None:
        if rate == REHEARSAL:
            learner.rehearse([batch for _, batch in islice(rehearsal, s.accumulate)], step)
            continue
        if rate == COLLECT:
            team.gather(_carried(learner))
            continue
        step += 1
        learner.update([batch for _, batch in islice(batches, s.accumulate)], step, rate)


def seconds_a_step(
    model: nn.Module, work: Work, s: FittingSettings, team: Team, workers: int = 1, rehearsed: int = REHEARSED
) -> float:
    """How long the gradients of an update take this team: the median of a few. Weights and generator stay as they are.

    The last half of those rehearsed counts: what is used for the first time is slow.
    """
    learner, random = Learner(model, work, s, team, 0, workers), torch.get_rng_state()
    batches, times = work.batches(Position()), []
    model.train()
    for _ in range(rehearsed):
        group = [batch for _, batch in islice(batches, s.accumulate)]
        team.send_rate(REHEARSAL)
        began = time.monotonic()
        learner.rehearse(group, 0)
        times.append(time.monotonic() - began)
    learner.optimizer.zero_grad(set_to_none=True)
    learner.workers.close()
    torch.set_rng_state(random)
    return statistics.median(times[rehearsed // 2 :])


def fit(
    model: nn.Module,
    work: Work,
    s: FittingSettings,
    run: Path,
    *,
    resume: bool = False,
    team: Team | None = None,
    workers: int = 1,
    seed: int = 0,
) -> Progressed:
    """Train until a limit, early stopping or an interrupt; leaves the best weights in the model.

    With several workers, `work` must fit threads. With a team, its followers must be in `follow` with the same model,
    work and settings.
    """
    team = Team() if team is None else team
    learner = Learner(model, work, s, team, seed, workers)
    moving = None if s.moving_average is None else MovingAverage(model, s.moving_average)
    at = _restore(run, learner, moving) if resume else Progressed()
    if at.threads:
        torch.set_num_threads(at.threads)  # sums are split by thread: another number would round differently
    at.threads, at.processes, at.workers = torch.get_num_threads(), team.size, workers
    journal = Journal(run / "journal.jsonl", at.journal_bytes)
    checkpoint_every = s.checkpoint_every or s.validate_every
    began = time.monotonic() - at.seconds
    batches = Prefetch(work.batches(at.position))
    last_log, last_log_step = time.monotonic(), at.step
    if not at.step:
        parameters = sum(weight.numel() for weight in learner.weights)
        precision = "bfloat16" if learner.narrow else "float32"
        journal.write(
            "start",
            parameters=parameters,
            threads=at.threads,
            processes=at.processes,
            workers=at.workers,
            precision=precision,
        )

    def checkpoint() -> None:
        at.seconds = time.monotonic() - began
        at.journal_bytes = journal.size()
        kept = {} if moving is None else moving.tensors()
        if carried := _carried(learner):
            team.send_rate(COLLECT)
            kept |= {CARRIED + name: tensor for name, tensor in team.gather(carried).items()}
        save_checkpoint(run, at.step, model, {**optimizer_tensors(model, learner.optimizer), **kept}, at.to_dict())
        prune_checkpoints(run, keep=s.average + 1, every=checkpoint_every)

    with (
        closing(batches),
        closing(learner.workers),
        Progress("training", start=_share(at, s, work)) as progress,
        Interrupts() as interrupts,
    ):
        while not at.finished:
            model.train()
            group = list(islice(batches, s.accumulate))
            num_tokens = sum(batch.num_tokens for _, batch in group)
            rate = at.plateau.rate(at.step + 1, s, _share(at, s, work))
            team.send_rate(rate)
            found = learner.update([batch for _, batch in group], at.step + 1, rate)
            if not (math.isfinite(found.nll) and math.isfinite(found.norm)):
                raise RunError(_explosion(at.step + 1, found.nll, found.norm, rate, run))
            at.step, at.position = at.step + 1, group[-1][0]
            if moving is not None:
                moving.update(at.step)
            at.tokens += num_tokens
            at.window_loss, at.window_tokens = at.window_loss + found.nll, at.window_tokens + num_tokens
            at.seconds = time.monotonic() - began
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
                at.window_loss, at.window_tokens, last_log, last_log_step = 0.0, 0, now, at.step
            over = _over(at, s)
            if at.step % s.validate_every == 0 or over:
                before = time.monotonic()
                with nullcontext() if moving is None else moving.in_place(), all_threads(_cores_of(at)):
                    _validate(model, work, s, at, run, journal, progress)
                last_log += time.monotonic() - before  # pace is measured over training steps only
                over = over or (s.patience is not None and at.waited >= s.patience)
            at.finished = over
            if at.step % checkpoint_every == 0 or over or interrupts.caught is not None:
                checkpoint()
            if interrupts.caught is not None and not over:
                journal.write("stop", step=at.step, signal=signal.Signals(interrupts.caught).name)
                raise Stopped(f"step {at.step:,}", interrupts.caught)

    with all_threads(_cores_of(at)):
        _keep_best(model, work, s, at, run, journal)
    journal.close()
    return at


@contextmanager
def all_threads(count: int) -> Iterator[None]:
    """While one works alone, it has the cores of all."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)


def _cores_of(at: Progressed) -> int:
    return max(at.threads, min(num_cores(), at.threads * at.processes * at.workers))


def _explosion(step: int, loss: float, norm: float, rate: float, run: Path) -> str:
    found = checkpoints_in(run)
    kept = f"the last good checkpoint is step {found[-1].step:,} in {run}" if found else "no checkpoint was written yet"
    return (
        f"step {step:,}: the numbers left the finite range (loss {loss}, gradient norm {norm}, learning rate "
        f"{rate:g}); {kept}. Lower training.learning_rate, add training.warmup_steps or lower training.clip_norm."
    )


def _restore(run: Path, learner: Learner, moving: MovingAverage | None) -> Progressed:
    model, team, found = learner.model, learner.team, checkpoints_in(run)
    if not found:
        return Progressed()
    tensors, state_tensors, state = load_checkpoint(found[-1])
    put_weights(model, tensors, str(found[-1].folder))
    torch.set_rng_state(state_tensors.pop("random"))
    if moving is not None:
        moving.take(state_tensors)
    state_tensors = {name: tensor for name, tensor in state_tensors.items() if not name.startswith(MOVING)}
    carried = {name: state_tensors.pop(name) for name in list(state_tensors) if name.startswith(CARRIED)}
    if carried:
        rows = slice(team.rank, None, team.size)
        own = [carried[f"{CARRIED}{index}"][rows].contiguous() for index in range(len(carried))]
        learner.carried = [learner.work.restored(model, own)]
    restore_optimizer(model, learner.optimizer, state_tensors)
    return Progressed.from_dict(state)


def _carried(learner: Learner) -> dict[str, Tensor]:
    """What the next batch goes on from, as tensors by their number; work that carries on has one thread a process."""
    return {str(index): tensor for index, tensor in enumerate(flat(learner.carried[0]))}


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
    model: nn.Module, work: Work, s: FittingSettings, at: Progressed, run: Path, journal: Journal, progress: Progress
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

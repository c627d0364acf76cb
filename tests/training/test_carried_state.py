"""What is carried on from batch to batch: passed along, and in checkpoints."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from torch import Tensor, nn

from seqloom.batches.collate import Batch, Tokens
from seqloom.batches.samplers import Position
from seqloom.experiment import train
from seqloom.losses import Loss
from seqloom.models.classifier import Classifier, ClassifierSettings
from seqloom.nn.drawing import own_generator
from seqloom.targets.label import Labels
from seqloom.tasks.classify import ClassificationTrainingSettings
from seqloom.training.checkpoints import checkpoints_in, load_tensors
from seqloom.training.loop import Learner, Validation, fit, rebuilt
from seqloom.training.settings import FittingSettings

ROWS, SIZE = 3, 5


class Remembered(NamedTuple):
    """A state of several tensors, one of them of whole numbers."""

    hidden: Tensor  # (rows, size)
    seen: Tensor  # (rows,)


class Numbers(NamedTuple):
    """A batch: its number, so that a test can follow the order."""

    number: int
    values: Tensor

    @property
    def num_tokens(self) -> int:
        return len(self.values)

    def __len__(self) -> int:
        return len(self.values)


class RecurrentWork:
    """A network whose every batch goes on from the one before, with chance from the generator of its shard."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at, self.calls = stop_at, 0
        self.seen: list[tuple[int, int | None]] = []  # which batch came after which

    def batches(self, position: Position) -> Iterator[tuple[Position, Any]]:
        for number in count(position.batch):
            values = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(number))
            yield Position(0, number + 1), Numbers(number, values)

    def batches_per_epoch(self) -> float:
        return 1e9

    def epochs_done(self, position: Position) -> float:
        return 0.0

    def loss(self, model: Any, batch: Any, carried: Any) -> Loss:
        self.calls += 1
        if self.calls == self.stop_at:
            raise MemoryError
        (layer,) = model
        state, *_ = carried if carried is not None else self.start()
        self.seen.append((batch.number, None if carried is None else int(state.seen[0]) - 1))
        kept = torch.rand(ROWS, SIZE, generator=own_generator()) < 0.7
        hidden = (layer(batch.values * kept) + state.hidden).tanh()
        after = Remembered(hidden.detach(), state.seen * 0 + batch.number + 1)
        loss = hidden.pow(2).sum()
        return Loss(loss, loss.detach(), (after, None))

    def start(self) -> tuple[Remembered, None]:
        return Remembered(torch.zeros(ROWS, SIZE), torch.zeros(ROWS, dtype=torch.long)), None

    def restored(self, model: Any, tensors: list[Tensor]) -> Any:
        return rebuilt(self.start(), iter(tensors))

    def validate(self, model: Any, *, final: bool = False) -> Validation:
        return Validation({"loss": sum(weight.sum().item() for weight in model.parameters())}, [])


def settings(**given: Any) -> Any:
    common = {"steps": 9, "validate_every": 3, "checkpoint_every": 2, "accumulate": 2, "shards": 1}
    return FittingSettings(learning_rate=0.1, **{**common, **given})


def fresh() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(SIZE, SIZE))


def test_every_batch_goes_on_from_the_one_before(tmp_path: Path) -> None:
    """Within an update as between updates; the first has nothing before it."""
    work = RecurrentWork()
    fit(fresh(), work, settings(), tmp_path)
    assert work.seen == [(number, number - 1 if number else None) for number in range(18)]


@pytest.mark.parametrize("moving_average", [None, 0.9])
@pytest.mark.parametrize("stop_at", range(5, 18))
def test_a_run_that_dies_anywhere_resumes_to_the_same_bits(
    stop_at: int, moving_average: float | None, tmp_path: Path
) -> None:
    s = settings(moving_average=moving_average)
    whole = fresh()
    fit(whole, RecurrentWork(), s, tmp_path / "whole")
    with pytest.raises(MemoryError):
        fit(fresh(), RecurrentWork(stop_at), s, tmp_path / "run")
    work, model = RecurrentWork(), fresh()
    torch.manual_seed(99)  # what the generator holds now must not matter
    fit(model, work, s, tmp_path / "run", resume=True)
    first = work.seen[0][0]
    assert first == (stop_at - 1) // 4 * 4, "it goes on from the last checkpoint, of every second update"
    assert work.seen[0] == (first, first - 1)
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, model.get_parameter(name)), name
    ends = [
        load_tensors(checkpoints_in(tmp_path / name)[-1].folder / "optimizer.safetensors") for name in ("whole", "run")
    ]
    assert ends[0].keys() == ends[1].keys() >= {"carried/0", "carried/1"}
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_killed_at_random_loses_nothing(workers: int, tmp_path: Path) -> None:
    lines = random.Random(3)
    words = [f"w{number}" for number in range(30)]
    text = "\n".join(" ".join(lines.choices(words, k=9)) for _ in range(300))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    corpus = {"text": str(tmp_path / "text.txt")}
    recipe = {
        "task": "model_language",
        "data": {"train": corpus, "valid": {**corpus, "limit": 20}},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": {"kind": "recurrent_lm", "size": 6, "hidden_size": 7, "dropout": 0.2},
        "training": {
            "steps": 400,
            "rows": 5,
            "length": 7,
            "accumulate": 2,
            "moving_average": 0.9,
            "average": 1,
            "validate_every": 100,
            "checkpoint_every": 5,
            "samples": 0,
            "workers": workers,
        },
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    train(recipe, tmp_path / "whole")
    run, killed = tmp_path / "run", 0
    for attempt in range(3):
        arguments = ["r.yaml", "--run", "run"] if attempt == 0 else ["run", "--resume"]
        before = checkpoints_in(run)[-1].step if attempt else 0
        process = subprocess.Popen(
            [sys.executable, "-m", "seqloom", "train", *arguments], cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 90
        while time.monotonic() < end and process.poll() is None:
            if (found := checkpoints_in(run)) and found[-1].step > before:
                break
            time.sleep(0.005)
        time.sleep(lines.random() * 0.2)
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed, "at least one run was really killed"
    train(run, resume=True)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert one == other


# -- shards without a row ----------------------------------------------------------------------------------------------


def classified(rows: int, shards: int) -> tuple[float, list[Tensor]]:
    """Summed loss and gradients of a batch of labelled texts."""
    s = ClassificationTrainingSettings(steps=1, precision="float32")
    torch.manual_seed(5)
    chosen = ClassifierSettings(encoder={"kind": "embeddings", "size": 4})  # type: ignore[arg-type]
    model = Classifier(chosen, num_symbols=11, num_labels=3)
    batch = Batch(
        Tokens(torch.arange(4, 4 + 2 * rows).view(rows, 2) % 11, torch.full((rows,), 2)), Labels(torch.arange(rows) % 3)
    )

    def loss(model: Any, batch: Batch, carried: None) -> Loss:
        found = nn.functional.cross_entropy(model(batch), batch.target.ids, reduction="sum")
        return Loss(found, found.detach())

    work: Any = type("Work", (), {"loss": staticmethod(loss)})
    learner = Learner(model, work, s, 0, shards=shards)
    total, gradients, _ = learner.gradients([batch], 1)
    learner.workers.close()
    return total, [gradient for gradient in gradients if gradient is not None]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_shard_may_have_nothing_to_do(rows: int) -> None:
    """A batch may have fewer rows than there are shards, whatever its model thinks of pieces."""
    total, gradients = classified(rows, shards=3)
    expected, alone = classified(rows, shards=1)
    assert total == pytest.approx(expected, rel=1e-6)
    for one, other in zip(gradients, alone, strict=True):
        torch.testing.assert_close(one, other)

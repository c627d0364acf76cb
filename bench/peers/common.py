"""The loop that every peer's model is trained in, and what is measured around it. Needs torch and numpy only.

A job is a JSON file: the model's sizes, the file of batches, how many updates to warm up, time and profile, the
learning rate of each update, and where the result goes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bench.data import Batch, BatchFile
from bench.spec import spec_from

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "mkldnn_rnn_layer", "lstm")


@dataclass(frozen=True)
class Job:
    """What a trainer is asked to do."""

    model: str
    spec: dict[str, Any]
    data: str
    result: str
    warmup: int
    updates: int
    rates: list[float]
    betas: list[float]
    smoothing: float
    clip_norm: float | None
    seed: int = 1
    profile: int = 0
    validate: bool = False
    recipe: str = ""
    overrides: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> Any:
        return spec_from(self.model, self.spec)


def read_job() -> Job:
    return Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


class TorchBatch(NamedTuple):
    """A batch as tensors."""

    source: Tensor
    source_lengths: Tensor
    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor
    num_tokens: int


def tensors(batch: Batch) -> TorchBatch:
    return TorchBatch(*(torch.from_numpy(part) for part in batch), batch.num_tokens)


Loss = Callable[[TorchBatch, float], Tensor]  # a batch and the label smoothing -> the summed loss of its real symbols


def train(job: Job, model: nn.Module, loss: Loss) -> None:
    """Warm up, time, look at the memory, profile, validate; write the result."""
    batches = BatchFile(job.data)
    optimizer = torch.optim.Adam(model.parameters(), job.rates[0], betas=tuple(job.betas))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    model.train()

    def update(step: int) -> int:
        batch = tensors(batches[step % len(batches)])
        optimizer.zero_grad(set_to_none=True)
        (loss(batch, job.smoothing) / batch.num_tokens).backward()
        if job.clip_norm is not None:
            nn.utils.clip_grad_norm_(weights, job.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = job.rates[min(step, len(job.rates) - 1)]
        optimizer.step()
        return batch.num_tokens

    for step in range(job.warmup):
        update(step)
    tokens, began = 0, time.perf_counter()
    for step in range(job.warmup, job.warmup + job.updates):
        tokens += update(step)
    seconds = time.perf_counter() - began
    result: dict[str, Any] = {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "peak_mb": peak_megabytes(),
        "parameters": sum(weight.numel() for weight in weights if weight.grad is not None),
        "threads": torch.get_num_threads(),
    }
    if job.validate:
        result["validation_loss"] = validation_loss(job, model, loss)
        model.train()
    if job.profile:
        with Profile() as profile:
            for step in range(job.profile):
                update(job.warmup + job.updates + step)
        result["in_products"] = profile.share
    write_result(job, result)


def validation_loss(job: Job, model: nn.Module, loss: Loss) -> float:
    """Mean loss of a validation symbol, without label smoothing."""
    model.eval()
    total = tokens = 0.0
    with torch.no_grad():
        for batch in map(tensors, BatchFile(job.data, "valid")):
            total += float(loss(batch, 0.0))
            tokens += batch.num_tokens
    return total / tokens


def write_result(job: Job, result: dict[str, Any]) -> None:
    Path(job.result).write_text(json.dumps(result), encoding="utf-8")


def peak_megabytes() -> float:
    """The most memory this process has held, and the largest of those it started and waited for."""
    kilobytes = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kilobytes / 1024


class Profile:
    """The share of the time between enter and exit (or `stop`) that this thread spent in matrix products.

    A fused kernel that holds its products inside, such as attention or a recurrent layer, counts wholly.
    """

    def __init__(self) -> None:
        self.share: float | None = None
        self._profile: Any = None

    def start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        self._profile = profile(activities=[ProfilerActivity.CPU])
        self._profile.__enter__()
        self._began = time.perf_counter()

    def stop(self) -> None:
        if self._profile is None:
            return
        seconds = time.perf_counter() - self._began
        self._profile.__exit__(None, None, None)
        spent = sum(row.self_cpu_time_total for row in self._profile.key_averages() if is_product(row.key))
        self.share, self._profile = spent / 1e6 / seconds, None

    def __enter__(self) -> Profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def is_product(name: str) -> bool:
    """Whether an operation of torch is a matrix product or a fused kernel around some."""
    short = name.removeprefix("aten::").removesuffix("_").removesuffix("_backward")
    return name.startswith(("aten::", "mkldnn::")) and (
        short in PRODUCTS or short.startswith(("_scaled_dot_product", "mkldnn_rnn_layer", "mkldnn_linear"))
    )

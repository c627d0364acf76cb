"""Worker threads of one process that train one model: each computes the gradients of its share of a batch.

What `team.py` does with processes, in one: nothing has to be sent, started or held twice. Each worker has a twin of the
model, which looks at the same weights and has gradients of its own, and a generator of its own. torch and the compiled
loops let other threads run while they compute, so that Python's lock is held for little of the time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn


class Worker:
    """What a thread computes with."""

    def __init__(self, number: int, model: nn.Module) -> None:
        self.number, self.model = number, model
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.generator = torch.Generator()


class Workers:
    """The caller's own thread, and others where there is more than one worker."""

    def __init__(self, model: nn.Module, size: int = 1) -> None:
        self.size = size
        self.all = [Worker(0, model), *(Worker(number, copy.deepcopy(model)) for number in range(1, size))]
        for worker in self.all[1:]:
            worker.model.train()
        threads = torch.get_num_threads()
        self.pool = ThreadPoolExecutor(
            max(1, size - 1), "worker", initializer=lambda: torch.set_num_threads(threads)
        )  # starts no thread before there is work

    def run(self, work: Callable[[Worker], float]) -> float:
        """`work` by every worker, side by side; -> the sum of what they found. The first one then has all gradients.

        Gradients are added up in the order of the workers, whoever is done first.
        """
        first, *others = self.all
        for worker in others:
            for twin, weight in zip(worker.model.parameters(), first.model.parameters(), strict=True):
                twin.data = weight.data
            for twin in worker.weights:
                twin.grad = None
        started = [self.pool.submit(work, worker) for worker in others]
        try:
            total = work(first)
        finally:
            found = [future.exception() for future in started]  # nobody is left computing
        for future, error in zip(started, found, strict=True):
            if error is not None:
                raise error
            total += future.result()
        for worker in others:
            _add_gradients(first.weights, worker.weights)
        return total

    def close(self) -> None:
        """No thread is left."""
        self.pool.shutdown()


def _add_gradients(weights: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    both = []
    for weight, other in zip(weights, others, strict=True):
        if other.grad is None:
            continue
        if weight.grad is None:
            weight.grad = other.grad
        else:
            both.append((weight.grad, other.grad))
    if both:
        mine, theirs = zip(*both, strict=True)
        torch._foreach_add_(mine, theirs)

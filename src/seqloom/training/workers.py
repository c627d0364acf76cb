"""Worker threads of one process that train one model: each computes the gradients of some shards of every batch.

Each worker has a twin of the model, which looks at the same weights and has gradients of its own, and a generator of
its own. torch and the compiled loops let other threads run while they compute, so that Python's lock is held for little
of the time.

The gradients of shards are added up in a fixed binary tree. A worker computes a branch of it and another worker the
other one, as far down as there are workers; the sums are the same however many there are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from seqloom.training.rows import summed_rows

Gradients = list[Tensor | None]  # of every weight that learns, in order
Branch = tuple[int, int]  # of the tree: from this shard up to that one
Sum = TypeVar("Sum")


def halves(low: int, high: int) -> tuple[Branch, Branch]:
    """The two branches that a branch is the sum of."""
    middle = (low + high) // 2
    return (low, middle), (middle, high)


def branches_within(own: range, low: int, high: int) -> list[Branch]:
    """The largest branches of a tree from `low` up to `high` that have no shard but one's own."""
    if own.start <= low and high <= own.stop:
        return [(low, high)] if high > low else []
    if high <= own.start or own.stop <= low:
        return []
    left, right = halves(low, high)
    return branches_within(own, *left) + branches_within(own, *right)


def tree_sum(found: Mapping[Branch, Sum], add: Callable[[Sum, Sum], Sum], low: int, high: int) -> Sum:
    """The sum over a branch, of those branches that are there."""
    if (low, high) in found:
        return found[low, high]
    left, right = halves(low, high)
    return add(tree_sum(found, add, *left), tree_sum(found, add, *right))


def add_gradients(left: Gradients, right: Gradients) -> Gradients:
    """left + right, in the memory of `left`; a weight that had no part in one of them has the other's."""
    pairs = list(zip(left, right, strict=True))
    both = [(one, other) for one, other in pairs if one is not None and other is not None and not one.is_sparse]
    if both:
        mine, theirs = zip(*both, strict=True)
        torch._foreach_add_(mine, theirs)
    return [_sum_of(one, other) for one, other in pairs]


def _sum_of(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """What is the sum of both by now; sparse ones are added here."""
    if one is None or other is None:
        return other if one is None else one
    return summed_rows(one + other) if one.is_sparse else one


class Worker:
    """What a thread computes with."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.generator = torch.Generator()

    def gradients(self, compute: Callable[[Worker, int], Any], shard: int) -> Gradients:
        """Of one shard; the weights have none before and none after."""
        for weight in self.weights:
            weight.grad = None
        compute(self, shard)
        found: Gradients = [None if weight.grad is None else summed_rows(weight.grad) for weight in self.weights]
        for weight in self.weights:
            weight.grad = None
        return found


class Workers:
    """The caller's own thread, and others where there is more than one worker."""

    def __init__(self, model: nn.Module, size: int = 1) -> None:
        self.all = [Worker(model), *(Worker(copy.deepcopy(model)) for _ in range(1, size))]
        for worker in self.all[1:]:
            worker.model.train()
        self.pool = ThreadPoolExecutor(
            max(1, size - 1), "worker", initializer=lambda: torch.set_num_threads(1)
        )  # starts no thread before there is work

    @property
    def size(self) -> int:
        return len(self.all)

    def run(self, compute: Callable[[Worker, int], Any], branches: Sequence[Branch]) -> dict[Branch, Gradients]:
        """`compute` of every shard by a worker; -> the gradients that it left in the worker's weights, by branch."""
        first, *others = self.all
        for worker in others:
            for twin, weight in zip(worker.model.parameters(), first.model.parameters(), strict=True):
                twin.data = weight.data
        return {branch: self._branch(compute, *branch, self.all) for branch in branches}

    def _branch(
        self, compute: Callable[[Worker, int], Any], low: int, high: int, workers: Sequence[Worker]
    ) -> Gradients:
        if high - low == 1:
            return workers[0].gradients(compute, low)
        left, right = halves(low, high)
        if len(workers) == 1:
            first = self._branch(compute, *left, workers)
            return add_gradients(first, self._branch(compute, *right, workers))
        middle = (len(workers) + 1) // 2
        other = self.pool.submit(self._branch, compute, *right, workers[middle:])
        try:
            first = self._branch(compute, *left, workers[:middle])
        finally:
            wait([other])  # nobody is left computing
        return add_gradients(first, other.result())

    def close(self) -> None:
        """No thread is left."""
        self.pool.shutdown()

"""Several processes that train one model: all take the same steps, each computes the gradients of some shards.

torch.distributed is all that speaks between them, started by torchrun or by whatever sets RANK, WORLD_SIZE, MASTER_ADDR
and MASTER_PORT. All must see the same run folder; rank 0 alone writes and talks.

Gradients are added up in the same tree as in one process: each rank gets a slice of everybody's branches, sums it along
the tree, and all gather the slices. As many bytes go over the wire as in a ring: 2 (N - 1) / N times the gradients.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from seqloom.errors import RunError, UserError
from seqloom.training.workers import Branch, Gradients, add_gradients, branches_within, tree_sum

PATIENCE = timedelta(hours=12)  # a rank may prepare its data for long; that one has died is noticed otherwise
KINDS = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool)  # of what is carried on


class Ranks:
    """One process alone, unless a subclass says otherwise: nothing to share, nobody to wait for."""

    rank = 0
    size = 1
    here = 1  # of them on this machine

    def owned(self, shards: int, rank: int | None = None) -> range:
        """The shards that a rank computes, of itself by default."""
        rank = self.rank if rank is None else rank
        return range(shards * rank // self.size, shards * (rank + 1) // self.size)

    def wait(self) -> None:
        """Until everybody waits here."""

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """The sums of everybody's numbers; where all but one have 0, they are that one's to the bit."""
        return list(numbers)

    def gather(self, values: list[Any]) -> list[list[Any]]:
        """What each has, by rank: numbers, texts and lists of them."""
        return [values]

    def gather_tensors(self, own: Mapping[int, list[Tensor]]) -> dict[int, list[Tensor]]:
        """What everybody has, under numbers of which each is one rank's."""
        return dict(own)

    def add_up(self, own: Mapping[Branch, Gradients], shards: int, weights: Sequence[Tensor]) -> Gradients:
        """The gradients of all shards, of the branches that each has."""
        return tree_sum(own, add_gradients, 0, shards)


class LaunchedRanks(Ranks):
    """The processes that a launcher started, through torch.distributed (gloo)."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        with _in_one_sentence():
            dist.init_process_group("gloo", rank=rank, world_size=size, timeout=PATIENCE)

    def wait(self) -> None:
        with _in_one_sentence():
            dist.barrier()

    def agree(self, numbers: Sequence[float]) -> list[float]:
        found = torch.tensor(numbers, dtype=torch.float64)
        with _in_one_sentence():
            dist.all_reduce(found)
        return found.tolist()

    def gather(self, values: list[Any]) -> list[list[Any]]:
        written = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        with _in_one_sentence():
            dist.all_gather(sizes, torch.tensor([len(written)]))
            longest = max(int(size) for size in sizes)
            padded = torch.zeros(longest, dtype=torch.uint8)
            padded[: len(written)] = written
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(parts, padded)
        return [json.loads(bytes(part[: int(size)].numpy())) for part, size in zip(parts, sizes, strict=True)]

    def gather_tensors(self, own: Mapping[int, list[Tensor]]) -> dict[int, list[Tensor]]:
        kinds = {str(kind).removeprefix("torch."): kind for kind in KINDS}
        names = {kind: name for name, kind in kinds.items()}
        about = [[number, [[list(t.shape), names[t.dtype]] for t in tensors]] for number, tensors in own.items()]
        whole: dict[int, list[Tensor]] = {}
        for rank, listed in enumerate(self.gather(about)):
            for number, tensors in listed:
                mine = own.get(number) if rank == self.rank else None
                whole[number] = mine or [torch.empty(shape, dtype=kinds[kind]) for shape, kind in tensors]
                for tensor in whole[number]:
                    with _in_one_sentence():
                        dist.broadcast(tensor, rank)
        return whole

    def add_up(self, own: Mapping[Branch, Gradients], shards: int, weights: Sequence[Tensor]) -> Gradients:
        branches = [branches_within(self.owned(shards, rank), 0, shards) for rank in range(self.size)]
        sizes = [weight.numel() for weight in weights]
        each = -(-sum(sizes) // self.size)  # numbers of a slice; the last one has some that nobody needs
        ours = [_flat(own[branch], weights, each * self.size).view(self.size, each) for branch in branches[self.rank]]
        sent = torch.stack(ours, 1).flatten() if ours else weights[0].new_empty(0)
        counts = [len(some) for some in branches]
        slices = sent.new_empty(sum(counts) * each)
        with _in_one_sentence():
            dist.all_to_all_single(slices, sent, [count * each for count in counts], [len(ours) * each] * self.size)
        flat = [branch for some in branches for branch in some]
        found = dict(zip(flat, slices.view(-1, each), strict=True))
        total = sent.new_empty(self.size, each)
        with _in_one_sentence():
            dist.all_gather(list(total), tree_sum(found, torch.Tensor.add_, 0, shards))
        had = self._had(own, len(weights))
        parts = total.flatten()[: sum(sizes)].split(sizes)
        return [part.view_as(weight) if has else None for part, weight, has in zip(parts, weights, had, strict=True)]

    def _had(self, own: Mapping[Branch, Gradients], count: int) -> list[bool]:
        """Which weights had a part in anybody's loss: an optimiser leaves the others alone."""
        mine = [any(gradients[weight] is not None for gradients in own.values()) for weight in range(count)]
        return [number > 0 for number in self.agree([float(has) for has in mine])]


def _flat(gradients: Gradients, weights: Sequence[Tensor], size: int) -> Tensor:
    """All gradients in a row; -0, which changes no sum, where a weight has none."""
    row = weights[0].new_full((size,), -0.0)
    at = 0
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            row[at : at + weight.numel()] = gradient.to_dense().flatten()
        at += weight.numel()
    return row


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    """What torch says of a lost connection is one sentence for people."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason was given"
        raise RunError(
            f"another of the processes that train together has ended or cannot be reached ({reason}); its own last "
            "words say why. The last checkpoint is kept: start all of them again with --resume"
        ) from None


def launched() -> Ranks:
    """The processes that a launcher started, or this one alone."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return Ranks()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing or not size.isdigit():
        raise UserError(
            f"WORLD_SIZE is {size}, so other processes are expected, but {', '.join(missing) or 'it'} is not set as a "
            "launcher such as torchrun sets it; unset WORLD_SIZE to train alone"
        )
    return LaunchedRanks(int(os.environ["RANK"]), int(size))

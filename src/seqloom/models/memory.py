"""What passes from an encoder to whatever comes after it, and the two contracts around it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from seqloom.nn.cells import State


class Memory(NamedTuple):
    """An encoded source: what a decoder may look at, step by step, and what it may start from.

    `values` (batch, time, size); `mask` (batch, time), None where no row is padded; `summary` (batch, size), where the
    encoder has all of the source in one vector; `states`, the last state of each layer, where it is recurrent.
    """

    values: Tensor
    mask: Tensor | None
    summary: Tensor | None = None
    states: tuple[State, ...] | None = None

    def summarise(self) -> Tensor:
        """(batch, size): the summary, else the mean of the real values."""
        return mean_of_real(self.values, self.mask) if self.summary is None else self.summary


def mean_of_real(values: Tensor, mask: Tensor | None) -> Tensor:
    """(batch, time, size), (batch, time) -> (batch, size): the mean of what is not padding."""
    if mask is None:
        return values.mean(1)
    return (values * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class MemoryShape(NamedTuple):
    """What an encoder's memory is like: the width of its values, and of which cell and size its states are, if any."""

    size: int
    cell: str | None = None
    state_size: int | None = None


class Encoder(Protocol):
    """Reads a source."""

    memory: MemoryShape

    def encode(self, source: Any, trace: Any = None) -> Memory:
        """A batch of sources, as their kind of source collates them -> memory; the first row may be traced."""
        ...


class Decoder(Protocol):
    """Makes a sequence of symbols from a memory, all at once along known symbols or step by step.

    `output` maps features to logits; `attends` says whether it looks at the memory at every step.
    """

    output: nn.Linear
    attends: bool

    def start(self, memory: Memory) -> Any:
        """The state before the first symbol; it has a row a source."""
        ...

    def __call__(self, memory: Memory, target: Any, trace: Any = None) -> Tensor:
        """Teacher forcing: (batch, time) symbols that are read -> features (batch, time, size) for `output`."""
        ...

    def align(self, memory: Memory, target: Any) -> Tensor | None:
        """Attention along known symbols, (batch, target, source); None where it has none."""
        ...

    def advance(self, tokens: Tensor, state: Any, *, attention: bool = True) -> tuple[Tensor, Any, Tensor | None]:
        """One step: (rows,) symbols -> features (rows, size), the next state, attention (rows, source) or None.

        Rows are the sources of the memory, or as many for each, standing together.
        """
        ...


@runtime_checkable
class HasHeads(Protocol):
    """A module with attention heads that can be silenced: (site, layer, head) each."""

    def heads(self) -> list[tuple[str, int, int]]: ...

    def head_weight(self, site: str, layer: int) -> tuple[Tensor, int]:
        """The output map that reads the heads of a layer, and how many columns each head has."""
        ...

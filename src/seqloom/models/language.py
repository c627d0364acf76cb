"""What all causal language models have in common: they read symbols, and predict from these which comes next."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn


class LanguageModel(Protocol):
    """A causal language model.

    `forward` reads (rows, time) symbols and gives features (rows, time, size), from which `output` predicts the symbol
    after each one, and a state. Going on from that state gives what reading everything at once would have given.
    """

    attends: bool
    settings: Any
    output: nn.Linear

    def __call__(
        self, inputs: Tensor, state: Any = None, lengths: Tensor | None = None, trace: Any = None
    ) -> tuple[Tensor, Any]:
        """Features of every symbol, and the state after the last.

        Args:
            inputs: (rows, time) symbols.
            state: None at a beginning, or what an earlier call gave back. It is made of tuples of tensors whose first
                axis is the row, so `select_rows` picks rows of it and `detach` cuts it off.
            lengths: (rows,), where rows are padded at their end. What comes out at padding has no meaning.
            trace: is given what the model shows of the first row.
        """
        ...

    def room(self, state: Any) -> int | None:
        """How many symbols can be read from a state before the model begins anew; None where there is no end."""
        ...


def detach(state: Any) -> Any:
    """The same state, from which no gradient flows back: truncated back-propagation cuts here."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.detach()
    items = [detach(item) for item in state]
    return type(state)(*items) if hasattr(state, "_fields") else tuple(items)

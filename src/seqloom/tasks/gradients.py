"""How far back the loss of a language model reaches: its gradient with respect to earlier states, measured.

Every row of a batch is asked for one symbol only, so one backward pass gives the gradients of each row's own loss with
respect to all earlier states of that row.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batches.collate import padded
from seqloom.batches.samplers import sorted_batches
from seqloom.corpus.plain import PlainTextSettings, describe
from seqloom.errors import UserError
from seqloom.inspection.gradients import EMBEDDING, Gradients, GradientTally, RecurrentMatrix
from seqloom.nn.cells import GRU, LSTM, Cell, CoupledLSTM, Elman, ElmanSigmoid, PeepholeLSTM
from seqloom.nn.recurrent import RecurrentStack
from seqloom.sources.running_text import RunningText

STEPS = 50  # back, unless told otherwise
POSITIONS = 256
WARM_UP = 20  # symbols that are read before those that count, where there are as many
AT_ONCE = 8192  # symbols of a batch: all their states are kept

BLOCKS: dict[type[Cell], tuple[str, ...]] = {
    Elman: ("hidden state",),
    ElmanSigmoid: ("hidden state",),
    GRU: ("reset gate", "update gate", "candidate"),
    LSTM: ("input gate", "forget gate", "candidate", "output gate"),
    PeepholeLSTM: ("input gate", "forget gate", "candidate", "output gate"),
    CoupledLSTM: ("forget gate", "candidate", "output gate"),
}
"""What the blocks of a cell's `weight_hidden` lead to, in their order."""


class Asked(NamedTuple):
    """A symbol that is asked for, and what is read before it."""

    read: np.ndarray
    symbol: int


# -- which positions of a text are asked for --------------------------------------------------------------------------


def asked_of_text(task: RunningText, text: str) -> list[Asked]:
    """Every symbol of one text, its end included."""
    ids = np.asarray(task.encode_lines([text + "\n" if task.verbatim else text])[0], np.int64)
    read = np.concatenate([[task.first], ids])
    return [Asked(read[: end + 1], int(ids[end])) for end in range(len(ids))]


def asked_of_corpus(
    task: RunningText, corpus: PlainTextSettings, batching: str, only_last: bool, count: int
) -> list[Asked]:
    """Symbols spread evenly over a text, each with what a model that reads in this way has read before it."""
    lines = task.encode(corpus)
    offsets = np.asarray(lines.offsets[0 : len(lines) + 1])
    if only_last:
        numbers = np.flatnonzero(np.diff(offsets) > 1)
        numbers = numbers[_evenly(len(numbers), count)]
        found = [np.asarray(lines[int(number)], np.int64)[:-1] for number in numbers]
    elif batching == "sentences":
        ends = _evenly(len(lines.tokens), count)
        rows = np.searchsorted(offsets, ends, side="right") - 1
        found = [
            np.asarray(lines.tokens[offsets[row] : end + 1], np.int64) for row, end in zip(rows, ends, strict=True)
        ]
    else:
        ends = _evenly(len(lines.tokens), count)
        far = 2 * 10**4  # more than anyone looks back
        found = [np.asarray(lines.tokens[max(0, end - far) : end + 1], np.int64) for end in ends]
    if not found:
        raise UserError(f"{describe(corpus)}: there is no symbol to ask for")
    return [Asked(np.concatenate([[task.first], ids[:-1]]), int(ids[-1])) for ids in found]


def _evenly(total: int, count: int) -> np.ndarray:
    """At most `count` numbers below `total`, in the middle of equal parts."""
    count = min(total, count)
    return ((np.arange(count) + 0.5) * total / max(1, count)).astype(np.int64)


# -- what is measured -------------------------------------------------------------------------------------------------


def measure_gradients(
    model: Any,
    asked: Sequence[Asked],
    *,
    steps: int = STEPS,
    name: str = "",
    sample: str = "",
    progress: Callable[[float], None] | None = None,
) -> Gradients:
    """Mean norms of the gradient of a loss with respect to every state 0 to `steps` steps earlier.

    A recurrent model is measured in double precision: what vanishes would else be lost to rounding. Of a model without
    states the gradient is taken with respect to the embeddings it reads.
    """
    recurrent = isinstance(getattr(model, "decoder", None), RecurrentStack)
    model = copy.deepcopy(model).requires_grad_(False).eval()
    if recurrent:
        model = model.double()
    room = steps + 1 + WARM_UP
    if getattr(model.settings, "context", None) is not None:
        room = min(room, model.settings.context)
    rows = [Asked(row.read[-room:], row.symbol) for row in asked]
    lengths = np.array([len(row.read) for row in rows], np.int64)
    tally, batches = GradientTally(steps), sorted_batches(lengths, AT_ONCE)
    for number, indices in enumerate(batches):
        inputs = padded([rows[i].read for i in indices])
        ends = torch.from_numpy(lengths[indices] - 1)
        read = _states if recurrent else _embeddings
        features, nodes = read(model, inputs, ends)
        symbols = torch.tensor([rows[i].symbol for i in indices])
        loss = F.cross_entropy(model.output(features), symbols, reduction="sum")  # rows do not touch each other
        flat = [node for parts in nodes.values() for node in parts]
        gradients = iter(torch.autograd.grad(loss, flat, allow_unused=True))
        for kind, parts in nodes.items():
            norms = torch.cat([_norms(node, next(gradients)) for node in parts], 1)
            # A window of words may begin before the text does.
            tally.add(kind, norms[:, -inputs.shape[1] :].double().numpy(), ends.numpy())
        if progress is not None:
            progress((number + 1) / len(batches))
    matrices = list(recurrent_matrices(model.decoder)) if recurrent else []
    return Gradients(name, tally.means(), matrices, sample)


def _norms(node: Tensor, gradient: Tensor | None) -> Tensor:
    """(rows, time) of a node of (rows, time, size) or of one step; zero where the loss does not depend on it."""
    norms = node.new_zeros(node.shape[:-1]) if gradient is None else gradient.norm(dim=-1)
    return norms if norms.dim() == 2 else norms[:, None]


def _states(model: Any, inputs: Tensor, ends: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Features at each row's end, and the states of all layers, a (rows, size) tensor a step.

    Each is one node between the step before and all that follows: the step after it and the layer above.
    """
    embedded = model.embedding(inputs).requires_grad_()
    states = tuple(layer.start(embedded[:, 0])[0] for layer in model.decoder.layers)
    nodes: dict[str, list[Tensor]] = {EMBEDDING: [embedded]}
    features = []
    for time in range(inputs.shape[1]):
        hidden, states = model.decoder.step(embedded[:, time], states)
        features.append(hidden)
        for layer, state in enumerate(states):
            for kind, part in zip(state._fields, state, strict=True):
                nodes.setdefault(f"layer {layer} {kind}", []).append(part)
    at_end = torch.stack(features, 1)[torch.arange(len(ends)), ends]
    return model.dropout(at_end), nodes


def _embeddings(model: Any, inputs: Tensor, ends: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Features at each row's end, and the vectors that were read."""
    found: list[Tensor] = []

    def keep(module: Any, given: Any, vectors: Tensor) -> Tensor:
        found.append(vectors.detach().requires_grad_())
        return found[-1]

    handle = model.embedding.register_forward_hook(keep)
    try:
        features = model(inputs, None, ends + 1)[0]
    finally:
        handle.remove()
    return features[torch.arange(len(ends)), ends], {EMBEDDING: found}


def recurrent_matrices(stack: RecurrentStack) -> list[RecurrentMatrix]:
    """Of every layer and gate, the weights from state to state."""
    found = []
    for index, layer in enumerate(stack.layers):
        for direction, cell in zip(layer.names, layer.cells, strict=True):  # type: ignore[arg-type]
            where = f"layer {index}" + (f" {direction}" if len(layer.names) > 1 else "")  # type: ignore[arg-type]
            blocks = cell.weight_hidden.detach().double().chunk(cell.num_blocks)
            for gate, block in zip(BLOCKS[type(cell)], blocks, strict=True):
                found.append(RecurrentMatrix.of(f"{where} {gate}", block.numpy()))
    return found

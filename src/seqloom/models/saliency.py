"""Which steps of a series decide a label (of a text: `tasks/saliency.py`).

The gradient times what is read (Simonyan et al. 2014; Shrikumar et al. 2016), or what is lost when some steps are
hidden (Zeiler & Fergus 2014).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from seqloom.batches.collate import Batch
from seqloom.batches.steps import Steps


def above_mean(logits: Tensor, label: int) -> Tensor:
    """(rows, labels) -> (rows,): the logit of a label above the mean of all; what all share decides nothing."""
    return logits[:, label] - logits.mean(1)


def gradient_times_input(model: Any, source: Steps, label: int) -> Tensor:
    """Of one series: (time, channels).

    The first term of a Taylor series around what stands for nothing, the mean of a channel.
    """
    values = source.values.clone().requires_grad_()
    logits = _logits(model, replace(source, values=values))
    [gradient] = torch.autograd.grad(above_mean(logits, label).sum(), [values])
    return (gradient * values).detach()[0]


def occlusion(
    model: Any, source: Any, label: int, width: int, callback: Callable[[float], None] = lambda share: None
) -> Tensor:
    """(time,): how far the logit falls when the steps around one are hidden, `width` in all; the mean over all pieces
    that hide it. `callback` hears the share that is done.
    """
    time = int(source.lengths[0])
    starts = range(1 - width, time)
    sums, counts = torch.zeros(time), torch.zeros(time)
    with torch.no_grad():
        whole = above_mean(_logits(model, source), label)
        for place, start in enumerate(starts):
            first, end = max(0, start), min(time, start + width)
            lost = whole - above_mean(_logits(model, source.hidden(first, end)), label)
            sums[first:end] += lost[0]
            counts[first:end] += 1
            callback((place + 1) / len(starts))
    return sums / counts


def _logits(model: Any, source: Any) -> Tensor:
    logits: Tensor = model(Batch(source, None))
    return logits

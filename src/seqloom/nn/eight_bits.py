"""Matrix products of eight-bit numbers, where a search asks for them.

Each row of a weight is rounded to 255 steps of a size of its own, once; what it is multiplied with is rounded when it
comes, all rows of a batch to steps of one size. A processor multiplies such numbers about four times as fast as float32
ones. The answers are those of a slightly different model: about one percent of each product is rounding.

It is a matter of search only, and of the thread that asks: `with eight_bit_products(model):`. Weights stay as they are;
whoever changes one gets a new copy of it here.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.errors import UserError

MOST = 127  # steps on either side of zero


class _Rounded(NamedTuple):
    """A weight and its bias as the product wants them; they are held so that no other tensor has their identity."""

    made_from: list[Tensor]
    version: int
    packed: Any


Kept = dict[tuple[int, int], _Rounded]  # by the identities of weight and bias


class _Asked(threading.local):
    """The weights that this thread multiplies with eight bits, by identity; None: it does not."""

    rounded: Kept | None = None


_asked = _Asked()
_of_model: WeakKeyDictionary[object, Kept] = WeakKeyDictionary()


@contextmanager
def eight_bit_products(model: object) -> Iterator[None]:
    """Within this, this thread's products with weights of the model are of eight-bit numbers.

    Raises:
        UserError: there are none here.
    """
    if not has_eight_bits():
        raise UserError("decoding.precision: int8 is not possible with this torch on this processor; choose float32")
    before, _asked.rounded = _asked.rounded, _of_model.setdefault(model, {})
    try:
        yield
    finally:
        _asked.rounded = before


def has_eight_bits() -> bool:
    """Whether this torch can multiply them on this processor."""
    return torch.backends.quantized.engine in ("x86", "fbgemm", "onednn")


def rounds() -> bool:
    """Whether this thread asked for it."""
    return _asked.rounded is not None


def product(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W x + b of each vector (…, d), of eight-bit numbers where that is asked for."""
    kept = _asked.rounded
    if kept is None or not isinstance(weight, nn.Parameter) or weight.device.type != "cpu":
        return F.linear(inputs, weight, bias)  # what is no parameter is made anew for every product
    made_from = [part for part in (weight, bias) if part is not None]
    version = sum(0 if part.is_inference() else part._version for part in made_from)
    found = kept.get((id(weight), id(bias)))
    if found is None or found.version != version:
        found = kept[id(weight), id(bias)] = _Rounded(made_from, version, _packed(weight, bias))
    return torch.ops.quantized.linear_dynamic(inputs.contiguous(), found.packed)


def _packed(weight: Tensor, bias: Tensor | None) -> Any:
    weight = weight.detach()
    steps = (weight.abs().amax(1) / MOST).clamp(min=torch.finfo(torch.float32).tiny).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that such tensors may leave it one day
        rounded = torch.quantize_per_channel(weight, steps, torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach())

"""How many parameters a model has, and why: a formula for every part, held against the part's tensors.

A formula is one rule of sizes, read in three ways: with numbers it is the count, with letters it is what a textbook
prints, `4(mn + n² + n)`, and with written numbers it is what one would type into a calculator, `4(128·64 + 64² + 64)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

from torch import Tensor, nn

from seqloom.nn.attention import Additive, Multiplicative
from seqloom.nn.cells import GRU, LSTM, CoupledLSTM, Elman, ElmanSigmoid, PeepholeLSTM
from seqloom.nn.connections import Dense, Highway
from seqloom.nn.convolution import Convolution
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.hashing import HashedTable
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.pooling import AttentionPooling
from seqloom.nn.positions import Learned, Relative
from seqloom.nn.transformer import FeedForward

LEGEND = {
    "V": "symbols of the vocabulary",
    "m": "size of what the part reads",
    "n": "size of what it gives out (a recurrent layer: in one direction)",
    "d": "size of a vector: of an embedding, or between the layers",
    "f": "inner size of a feed-forward layer",
    "q": "size of what looks, the query",
    "k": "size of what is looked at, the memory",
    "p": "positions that have a vector of their own",
    "c": "distance at which relative positions are clipped",
    "h": "size of one head",
    "s": "inputs that lead around so far",
    "w": "steps that a convolution sees at once",
    "r": "rows of a table that symbols are hashed into, and one for nothing",
    "a": "third axis of a tensor",
    "b": "fourth axis of a tensor",
}

Sizes = dict[str, int]
Rule = Callable[..., Any]  # of sizes by letter; adds, multiplies and squares them


@dataclass(frozen=True)
class Written:
    """A term that writes down what is done to it."""

    text: str
    is_sum: bool = False

    def __add__(self, other: Written | int) -> Written:
        return Written(f"{self} + {other}", is_sum=True)

    def __mul__(self, other: Written | int) -> Written:
        right = _factor(other)
        return Written(_factor(self) + ("·" if right[0].isdigit() else "") + right)

    def __rmul__(self, other: int) -> Written:
        return Written(str(other)) * self

    def __pow__(self, power: int) -> Written:
        assert power == 2, "no formula here needs more"
        return Written(f"{self}²" if len(self.text) == 1 or self.text.isdigit() else f"({self})²")

    def __str__(self) -> str:
        return self.text


def _factor(term: Written | int) -> str:
    return f"({term})" if isinstance(term, Written) and term.is_sum else str(term)


def product(**sizes: Any) -> Any:
    """The rule of a tensor that nothing more is known about."""
    return reduce(mul, sizes.values()) if sizes else 1


def _axes(tensor: Tensor) -> Sizes:
    return dict(zip("nmab", tensor.shape, strict=False))


def _cell(part: Any) -> Sizes:
    return {"m": part.input_size, "n": part.hidden_size}


def _width(part: nn.LayerNorm | nn.RMSNorm) -> Sizes:
    return {"d": part.normalized_shape[0]}


def gated(d: Any, f: Any) -> Any:
    """A feed-forward layer with a gate has a third matrix (Shazeer 2020)."""
    return 3 * d * f + d + 2 * f


FORMULAS: dict[type[nn.Module], tuple[Rule, Callable[[Any], Sizes]]] = {
    SymbolEmbedding: (lambda V, d: V * d, lambda part: dict(zip("Vd", part.weight.shape, strict=True))),
    HashedTable: (lambda r, d: r * d, lambda part: dict(zip("rd", part.weight.shape, strict=True))),
    Elman: (lambda m, n: m * n + n**2 + n, _cell),
    ElmanSigmoid: (lambda m, n: m * n + n**2 + n, _cell),
    GRU: (lambda m, n: 3 * (m * n + n**2 + n) + n, _cell),  # the candidate's second bias stands inside the reset gate
    LSTM: (lambda m, n: 4 * (m * n + n**2 + n), _cell),
    CoupledLSTM: (lambda m, n: 3 * (m * n + n**2 + n), _cell),
    PeepholeLSTM: (lambda m, n: 4 * (m * n + n**2 + n) + 3 * n, _cell),
    Multiplicative: (lambda q, k: q * k, lambda part: dict(zip("qk", part.weight.shape, strict=True))),
    Additive: (lambda q, k: q**2 + q * k + q, lambda part: dict(zip("qk", part.weight_key.shape, strict=True))),
    SelfAttention: (lambda d: 4 * d**2 + 4 * d, lambda part: {"d": part.output.in_features}),
    CrossAttention: (lambda d: 4 * d**2 + 4 * d, lambda part: {"d": part.output.in_features}),
    FeedForward: (
        lambda d, f: 2 * d * f + d + f,
        lambda part: {"d": part.outer.out_features, "f": part.outer.in_features},
    ),
    Learned: (lambda p, d: p * d, lambda part: {"p": part.max_length, "d": part.table.shape[1]}),
    Relative: (lambda c, h: (2 * c + 1) * h, lambda part: {"c": part.distance, "h": part.table.shape[1]}),
    Convolution: (
        lambda w, d: w * d**2 + d,
        lambda part: {"w": part.weight.shape[2], "d": part.weight.shape[0]},
    ),
    AttentionPooling: (lambda d: d**2 + 2 * d, lambda part: {"d": len(part.v)}),
    Highway: (lambda d: d**2 + d, lambda part: {"d": part.gate.in_features}),
    Dense: (
        lambda s, d: (s + 1) * d**2,
        lambda part: {"s": part.weight.shape[1] // len(part.weight) - 1, "d": len(part.weight)},
    ),
    nn.LayerNorm: (lambda d: 2 * d, _width),
    nn.RMSNorm: (lambda d: d, _width),
    nn.Linear: (lambda m, n: m * n + n, lambda part: {"m": part.in_features, "n": part.out_features}),
}


@dataclass(frozen=True)
class Part:
    """Some tensors of a model and their formula; or, where `tied_to` names one, a tensor that is counted there."""

    name: str
    kind: str
    rule: Rule
    sizes: Sizes
    tensors: tuple[str, ...]
    tied_to: str | None = None

    @property
    def count(self) -> int:
        return 0 if self.tied_to else int(self.rule(**self.sizes))

    @property
    def formula(self) -> str:
        """`4(mn + n² + n)`"""
        return str(self.rule(**{letter: Written(letter) for letter in self.sizes}))

    @property
    def numbers(self) -> str:
        """`4(128·64 + 64² + 64)`"""
        return str(self.rule(**{letter: Written(str(size)) for letter, size in self.sizes.items()}))


def count_parameters(model: nn.Module) -> list[Part]:
    """The parts of a model; every tensor is in exactly one of them, and each formula gives what its tensors hold."""
    modules = dict(model.named_modules(remove_duplicate=False))
    owned: dict[str, dict[str, nn.Parameter]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        owner = name.rpartition(".")[0]
        above = owner.rpartition(".")[0]
        if type(modules[owner]) is nn.Linear and type(modules[above]) in FORMULAS:  # as in attention: one formula
            owner = above
        owned.setdefault(owner, {})[name] = tensor

    parts: list[Part] = []
    first: dict[int, str] = {}  # a tensor -> the name it was met by
    for owner, tensors in owned.items():
        module, kind = modules[owner], type(modules[owner]).__name__
        met = {name: first.setdefault(id(tensor), name) for name, tensor in tensors.items()}
        if type(module) in FORMULAS and all(name == before for name, before in met.items()):
            rule, sizes_of = FORMULAS[type(module)]
            if isinstance(module, FeedForward) and module.gated:
                rule = gated
            found = [Part(owner, kind, rule, sizes_of(module), tuple(tensors))]
        else:
            found = [
                Part(name, kind, product, _axes(tensor), (name,), None if met[name] == name else met[name])
                for name, tensor in tensors.items()
            ]
        for part in found:
            held = 0 if part.tied_to else sum(tensors[name].numel() for name in part.tensors)
            assert part.count == held, f"{part.name}: {part.formula} = {part.numbers} is not the {held} it holds"
        parts += found
    return parts

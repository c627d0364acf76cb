"""Optimisers, by torch, and their state as named tensors (so that it can be saved without pickle)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.hashing import HashedTable
from seqloom.nn.positions import NoPositions
from seqloom.nn.pretrained import keep_frozen_rows
from seqloom.training.muon import Muon
from seqloom.training.rows import WithTables, dense_values
from seqloom.training.settings import FittingSettings
from seqloom.training.uncompiled import uncompiled


def build_optimizer(model: nn.Module, s: FittingSettings) -> torch.optim.Optimizer:
    """The optimiser the settings name, over all weights that learn."""
    tables = tables_of(model)
    apart = set(map(id, tables))
    weights = [weight for weight in model.parameters() if weight.requires_grad and id(weight) not in apart]
    optimizer: torch.optim.Optimizer
    if s.optimizer == "sgd":
        optimizer = uncompiled(torch.optim.SGD)(
            weights, s.learning_rate, momentum=s.momentum, weight_decay=s.weight_decay
        )
    elif s.optimizer == "muon" and (matrices := maps_of(model)):
        maps = set(map(id, matrices))
        others = [weight for weight in weights if id(weight) not in maps]
        optimizer = Muon(
            matrices,
            others,
            s.learning_rate,
            weight_decay=s.weight_decay,
            betas=s.betas,
            epsilon=s.epsilon,
            fused=not s.plain,
        )
    else:
        kind = uncompiled(torch.optim.Adam if s.optimizer == "adam" else torch.optim.AdamW)
        optimizer = kind(
            weights, s.learning_rate, betas=s.betas, eps=s.epsilon, weight_decay=s.weight_decay, fused=not s.plain
        )
    if tables:
        adaptive = s.optimizer != "sgd"
        optimizer = WithTables(optimizer, tables, s.learning_rate, adaptive=adaptive, betas=s.betas, epsilon=s.epsilon)
    keep_frozen_rows(model, optimizer)
    return optimizer


def tables_of(model: nn.Module) -> list[Tensor]:
    """The weights whose gradients are sparse."""
    found = [part.weight for part in model.modules() if isinstance(part, HashedTable)]
    return [weight for weight in found if weight.requires_grad]


def maps_of(model: nn.Module) -> list[Tensor]:
    """The weights that map vectors to vectors: matrices, but no table of symbols or positions and no output layer."""
    kinds = SymbolEmbedding | HashedTable | nn.Embedding
    tables = {id(part.weight) for part in model.modules() if isinstance(part, kinds)}
    tables |= {id(weight) for part in model.modules() if isinstance(part, NoPositions) for weight in part.parameters()}
    output = getattr(model, "output", None)
    if output is not None:
        tables.add(id(output.weight))
    return [w for w in model.parameters() if w.requires_grad and w.ndim == 2 and id(w) not in tables]


def _learning(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of every weight: `exp_avg/encoder.layers.0…` -> tensor."""
    tensors = {}
    for name, weight in _learning(model):
        for key, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{key}/{name}"] = value.detach().clone()
    return tensors


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` took out."""
    weights = dict(_learning(model))
    for full_name, value in tensors.items():
        key, _, name = full_name.partition("/")
        optimizer.state[weights[name]][key] = value.clone()


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients together, as one number."""
    return torch.nn.utils.get_total_norm([dense_values(gradient) for gradient in gradients], foreach=True)


def clip(gradients: Sequence[Tensor], norm: Tensor, most: float) -> None:
    """Scale the gradients, whose norm this is, to a norm of `most` where it is larger (Pascanu et al. 2013)."""
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        dense_values(gradient).mul_(factor)

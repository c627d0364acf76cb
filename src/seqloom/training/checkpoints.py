"""Checkpoints: everything a run needs to go on as if it had never stopped, in files that hold no code.

A checkpoint is a folder `step-00001500` with `model.safetensors`, `optimizer.safetensors` (with what is carried on from
batch to batch) and `state.json`. It appears under its name only when it is complete.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from seqloom.errors import RunError, UserError
from seqloom.files import folder_written_aside, read_json, write_atomically

_NAME = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class Checkpoint:
    step: int
    folder: Path


def checkpoints_in(run: Path) -> list[Checkpoint]:
    """All complete checkpoints of a run, oldest first."""
    found = [(match, path) for path in (run / "checkpoints").glob("step-*") if (match := _NAME.fullmatch(path.name))]
    return sorted((Checkpoint(int(match[1]), path) for match, path in found), key=lambda c: c.step)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All that a model has learned by name, each once (a tied weight appears under its first name)."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in _learned(model).items()}


def _learned(model: nn.Module) -> dict[str, Tensor]:
    """Its weights and the buffers that it keeps, such as the statistics of a batch norm."""
    kept = model.state_dict(keep_vars=True)  # without buffers that are made anew
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {**dict(model.named_parameters()), **buffers}


def save_checkpoint(
    run: Path, step: int, model: nn.Module, optimizer: dict[str, Tensor], state: dict[str, Any]
) -> Path:
    """Write one, aside first."""
    final = run / "checkpoints" / f"step-{step:08d}"
    with folder_written_aside(final) as folder:
        save_tensors(folder / "model.safetensors", model_tensors(model))
        save_tensors(folder / "optimizer.safetensors", optimizer)
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return final


def save_weights(path: Path, model: nn.Module) -> None:
    """Only the weights, in a file that is replaced in one move."""
    write_atomically(path, save(model_tensors(model)))


def load_checkpoint(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """-> weights, optimiser tensors, state."""
    folder = checkpoint.folder
    return (
        load_tensors(folder / "model.safetensors"),
        load_tensors(folder / "optimizer.safetensors"),
        read_json(folder / "state.json"),
    )


def scheduled(found: list[Checkpoint], every: int) -> list[Checkpoint]:
    """Those on the run's rhythm, and its last: an interrupt adds one between, which must not change an average."""
    return [c for index, c in enumerate(found) if c.step % every == 0 or index == len(found) - 1]


def prune_checkpoints(run: Path, keep: int, every: int) -> None:
    """Keep the newest `keep` scheduled ones; only the very newest needs its optimiser state."""
    found = checkpoints_in(run)
    kept = scheduled(found, every)[-keep:]
    for checkpoint in found:
        if checkpoint not in kept:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)
        elif checkpoint != found[-1]:
            (checkpoint.folder / "optimizer.safetensors").unlink(missing_ok=True)


def average_weights(folders: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in double precision."""
    total: dict[str, Tensor] = {}
    for folder in folders:
        for name, weight in load_tensors(folder / "model.safetensors").items():
            if not weight.is_floating_point():
                total[name] = weight  # a count: the newest
            else:
                total[name] = total[name] + weight.double() if name in total else weight.double()
    return {
        name: (weight / len(folders)).float() if weight.is_floating_point() else weight
        for name, weight in total.items()
    }


def put_weights(model: nn.Module, weights: dict[str, Tensor], origin: str = "weights") -> None:
    """Copy weights in by name; a missing, unknown or misshapen one is an error that names it."""
    check_names(model, weights, origin)
    with torch.no_grad():
        for name, weight in _learned(model).items():
            weight.copy_(weights[name])


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    try:
        save_file(tensors, path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot write {path}: {error}") from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: damaged or not a safetensors file ({error})") from None


def check_fits(build: Callable[[], nn.Module], weights: Mapping[str, Any], origin: str) -> None:
    """Whether a model of these settings has the tensors of a file, found out without taking memory for any.

    A stranger's settings must neither take all memory nor build layers for ever.
    """
    most, count, thread = 2 * len(weights) + 8, 0, get_ident()  # tied weights are made before they are tied

    def registered(module: nn.Module, name: str, tensor: Any) -> None:
        nonlocal count
        count += get_ident() == thread  # a server may open two models at once
        if count > most:
            raise UserError(f"{origin} does not fit its settings: these describe far more than the file holds")

    handle = register_module_parameter_registration_hook(registered)
    try:
        with torch.device("meta"), _Unfilled():
            model = build()
    except (RuntimeError, TypeError, OverflowError) as error:  # of torch, where a tensor is beyond any memory
        raise UserError(f"{origin} does not fit its settings: no such model can be built ({error})") from error
    finally:
        handle.remove()
    check_names(model, weights, origin)


class _Unfilled(TorchFunctionMode):
    """Tensors stay without values: to draw those of a meta tensor, torch would load its compiler, for seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == nn.init.__name__:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def check_names(model: nn.Module, weights: Mapping[str, Any], origin: str) -> None:
    """A missing, unknown or misshapen tensor is an error that names it."""
    own = _learned(model)
    wrong = [f"{name} is missing" for name in own.keys() - weights.keys()]
    wrong += [f"{name} is unknown" for name in weights.keys() - own.keys()]
    wrong += [
        f"{name} is {tuple(weights[name].shape)}, expected {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if own[name].shape != weights[name].shape
    ]
    if wrong:
        raise UserError(f"{origin} does not fit its settings: {'; '.join(sorted(wrong)[:5])}")

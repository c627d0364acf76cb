"""Which engine answers: the one a folder was made for, the one asked for, or the faster one that answers the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from seqloom.errors import SeqloomError, UserError
from seqloom.folders import EXPORTED, cache_folder, export_beside, find_model, fingerprint, is_exported, read_config
from seqloom.model import Model, load

if TYPE_CHECKING:
    from seqloom.export.search import Decoding
    from seqloom.export.translator import Opened

EngineName = Literal["auto", "torch", "ctranslate2"]
MANY = 200  # texts that are worth writing a model for CTranslate2, which takes a few seconds, once


class Chosen(NamedTuple):
    """A model on the engine that was chosen for it; `why` is a line for the person, where there was a choice."""

    model: Model
    why: str | None = None


def choose(
    path: str | Path,
    engine: EngineName = "auto",
    texts: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    *,
    aligns: bool = False,
) -> Chosen:
    """The model at a path on an engine.

    `auto` takes CTranslate2 where it gives the same answers and is at hand: the folder is an export, an export of these
    very weights is beside it, or there are texts enough to write one into the cache. Otherwise the model's own.

    Args:
        path: what `seqloom.load` opens.
        engine: torch and ctranslate2 insist.
        texts: what will be asked.
        options: those that are to be others than the model's own.
        aligns: whether attention will be looked at, which only torch shows.
    """
    if is_exported(path):
        if engine == "torch":
            raise UserError(f"{path}: an exported model runs on CTranslate2; torch needs the folder it was made from")
        return Chosen(load(path))
    if Path(path).expanduser().is_file():  # of words or n-grams
        if engine == "ctranslate2":
            raise UserError(f"{path}: CTranslate2 runs networks; leave --engine out")
        return Chosen(load(path))
    folder = find_model(path)
    config = read_config(folder)
    offered = config.get("engines")
    has_choice = isinstance(offered, list) and "ctranslate2" in offered
    if engine == "torch" or (engine == "auto" and not has_choice):
        return Chosen(_on_torch(folder))
    if not has_choice:
        raise UserError(f"{folder}: CTranslate2 cannot run this {config['model'].get('kind')}; leave --engine out")
    if engine == "ctranslate2":
        return Chosen(_on_ctranslate2(folder, config, texts, options or {}, write=True))
    try:
        if aligns:
            raise UserError("alignments are shown by torch only")
        model = _on_ctranslate2(folder, config, texts, options or {}, write=len(texts) >= MANY, same=True)
        return Chosen(model, f"answering on CTranslate2 ({model.network.folder}); --engine torch does without")
    except SeqloomError as reason:  # whatever stands in the way, torch can do it, or says better what is wrong
        return Chosen(_on_torch(folder), f"answering on torch: {reason}")


def _on_torch(folder: Path) -> Model:
    from seqloom.training.memory import keep_freed_memory

    keep_freed_memory()  # every step of a search asks for the same large blocks
    return load(folder)


def _on_ctranslate2(
    folder: Path,
    config: Mapping[str, Any],
    texts: Sequence[str],
    options: Mapping[str, Any],
    *,
    write: bool,
    same: bool = False,
) -> Model:
    """A model folder on CTranslate2, from an export of these very weights; an error says why that cannot be."""
    if find_spec("ctranslate2") is None:
        from seqloom.export.engine import MISSING

        raise UserError(MISSING)
    from seqloom.export.search import check_decoding
    from seqloom.export.translator import open_exported

    made_from = fingerprint(folder)
    places = (export_beside(folder), _cache(made_from))
    place = next((place for place in places if _is_made_from(place, made_from)), None)
    exported = open_exported(place) if place else None
    own = _own_options(folder, config, exported)
    settings = own.overridden(options)
    check_decoding(settings, None)
    if same and (settings.method == "sample" or settings.n_best > 1):  # other draws; the last of many may differ
        name, value = ("method", "sample") if settings.method == "sample" else ("n_best", settings.n_best)
        raise UserError(f"decoding.{name}: {value} gives other answers on CTranslate2")
    exported = exported or open_exported(_written(folder, made_from, write))
    check_decoding(settings, exported.task.positions)
    exported.task.refuse_long(exported.network, texts)
    return Model(folder, exported.task, exported.network, own, dict(config))  # its own name, data and options


def _own_options(folder: Path, config: Mapping[str, Any], exported: Opened | None) -> Decoding:
    """A model folder's own options; what they share with a known export was checked when that was written."""
    from seqloom.decoding.known import KnownDecoding

    given = config.get("options", {})
    if exported and isinstance(exported.options, KnownDecoding) and vars(exported.options) == given:
        return exported.options
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.settings import validated

    settings: DecodingSettings = validated(DecodingSettings, given, f"{folder}/config.json")
    return settings


def _is_made_from(place: Path, made_from: str) -> bool:
    """Whether there is an export that answers as this model does: not of other weights, and not rounded."""
    from seqloom.files import read_json

    if not is_exported(place):
        return False
    about = read_json(place / EXPORTED)
    return isinstance(about, dict) and (about.get("made_from"), about.get("compute")) == (made_from, "float32")


def _cache(made_from: str) -> Path:
    """Where an export is kept that nobody asked for."""
    return cache_folder() / "engines" / made_from


def _written(folder: Path, made_from: str, write: bool) -> Path:
    """The model's export in the cache, written now if it is worth it."""
    if not write:
        raise UserError(f"no export of this model is at hand, and fewer than {MANY} texts are not worth one")
    from seqloom.export.ctranslate2 import export

    place = _cache(made_from)
    export(load(folder), place, verify=False, overwrite=True)
    return place

"""What tasks share whose models are networks: built, started from vectors, fitted by the loop, kept in a file."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field
from torch import nn

from seqloom.corpus.lines import expand_path
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import UserError
from seqloom.files import folder_written_aside, write_json
from seqloom.folders import find_model, read_config
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.pretrained import fill_embedding, freeze_rows
from seqloom.settings import Settings
from seqloom.tasks.base import KEPT, Fitted, Recipe, Say, Task
from seqloom.text.special import SPECIAL
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.checkpoints import check_fits, load_tensors, model_tensors, put_weights, save_tensors
from seqloom.training.loop import Progressed, fit, seconds_an_update
from seqloom.training.memory import keep_freed_memory, peak_memory
from seqloom.training.progress import duration
from seqloom.training.settings import FittingSettings
from seqloom.vectors.opening import open_vectors

WEIGHTS = "model.safetensors"
FIRST = "first.safetensors"  # beside what was learned: the weights of another model that a run starts from


class NetworkRecipe(Recipe):
    """Whatever is trained by the loop."""

    start_from: str | None = Field(
        None, description="a run or model folder: its weights and vocabulary are what training starts from"
    )
    training: FittingSettings
    decoding: Settings = DecodingSettings()

    def options(self) -> Settings:
        return self.decoding


class Network(Task):
    """A task whose models are networks."""

    Options: ClassVar[type[Settings]] = DecodingSettings
    first_weights: Path | None = None
    """The file of those that training starts from, where they are another model's."""

    # -- going on from another model ---------------------------------------------------------------------------------

    @classmethod
    def check_start(cls, recipe: Any) -> None:
        if recipe.start_from is not None:
            cls._started(recipe)

    @classmethod
    def begin(cls, recipe: Any, say: Say) -> Self:
        if recipe.start_from is None:
            return cls.learn(recipe, say)
        task = cls._started(recipe)
        say(f"starting from the weights of {recipe.start_from}; its vocabulary stays: {task.vocabulary()}")
        return task

    @classmethod
    def _started(cls, recipe: Any) -> Self:
        """What the model knows that a recipe starts from, if it is of the same task and architecture."""
        place = recipe.start_from
        try:
            folder = find_model(expand_path(place))
            config = read_config(folder)
        except UserError as error:
            raise UserError(f"start_from: {error}") from None
        if config.get("task") != recipe.task:
            raise UserError(
                f"start_from: {place} is of task {config.get('task')}; this recipe is of task {recipe.task}"
            )
        kind = config["model"].get("kind")
        if kind != recipe.model.kind:
            raise UserError(f"start_from: {place} is a {kind}; this recipe describes a {recipe.model.kind}")
        task = cls.load(folder, config)
        task.adopt(recipe)
        task.first_weights = folder / WEIGHTS
        try:
            check_fits(lambda: task.build(recipe.model), load_tensors(task.first_weights), str(task.first_weights))
        except UserError as error:
            raise UserError(f"start_from: the model section must be that of {place}: {error}") from None
        return task

    def is_input(self, value: Any) -> bool:
        """What the source takes for one input; else a text."""
        found = getattr(getattr(self, "source", None), "is_input", None)
        return super().is_input(value) if found is None else bool(found(value))

    def adopt(self, recipe: Any) -> None:
        """Take from a recipe what is chosen there, and not learned."""

    def keep(self, folder: Path) -> None:
        """With the weights that training starts from: a run does not need the other model to be resumed."""
        with folder_written_aside(folder) as aside:
            write_json(aside / KEPT, self.save(aside))
            if self.first_weights is not None:
                shutil.copyfile(self.first_weights, aside / FIRST)

    @classmethod
    def kept(cls, folder: Path) -> Self:
        task = super().kept(folder)
        if (folder / FIRST).is_file():
            task.first_weights = folder / FIRST
        return task

    # -- what a task brings ------------------------------------------------------------------------------------------

    def sizes(self, settings: Any) -> dict[str, Any]:
        """What a model must know of the data: `build` passes it on beside the settings."""
        raise NotImplementedError

    def work(self, recipe: Any) -> Any:
        """Batches, loss and validation, as the loop asks for them."""
        raise NotImplementedError

    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """By the side whose embedding may start from vectors."""
        return {}

    def embeddings(self, model: Any) -> Mapping[str, nn.Module]:
        """The tables of vectors by the same sides."""
        found: Mapping[str, nn.Module] = model.embeddings
        return found

    def build(self, settings: Any) -> nn.Module:
        """A fresh model for what was learned of the data."""
        model: nn.Module = self.models[settings.kind][1](settings, **self.sizes(settings))
        return model

    def prepare(self, recipe: Any, say: Say = lambda text: None) -> tuple[Any, nn.Module]:
        """The work, and a model before step 1: the same in every process that trains together."""
        keep_freed_memory()
        work = self.work(recipe)
        torch.manual_seed(recipe.seed)
        model = self.build(recipe.model)
        self.start(model, recipe.model, say)
        if self.first_weights is not None:
            put_weights(model, load_tensors(self.first_weights), str(self.first_weights))
        use_plain_paths(model, recipe.training.plain)
        return work, model

    def untrained(self, recipe: Any) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = self.build(recipe.model)
        if recipe.start_from is not None:
            first = self._started(recipe).first_weights
            assert first is not None
            put_weights(model, load_tensors(first), str(first))
        return model

    def start(self, model: Any, settings: Any, say: Say) -> None:
        """Set the embeddings of a fresh model from the vectors that its settings name, and freeze these if asked to."""
        pretrained: Any = getattr(settings, "pretrained", None)
        if pretrained is None:
            return
        for side, path in pretrained.paths().items():
            tokenizer, embedding = self.tokenizers()[side], self.embeddings(model)[side]
            start_embedding(embedding, tokenizer, path, side, freeze=pretrained.freeze, say=say)

    def fit(self, recipe: Any, run: Path, *, resume: bool, ranks: Any, say: Say) -> Fitted:
        leads = ranks is None or ranks.rank == 0
        if not leads:
            ranks.wait()  # for the encoded corpora
        work, model = self.prepare(recipe, say)
        if leads:
            write_json(run / "data.json", work.summary())
            say(work.overview())
        if leads and ranks is not None:
            ranks.wait()
        done = fit(model, work, recipe.training, run, resume=resume, ranks=ranks, seed=recipe.seed)
        return Fitted(model, self.size(model), self._card(recipe, done), done.seconds)

    def rehearse(self, recipe: Any, say: Say) -> dict[str, str]:
        s = recipe.training
        if s is None:  # counted
            return super().rehearse(recipe, say)
        work, model = self.prepare(recipe, say)
        say("rehearsing a few steps …")
        seconds = seconds_an_update(model, work, s)
        limits = [s.steps] if s.steps is not None else []
        if s.epochs is not None:
            limits.append(round(s.epochs * work.batches_per_epoch() / s.accumulate))
        if s.minutes is not None:
            limits.append(round(60 * s.minutes / seconds))
        steps = max(1, min(limits))
        epochs = steps * s.accumulate / max(work.batches_per_epoch(), 1e-9)
        at_most = ", at most: patience may end it earlier" if s.patience is not None else ""
        peak = peak_memory()
        memory = f"about {peak / 2**30:.2f} GB, without validations and searches" if peak else "not known"
        return {
            "parameters": f"{self.amounts(model)['parameters']:,}",
            "data": work.overview(),
            "steps": f"{steps:,} updates, {epochs:,.1f} epochs{at_most}",
            "time": f"about {duration(steps * seconds)}, and the validations: {seconds:.3f} s a step in one process",
            "memory": memory,
            "note": "time and memory are estimates, from a few steps of a model that was thrown away",
        }

    def _card(self, recipe: Any, done: Progressed) -> dict[str, str]:
        best = "" if done.best is None else f"{recipe.training.metric} {done.best:.4g}"
        which = f"mean of the last {done.averaged} checkpoints" if done.averaged else f"step {done.best_step:,}"
        peak = peak_memory()
        memory = f", {peak / 2**30:.2f} GB of memory at the most" if peak else ""
        return {
            "training": f"{done.step:,} steps in {duration(done.seconds)}{memory}; weights of {which}",
            "validation": f"{best} on {self.describe(recipe.data.valid)}",
        }

    def save_model(self, model: Any, folder: Path) -> None:
        save_tensors(folder / WEIGHTS, model_tensors(model))

    def load_model(self, settings: Any, folder: Path) -> Any:
        return self.load_weights(settings, folder / WEIGHTS)

    def load_weights(self, settings: Any, file: Path) -> Any:
        weights = load_tensors(file)
        check_fits(lambda: self.build(settings), weights, str(file))
        model = self.build(settings)
        put_weights(model, weights, str(file))
        return model.eval()

    def size(self, model: Any) -> str:
        return f"{self.amounts(model)['parameters']:,} parameters"

    def amounts(self, model: Any) -> dict[str, int]:
        return {"parameters": sum(weight.numel() for weight in model.parameters())}


def start_embedding(embedding: Any, tokenizer: Tokenizer, path: str, side: str, *, freeze: bool, say: Say) -> None:
    """Set the rows of symbols that have a vector in a file; `freeze` keeps these rows as they are."""
    pieces = tokenizer.pieces(range(len(tokenizer)))
    pieces[: len(SPECIAL)] = [""] * len(SPECIAL)  # they stand for no text
    vectors = open_vectors(expand_path(path), told=say)
    try:
        filled = fill_embedding(embedding.weight, pieces, vectors)
    except UserError as error:
        raise UserError(f"model.pretrained.{side} ({path}): {error}") from None
    if freeze:
        freeze_rows(embedding, filled.rows)
    kept = " and keep it" if freeze else ""
    say(f"{filled.found:,} of {filled.total:,} {side} symbols have a vector in {path}{kept}")

"""What tasks share whose source is a choice of the data: texts and series work alike, and so will whatever comes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from seqloom.corpus.kinds import AnyCorpus, kind_of
from seqloom.corpus.series import SeriesSettings
from seqloom.settings import Settings
from seqloom.sources import SOURCES
from seqloom.sources.series import SeriesSourceSettings
from seqloom.tasks.base import PairDataSettings
from seqloom.tasks.supervised import ExampleRecipe, Supervised
from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer

BATCH_TOKENS = 8192
TEXT = TextSettings(tokenizer="word", vocabulary_size=None)


class AnyDataSettings(PairDataSettings):
    """Where examples come from, whichever kind of source they have."""

    train: AnyCorpus
    valid: AnyCorpus
    test: dict[str, AnyCorpus] = Field(default_factory=dict)


class SeriesDataSettings(PairDataSettings):
    """Where series come from."""

    train: SeriesSettings  # type: ignore[assignment]
    valid: SeriesSettings  # type: ignore[assignment]
    test: dict[str, SeriesSettings] = Field(default_factory=dict)  # type: ignore[assignment]


class AnySourceRecipe(ExampleRecipe):
    """Examples of any source; `text` and `series` say how a source of that kind is prepared."""

    data: AnyDataSettings
    text: TextSettings = TEXT
    series: SeriesSourceSettings = SeriesSourceSettings()
    decoding: Settings = Settings()

    def contradictions(self) -> list[str]:
        problems, kind = [], kind_of(self.data.train)
        for name, corpus in self.data.corpora().items():
            if kind_of(corpus) != kind:
                where = name if name in ("train", "valid") else f"test.{name}"
                problems.append(f"data.{where} has {kind_of(corpus)}, but data.train has {kind}")
        if kind == "text":
            problems += (
                [] if not self.text.dropout else ["text.dropout is for translation; here a text is read in one way"]
            )
            problems += [] if not getattr(self.model, "noise", 0.0) else ["model.noise is for series"]
        else:
            problems += [] if self.text == TEXT else ["text is for texts; the data are series"]
            for name in ("word_dropout", "pretrained"):
                problems += (
                    [f"model.{name} is for texts; the data are series"] if getattr(self.model, name, None) else []
                )
        if self.training.candidates is not None:
            problems.append("training.candidates is for the choice among many symbols")
        return problems


class AnySource(Supervised):
    """A task that reads whatever its data are."""

    Options = Settings

    @staticmethod
    def learn_source(recipe: Any) -> Any:
        """The source that the data ask for, as it is learned from them."""
        kind = kind_of(recipe.data.train)
        return SOURCES[kind].learn(recipe.data.train, getattr(recipe, kind))

    def save_source(self, folder: Path) -> dict[str, Any]:
        about: dict[str, Any] = self.source.save(folder)
        return about if self.source.is_text else {"source": "series", "series": about}

    @staticmethod
    def load_source(folder: Path, config: Mapping[str, Any]) -> Any:
        """Folders that name no source have texts."""
        return SOURCES["series" if config.get("source") == "series" else "text"].load(folder, config)

    def inputs(self, given: Any) -> list[Any]:
        found: list[Any] = self.source.inputs(given)
        return found

    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"text": self.source.tokenizer} if self.source.is_text else {}

"""Which kind of examples a corpus has: its settings tell, and what reads, names and examines it follows from them.

A new kind of data is a settings class with a key that no other has, and a line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Discriminator, Tag

from seqloom.corpus import doctor, readers, series
from seqloom.corpus.readers import CorpusSettings
from seqloom.corpus.series import SeriesSettings
from seqloom.corpus.series_doctor import examine_series
from seqloom.settings import Settings


class Kind(NamedTuple):
    """What can be done with corpora of one kind."""

    settings: type[Settings]
    key: str | None
    """Whoever has it is of this kind; None is for all others."""
    read: Callable[[Any], Iterator[Any]]
    """Its examples, each with a `source` and a `target`."""
    describe: Callable[[Any], str]
    fingerprint: Callable[[Any], str]
    corpus_of: Callable[[Sequence[str], Any], Any]
    """What `--data` names, read like another corpus."""
    examine: Callable[..., tuple[str, Any, bool]]
    """The data doctor: corpora by name -> its report as text and as plain values, whether training may begin."""
    has_symbols: bool
    """Whether a vocabulary is learned, so that a symbol may be unknown."""


def _examine_text(corpora: Mapping[str, Any], **limits: Any) -> tuple[str, Any, bool]:
    report = doctor.examine(corpora, **limits)
    return doctor.render(report).rstrip(), doctor.to_dict(report), report.ok


KINDS = {
    "series": Kind(
        SeriesSettings,
        "series",
        series.read_examples,
        series.describe,
        series.fingerprint,
        series.corpus_of,
        examine_series,
        has_symbols=False,
    ),
    "text": Kind(
        CorpusSettings,
        None,
        readers.read_pairs,
        readers.describe,
        readers.fingerprint,
        readers.corpus_of,
        _examine_text,
        has_symbols=True,
    ),
}


def kind_of(corpus: Any) -> str:
    """The name of a corpus's kind."""
    return next(name for name, kind in KINDS.items() if isinstance(corpus, kind.settings))


def is_corpus(value: Any) -> bool:
    """Whether something says where examples come from, and is not examples already."""
    return any(isinstance(value, kind.settings) for kind in KINDS.values())


def read_pairs(corpus: Any) -> Iterator[Any]:
    """The examples of a corpus, each with a `source` and a `target`."""
    return KINDS[kind_of(corpus)].read(corpus)


def describe(corpus: Any) -> str:
    """A short name for people."""
    return KINDS[kind_of(corpus)].describe(corpus)


def fingerprint(corpus: Any) -> str:
    """A hash of what a corpus holds."""
    return KINDS[kind_of(corpus)].fingerprint(corpus)


def corpus_of(data: Sequence[str], like: Any = None) -> Any:
    """What `--data` names: of the kind of another corpus, and laid out like it."""
    return KINDS["text" if like is None else kind_of(like)].corpus_of(data, like)


def _tag(value: Any) -> str:
    """The settings class that some values are for."""
    for kind in KINDS.values():
        if isinstance(value, kind.settings) or (isinstance(value, Mapping) and kind.key in value):
            return kind.settings.__name__
    return CorpusSettings.__name__


if TYPE_CHECKING:
    AnyCorpus = Any
else:
    AnyCorpus = Annotated[
        Annotated[CorpusSettings, Tag("CorpusSettings")] | Annotated[SeriesSettings, Tag("SeriesSettings")],
        Discriminator(_tag),
    ]

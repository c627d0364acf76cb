"""Does an exported model answer as the original does? The same search on both sides, sentence by sentence.

In float32 both are the same formula, so greedy and beam search must give the same symbols with the same probability.
Two candidates may be so close that the order of additions decides between them; such a tie is counted, not blamed. With
int8 answers do differ, so their quality is measured instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings, describe, read_pairs
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.errors import RunError, UserError
from seqloom.evaluation.metrics import corpus_scores
from seqloom.export.search import Found
from seqloom.model import Model
from seqloom.tasks.supervised import sample_pairs
from seqloom.text.special import BOS_ID, PAD_ID

TIE = 1e-4  # log probabilities closer than this, relative to their size, are equal
DRIFT = 1e-3  # the same answer may differ by so much in its log probability
MOST_LOST = 1.0  # BLEU that a smaller number format may cost
SHOWN = 3

Progress = Callable[[str, float], None]  # what is being done, and which share of it is


@dataclass(frozen=True)
class Difference:
    """A sentence that both answered differently."""

    source: str
    ours: str
    theirs: str


@dataclass(frozen=True)
class Search:
    """How one kind of search agreed."""

    same: int = 0
    ties: int = 0
    cut: int = 0  # beams that ran into the length limit, where both searches give up differently
    drift: float = 0.0  # largest difference of log probabilities of the same answer
    differences: list[Difference] = field(default_factory=list)

    def summary(self) -> str:
        ties = [f"{self.ties:,} tie{'s' if self.ties > 1 else ''}"] if self.ties else []
        notes = ties + ([f"{self.cut:,} cut"] if self.cut else [])
        return f"{self.same:,} the same" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True)
class Verification:
    """What was compared, and what came out."""

    data: str
    sentences: int
    searches: dict[str, Search] = field(default_factory=dict)
    bleu: tuple[float, float] | None = None  # original, exported

    def summary(self) -> str:
        found = "; ".join(f"{name}: {search.summary()}" for name, search in self.searches.items())
        quality = "" if self.bleu is None else f"; BLEU {self.bleu[0]:.2f} before, {self.bleu[1]:.2f} after"
        return f"{self.sentences:,} sentences of {self.data}; {found}{quality}"

    def to_dict(self) -> dict[str, Any]:
        searches = {
            name: {key: value for key, value in asdict(search).items() if key != "differences"}
            for name, search in self.searches.items()
        }
        bleu = None if self.bleu is None else {"original": self.bleu[0], "exported": self.bleu[1]}
        return {"data": self.data, "sentences": self.sentences, "searches": searches, "bleu": bleu}

    def or_refuse(self) -> None:
        """An export that does not answer as the original does is no export."""
        if self.bleu is not None:
            if self.bleu[0] - self.bleu[1] > MOST_LOST:
                raise RunError(
                    f"the exported model was not kept: BLEU falls from {self.bleu[0]:.2f} to {self.bleu[1]:.2f} on "
                    f"{self.sentences:,} sentences of {self.data}, by more than {MOST_LOST}; --compute float32 loses "
                    "nothing"
                )
            return
        wrong = {name: search.differences for name, search in self.searches.items() if search.differences}
        if wrong:
            counts = ", ".join(f"{len(found):,} of {self.sentences:,} in {name}" for name, found in wrong.items())
            lines = [f"the exported model was not kept: it answers differently from the original ({counts})"]
            for name, found in wrong.items():
                for one in found[:SHOWN]:
                    lines += [f"  {name}", f"    source    {one.source}", f"    original  {one.ours}"]
                    lines += [f"    exported  {one.theirs}"]
            raise RunError("\n".join(lines))


@dataclass(frozen=True)
class Chosen:
    """Sentences to verify with, and where they are from."""

    name: str
    pairs: list[Pair]

    def __len__(self) -> int:
        return len(self.pairs)


def chosen_pairs(corpus: CorpusSettings, model: Model, most: int) -> Chosen:
    """At most so many pairs, spread over the corpus; those without a symbol have nothing to show."""
    pairs = [pair for pair in read_pairs(corpus) if not model.task.source.is_empty(pair.source)]
    if not pairs:
        raise UserError(f"{describe(corpus)}: there is no sentence to verify the export with")
    return Chosen(describe(corpus), sample_pairs(pairs, most))


def compare(
    original: Model, exported: Model, chosen: Chosen, settings: DecodingSettings, progress: Progress | None = None
) -> Verification:
    """Greedy and beam search on both sides, by plain sums of log probabilities: there both are one search."""
    beam = settings.overridden({"method": "beam", "beam_size": 5, "n_best": 1, "early_stop": True})
    beam = beam.overridden({"length_penalty": 0.0, "coverage_penalty": 0.0, "unknown": "keep", "precision": "float32"})
    greedy = beam.overridden({"method": "greedy"})
    searches, before = {}, 0.0
    for name, search, share in (("greedy search", greedy, 0.2), ("beam search", beam, 0.8)):  # a beam takes longer
        searches[name] = _compare(original, exported, chosen.pairs, search, _part(progress, name, before, share))
        before += share
    return Verification(chosen.name, len(chosen), searches)


def measure(
    original: Model, exported: Model, chosen: Chosen, settings: DecodingSettings, progress: Progress | None = None
) -> Verification:
    """BLEU of both with the settings the model is used with; where it draws, with its likeliest answers."""
    likeliest = {"method": "greedy"} if settings.method == "sample" else {}
    settings = settings.overridden({"n_best": 1, "precision": "float32", **likeliest})
    sources, references = [pair.source for pair in chosen.pairs], [pair.target for pair in chosen.pairs]
    found = _in_order(original, sources, settings, _part(progress, "original"))
    ours = [one.texts[0] for one in found]
    rivals = _in_order(exported, sources, settings)
    theirs = [
        exported.task.shown(exported.network, source, one[0]) for source, one in zip(sources, rivals, strict=True)
    ]
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    before, after = (corpus_scores(texts, references, ("bleu",))["bleu"] for texts in (ours, theirs))
    return Verification(chosen.name, len(chosen), {f"{settings.method} search": Search(same)}, (before, after))


def _part(progress: Progress | None, what: str, before: float = 0.0, size: float = 1.0) -> Callable[[float], None]:
    """Progress within a part of the work: what comes before it, and its size."""
    return (lambda share: None) if progress is None else (lambda share: progress(what, before + size * share))


def _in_order(
    model: Model, texts: Sequence[str], settings: DecodingSettings, progress: Callable[[float], None] | None = None
) -> list[Any]:
    """The answers to all texts, as their task gives them."""
    count = None if progress is None else lambda done: progress(done / len(texts))
    found = dict(model.task.translate(model.network, texts, settings, count))
    return [found[index] for index in range(len(texts))]


def _compare(
    original: Model,
    exported: Model,
    pairs: Sequence[Pair],
    settings: DecodingSettings,
    progress: Callable[[float], None],
) -> Search:
    sources = [pair.source for pair in pairs]
    originals, answers = _in_order(original, sources, settings, progress), _in_order(exported, sources, settings)
    same = ties = cut = 0
    drift, differences = 0.0, []
    for source, answered, rivals in zip(sources, originals, answers, strict=True):
        ours, theirs = answered.hypotheses[0], rivals[0]
        if ours.tokens == theirs.tokens and (away := _away(ours.log_probability, theirs.log_probability)) <= DRIFT:
            same, drift = same + 1, max(drift, away)
        elif settings.method == "beam" and not ours.finished:
            cut += 1
        elif _is_tie(original, source, ours, theirs, settings):
            ties += 1
        else:
            shown = [
                f"{exported.network.target.decode(one.tokens)} ({one.log_probability:.4f})" for one in (ours, theirs)
            ]
            differences.append(Difference(source, *shown))
    return Search(same, ties, cut, drift, differences)


def _away(one: float, other: float) -> float:
    """How far two log probabilities are apart, relative to their size where that is more than 1."""
    return abs(one - other) / max(1.0, abs(one))


def _is_tie(original: Model, source: str, ours: Hypothesis, theirs: Found, settings: DecodingSettings) -> bool:
    """Whether the original itself finds both answers equally likely: where they part, or for a beam as a whole."""
    if ours.tokens == theirs.tokens:
        return False  # the same words with another probability
    log_probs = [forced_log_probs(original, source, one.tokens) for one in (ours, theirs)]
    if settings.method == "beam":
        return _away(float(log_probs[0].sum()), float(log_probs[1].sum())) <= TIE
    parting = [a == b for a, b in zip([*ours.tokens, -1], [*theirs.tokens, -1], strict=False)].index(False)
    return _away(float(log_probs[0][parting]), float(log_probs[1][parting])) <= TIE


@torch.inference_mode()
def forced_log_probs(original: Model, source: str, tokens: Sequence[int]) -> torch.Tensor:
    """The original's log probability of each symbol of an answer and of EOS, teacher-forced."""
    batch = original.task.pair(source, tokens)
    logits = original.network.output(original.network(batch)[0])
    logits[:, [PAD_ID, BOS_ID]] = float("-inf")
    return logits.log_softmax(-1).gather(1, batch.target.outputs[0][:, None])[:, 0]

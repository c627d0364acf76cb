"""Beam search: the best few beginnings, extended one symbol at a time, for many sentences at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.lengths import length_normaliser
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import KEEP, Best, Hypothesis, Stepper, Steps
from seqloom.text.special import EOS_ID


def coverage_bonus(coverage: Tensor, penalty: float) -> Tensor:
    """Wu et al. 2016, eq. 14: penalty * sum over source of log(min(attention received, 1)); at most 0.

    coverage (…, source) -> (…,)
    """
    return penalty * coverage.clamp(min=1e-9, max=1.0).log().sum(-1)


@dataclass
class _Beams:
    """The live beginnings of the sentences still searched; every tensor is (sentences, width, …)."""

    totals: Tensor  # summed log probability; -inf where nothing lives
    history: Tensor  # (…, time) symbols so far
    log_probs: Tensor  # (…, time) log probability of each
    looked: Tensor | None  # (…, time, source) attention, when it is wanted

    def follow(self, sentences: Tensor, parents: Tensor) -> _Beams:
        """The pasts of survivors: rows `parents` (kept, width) of the sentences that stay (kept,)."""
        picked = (sentences[:, None], parents)
        looked = None if self.looked is None else self.looked[picked]
        return _Beams(self.totals[picked], self.history[picked], self.log_probs[picked], looked)

    def extend(self, totals: Tensor, symbols: Tensor, log_probs: Tensor) -> _Beams:
        history = torch.cat([self.history, symbols[:, :, None]], 2)
        return _Beams(totals, history, torch.cat([self.log_probs, log_probs[:, :, None]], 2), self.looked)


class Considered(NamedTuple):
    """What one step of the search looked at, for one sentence, the best first; each list has one entry a candidate.

    `parents` are places among the beginnings that the step before left alive, in their order. `ended` have come to EOS,
    `alive` are those that live on.
    """

    parents: list[int]
    symbols: list[int]
    totals: list[float]
    ended: list[bool]
    alive: list[bool]


class _Ended(NamedTuple):
    """A beginning that has come to EOS."""

    score: float
    total: float
    tokens: list[int]
    log_probs: list[float]
    attention: Tensor | None


@dataclass
class _Answers:
    """What has ended, sentence by sentence: how many, and the score the next one must beat to be among the n best."""

    limit: Tensor
    source_lengths: Tensor
    settings: DecodingSettings
    found: list[list[_Ended]] = field(init=False)
    counts: Tensor = field(init=False)
    bar: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.found = [[] for _ in self.limit]
        self.counts = torch.zeros_like(self.limit)
        self.bar = torch.full(self.limit.shape, float("-inf"))

    def add(self, beams: _Beams, sentences: Tensor, groups: Tensor, rows: Tensor, totals: Tensor) -> None:
        """Beginnings `rows` of `groups` have just come to EOS, which makes their sums `totals`; each (ended,)."""
        history, before = beams.history[groups, rows], beams.totals[groups, rows]
        log_probs = torch.cat([beams.log_probs[groups, rows], (totals - before)[:, None]], 1)
        length = history.shape[1] + 1
        normaliser = length_normaliser(length, self.settings.length_penalty)
        looked: list[Tensor | None] = [None] * len(groups)
        if beams.looked is not None and beams.looked.shape[2]:
            looked = list(beams.looked[groups, rows])
        numbers = sentences[groups]
        for number, total, tokens, values, seen in zip(
            numbers.tolist(), totals.tolist(), history.tolist(), log_probs.tolist(), looked, strict=True
        ):
            score = total / normaliser
            if seen is not None:
                seen = seen[:, : int(self.source_lengths[number])]
                if self.settings.coverage_penalty:
                    score += float(coverage_bonus(seen.sum(0), self.settings.coverage_penalty))
            self.found[number].append(_Ended(score, total, tokens, values, seen))
        self.counts += numbers.bincount(minlength=len(self.counts))
        if not self.settings.early_stop:
            wanted = self.settings.n_best
            for number in set(numbers.tolist()):
                if len(self.found[number]) >= wanted:
                    self.bar[number] = sorted((one.score for one in self.found[number]), reverse=True)[wanted - 1]

    def best(self) -> list[list[Hypothesis]]:
        """The `n_best` of each sentence, best first."""
        answers = []
        for found, limit in zip(self.found, self.limit.tolist(), strict=True):
            kept = sorted(found, key=lambda one: -one.score)[: self.settings.n_best]
            answers.append(
                [
                    Hypothesis(
                        one.tokens, one.total, one.score, one.log_probs, one.attention, len(one.tokens) + 1 < limit
                    )
                    for one in kept
                ]
            )
        return answers


def beam_search(
    stepper: Stepper,
    state: Any,
    first: Tensor,
    limit: Tensor,
    settings: DecodingSettings,
    *,
    source_lengths: Tensor | None = None,
    keep_attention: bool = False,
    watch: Callable[[Considered], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` answers of each sentence, best first.

    At each step every live beginning is extended by its likeliest symbols and the best 2 * beam_size are looked at:
    those that end and rank among the first beam_size have ended; the best beam_size of the others live on. A
    sentence is done when nothing more is to be found for it.

    A search starts with one beginning a sentence. The source is held once for all beginnings of a sentence.

    Args:
        stepper: the model, step by step.
        state: where it stands before the first step, a row a sentence.
        first: (sentences,) the symbols it reads first.
        limit: (sentences,) the most symbols an answer may have, end included.
        settings: width, penalties, when to stop.
        source_lengths: (sentences,) of what attention looks at, where it is kept or judged.
        keep_attention: whether answers show where the model looked.
        watch: called after every step of the search for a single sentence.
    """
    width, count = settings.beam_size, len(first)
    assert watch is None or count == 1, "one sentence is watched at a time"
    steps = Steps(stepper, settings)
    track = keep_attention or settings.coverage_penalty > 0
    source_length = int(source_lengths.max()) if track and source_lengths is not None and count else 0
    source_lengths = first.new_zeros(count) if source_lengths is None else source_lengths
    answers = _Answers(limit, source_lengths, settings)
    beams = _Beams(
        totals=torch.zeros(count, 1),
        history=torch.empty(count, 1, 0, dtype=torch.long),
        log_probs=torch.empty(count, 1, 0),
        looked=torch.empty(count, 1, 0, source_length) if track else None,
    )
    sentences = torch.arange(count)  # which sentence each group of rows belongs to
    tokens, time = first, 0
    while len(sentences):
        time += 1
        before = beams.history.flatten(0, 1)
        found, state, weights = steps.best(tokens, state, 2 * width, attention=track, before=before)
        if beams.looked is not None and weights is not None:
            weights = weights.view(*beams.totals.shape, 1, source_length)
            beams.looked = torch.cat([beams.looked, weights], 2)
        best, parents, symbols, log_probs = candidates(beams.totals, found, limit[sentences] <= time, 2 * width)
        ends = symbols == EOS_ID
        groups, ranks = (ends & ~best.isneginf())[:, :width].nonzero(as_tuple=True)
        if len(groups):
            answers.add(beams, sentences, groups, parents[groups, ranks], best[groups, ranks])

        going = ends.int().sort(dim=-1, stable=True).indices[:, :width]  # the best that have not ended, in their order
        totals = best.gather(1, going).masked_fill(ends.gather(1, going), float("-inf"))
        done = _done(answers, sentences, totals, time)
        totals = totals.masked_fill(done[:, None], float("-inf"))
        if watch is not None:
            watch(_considered(best, parents, symbols, ends, going[0][~totals[0].isneginf()], width))
        stay, staying = torch.arange(len(sentences)), int((~done).sum())
        leaving = staying < KEEP * len(sentences)
        if leaving:
            stay = (~done).nonzero()[:, 0]
        parents, symbols, log_probs = (part.gather(1, going)[stay] for part in (parents, symbols, log_probs))
        rows = (stay[:, None] * beams.totals.shape[1] + parents).flatten()
        beams = beams.follow(stay, parents).extend(totals[stay], symbols, log_probs)
        if len(stay):
            state = state.follow(rows, stay if leaving else None)
        sentences, tokens = sentences[stay], symbols.flatten()
    return answers.best()


def _considered(best: Tensor, parents: Tensor, symbols: Tensor, ends: Tensor, alive: Tensor, width: int) -> Considered:
    """Of the first sentence; what can never be is left out."""
    real = int((~best[0].isneginf()).sum())
    ended = ends[0] & (torch.arange(ends.shape[1]) < width)
    lives = torch.zeros_like(ended).index_fill(0, alive, True)
    lists = (part[:real].tolist() for part in (parents[0], symbols[0], best[0], ended, lives))
    return Considered(*lists)


def candidates(totals: Tensor, found: Best, full: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The best ways to go on of each sentence: their sums, which beginning they extend, by which symbol, how likely.

    totals (sentences, width), full (sentences,): there is no room for more, only EOS may follow -> (sentences, count)
    """
    sentences, width = totals.shape
    log_probs, symbols = (part.view(sentences, width, -1) for part in (found.log_probs, found.symbols))
    if full.any():
        only = torch.full_like(log_probs, float("-inf"))
        only[:, :, 0] = found.end.view(sentences, width)
        log_probs = torch.where(full[:, None, None], only, log_probs)
        symbols = symbols.masked_fill(full[:, None, None], EOS_ID)
    each = log_probs.shape[2]
    best, where = (totals[:, :, None] + log_probs).flatten(1).topk(min(count, width * each), -1)
    return best, where // each, symbols.flatten(1).gather(1, where), log_probs.flatten(1).gather(1, where)


def _done(answers: _Answers, sentences: Tensor, totals: Tensor, time: int) -> Tensor:
    """No live beginning is left; or enough answers have ended and, unless stopping early, none can be beaten."""
    settings, limit = answers.settings, answers.limit[sentences]
    done = (limit <= time) | totals.isneginf().all(1)
    enough = answers.counts[sentences] >= max(settings.beam_size, settings.n_best)
    if not settings.early_stop and enough.any():
        farthest = ((5 + limit.double()) / 6) ** settings.length_penalty  # more symbols only lower the sum
        enough &= totals.amax(1) / farthest <= answers.bar[sentences]
    return done | enough

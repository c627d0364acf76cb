"""Beam search: the best few beginnings, extended one symbol at a time, for many sentences at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.batches.collate import SourceBatch
from seqloom.decoding.settings import DecodingSettings, length_normaliser
from seqloom.decoding.steps import Hypothesis, Steppable, limits, next_log_probabilities
from seqloom.nn.recurrent import select_rows
from seqloom.text.special import BOS_ID, EOS_ID


def coverage_bonus(coverage: Tensor, penalty: float) -> Tensor:
    """Wu et al. 2016, eq. 14: penalty * sum over source of log(min(attention received, 1)); at most 0.

    coverage (…, source) -> (…,)
    """
    return penalty * coverage.clamp(min=1e-9, max=1.0).log().sum(-1)


@dataclass
class _Beams:
    """The live beginnings of the sentences still searched; every tensor is (sentences, width, …)."""

    totals: Tensor  # summed log probability
    history: Tensor  # (…, time) symbols said
    chances: Tensor  # (…, time) log probability of each
    looked: Tensor | None  # (…, time, source) attention, when it is wanted

    def follow(self, sentences: Tensor, parents: Tensor) -> _Beams:
        """The pasts of survivors: rows `parents` (kept, width) of the sentences that stay (kept,)."""
        picked = (sentences[:, None], parents)
        looked = None if self.looked is None else self.looked[picked]
        return _Beams(self.totals[picked], self.history[picked], self.chances[picked], looked)

    def extend(self, totals: Tensor, symbols: Tensor, chances: Tensor) -> _Beams:
        history = torch.cat([self.history, symbols[:, :, None]], 2)
        return _Beams(totals, history, torch.cat([self.chances, chances[:, :, None]], 2), self.looked)


def beam_search(
    model: Steppable, batch: SourceBatch, settings: DecodingSettings, *, keep_attention: bool = False
) -> list[list[Hypothesis]]:
    """The `n_best` answers of each sentence, best first.

    At each step every live beginning is extended by every symbol and the best 2 * beam_size are looked at: those that
    say EOS and rank among the first beam_size have ended; the best beam_size of the others live on. A sentence leaves
    the batch when nothing more is to be found for it.
    """
    width, count, source_length = settings.beam_size, len(batch), batch.source.shape[1]
    limit = limits(batch, settings)
    state = select_rows(model.start(batch), torch.arange(count).repeat_interleave(width))
    track = keep_attention or settings.coverage_penalty > 0
    beams = _Beams(
        totals=torch.full((count, width), float("-inf")),
        history=torch.empty(count, width, 0, dtype=torch.long),
        chances=torch.empty(count, width, 0),
        looked=torch.empty(count, width, 0, source_length) if track else None,
    )
    beams.totals[:, 0] = 0.0  # all rows of a sentence start equal: let one speak
    sentences = torch.arange(count)  # which sentence each group of `width` rows belongs to
    ended: list[list[Hypothesis]] = [[] for _ in range(count)]
    tokens = torch.full((count * width,), BOS_ID)
    time = 0
    while len(sentences):
        time += 1
        scores, state, weights = next_log_probabilities(model, tokens, state, settings)
        scores = scores.view(len(sentences), width, -1)  # (sentences, width, symbols)
        scores = _only_end(scores, limit[sentences] <= time)
        if beams.looked is not None and weights is not None:
            beams.looked = torch.cat([beams.looked, weights.view(len(sentences), width, 1, source_length)], 2)

        best, where = (beams.totals[:, :, None] + scores).flatten(1).topk(2 * width, -1)  # (sentences, 2 * width)
        parents, symbols = where // scores.shape[-1], where % scores.shape[-1]
        ends = symbols == EOS_ID
        for group, rank in (ends & ~best.isneginf())[:, :width].nonzero().tolist():
            sentence = int(sentences[group])
            ended[sentence].append(
                _hypothesis(
                    beams,
                    group,
                    int(parents[group, rank]),
                    total=float(best[group, rank]),
                    source_length=int(batch.source_lengths[sentence]),
                    limit=int(limit[sentence]),
                    settings=settings,
                )
            )

        going = ends.int().sort(dim=-1, stable=True).indices[:, :width]  # the best that have not ended, in their order
        totals = best.gather(1, going).masked_fill(ends.gather(1, going), float("-inf"))
        parents, symbols = parents.gather(1, going), symbols.gather(1, going)
        stay = torch.tensor(
            [
                group
                for group, sentence in enumerate(sentences.tolist())
                if not _is_done(ended[sentence], totals[group], time, int(limit[sentence]), settings)
            ],
            dtype=torch.long,
        )
        parents, symbols = parents[stay], symbols[stay]
        chances = scores[stay[:, None], parents, symbols]
        beams = beams.follow(stay, parents).extend(totals[stay], symbols, chances)
        state = select_rows(state, (stay[:, None] * width + parents).flatten())
        sentences, tokens = sentences[stay], symbols.flatten()
    return [sorted(found, key=lambda h: -h.score)[: settings.n_best] for found in ended]


def _only_end(scores: Tensor, full: Tensor) -> Tensor:
    """Where a sentence has no room for more, only EOS may follow; (sentences, width, symbols), (sentences,)."""
    if not full.any():
        return scores
    others = torch.ones(scores.shape[-1], dtype=torch.bool)
    others[EOS_ID] = False
    return scores.masked_fill(full[:, None, None] & others, float("-inf"))


def _hypothesis(
    beams: _Beams,
    group: int,
    row: int,
    *,
    total: float,
    source_length: int,
    limit: int,
    settings: DecodingSettings,
) -> Hypothesis:
    """A beginning that has just said EOS, with the score it is ranked by."""
    tokens = beams.history[group, row].tolist()
    length = len(tokens) + 1
    score = total / length_normaliser(length, settings.length_penalty)
    attention = None
    if beams.looked is not None and beams.looked.shape[2]:
        attention = beams.looked[group, row, :, :source_length]
        if settings.coverage_penalty:
            score += float(coverage_bonus(attention.sum(0), settings.coverage_penalty))
    chances = [*beams.chances[group, row].tolist(), total - float(beams.totals[group, row])]
    return Hypothesis(tokens, total, score, chances, attention, finished=length < limit)


def _is_done(found: list[Hypothesis], totals: Tensor, time: int, limit: int, settings: DecodingSettings) -> bool:
    """No live beginning is left; or enough answers have ended and, unless stopping early, none can be beaten."""
    if time >= limit or bool(totals.isneginf().all()):
        return True
    if len(found) < max(settings.beam_size, settings.n_best):
        return False
    if settings.early_stop:
        return True
    hope = float(totals.max()) / length_normaliser(limit, settings.length_penalty)  # more symbols only lower the sum
    return hope <= sorted((h.score for h in found), reverse=True)[settings.n_best - 1]

"""What a decoder must offer to be searched, and one step of the search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor, nn

from seqloom.decoding.settings import DecodingSettings
from seqloom.nn.eight_bits import product, rounds
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, UNK_ID

KEEP = 0.85  # what is done is carried along until fewer than this share is left: leaving costs a copy of the rest
GROUPS = 128  # into which a large vocabulary is dealt, to find its best symbols group by group


class DecoderState(Protocol):
    """Where a decoder stands. What differs between the hypotheses of a sentence has a row for each; what all of them
    look at, the encoded source, has one row a sentence and is not copied when hypotheses are reordered.

    The rows of a sentence stand together, and all sentences have as many.
    """

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> Self:
        """Row i goes on from row `rows[i]`; of the sentences only these stay (None: all)."""
        ...


class Stepper(Protocol):
    """A model that predicts one symbol at a time. `output` maps features to one logit a symbol; None: they are logits.

    `advance` may leave out the attention weights where they are not asked for.
    """

    output: nn.Linear | None
    attends: bool

    def advance(
        self, tokens: Tensor, state: Any, *, attention: bool = True
    ) -> tuple[Tensor, DecoderState, Tensor | None]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One answer: symbols without EOS, its summed log probability (EOS included), and the score it is ranked by."""

    tokens: list[int]
    log_probability: float
    score: float
    token_log_probabilities: list[float] = field(default_factory=list)
    attention: Tensor | None = None  # (symbols + EOS, source)
    finished: bool = True


class Best(NamedTuple):
    """The likeliest next symbols of each row, best first: `log_probs` (rows, count) are log probabilities, `symbols`
    (rows, count); and how likely the end is, (rows,)."""

    log_probs: Tensor
    symbols: Tensor
    end: Tensor


class Steps:
    """One search's way through a model: what may come next, and how likely it is.

    PAD and BOS never come. UNK comes only where it may be shown, or where attention shows which source word to put
    in its place. The logits of all steps share one block of memory.
    """

    def __init__(self, model: Stepper, settings: DecodingSettings) -> None:
        self.model = model
        may_be_unknown = settings.unknown == "keep" or (settings.unknown == "replace" and model.attends)
        self.forbidden = [PAD_ID, BOS_ID] if may_be_unknown else [PAD_ID, BOS_ID, UNK_ID]
        self.penalty = settings.repetition_penalty
        if model.output is not None:
            weight, bias = model.output.weight, model.output.bias
            if rounds():
                return
            self._weight = weight.T.contiguous()  # a product with few rows is faster so
            self._bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
            self._room = weight.new_empty(0, weight.shape[0])

    def _logits(self, features: Tensor) -> Tensor:
        """(rows, symbols), in memory that the next step uses again."""
        if self.model.output is None:
            logits = features
        elif rounds():
            logits = product(features, self.model.output.weight, self.model.output.bias)
        else:
            if len(self._room) < len(features):
                self._room = features.new_empty(len(features), self._room.shape[1])
            logits = torch.addmm(self._bias, features, self._weight, out=self._room[: len(features)])
        for symbol in self.forbidden:
            logits[:, symbol] = float("-inf")
        return logits

    def log_probabilities(
        self, tokens: Tensor, state: Any, *, attention: bool, before: Tensor | None = None
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One step for all rows: (rows, symbols) log probabilities, the next state, attention.

        `before` (rows, time) are the symbols of each row so far, needed only where repeating them is punished.
        """
        features, state, weights = self.model.advance(tokens, state, attention=attention)
        scores = self._logits(features).log_softmax(-1)
        if before is not None and self.penalty != 1.0:
            scores = less_of_the_same(scores, before, self.penalty)
        return scores, state, weights

    def best(
        self, tokens: Tensor, state: Any, count: int, *, attention: bool, before: Tensor | None = None
    ) -> tuple[Best, DecoderState, Tensor | None]:
        """One step for all rows; only the `count` likeliest symbols of each are made log probabilities."""
        if self.penalty != 1.0:
            scores, state, weights = self.log_probabilities(tokens, state, attention=attention, before=before)
            return best_of(scores, count), state, weights
        features, state, weights = self.model.advance(tokens, state, attention=attention)
        return best_of(self._logits(features), count), state, weights


def less_of_the_same(scores: Tensor, before: Tensor, penalty: float) -> Tensor:
    """What came before becomes less likely: its log probability is multiplied (after Keskar et al. 2019, eq. 1).

    scores (rows, symbols) log probabilities, before (rows, time) -> log probabilities. Their factor is on logits, whose
    sign then matters; log probabilities have one sign.
    """
    repeated = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, before, True)
    repeated[:, EOS_ID] = False
    return torch.where(repeated, scores * penalty, scores).log_softmax(-1)


def best_of(logits: Tensor, count: int) -> Best:
    """The likeliest symbols by raw logits, which only then become log probabilities; `logits` are used up."""
    values, symbols = largest(logits, min(count, logits.shape[1]))
    highest, end = values[:, :1], logits[:, EOS_ID].clone()
    total = logits.sub_(highest).exp_().sum(-1).log_() + highest[:, 0]
    return Best(values - total[:, None], symbols, end - total)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`values.topk(count)` of each row, several times as fast for many columns.

    Columns are dealt into groups like cards. The largest values of a row are in the groups with the largest heads, and
    what was left when all groups had as many.
    """
    rows, width = values.shape
    groups = max(GROUPS, 4 * count)
    deep = width // groups
    if deep < 4:
        return tuple(values.topk(count, -1))  # type: ignore[return-value]
    dealt = values[:, : deep * groups].unflatten(1, (deep, groups))  # column c is in group c % groups
    chosen = dealt.amax(1).topk(count, -1, sorted=False).indices  # (rows, count) groups
    within = dealt.gather(2, chosen[:, None].expand(-1, deep, -1)).flatten(1)  # (rows, deep * count)
    columns = torch.arange(0, deep * groups, groups)[:, None] + chosen[:, None]  # (rows, deep, count)
    rest = torch.arange(deep * groups, width).expand(rows, -1)
    within = torch.cat([within, values[:, deep * groups :]], 1)
    found, places = within.topk(count, -1)
    return found, torch.cat([columns.flatten(1), rest], 1).gather(1, places)

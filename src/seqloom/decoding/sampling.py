"""Following one path: the likeliest symbol at every step, or one drawn from what the model believes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import KEEP, Hypothesis, Stepper, Steps
from seqloom.text.special import EOS_ID

Callback = Callable[[int, int], None]  # called with a sentence's place in the batch, and a symbol
Choose = Callable[[Tensor, Tensor], Tensor]  # (rows, symbols) log probabilities, (rows,) sentence -> (rows,) symbols


def keep_likely(log_probabilities: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Sharpen or flatten, then keep the k likeliest and the smallest set that sums to p; (rows, symbols) -> same."""
    scaled = log_probabilities / temperature
    if top_k and top_k < scaled.shape[-1]:
        kth = scaled.topk(top_k, -1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < kth, float("-inf"))
    if top_p < 1.0:
        ordered, order = scaled.log_softmax(-1).sort(-1, descending=True)
        before = ordered.exp().cumsum(-1) - ordered.exp()  # what likelier symbols sum to
        ordered = ordered.masked_fill(before >= top_p, float("-inf"))
        scaled = scaled.scatter(-1, order, ordered)
    return scaled.log_softmax(-1)


def _sampler(numbers: Sequence[int], draw: int, settings: DecodingSettings) -> Choose:
    """Each sentence has its own generator, so an answer does not depend on what else is in the batch."""
    seeds = [(settings.seed * 1_000_003 + number) * 1_009 + draw for number in numbers]
    generators = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]

    def choose(log_probabilities: Tensor, sentences: Tensor) -> Tensor:
        likely = keep_likely(log_probabilities, settings.temperature, settings.top_k, settings.top_p)
        draws = torch.stack([torch.rand((), generator=generators[int(i)], dtype=torch.double) for i in sentences])
        cumulative = likely.double().exp().cumsum(-1)
        chosen = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True)[:, 0]
        return chosen.clamp(max=likely.shape[-1] - 1)

    return choose


def follow(
    stepper: Stepper,
    state: Any,
    first: Tensor,
    limit: Tensor,
    settings: DecodingSettings,
    *,
    source_lengths: Tensor | None = None,
    keep_attention: bool = False,
    numbers: Sequence[int],
    draw: int = 0,
    callback: Callback | None = None,
) -> list[Hypothesis]:
    """One answer a sentence, greedy or sampled; sentences that ended leave the batch when it pays.

    As `beam_search`; `numbers` (the sentences' numbers) and `draw` seed what is sampled; `callback` is called with
    a sentence's place in the batch and a symbol, as soon as that is chosen.
    """
    choose = _sampler(numbers, draw, settings) if settings.method == "sample" else None
    steps, count = Steps(stepper, settings), len(first)
    sentences = torch.arange(count)  # which sentence each row answers
    tokens = first
    live = torch.arange(count)  # the rows that have not ended
    history = torch.empty(count, 0, dtype=torch.long) if settings.repetition_penalty != 1.0 else None
    chosen: list[tuple[Tensor, Tensor, Tensor]] = []  # of each step: sentences, symbols, log probabilities
    looked: list[Tensor] = []
    while len(live):
        if len(live) < KEEP * len(sentences):
            state = state.follow(live, live)
            history = None if history is None else history[live]
            sentences, tokens, live = sentences[live], tokens[live], torch.arange(len(live))
        if choose is None:
            best, state, weights = steps.best(tokens, state, 1, attention=keep_attention, before=history)
            picked, log_probs, ends = best.symbols[:, 0], best.log_probs[:, 0], best.end
        else:
            scores, state, weights = steps.log_probabilities(tokens, state, attention=keep_attention, before=history)
            picked = torch.full_like(tokens, EOS_ID)
            picked[live] = choose(scores[live], sentences[live])
            log_probs, ends = scores.gather(1, picked[:, None])[:, 0], scores[:, EOS_ID]
        last = limit[sentences] <= len(chosen) + 1
        tokens, log_probs = torch.where(last, EOS_ID, picked), torch.where(last, ends, log_probs)
        chosen.append((sentences[live], tokens[live], log_probs[live]))
        if history is not None:
            history = torch.cat([history, tokens[:, None]], 1)
        if callback is not None:
            for row in live.tolist():
                callback(int(sentences[row]), int(tokens[row]))
        if keep_attention and weights is not None:
            looked.append(weights[live])
        live = live[tokens[live] != EOS_ID]
    return _answers(chosen, looked, source_lengths, limit)


def _answers(
    chosen: Sequence[tuple[Tensor, Tensor, Tensor]],
    looked: Sequence[Tensor],
    source_lengths: Tensor | None,
    limit: Tensor,
) -> list[Hypothesis]:
    """What was chosen step by step, sentence by sentence."""
    if not chosen:
        return []
    count = len(limit)
    sentences, symbols, log_probs = (torch.cat(parts) for parts in zip(*chosen, strict=True))
    order = sentences.argsort(stable=True)
    lengths = sentences.bincount(minlength=count).tolist()
    attention = torch.cat(list(looked))[order].split(lengths) if looked else [None] * count
    symbols_of, log_probs_of = symbols[order].split(lengths), log_probs[order].split(lengths)
    room = limit.tolist()
    sizes = room if source_lengths is None else source_lengths.tolist()
    answers = []
    for i, length in enumerate(lengths):
        tokens, values = symbols_of[i].tolist(), log_probs_of[i].tolist()
        seen = attention[i]
        answers.append(
            Hypothesis(
                tokens=tokens[:-1],
                log_probability=sum(values),
                score=sum(values),
                token_log_probabilities=values,
                attention=None if seen is None else seen[:, : sizes[i]],
                finished=length < room[i],
            )
        )
    return answers

"""Following one path: the likeliest symbol at every step, or one drawn from what the model believes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqloom.batches.collate import SourceBatch
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis, Steppable, limits, next_log_probabilities
from seqloom.nn.recurrent import select_rows
from seqloom.text.special import BOS_ID, EOS_ID

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


def _likeliest(log_probabilities: Tensor, sentences: Tensor) -> Tensor:
    return log_probabilities.argmax(-1)


def follow(
    model: Steppable,
    batch: SourceBatch,
    settings: DecodingSettings,
    keep_attention: bool,
    numbers: Sequence[int],
    draw: int = 0,
) -> list[Hypothesis]:
    """One answer a sentence, greedy or sampled; sentences that ended leave the batch.

    `numbers` (the sentences' numbers) and `draw` seed what is sampled.
    """
    choose = _sampler(numbers, draw, settings) if settings.method == "sample" else _likeliest
    state = model.start(batch)
    limit = limits(batch, settings)
    sentences = torch.arange(len(batch))  # which sentence each live row answers
    tokens = torch.full((len(batch),), BOS_ID)
    said: list[list[int]] = [[] for _ in range(len(batch))]
    chances: list[list[float]] = [[] for _ in range(len(batch))]
    looked: list[list[Tensor]] = [[] for _ in range(len(batch))]
    time = 0
    while len(sentences):
        time += 1
        scores, state, weights = next_log_probabilities(model, tokens, state, settings)
        last = limit[sentences] <= time
        picked = torch.where(last, EOS_ID, choose(scores, sentences))
        picked_scores = scores.gather(1, picked[:, None])[:, 0].tolist()
        for row, sentence in enumerate(sentences.tolist()):
            said[sentence].append(int(picked[row]))
            chances[sentence].append(picked_scores[row])
            if keep_attention and weights is not None:
                looked[sentence].append(weights[row, : int(batch.source_lengths[sentence])])
        live = (picked != EOS_ID).nonzero()[:, 0]
        sentences, tokens = sentences[live], picked[live]
        if len(live) < len(picked):
            state = select_rows(state, live)
    return [
        Hypothesis(
            tokens=said[i][:-1],
            log_probability=sum(chances[i]),
            score=sum(chances[i]),
            token_log_probabilities=chances[i],
            attention=torch.stack(looked[i]) if looked[i] else None,
            finished=len(said[i]) < int(limit[i]),
        )
        for i in range(len(batch))
    ]

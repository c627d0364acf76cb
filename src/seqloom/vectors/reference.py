"""Skip-gram and CBOW as plain formulas: one update at a time, every draw in the open.

`train_part` does the same as the compiled `seqloom.kernels.word2vec.train_part`, from the same random numbers, and
takes its place where Numba is not installed. It is some hundred times slower and meant to be read.

Notation: h is an input vector (a word's row, the mean of a word and its pieces, or for CBOW the mean of a window), o an
output vector, s = h · o a score, σ(x) = 1 / (1 + exp(-x)), η the learning rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NEGATIVE_SAMPLING, HIERARCHICAL_SOFTMAX, SOFTMAX = 0, 1, 2
OBJECTIVES = {
    "negative_sampling": NEGATIVE_SAMPLING,
    "hierarchical_softmax": HIERARCHICAL_SOFTMAX,
    "softmax": SOFTMAX,
}
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
ALL_BITS = 2**64 - 1


class Plan(NamedTuple):
    """What stays the same from part to part: numbers and arrays only, as compiled loops want it."""

    cbow: bool
    objective: int
    window: int
    dynamic: bool
    negatives: int
    subwords: bool
    keep: np.ndarray  # uint64 (words,): a word stays when 32 random bits are below
    shares: np.ndarray  # uint32 (words,) and
    others: np.ndarray  # int32 (words,): the noise, see `alias_table`
    path_starts: np.ndarray  # int64 (words + 1,)
    path_nodes: np.ndarray  # int32: output rows
    path_signs: np.ndarray  # float32: 1 where the path turns to 0, -1 where it turns to 1
    piece_starts: np.ndarray  # int64 (words + 1,)
    piece_rows: np.ndarray  # int32: input rows of a word's pieces, its own row among them


class Random:
    """SplitMix64 (Steele et al. 2014): number n is a function of the seed and n."""

    def __init__(self, seed: int) -> None:
        self.state = seed & ALL_BITS

    def bits(self) -> int:
        """64 random bits."""
        self.state = (self.state + STEP) & ALL_BITS
        bits = ((self.state ^ (self.state >> 30)) * FIRST) & ALL_BITS
        bits = ((bits ^ (bits >> 27)) * SECOND) & ALL_BITS
        return bits ^ (bits >> 31)

    def below(self, bound: int) -> int:
        """A number from 0 to bound - 1, from the upper 32 bits."""
        return ((self.bits() >> 32) * bound) >> 32


def keep_limits(counts: np.ndarray, subsample: float) -> np.ndarray:
    """uint64 (words,): 2^32 times the chance that an occurrence stays, min(1, (√(f/t) + 1) t/f), f the word's share.

    This is what word2vec computes; Mikolov et al. 2013b, equation 5, has √(t/f).
    """
    if not subsample:
        return np.full(len(counts), 2**32, np.uint64)
    relative = np.maximum(counts / counts.sum(), 1e-300) / subsample
    return (np.minimum(1.0, (np.sqrt(relative) + 1.0) / relative) * 2**32).astype(np.uint64)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws in proportion to weights with two look-ups (Walker 1977): shares uint32, others int32, both (words,).

    Draw a slot evenly and 32 bits: below the slot's share the slot itself is the answer, else its other.
    """
    words = len(weights)
    level = np.asarray(weights, np.float64) / np.sum(weights) * words
    shares, others = np.full(words, 2**32 - 1, np.uint32), np.arange(words, dtype=np.int32)
    poor, rich = list(np.flatnonzero(level < 1.0)), list(np.flatnonzero(level >= 1.0))
    while poor and rich:
        low, high = poor.pop(), rich[-1]
        shares[low] = min(int(level[low] * 2**32), 2**32 - 1)
        others[low] = high
        level[high] -= 1.0 - level[low]
        if level[high] < 1.0:
            poor.append(rich.pop())
    return shares, others


def draw_noise(plan: Plan, random: Random) -> int:
    """A word with the chance of its noise weight."""
    bits = random.bits()
    slot = ((bits >> 32) * len(plan.shares)) >> 32
    return slot if bits & 0xFFFFFFFF < int(plan.shares[slot]) else int(plan.others[slot])


def sides_of(plan: Plan) -> int:
    """How many parts of a window are computed with one after the other, each with noise of its own.

    Words that share their noise share their mistakes: with one noise for a whole window, skip-gram's analogies came out
    a little worse than with one for each word, as word2vec has it. With one for each side they do not. With subwords
    nothing was lost, so that these take the faster way.
    """
    return 1 if plan.cbow or plan.subwords or plan.objective != NEGATIVE_SAMPLING else 2


def draw_sentence(plan: Plan, words: list[int], random: Random) -> tuple[list[int], list[int], list[list[int]]]:
    """The words that stay after subsampling, the window of each, and for negative sampling the noise of each side."""
    kept = [word for word in words if random.bits() >> 32 < int(plan.keep[word])]
    spans, noise = [], []
    for _ in kept:
        spans.append(1 + random.below(plan.window) if plan.dynamic else plan.window)
        if plan.objective == NEGATIVE_SAMPLING:
            noise.append([draw_noise(plan, random) for _ in range(sides_of(plan) * plan.negatives)])
    return kept, spans, noise


def choose_outputs(plan: Plan, word: int, noise: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The output rows that tell `word` from others, and +1 where yes is the right answer, -1 where no is.

    Negative sampling: the word itself, and its noise unless that is the word. Hierarchical softmax: its path.
    """
    if plan.objective == NEGATIVE_SAMPLING:
        wrong = [other for other in noise if other != word]
        return np.array([word, *wrong]), np.array([1.0] + [-1.0] * len(wrong), np.float32)
    path = slice(plan.path_starts[word], plan.path_starts[word + 1])
    return plan.path_nodes[path], plan.path_signs[path]


def update_outputs(
    hidden: np.ndarray, outputs: np.ndarray, targets: np.ndarray, signs: np.ndarray, rate: float
) -> tuple[np.ndarray, float]:
    """Yes-or-no questions: every h (inputs, size) against every target's o. Gives what each h is to gain, and the loss.

    loss = - Σ log σ(y s)  with y = ±1 (Mikolov et al. 2013b, equation 4; hierarchical softmax: equation 3)
    g = η y (1 - σ(y s));   h += Σ g o;   o += Σ g h;   all from the values before the update
    """
    scores = hidden @ outputs[targets].T  # (inputs, targets)
    chances = 1.0 / (1.0 + np.exp(-scores * signs))
    steps = (rate * signs * (1.0 - chances)).astype(np.float32)
    errors = steps @ outputs[targets]  # (inputs, size)
    np.add.at(outputs, targets, steps.T @ hidden)  # a target that is there twice gains twice
    return errors, float(np.logaddexp(0.0, -scores.astype(np.float64) * signs).sum())


def update_all_outputs(hidden: np.ndarray, outputs: np.ndarray, right: int, rate: float) -> tuple[np.ndarray, float]:
    """The softmax in full: one h (size,) against every word. Gives what h is to gain, and the loss.

    loss = - log p(right)  with p(w) = exp(s_w) / Σ exp(s)  (Mikolov et al. 2013b, equation 2)
    g_w = η ([w = right] - p(w));   h += Σ g o;   o_w += g_w h
    """
    scores = (outputs @ hidden).astype(np.float64)
    raised = np.exp(scores - scores.max())
    steps = -rate * raised / raised.sum()
    steps[right] += rate
    errors = steps.astype(np.float32) @ outputs
    outputs += np.outer(steps.astype(np.float32), hidden)
    return errors, float(np.log(raised.sum()) + scores.max() - scores[right])


def predict(
    plan: Plan, hidden: np.ndarray, outputs: np.ndarray, word: int, noise: list[int], rate: float
) -> tuple[np.ndarray, float]:
    """Every h (inputs, size) predicts `word`: outputs change; gives what each h is to gain and the summed loss."""
    if plan.objective == SOFTMAX:
        each = [update_all_outputs(one, outputs, word, rate) for one in hidden]
        return np.stack([errors for errors, _ in each]), sum(loss for _, loss in each)
    return update_outputs(hidden, outputs, *choose_outputs(plan, word, noise), rate)


def train_sentence(
    plan: Plan, words: list[int], random: Random, rate: float, inputs: np.ndarray, outputs: np.ndarray
) -> tuple[float, int]:
    """One sentence. Gives its summed loss and the number of predictions.

    Skip-gram: each neighbour predicts the word in the middle, those on one side with the same noise (Ji et al. 2016).
    CBOW: the mean of the neighbours predicts it, and each neighbour gains what the mean is to gain, as in word2vec and
    fastText (the true gradient would be divided by their number).
    Subwords: a word is the mean of its rows, taken when it comes within the widest window of the middle; what it gains
    until it is out of it is then added to each of its rows (as in fastText; the true gradient would be divided too).
    """
    kept, spans, noise = draw_sentence(plan, words, random)
    pieces = [plan.piece_rows[plan.piece_starts[w] : plan.piece_starts[w + 1]] if plan.subwords else [w] for w in kept]
    inside: dict[int, np.ndarray] = {}  # with subwords: position -> vector, while it is within the widest window
    entered: dict[int, np.ndarray] = {}
    loss, predictions = 0.0, 0

    def leave(place: int) -> None:
        np.add.at(inputs, pieces[place], inside.pop(place) - entered.pop(place))

    for middle, word in enumerate(kept):
        if plan.subwords:
            for place in [place for place in inside if place < middle - plan.window]:
                leave(place)
            for place in range(middle + plan.window if middle else 0, min(len(kept), middle + plan.window + 1)):
                inside[place] = inputs[pieces[place]].mean(0)
                entered[place] = inside[place].copy()
        before = range(max(0, middle - spans[middle]), middle)
        after = range(middle + 1, min(len(kept), middle + spans[middle] + 1))
        for side, places in enumerate([[*before, *after]] if sides_of(plan) == 1 else [[*before], [*after]]):
            if not places:
                continue
            vectors = np.stack([inside[place] if plan.subwords else inputs[kept[place]] for place in places])
            if plan.cbow:
                weights = np.array([len(pieces[place]) for place in places], np.float32)
                vectors = (weights / weights.sum() @ vectors)[None]
            own = noise[middle][side * plan.negatives :][: plan.negatives] if noise else []
            errors, part = predict(plan, vectors, outputs, word, own, rate)
            for place, error in zip(places, np.broadcast_to(errors, (len(places), errors.shape[1])), strict=True):
                if plan.subwords:
                    inside[place] += error
                else:
                    inputs[kept[place]] += error
            loss += part
            predictions += len(vectors)
    for place in list(inside):
        leave(place)
    return loss, predictions


def train_part(
    plan: Plan,
    tokens: np.ndarray,
    seed: int,
    first_rate: float,
    last_rate: float,
    inputs: np.ndarray,
    outputs: np.ndarray,
) -> tuple[float, int]:
    """Sentences of word numbers, each ended by -1: changes inputs and outputs, gives (loss, predictions) summed up.

    The learning rate goes evenly from the first to the last, sentence by sentence.
    """
    random = Random(int(seed))
    loss, predictions, start = 0.0, 0, 0
    ends = [*np.flatnonzero(tokens < 0).tolist(), len(tokens)]
    for end in ends:
        rate = first_rate + (last_rate - first_rate) * (start / max(1, len(tokens)))
        part = train_sentence(plan, tokens[start:end].tolist(), random, rate, inputs, outputs)
        loss, predictions, start = loss + part[0], predictions + part[1], end + 1
    return loss, predictions

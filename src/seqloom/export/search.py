"""Our search on CTranslate2's engine. No torch.

The search is CTranslate2's, led so that it is ours. Both look at the 2 * beam_size best candidates of a step, let those
of the first beam_size that are EOS end, and stop once beam_size have ended. What differs is put right here:

- it normalises by length with another formula: the beam_size best that ended are ranked again with ours;
- it has one length limit a batch: a beam that reached its sentence's own is asked again, among others of that limit;
- it gives no EOS at the limit: the sum of an answer that was cut is completed by scoring it.

PAD and BOS are never chosen: the exporter wrote that into the output bias.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from seqloom.decoding.lengths import length_normaliser
from seqloom.errors import UserError
from seqloom.export.engine import Engine
from seqloom.text.special import EOS, UNK_ID

if TYPE_CHECKING:  # one sentence must be answered soon: these need not be there
    import numpy as np

    from seqloom.decoding.known import KnownDecoding
    from seqloom.decoding.settings import DecodingSettings

    Decoding: TypeAlias = DecodingSettings | KnownDecoding

WINDOW = 4096  # texts that are cut into symbols and sorted at a time; the next are while the engine works on these
PENDING = 4  # batches that wait for each worker: enough to keep it busy, few enough to stop soon after Ctrl-C
SHARES = 2  # a batch is at most so small a part of a worker's share of what is left: none waits long for the last
# The least and the most symbols of a batch, counted once for each hypothesis of a beam. Smaller ones make products too
# small to be fast; what larger ones compute does not stay in the processor's caches.
BUDGETS = {"float32": (1280, 5120), "int8": (512, 960)}
FORBIDDEN = -5000.0  # a sum below this holds a symbol that the output bias forbids: nothing else was left


class Found(NamedTuple):
    """One answer: symbols without EOS, its summed log probability (EOS included), and the score it is ranked by.

    Both are NaN where nobody asked for them and nothing was ranked.
    """

    tokens: list[int]
    log_probability: float = 0.0
    score: float = 0.0
    finished: bool = True
    attention: np.ndarray | None = None  # (symbols and EOS, source symbols without EOS)


class _Rival(NamedTuple):
    """One answer as the engine gives it: pieces without EOS, cut at its sentence's limit where it found no end.

    `total` is its summed log probability; it is unknown where `ended` is not so.
    """

    pieces: list[str]
    total: float
    ended: bool
    attention: list[list[float]] | None


def check_decoding(settings: Decoding, positions: int | None) -> None:
    """Refuse what this engine cannot do, in the words of the settings."""
    if settings.max_length < 2:
        raise UserError("decoding.max_length: 1 leaves room for the end symbol only; CTranslate2 needs 2 or more")
    if positions is not None and settings.max_length > positions:
        raise UserError(
            f"decoding.max_length: the exported model has positions for {positions:,} symbols; "
            f"got {settings.max_length:,}"
        )
    if settings.repetition_penalty != 1.0:
        raise UserError("decoding.repetition_penalty: CTranslate2 has another one; --engine torch has ours")
    if settings.method == "beam" and settings.beam_size == 1 and not settings.early_stop:
        raise UserError("decoding.early_stop: false needs a beam_size of 2 or more on CTranslate2; 1 is greedy there")


def search(
    engine: Engine,
    texts: Sequence[str],
    settings: Decoding,
    progress: Callable[[int], None] | None = None,
    *,
    sums: bool = True,
) -> Iterator[tuple[int, list[Found]]]:
    """Which text, and its `n_best` answers, best first, as they are found: the engine works on others meanwhile.

    A text without symbols has an answer without symbols. Greedy search does not need to know how likely its answer is;
    without `sums` it does not find out.
    """
    sampled, replaced = settings.method == "sample", settings.unknown == "replace"
    questions = _Questions(engine.seeded(settings.seed) if sampled else engine, texts, settings, sums)
    done = 0
    unsummed: list[tuple[dict[int, list[_Rival]], list[Any]]] = []  # were cut: their sums are on their way
    blind: list[int] = []  # have UNK in their answer, and no attention

    def seeing(answers: dict[int, list[Found]]) -> Iterator[tuple[int, list[Found]]]:
        for index, rivals in answers.items():
            if replaced and any(UNK_ID in one.tokens and one.attention is None for one in rivals):
                blind.append(index)
            else:
                yield index, rivals

    attention = questions.covers or (sampled and replaced)
    for some in questions.ask(attention=attention, same_limit=questions.exhausts):
        ended = {index: rivals for index, rivals in some.items() if all(one.ended for one in rivals)}
        if len(ended) < len(some):
            cut = {index: rivals for index, rivals in some.items() if index not in ended}
            unsummed.append((cut, questions.ask_sums(cut)))
        yield from seeing(questions.ranked(ended))
        done += len(some)
        if progress is not None:
            progress(done)
    for cut, pending in unsummed:
        yield from seeing(questions.ranked(cut, pending))
    for some in questions.ask(blind, attention=True, same_limit=True):
        yield from questions.ranked(some, questions.ask_sums(some)).items()
    yield from ((index, [Found([])]) for index, ids in enumerate(questions.sources) if not ids)
    if progress is not None:
        progress(len(texts))


class _Questions:
    """Texts that wait for answers, all with the same settings."""

    def __init__(self, engine: Engine, texts: Sequence[str], settings: Decoding, sums: bool) -> None:
        self.engine, self.texts, self.settings = engine, texts, settings
        self.sources: list[list[int]] = []  # the symbols of those that were cut so far,
        self.sizes: list[int] = []  # how many they are with EOS,
        self.limits: list[int] = []  # and how many an answer may have
        # The log_probs of a known answer, which are added up later, are those before UNK is left out.
        self.sums = sums or settings.method != "greedy" or settings.unknown == "forbid"
        self.ranks = settings.method == "beam"
        self.beam = self.ranks and settings.beam_size > 1  # a beam of one is greedy
        self.covers = self.ranks and settings.coverage_penalty > 0
        self.exhausts = self.beam and not settings.early_stop  # goes on to the length limit, always
        # Only the order among the many that ended depends on this power: 0.7 follows our formula between 5 and 30
        # symbols. 0 would make CTranslate2 stop by another rule; so small a number divides by exactly 1.
        self.power = 0.7 * settings.length_penalty or 1e-9

    def ask(
        self, indices: Sequence[int] | None = None, *, attention: bool, same_limit: bool
    ) -> Iterator[dict[int, list[_Rival]]]:
        """What was answered, a batch after the other; without `indices`, to all texts that have symbols.

        Without `same_limit`, batches are of sentences with different limits, and a beam that reached its sentence's own
        is asked again among others of that limit, while the rest is still worked on.
        """
        waiting: deque[tuple[list[int], list[Any], bool]] = deque()
        windows = iter([(indices, True)]) if indices is not None else self._windows()
        batches = (batch for some, last in windows for batch in self._batches(some, attention, same_limit, last))
        while True:
            batch = next(batches, None)
            if batch is not None:
                waiting.append((batch, self._submit(batch, attention), same_limit))
            if not waiting:
                return
            if batch is None or len(waiting) > PENDING * self.engine.num_workers:
                answered, cut = self._collect(*waiting.popleft())
                for again in self._batches(cut, attention, same_limit=True):
                    waiting.append((again, self._submit(again, attention), True))
                yield answered

    def _submit(self, batch: list[int], attention: bool) -> list[Any]:
        options = self._options(max(self.limits[i] for i in batch) - 1, attention)
        return self.engine.submit([self.sources[i] for i in batch], **options)

    def _windows(self) -> Iterator[tuple[list[int], bool]]:
        """Cut the texts into symbols, some at a time: which of these have any, and whether they are the last."""
        for first in range(0, len(self.texts), WINDOW):
            encoded = self.engine.source.encode_many(self.texts[first : first + WINDOW])
            sizes = [len(ids) + 1 for ids in encoded]
            self.sources += encoded
            self.sizes += sizes
            self.limits += map(self.settings.limit, sizes)
            yield [first + place for place, ids in enumerate(encoded) if ids], first + WINDOW >= len(self.texts)

    def _batches(
        self, indices: Sequence[int], attention: bool, same_limit: bool, last: bool = True
    ) -> Iterator[list[int]]:
        """Texts of similar length, longest first, within a budget of symbols that shrinks towards the end of all."""
        rows = self.settings.beam_size if self.beam else 1
        left = sum(self.sizes[i] for i in indices)
        share = -(-left // self.engine.num_workers)
        bounds = BUDGETS.get(self.engine.compute, BUDGETS["float32"])
        least, most = (min(self.settings.batch_tokens, symbols // rows) for symbols in bounds)
        alone = attention and self.beam  # in a batch, CTranslate2 mixes up whose attention the first symbol's is
        batch: list[int] = []
        budget = 0
        for index in sorted(indices, key=lambda i: -self.sizes[i]):
            full = batch and self.sizes[batch[0]] * (len(batch) + 1) > budget
            if full or (batch and same_limit and self.limits[index] != self.limits[batch[0]]):
                yield batch
                batch = []
            if not batch and not alone:
                budget = min(share, most, max(left // (SHARES * self.engine.num_workers), least)) if last else most
            batch.append(index)
            left -= self.sizes[index]
        if batch:
            yield batch

    def _options(self, room: int, attention: bool) -> dict[str, Any]:
        """Our settings in CTranslate2's words; `room` is for symbols other than EOS."""
        s = self.settings
        options: dict[str, Any] = {
            "max_decoding_length": room,
            "min_decoding_length": 0,
            "max_input_length": 0,
            "disable_unk": s.unknown == "forbid",
            "return_scores": self.sums,
            "return_end_token": True,  # counted in the length, as we do
            "return_attention": attention,
        }
        if s.method == "sample":
            return options | {
                "beam_size": 1,
                "length_penalty": 0.0,
                "num_hypotheses": 1 if s.top_k == 1 else s.n_best,
                "sampling_topk": s.top_k if s.top_k < len(self.engine.target) else 0,
                "sampling_topp": s.top_p,
                "sampling_temperature": s.temperature,
            }
        if not self.beam:
            return options | {"beam_size": 1, "length_penalty": 0.0}
        patience = room if self.exhausts else 1  # the share of beam_size that must end
        return options | {
            "beam_size": s.beam_size,
            "patience": patience,
            "num_hypotheses": s.beam_size * patience,
            "length_penalty": self.power,
        }

    def _collect(
        self, batch: list[int], pending: list[Any], same_limit: bool
    ) -> tuple[dict[int, list[_Rival]], list[int]]:
        """Waits for a batch: its answers, and which sentences must be asked again, with none of another limit."""
        answered, cut = {}, []
        for index, future in zip(batch, pending, strict=True):
            result, room = self.engine.result(future), self.limits[index] - 1
            hypotheses = result.hypotheses  # each is copied out of the engine whenever it is asked for
            scores = result.scores if self.sums else [math.nan] * len(hypotheses)
            attention = result.attention or [None] * len(hypotheses)
            rivals = [self._rival(*one, room) for one in zip(hypotheses, scores, attention, strict=True)]
            if same_limit or not self.beam or all(one.ended for one in rivals):
                answered[index] = rivals
            else:
                cut.append(index)
        return answered, cut

    def _rival(self, pieces: list[str], score: float, attention: list[list[float]] | None, room: int) -> _Rival:
        total = score * len(pieces) ** self.power if self.beam else score
        ended = bool(pieces) and pieces[-1] == EOS and len(pieces) <= room
        return _Rival(pieces[:-1] if ended else pieces[:room], total, ended, attention)

    def ask_sums(self, found: dict[int, list[_Rival]]) -> list[Any]:
        """Ask for the sums of those that were cut, in their order; the engine finds them when it comes to it."""
        if not self.sums:
            return []
        cut = [(self.sources[index], one.pieces) for index, rivals in found.items() for one in rivals if not one.ended]
        return self.engine.submit_scores([ids for ids, _ in cut], [self.engine.symbols(pieces) for _, pieces in cut])

    def ranked(self, found: dict[int, list[_Rival]], pending: Sequence[Any] = ()) -> dict[int, list[Found]]:
        """The best of each sentence by our scores; `pending` has the sums of those that were cut."""
        if not self.sums:
            return {index: [self._found(one, math.nan) for one in rivals] for index, rivals in found.items()}
        sums = (sum(self.engine.result(one).log_probs) for one in pending)
        answers = {}
        for index, rivals in found.items():
            whole = [one if one.ended else one._replace(total=next(sums)) for one in rivals]
            possible = [one for one in whole if one.total > FORBIDDEN] or whole
            scored = sorted(((self._score(one), one) for one in possible), key=lambda pair: -pair[0])
            answers[index] = [self._found(one, score) for score, one in scored[: self.settings.n_best]]
        return answers

    def _found(self, rival: _Rival, score: float) -> Found:
        return Found(self.engine.symbols(rival.pieces), rival.total, score, rival.ended, _array(rival.attention))

    def _score(self, rival: _Rival) -> float:
        if not self.ranks:
            return rival.total
        score = rival.total / length_normaliser(len(rival.pieces) + 1, self.settings.length_penalty)
        attention = _array(rival.attention)
        if self.covers and attention is not None and len(attention):
            import numpy as np

            received = attention.sum(0)
            end = len(attention) - received.sum()  # what is missing went to the source's EOS
            covered = np.append(received, end).clip(1e-9, 1.0)
            score += self.settings.coverage_penalty * float(np.log(covered).sum())
        return score


def _array(attention: list[list[float]] | None) -> np.ndarray | None:
    if attention is None:
        return None
    import numpy as np

    return np.array(attention, np.float32)

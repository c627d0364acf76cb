"""A model on CTranslate2's engine: how it is loaded, asked and scored. No torch.

One sentence must be answered soon, so the engine is started first: while its workers do their first step, which
compiles what all others run, we load the tokenizers and read the texts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.errors import UserError
from seqloom.text.special import UNK

if TYPE_CHECKING:
    from seqloom.text.tokenizers import Tokenizer

MISSING = "this needs CTranslate2: pip install 'seqloom[export]' (or: pip install 'ctranslate2>=4.8.2')"


def load_package() -> Any:
    """The package ctranslate2. Since 4.8.2 it does not import torch by itself, so we ask for no older one."""
    try:
        import ctranslate2
    except ImportError:
        raise UserError(MISSING) from None
    return ctranslate2


def load_compiled() -> Any:
    """The part of that package that runs models, alone: the rest imports asyncio, which takes longer than a model."""
    name = "ctranslate2._ext"
    if "ctranslate2" in sys.modules or sys.platform == "win32":  # there, the package tells where its libraries are
        return load_package()
    if name not in sys.modules:
        package = find_spec("ctranslate2")
        found = package and PathFinder.find_spec(name, package.submodule_search_locations)
        if found is None or found.loader is None:
            return load_package()
        module = module_from_spec(found)
        found.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


class Workers:
    """A model on CTranslate2, loaded and on its way.

    There are many workers with one thread each, which share the weights; one worker with many threads is much slower.
    """

    def __init__(self, folder: Path, compute: str, number: int) -> None:
        self.folder, self.compute, self.number = folder, compute, number
        try:
            self.translator = load_compiled().Translator(
                str(folder), compute_type=compute, inter_threads=number, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{folder}: CTranslate2 cannot load this model: {error}") from None
        for _ in range(number):
            self.translator.translate_batch([[UNK]], asynchronous=True, beam_size=1, max_decoding_length=1)


class Engine:
    """A model on CTranslate2: symbols go in and come out."""

    def __init__(self, workers: Workers, source: Tokenizer, target: Tokenizer) -> None:
        self.workers, self.source, self.target = workers, source, target

    @property
    def folder(self) -> Path:
        return self.workers.folder

    @property
    def compute(self) -> str:
        """The precision of its numbers."""
        return self.workers.compute

    @property
    def num_workers(self) -> int:
        return self.workers.number

    @cached_property
    def int8(self) -> Engine:
        """The same model computing with eight-bit numbers."""
        return Engine(Workers(self.folder, "int8", self.num_workers), self.source, self.target)

    def seeded(self, seed: int) -> Engine:
        """The same with one worker that draws from this seed: a worker's generator is seeded when it first draws."""
        load_compiled().set_random_seed(seed % 2**32)
        return Engine(Workers(self.folder, self.compute, 1), self.source, self.target)

    def submit(self, sources: Sequence[list[int]], **options: Any) -> list[Any]:
        """Put a batch into the queue; `result` of each of its sentences waits until it is done."""
        pieces = [self.source.pieces(ids) for ids in sources]
        return list(self.workers.translator.translate_batch(pieces, asynchronous=True, **options))

    def submit_scores(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[Any]:
        """Put the question into the queue how likely each symbol of each target is; `result` waits for an answer."""
        if not sources:
            return []
        questions, answers = [self.source.pieces(ids) for ids in sources], [self.target.pieces(ids) for ids in targets]
        options = {"max_batch_size": 2048, "batch_type": "tokens", "max_input_length": 0}
        return list(self.workers.translator.score_batch(questions, answers, asynchronous=True, **options))

    def result(self, pending: Any) -> Any:
        """What was asked for."""
        try:
            return pending.result()
        except (RuntimeError, ValueError) as error:
            raise self._failed(error) from None

    def log_probs(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """The log probability of each symbol of each target and of its EOS, teacher-forced."""
        return [list(self.result(one).log_probs) for one in self.submit_scores(sources, targets)]

    def symbols(self, pieces: Sequence[str]) -> list[int]:
        """The numbers of pieces that it gave."""
        try:
            return list(map(self._numbers.__getitem__, pieces))
        except KeyError:
            raise self._failed("its vocabulary is not the tokenizer's beside it; export the model again") from None

    def _failed(self, reason: object) -> UserError:
        return UserError(f"{self.folder}: CTranslate2 cannot answer: {reason}")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {piece: symbol for symbol, piece in enumerate(self.target.pieces(range(len(self.target))))}

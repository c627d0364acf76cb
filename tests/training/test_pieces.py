"""Gradients put together of pieces are those of the whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqloom.batches.collate import Batch, collate_pairs
from seqloom.losses import Loss
from seqloom.models.encoder_decoder import EncoderDecoder, TransformerTranslatorSettings
from seqloom.targets.text import text_loss
from seqloom.training.loop import Learner
from seqloom.training.settings import TrainingSettings

SYMBOLS = 23


def batch() -> Batch:
    generator = torch.Generator().manual_seed(7)
    row = lambda length: torch.randint(4, SYMBOLS, (length,), generator=generator).tolist()  # noqa: E731
    return collate_pairs([row(n) for n in (7, 7, 6, 5, 5, 3, 2)], [row(n) for n in (5, 8, 8, 4, 6, 3, 1)])


def learned(**given: Any) -> tuple[float, list[torch.Tensor], list[int]]:
    """Summed loss, gradients, and the rows of each piece."""
    s = TrainingSettings(steps=1, label_smoothing=0.1, precision="float32", **given)
    torch.manual_seed(3)
    settings = TransformerTranslatorSettings(kind="transformer_translator", size=8, num_heads=2, dropout=0.0)
    model = EncoderDecoder(settings, source_symbols=SYMBOLS, target_symbols=SYMBOLS)
    rows: list[int] = []

    def loss(model: Any, piece: Batch, carried: None) -> Loss:
        rows.append(len(piece))
        return Loss(*text_loss(model, piece, s))

    learner = Learner(model, SimpleNamespace(loss=loss), s, 0, shards=1)  # type: ignore[arg-type]
    total, gradients, _ = learner.gradients([batch()], 1)
    return total, [gradient for gradient in gradients if gradient is not None], rows


@pytest.mark.parametrize(("piece_tokens", "rows"), [(1000, [7]), (21, [4, 3]), (14, [3, 2, 2]), (8, [2, 2, 1, 1, 1])])
def test_pieces_add_up_to_the_whole(piece_tokens: int, rows: list[int]) -> None:
    total, gradients, found = learned(piece_tokens=piece_tokens)
    whole, expected, alone = learned(plain=True)
    assert found == rows
    assert alone == [7]
    assert total == pytest.approx(whole, rel=1e-5)
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_what_is_read_twice_counts_twice() -> None:
    s = TrainingSettings(steps=1, piece_tokens=100)
    assert s.num_pieces(100, 7) == 1
    assert s.model_copy(update={"consistency": 1.0}).num_pieces(100, 7) == 2
    assert s.num_pieces(0, 7) == 1
    assert s.model_copy(update={"piece_tokens": None}).num_pieces(100, 50) == 2

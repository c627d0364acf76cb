"""The masked language model: what is hidden, what is seen, padding, windows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from seqloom.batches.running import TextBatch, collate_lines
from seqloom.losses import Entropy, Loss, plain_cross_entropy, projected_cross_entropy
from seqloom.models.masked_lm import MaskedLanguageModel, MaskedLanguageModelSettings, hide
from seqloom.sources.running_text import RunningText
from seqloom.tasks.model_masked_language import MaskedLanguageModelling
from seqloom.text.special import EOS_ID, PAD_ID
from seqloom.text.tokenizers import Tokenizer

SYMBOLS = 17
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned": {"positions": "learned"},
    "rotary": {"positions": "rotary", "norm_first": False},
    "untied": {"tie": False, "positions": "none"},
}


def loss_of(model: MaskedLanguageModel, batch: TextBatch, entropy: Entropy = projected_cross_entropy) -> Loss:
    task = MaskedLanguageModelling(RunningText(Tokenizer.of_words(["a", "b"])), "sentences")
    return task.loss(model, batch, None, 0.0, entropy)


def build(**settings: Any) -> MaskedLanguageModel:
    torch.manual_seed(3)
    small = {"size": 8, "num_layers": 2, "num_heads": 2, "feed_forward_size": 12, "context": 12, "dropout": 0.0}
    return MaskedLanguageModel(MaskedLanguageModelSettings(**{**small, **settings}), num_symbols=SYMBOLS).eval()


def test_the_rates_of_hiding() -> None:
    """Over many draws: 15 % chosen, of these 80 % the mask, 10 % another symbol or by chance the same, 10 % left."""
    torch.manual_seed(7)
    symbols = torch.randint(4, SYMBOLS, (1000, 400))
    candidates = torch.rand(symbols.shape) < 0.7
    read, chosen = hide(symbols, candidates, share=0.15, num_symbols=SYMBOLS)
    assert not (chosen & ~candidates).any()
    assert float(chosen.sum() / candidates.sum()) == pytest.approx(0.15, abs=0.004)
    assert torch.equal(read[~chosen], symbols[~chosen])
    of, before = read[chosen], symbols[chosen]
    assert float((of == SYMBOLS).float().mean()) == pytest.approx(0.8, abs=0.01)
    same = 0.1 + 0.1 / (SYMBOLS - 4)
    assert float((of == before).float().mean()) == pytest.approx(same, abs=0.01)
    others = of[(of != SYMBOLS) & (of != before)]
    assert others.min() == 4, "no reserved symbol"
    assert others.max() == SYMBOLS - 1
    counts = torch.bincount(others)[4:].float()
    assert float((counts - counts.mean()).abs().max()) < 5 * float(counts.mean()) ** 0.5, "each as often as the others"


def test_a_generator_repeats_its_draws_and_others_do_not() -> None:
    symbols = torch.randint(4, SYMBOLS, (20, 30))
    everything = torch.ones_like(symbols, dtype=torch.bool)

    def draw(generator: torch.Generator | None) -> torch.Tensor:
        return hide(symbols, everything, share=0.5, num_symbols=SYMBOLS, generator=generator).symbols

    fixed = [draw(torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*fixed)
    free = [draw(None) for _ in range(2)]
    assert not torch.equal(*free)
    torch.manual_seed(5)
    one = draw(None)
    torch.manual_seed(5)
    assert torch.equal(one, draw(None)), "torch's own generator, which checkpoints hold"


@pytest.mark.parametrize("kind", KINDS)
def test_all_but_the_first_layer_see_both_sides(kind: str) -> None:
    model = build(**KINDS[kind])
    symbols, lengths = torch.tensor([[EOS_ID, 5, 6, 7, 8, EOS_ID]]), torch.tensor([6])
    before = model.vectors(symbols, lengths)
    assert [layer.shape for layer in before] == [(1, 6, 8)] * 3
    for place in range(6):
        changed = symbols.clone()
        changed[0, place] = 12
        after = model.vectors(changed, lengths)
        first = (before[0] != after[0])[0].any(-1).tolist()
        assert first == [time == place for time in range(6)]
        for old, new in zip(before[1:], after[1:], strict=True):
            assert (old != new)[0].any(-1).all()


def test_a_hidden_symbol_is_not_seen() -> None:
    """Where the mask stands, what stood there makes no difference."""
    model, lengths = build(), torch.tensor([5])
    read = torch.tensor([[EOS_ID, 5, SYMBOLS, 7, EOS_ID]])
    found = model.embed(read)
    torch.testing.assert_close(found[0, 2], model.mask * 8**0.5)
    torch.testing.assert_close(found[0, 1], model.embedding.weight[5] * 8**0.5)
    assert torch.isfinite(model.vectors(read, lengths)[-1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing_for_masked_models(kind: str) -> None:
    model = build(**KINDS[kind])
    lines = [[5, 6, 7, 8, 9, EOS_ID], [4, EOS_ID], [10, 8, 5, EOS_ID]]
    batch = collate_lines(lines, EOS_ID)
    whole = torch.cat([batch.inputs[:, :1], batch.targets], 1)
    assert batch.lengths is not None
    together = model.vectors(whole, batch.lengths + 1)
    for row, line in enumerate(lines):
        alone = model.vectors(torch.tensor([[EOS_ID, *line]]), torch.tensor([len(line) + 1]))
        for many, one in zip(together, alone, strict=True):
            torch.testing.assert_close(many[row, : len(line) + 1], one[0])


def test_longer_texts_are_read_in_pieces() -> None:
    """Each as if it stood alone; a row that ends before a piece does no harm, forwards or backwards."""
    model = build(positions="learned", context=3)
    text = torch.tensor([[EOS_ID, 5, 6, 7, 8, 9, 10, 11, 12, EOS_ID], [EOS_ID, 5, 6, *[PAD_ID] * 7]])
    found = model.vectors(text, torch.tensor([10, 3]))
    for start in (0, 4, 8):
        piece = text[:1, start : start + 4]
        for whole, part in zip(found, model.vectors(piece, torch.tensor([piece.shape[1]])), strict=True):
            torch.testing.assert_close(whole[:1, start : start + 4], part)
    sum(layer[0].sum() + layer[1, :3].sum() for layer in found).backward()  # type: ignore[union-attr]
    assert all(weight.grad is None or torch.isfinite(weight.grad).all() for weight in model.parameters())


def test_what_is_guessed() -> None:
    """Never padding, ends, or the symbol before the text; what is guessed is what stood there."""
    model = build(hidden=0.9)
    lines = [[5, 6, EOS_ID], [7, 8, 9, 10, EOS_ID]]
    batch = collate_lines(lines, EOS_ID)
    seen: set[int] = set()
    for seed in range(20):
        ((features, gold),) = model.guesses(batch, torch.Generator().manual_seed(seed))
        assert features.shape == (len(gold), 8)
        seen |= set(gold.tolist())
    assert seen == {5, 6, 7, 8, 9, 10}
    running = TextBatch(torch.tensor([[4, 5, EOS_ID]]), torch.tensor([[5, EOS_ID, 6]]))
    gold = torch.cat([model.guesses(running)[0][1] for _ in range(20)])
    assert set(gold.tolist()) == {5, 6}


def test_the_loss_is_one_a_symbol() -> None:
    """The mean over hidden symbols, times the symbols of the batch; nothing hidden is no loss and no gradient."""
    model = build(hidden=0.5)
    batch = collate_lines([[5, 6, 7, 8, 9, 10, EOS_ID], [7, 8, 9, EOS_ID]], EOS_ID)
    torch.manual_seed(1)
    found = loss_of(model, batch, plain_cross_entropy)
    torch.manual_seed(1)
    ((features, gold),) = model.guesses(batch)
    log_probs = torch.log_softmax(model.output(features), -1).gather(1, gold[:, None])
    torch.testing.assert_close(found.nll / batch.num_tokens, -log_probs.mean())
    rare = build(hidden=1e-9)
    for entropy in (plain_cross_entropy, projected_cross_entropy):
        nothing = loss_of(rare, batch, entropy)
        nothing.loss.backward()
        assert float(nothing.loss.detach()) == 0.0
    assert all(weight.grad is None or not weight.grad.any() for weight in rare.parameters())


def test_every_weight_of_a_masked_model_learns() -> None:
    for kind, settings in KINDS.items():
        model = build(hidden=0.6, **settings).train()
        torch.manual_seed(2)
        loss_of(model, collate_lines([[5, 6, 7, 8, 9, EOS_ID], [10, 11, EOS_ID]], EOS_ID)).loss.backward()
        silent = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
        assert silent == [], kind


def test_positions_are_said_by_context() -> None:
    with pytest.raises(ValidationError, match="set context: 64"):
        MaskedLanguageModelSettings(positions="learned", max_positions=64)

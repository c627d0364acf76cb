"""The bidirectional language model: who sees what, parity with torch's LSTM, words spelled out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from seqloom.batches.running import TextBatch, collate_lines
from seqloom.losses import Entropy, Loss, plain_cross_entropy, projected_cross_entropy
from seqloom.models.bidirectional_lm import (
    BidirectionalLanguageModel,
    BidirectionalLanguageModelSettings,
    reverse_rows,
)
from seqloom.sources.running_text import RunningText
from seqloom.tasks.model_bidirectional_language import BidirectionalLanguageModelling
from seqloom.text.special import EOS_ID, SPECIAL
from seqloom.text.tokenizers import Tokenizer

PIECES = [*SPECIAL, *(f"▁{word}" for word in ("a", "cat", "sat", "on", "the", "catalogue", "s"))]
LETTERS = {"size": 4, "filters": [[1, 3], [2, 5]], "highways": 1, "most": 6}
KINDS: dict[str, dict[str, Any]] = {
    "words": {},
    "tied": {"tie": True},
    "letters": {"characters": LETTERS},
    "one-layer": {"num_layers": 1},
}


def loss_of(model: BidirectionalLanguageModel, batch: TextBatch, entropy: Entropy = projected_cross_entropy) -> Loss:
    task = BidirectionalLanguageModelling(RunningText(Tokenizer.of_words(["a", "b"])), "sentences")
    return task.loss(model, batch, None, 0.0, entropy)


def build(seed: int = 3, **settings: Any) -> BidirectionalLanguageModel:
    torch.manual_seed(seed)
    s = BidirectionalLanguageModelSettings(**{"size": 6, "num_layers": 2, "dropout": 0.0, **settings})
    return BidirectionalLanguageModel(s, num_symbols=len(PIECES), pieces=PIECES).eval()


def lines() -> list[list[int]]:
    return [[5, 6, 7, 8, 9, EOS_ID], [4, EOS_ID], [10, 8, 5, EOS_ID]]


@pytest.mark.parametrize("kind", KINDS)
def test_each_direction_sees_only_its_side(kind: str) -> None:
    """A change of one symbol reaches, forward, what follows it, backward, what precedes it, and nothing else."""
    model = build(**KINDS[kind])
    symbols = torch.tensor([[EOS_ID, 5, 6, 7, 8, 9, EOS_ID]])
    lengths, size = torch.tensor([7]), model.settings.size
    before = model.vectors(symbols, lengths)
    for place in range(7):
        changed = symbols.clone()
        changed[0, place] = 10
        after = model.vectors(changed, lengths)
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            differs = [(old[0, :, half] != new[0, :, half]).any(-1) for half in (slice(size), slice(size, None))]
            if number == 0:
                expected = [[time == place for time in range(7)]] * 2
            else:
                expected = [[time >= place for time in range(7)], [time <= place for time in range(7)]]
            assert [found.tolist() for found in differs] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_guess_never_sees_its_symbol(kind: str) -> None:
    """∂ guess of a symbol / ∂ vector of a symbol is zero from the symbol on forward, and up to it backward."""
    model = build(**KINDS[kind])
    batch = collate_lines([lines()[0]], EOS_ID)
    embedded: list[Tensor] = []
    embed = model.embed

    def watched(symbols: Tensor) -> Tensor:
        embedded.append(embed(symbols).detach().requires_grad_())
        return embedded[-1]

    model.embed = watched  # type: ignore[method-assign]
    (forward, gold), (backward, said_before) = model.guesses(batch)
    assert gold.tolist() == [5, 6, 7, 8, 9, EOS_ID]
    assert said_before.tolist() == [EOS_ID, 5, 6, 7, 8, 9]
    for place in range(6):  # symbol `place` of <eos> 5 6 7 8 9 is read, `place` + 1 is gold; backward the other way
        for features, seen in ((forward, range(place + 1)), (backward, range(place + 1, 7))):
            gradient = torch.autograd.grad(features[place].sum(), embedded[-1], retain_graph=True)[0][0]
            assert [bool(row.any()) for row in gradient] == [time in seen for time in range(7)]


def test_parity_with_torch() -> None:
    """Two layers of torch.nn.LSTM in each direction, what the first gave added to what the second gives."""
    model = build()
    symbols, lengths = torch.tensor([[EOS_ID, 5, 6, 7, EOS_ID]]), torch.tensor([5])
    embedded = model.embedding(symbols)
    found = model.vectors(symbols, lengths)
    torch.testing.assert_close(found[0], torch.cat([embedded, embedded], -1))
    for half, stack in enumerate((model.forwards, model.backwards)):
        inputs = embedded if half == 0 else embedded.flip(1)
        below = None
        for number, layer in enumerate(stack.layers, 1):
            reference = nn.LSTM(6, 6, batch_first=True)
            weights = layer.cell.kernel_weights()  # type: ignore[operator,union-attr]
            with torch.no_grad():
                for own, theirs in zip(reference.parameters(), weights, strict=True):
                    own.copy_(theirs)
            outputs = reference(inputs)[0]
            below = inputs = outputs if below is None else below + outputs
            shown = below if half == 0 else below.flip(1)
            torch.testing.assert_close(found[number][..., half * 6 : half * 6 + 6], shown)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind: str) -> None:
    model = build(**KINDS[kind])
    together = model.guesses(collate_lines(lines(), EOS_ID))
    alone = [model.guesses(collate_lines([line], EOS_ID)) for line in lines()]
    for direction, (features, gold) in enumerate(together):
        torch.testing.assert_close(features, torch.cat([one[direction][0] for one in alone]))
        assert torch.equal(gold, torch.cat([one[direction][1] for one in alone]))


def test_the_loss_is_the_sum_and_the_report_the_mean() -> None:
    model = build()
    batch = collate_lines(lines(), EOS_ID)
    parts = []
    for features, gold in model.guesses(batch):
        log_probs = torch.log_softmax(model.output(features), -1)
        parts.append(-log_probs.gather(1, gold[:, None]).sum())
    for entropy in (plain_cross_entropy, projected_cross_entropy):
        found = loss_of(model, batch, entropy)
        torch.testing.assert_close(found.loss, sum(parts))
        torch.testing.assert_close(found.nll, sum(parts) / 2)


def test_every_weight_learns() -> None:
    for kind, settings in KINDS.items():
        model = build(**settings).train()
        loss_of(model, collate_lines(lines(), EOS_ID)).loss.backward()
        silent = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
        assert silent == [], kind


def test_words_are_spelled() -> None:
    """Symbols that begin alike have other vectors only where letters that are read differ; padding is zero."""
    model = build(characters={**LETTERS, "most": 4})
    vectors = model.embed(torch.arange(len(PIECES)))
    cat, catalogue = PIECES.index("▁cat"), PIECES.index("▁catalogue")
    torch.testing.assert_close(vectors[cat], vectors[catalogue])
    assert not torch.allclose(vectors[cat], vectors[PIECES.index("▁sat")])
    assert not vectors[0].any()
    longer = build(characters={**LETTERS, "most": 9}).embed(torch.arange(len(PIECES)))
    assert not torch.allclose(longer[cat], longer[catalogue])


def test_rows_in_reverse() -> None:
    values = torch.arange(8).view(2, 4, 1)
    assert reverse_rows(values, torch.tensor([4, 2]))[..., 0].tolist() == [[3, 2, 1, 0], [5, 4, 6, 7]]


def test_settings_that_contradict() -> None:
    with pytest.raises(ValidationError, match="with characters there is none"):
        BidirectionalLanguageModelSettings(tie=True, characters={})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="pretrained needs an embedding of words"):
        BidirectionalLanguageModelSettings(pretrained={"text": "vectors.txt"}, characters={})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="filters"):
        BidirectionalLanguageModelSettings(characters={"filters": [[0, 5]]})  # type: ignore[arg-type]

"""A text that goes on: what is searched is what reading everything again would give, in windows too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.decoding.prompts import Continuation
from seqloom.decoding.search import search, with_precision
from seqloom.decoding.settings import DecodingSettings
from seqloom.models import LANGUAGE_MODELS
from seqloom.nn.eight_bits import has_eight_bits, rounds
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SYMBOLS, FIRST = 13, EOS_ID
KINDS: dict[str, dict[str, Any]] = {
    "window": dict(kind="feed_forward_lm", size=7, hidden_size=11, window=3),
    "lstm": dict(kind="recurrent_lm", size=7, hidden_size=11, num_layers=2),
    "gru": dict(kind="recurrent_lm", size=7, hidden_size=11, cell="gru", num_layers=1),
    **{
        f"transformer-{context}": dict(
            kind="transformer_lm", size=12, num_heads=3, feed_forward_size=10, num_layers=2, context=context
        )
        for context in (1, 2, 7, 40)
    },
    "rotary": dict(
        kind="transformer_lm", size=12, num_heads=3, feed_forward_size=10, num_layers=2, context=7, positions="rotary"
    ),
}
PROMPTS: list[list[int]] = [[FIRST], [FIRST, 4, 9, 11], [FIRST, *([5, 6, 7, 8] * 3)]]
every_kind = pytest.mark.parametrize("kind", sorted(KINDS))
every_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=len)


def build(kind: str, seed: int = 73) -> Any:
    torch.manual_seed(seed)
    settings_kind, model_kind = LANGUAGE_MODELS[KINDS[kind]["kind"]]
    model = model_kind(settings_kind(**KINDS[kind]), num_symbols=SYMBOLS)
    for weight in model.parameters():
        weight.data += 0.5 * torch.randn_like(weight)
    model.output.bias.data[EOS_ID] -= 2.0  # or most texts would be over at once
    return model.eval()


def log_probs_of(model: Any, symbols: list[int]) -> Tensor:
    """Of the symbol after these, by reading all of them; what is never shown is forbidden."""
    logits = model.output(model(torch.tensor([symbols]))[0])[0, -1]
    logits[[PAD_ID, UNK_ID, BOS_ID]] = float("-inf")
    return logits.log_softmax(-1)


def read_again(model: Any, prompt: list[int], room: int) -> tuple[list[int], list[float]]:
    """The likeliest symbol after the other; a model with a context begins a window with half of the last one."""
    context = getattr(model.settings, "context", None)
    recent, token = prompt[:-1], prompt[-1]
    recent = recent if context is None else recent[len(recent) - min(len(recent), context - 1) :]
    tokens, log_probs = [], []
    for step in range(room):
        if context is not None and len(recent) >= context:
            recent = recent[len(recent) - context // 2 :]
        recent = [*recent, token]
        found = log_probs_of(model, recent)
        token = EOS_ID if step == room - 1 else int(found.argmax())
        log_probs.append(float(found[token]))
        if token == EOS_ID:
            break
        tokens.append(token)
    return tokens, log_probs


def continued(
    model: Any, prompt: list[int], settings: DecodingSettings, rows: int = 1, room: int = 12, **more: Any
) -> Any:
    with torch.inference_mode(), with_precision(model, settings):
        stepper = Continuation(model)
        state, first = stepper.start(prompt, rows)
        return search(stepper, state, first, torch.full((rows,), room), settings, **more)


@every_kind
@every_prompt
def test_greedy_goes_on_as_if_everything_were_read_again(kind: str, prompt: list[int]) -> None:
    found = set()
    for seed in (73, 79, 83):
        model = build(kind, seed)
        ((answer,),) = continued(model, prompt, DecodingSettings(method="greedy"))
        with torch.no_grad():
            tokens, log_probs = read_again(model, prompt, 12)
        assert answer.tokens == tokens
        assert answer.token_log_probabilities == pytest.approx(log_probs, abs=1e-4)
        assert answer.finished == (len(tokens) < 11)
        assert answer.attention is None
        found.add(tuple(tokens))
    assert len(found) > 1


@every_kind
@every_prompt
def test_a_beam_of_one_is_greedy_and_more_is_no_worse(kind: str, prompt: list[int]) -> None:
    """Beams reorder the state of the model; what an answer scores is what its symbols have when they are read."""
    model = build(kind)
    plain = DecodingSettings(beam_size=1, length_penalty=0, early_stop=False)
    ((one,),) = continued(model, prompt, plain)
    ((greedy,),) = continued(model, prompt, DecodingSettings(method="greedy"))
    assert one.tokens == greedy.tokens
    ((first, *others),) = continued(model, prompt, plain.model_copy(update=dict(beam_size=4, n_best=4)))
    assert first.score >= one.score - 1e-4
    assert [first.score, *(other.score for other in others)] == sorted(
        (answer.score for answer in (first, *others)), reverse=True
    )
    if getattr(model.settings, "context", 40) == 40:  # nothing is left behind
        for answer in (first, *others):
            read = [*prompt, *answer.tokens]
            with torch.no_grad():
                expected = [
                    float(log_probs_of(model, read[: len(prompt) + index])[token])
                    for index, token in enumerate([*answer.tokens, EOS_ID])
                ]
            assert answer.token_log_probabilities == pytest.approx(expected, abs=1e-4)


@every_kind
def test_rows_that_go_on_from_one_prompt_draw_for_themselves(kind: str) -> None:
    model, how = build(kind), DecodingSettings(method="sample", temperature=2.0, seed=5)
    together = continued(model, PROMPTS[1], how, rows=5)
    assert len({tuple(answer.tokens) for (answer,) in together}) > 2
    for number, (answer,) in enumerate(together):
        ((alone,),) = continued(model, PROMPTS[1], how, numbers=[number])
        assert alone.tokens == answer.tokens


@pytest.mark.parametrize("method", ["greedy", "sample"])
def test_every_symbol_is_called_back_as_it_is_chosen(method: str) -> None:
    model, heard = build("lstm"), []
    how = DecodingSettings(method=method, temperature=2.0)
    answers = continued(model, PROMPTS[1], how, rows=3, callback=lambda row, symbol: heard.append((row, symbol)))
    for row, (answer,) in enumerate(answers):
        assert [symbol for number, symbol in heard if number == row] == [*answer.tokens, EOS_ID]
    assert [row for row, _ in heard[:3]] == [0, 1, 2]  # step by step, not row by row


@pytest.mark.skipif(not has_eight_bits(), reason="this torch has no products of eight-bit numbers here")
def test_the_precision_reaches_the_prompt_and_the_search() -> None:
    model = build("lstm")
    exact, rounded = (
        continued(model, PROMPTS[1], DecodingSettings(method="greedy", precision=precision))[0][0].log_probability
        for precision in ("float32", "int8")
    )
    assert exact != rounded
    with with_precision(model, DecodingSettings(precision="int8")):
        assert rounds()
    assert not rounds()

"""The tagger: every encoder, letters, padding and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqloom.batches.collate import Batch
from seqloom.models import TAGGERS
from seqloom.models.word_reader import CHARACTERS
from seqloom.nn.spelling_lstm import RecurrentCharacterEncoder
from seqloom.recipe import load_recipe
from seqloom.settings import check
from seqloom.sources.turns import TurnSource
from seqloom.sources.words import WordSource
from seqloom.targets.tags import TagTarget, tag_loss
from seqloom.text.whole_words import WholeWords, WholeWordsSettings

SENTENCES = [["the", "tiny", "cat", "sat"], ["cat"], ["a", "tin"]]
TAGS = [["D", "A", "N", "V"], ["N"], ["D", "N"]]
SOURCE = WordSource(WholeWords.learn(SENTENCES, WholeWordsSettings()))
TARGET = TagTarget.learn(TAGS)
ENCODERS: dict[str, dict[str, Any]] = {
    "embeddings": {"kind": "embeddings", "size": 8},
    "recurrent": {"kind": "recurrent", "embedding_size": 8, "hidden_size": 6},
    "transformer": {"kind": "transformer", "size": 8, "num_heads": 2, "feed_forward_size": 9, "num_layers": 1},
}


def tagger(encoder: str = "recurrent", **settings: Any) -> Any:
    kind, build = TAGGERS["tagger"]
    found, problems = check(kind, {"encoder": ENCODERS[encoder], **settings})
    assert not problems
    torch.manual_seed(1)
    words = SOURCE.words
    return build(found, num_symbols=len(words), num_letters=words.num_letters, num_tags=len(TARGET))


def batch_of(rows: slice) -> Batch:
    return Batch(SOURCE.batch(SENTENCES[rows]), TARGET.collate({"tags": TARGET.encode(TAGS[rows])}))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("characters", [None, *CHARACTERS])
@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_padding_changes_nothing_and_every_weight_learns(encoder: str, characters: str | None, output: str) -> None:
    letters = None if characters is None else {"kind": characters, "size": 2}
    model = tagger(encoder, output=output, characters=letters).eval()
    together = model(batch_of(slice(None))).tags
    assert together.shape == (3, 5, 4)
    for row, words in enumerate(SENTENCES):
        alone = model(batch_of(slice(row, row + 1))).tags
        torch.testing.assert_close(together[row, : len(words)], alone[0, : len(words)])
    loss, _ = tag_loss(together, batch_of(slice(None)).target, model.chain)
    loss.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name
    assert (model.chain is None) == (output == "softmax")


def test_unknown_words_differ_by_their_letters() -> None:
    source = SOURCE.batch([["tittat", "chain"]])
    assert source.ids[0, 0] == source.ids[0, 1]
    for kind, alike in ((None, True), ("cnn", False), ("lstm", False)):
        reader = tagger(characters=kind and {"kind": kind, "size": 4}).encoder.reader
        first, second = reader(source)[0, :2]
        assert torch.equal(first, second) == alike


def test_a_word_left_out_is_an_unknown_one_with_its_letters() -> None:
    reader = tagger(characters={"kind": "cnn", "size": 4}, word_dropout=0.99).encoder.reader
    seen, unknown = SOURCE.batch([["cat"]]), SOURCE.batch([["tac"]])
    assert seen.ids[0, 0] != 1
    own = 4
    missed = [reader.train()(seen)[0, 0] for _ in range(20)]
    assert any(torch.equal(one[:own], reader.eval()(unknown)[0, 0, :own]) for one in missed)
    assert all(torch.equal(one[own:], reader.eval()(seen)[0, 0, own:]) for one in missed)


def test_letters_are_read_from_both_ends() -> None:
    torch.manual_seed(2)
    reader = RecurrentCharacterEncoder(num_letters=9, letter_size=3, size=4)
    words = torch.tensor([[2, 3, 4, 0], [4, 3, 2, 0], [2, 3, 4, 5], [0, 0, 0, 0]])
    found = reader(words)
    torch.testing.assert_close(found[0], reader(words[:1, :3])[0])
    assert not torch.allclose(found[0], found[1])
    assert found.isfinite().all()


def test_settings_that_do_not_fit() -> None:
    recipe: dict[str, Any] = {
        "task": "tag",
        "data": {name: {"file": "a.conll"} for name in ("train", "valid")},
        "model": {"kind": "tagger", "encoder": ENCODERS["recurrent"], "characters": {"kind": "cnn", "size": 8}},
        "training": {"steps": 1},
    }
    with pytest.raises(Exception, match=r"characters\.size is a part of the 8 numbers .* below that; got 8"):
        load_recipe(recipe)
    recipe["model"]["characters"] = {"kind": "lstm", "size": 3}
    with pytest.raises(Exception, match=r"model\.characters\.size: must be even, for two directions; got 3"):
        load_recipe(recipe)
    recipe["model"]["characters"] = {"kind": "rnn"}
    with pytest.raises(Exception, match=r"model\.characters\.kind must be one of cnn, lstm; got 'rnn'"):
        load_recipe(recipe)


# -- turns -----------------------------------------------------------------------------------------------------------

TALKS = [("the tiny cat", "a tin"), ("cat",), ("sat sat", "tiny", "the cat sat")]
TURNS = TurnSource(SOURCE.words)


@pytest.mark.parametrize("turns", ENCODERS)
@pytest.mark.parametrize("encoder", ["recurrent", "transformer"])
def test_turns_are_read_alone_and_then_together(turns: str, encoder: str) -> None:
    """A conversation in a batch is the same as alone; every weight of both encoders learns."""
    inner = {**ENCODERS[turns], **({"hidden_size": 8} if turns == "recurrent" else {})}
    model = tagger(encoder, turns=inner).eval()
    together = model(Batch(TURNS.batch(TALKS), None)).tags
    assert together.shape == (3, 4, 4)
    for row, talk in enumerate(TALKS):
        alone = model(Batch(TURNS.batch([talk]), None)).tags[0, : len(talk)]
        torch.testing.assert_close(together[row, : len(talk)], alone)
    target = TARGET.collate({"tags": TARGET.encode([["D", "N"], ["N"], ["D", "N", "A"]])})
    tag_loss(together, target, model.chain)[0].backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name
    assert model.embeddings["text"].weight.shape == (len(TURNS.words), 8)


def test_turns_that_do_not_fit() -> None:
    kind, _ = TAGGERS["tagger"]
    _, [problem] = check(kind, {"encoder": ENCODERS["recurrent"], "turns": ENCODERS["recurrent"]})
    assert problem == "turns gives vectors of 6, but the encoder above reads vectors of 8: make them equal"
    letters = {"kind": "cnn", "size": 2}
    _, [problem] = check(
        kind, {"encoder": ENCODERS["recurrent"], "turns": ENCODERS["embeddings"], "characters": letters}
    )
    assert problem == "characters are of words that are tagged; with turns there are none: leave one out"

"""What a tagger's recipe refuses of encoders that are made for classifiers."""

from __future__ import annotations

import pytest

from seqloom.errors import RecipeError
from seqloom.recipe import load_recipe


@pytest.mark.parametrize("more", [{"word_ngrams": 2}, {"subwords": {}}])
def test_ngrams_are_for_classifiers(more: dict[str, object]) -> None:
    with pytest.raises(
        RecipeError, match=r"word_ngrams and subwords are for classifiers; a tagger has model\.characters"
    ):
        load_recipe(
            {
                "task": "tag",
                "data": {name: {"file": "words.conll"} for name in ("train", "valid")},
                "model": {"kind": "tagger", "encoder": {"kind": "embeddings", **more}},
                "training": {"steps": 1},
            }
        )

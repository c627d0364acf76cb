"""What each word of a text does to a label, for any classifier of texts: the view `saliency`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from seqloom.answers import LabelsAnswer
from seqloom.inspection.terminal import shown
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture
from seqloom.inspection.words import Contributions, draw_words, signed, whole_words

ABOUT = {
    "gradient": "the gradient of the score times the vector of the word",
    "integrated": "gradients on the way from an empty text to this one, times the vector of the word",
    "occlusion": "the score less the score of the text without the word",
}


@dataclass(frozen=True, eq=False)
class SalientWords(Contributions):
    """What each word does to the score of a label; `bias` is the score of an empty text."""

    method: str = "integrated"
    score: float = 0.0

    def rows(self) -> list[tuple[str, float]]:
        return list(zip(map(shown, self.words), self.values.tolist(), strict=True))

    def caption(self) -> str:
        return (
            f"What each word does to the score of “{self.label}”: {ABOUT[self.method]}. Blue speaks for the label, "
            f"orange against it. {self.conclusion()}"
        )

    def conclusion(self) -> str:
        what = "logit" if self.apart else "logit above the mean of all labels"
        added = f"The words add up to {signed(float(self.values.sum()))}; the {what} is {signed(self.score)}"
        return f"{added}, that of an empty text {signed(self.bias)}."


def words_picture(model: Any, answer: Any, text: str, label: str, method: str) -> Picture:
    """What each word does to a label, by one of the methods of `ABOUT`."""
    symbols, found = model.task.saliency_of_words(model.network, text, label, method)
    words, values = whole_words(symbols, np.asarray(found.values, dtype=float))
    apart = isinstance(answer, LabelsAnswer)
    drawn_of = SalientWords(label, words, values, found.base, answer.probabilities, apart, method, found.score)
    drawn = partial(draw_words, drawn_of)
    return Picture(
        f"what each word does to {label}",
        text=lambda width, colour: drawn(width=width, colour=colour),
        draw=drawn,
        values={
            "label": label,
            "method": method,
            "probabilities": dict(answer.probabilities),
            "steps": words,
            "saliency": plain(values),
            "score": found.score,
            "score_of_an_empty_text": found.base,
        },
    )

"""Two lines of words that answer to the pointer: whoever points at a word sees where the model looked.

HTML with a style of its own and no script, so that it works in a notebook, a page and an e-mail alike.
"""

from __future__ import annotations

import html
import secrets
from collections.abc import Sequence

import numpy as np

FAINTEST = 0.02  # a weight below this is not shown
CONTINUES = "·"  # before a piece that goes on with a word

STYLE = """\
#{name}{{font-size:.95em;line-height:2;margin:.4em 0;max-width:60em}}
#{name} div{{display:flex;gap:.8em}}
#{name} b{{flex:0 0 4em;font-weight:normal;opacity:.6;text-align:right}}
#{name} span{{border-radius:3px;cursor:default;padding:.15em .25em}}
#{name} span.continued{{margin-left:-.55em}}
#{name} span:hover,#{name} span:focus{{outline:2px solid #0072b2}}
#{name} small{{margin-left:6.1em;opacity:.6}}
{rules}"""


def hovering_words(weights: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> str:
    """The attention of (rows, columns) as two lines: what was answered, and below it what was read."""
    name = f"alignment-{secrets.token_hex(4)}"
    rules = [_rule(name, f"r{i}", "c", weights[i]) for i in range(len(rows))]
    rules += [_rule(name, f"c{j}", "r", weights[:, j]) for j in range(len(columns))]
    answered = "".join(_word("r", i, word, weights[i], columns) for i, word in enumerate(rows))
    read = "".join(_word("c", j, word, weights[:, j], rows) for j, word in enumerate(columns))
    style = STYLE.format(name=name, rules="\n".join(rules))
    return (
        f'<div id="{name}"><style>\n{style}\n</style>\n'
        f"<div><b>answer</b><p style='margin:0'>{answered}</p></div>\n"
        f"<div><b>source</b><p style='margin:0'>{read}</p></div>\n"
        "<small>Point at a word: the darker a word of the other line, the more attention.</small></div>"
    )


def _rule(name: str, one: str, others: str, weights: np.ndarray) -> str:
    """While one word is pointed at, how dark each word of the other line is."""
    dark = ";".join(f"--{others}{k}:{weight:.2f}" for k, weight in enumerate(weights) if weight >= FAINTEST)
    return f"#{name}:has(.{one}:hover),#{name}:has(.{one}:focus){{{dark}}}"


def _word(line: str, number: int, word: str, weights: np.ndarray, others: Sequence[str]) -> str:
    """A word, dark while a word of the other line is pointed at; its title says the same in figures."""
    best = [int(k) for k in np.argsort(-weights, kind="stable")[:3] if weights[k] >= FAINTEST]
    title = html.escape(", ".join(f"{others[k]} {weights[k]:.2f}" for k in best))
    joined = word.startswith(CONTINUES) and len(word) > 1
    shown = html.escape(word.removeprefix(CONTINUES) if joined else word)
    kinds = f"{line}{number}{' continued' if joined else ''}"
    dark = f"background:rgb(0 114 178/calc(.6*var(--{line}{number},0)))"
    return f'<span class="{kinds}" tabindex="0" title="{title}" style="{dark}">{shown}</span> '

"""Light and dark pages. Colours are chosen for a light page; on a dark one each is replaced by its counterpart.

A view need not know which is wanted: pictures are recoloured when they are saved, letters when they are painted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal

import numpy as np

ThemeName = Literal["light", "dark"]
PAPER, INK, FAINT, RULE, OUTLINE = "#ffffff", "#222222", "#6b6b6b", "#d9dde2", "#aab2bb"
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a6a00", "#56b4e9", "#e69f00", "#000000")
"""Okabe & Ito (2008), who chose them to be told apart by colour-blind readers."""

COUNTERPARTS = {
    PAPER: "#15181d",
    INK: "#e9ecf0",
    FAINT: "#a9b0ba",
    RULE: "#3a4049",
    OUTLINE: "#6a727d",
    **dict(
        zip(
            LINES,
            ("#4aa8e0", "#f0803c", "#2fc79a", "#e29ac4", "#c4b454", "#9bd8fa", "#f5bd4a", "#f2f4f7"),
            strict=True,
        )
    ),
}
"""Those that were chosen by eye. All others keep their hue, and their lightness is turned round."""

LIGHTEST, SPAN = 0.97, 0.77  # of black on a dark page; down to that of white

_chosen: ContextVar[ThemeName] = ContextVar("theme", default="light")


@contextmanager
def themed(name: ThemeName) -> Iterator[None]:
    """Within this, pictures are saved and letters painted for a page of that kind."""
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def is_dark() -> bool:
    return _chosen.get() == "dark"


def paper() -> str:
    """The colour of the page."""
    return on_page(PAPER)


def on_page(colour: str) -> str:
    """A colour such as #0072b2 as the page of the chosen theme shows it."""
    return darkened(colour.lower()) if is_dark() else colour


@lru_cache(maxsize=4096)
def darkened(colour: str) -> str:
    """The counterpart on a dark page."""
    if colour in COUNTERPARTS:
        return COUNTERPARTS[colour]
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (round(255 * part) for part in turned_round(np.array([red, green, blue])).tolist())
    return f"#{red:02x}{green:02x}{blue:02x}"


# ---------------------------------------------------------------------------------------------------------------------
# Oklab (Ottosson 2020): lightness, green to red, blue to yellow, as the eye finds them

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def lightness(rgb: Any) -> np.ndarray:
    """(…, 3) shares of red, green, blue -> (…,) from 0, black, to 1, white."""
    return np.asarray(_lab(rgb)[..., 0])


def turned_round(rgb: Any) -> np.ndarray:
    """(…, 3) shares of red, green, blue -> the same hue, light where it was dark."""
    lab = _lab(rgb)
    lab[..., 0] = LIGHTEST - SPAN * lab[..., 0]
    linear = (lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_CONES).T
    linear = np.clip(linear, 0.0, 1.0)
    return np.asarray(np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055))


def _lab(rgb: Any) -> np.ndarray:
    parts = np.asarray(rgb, dtype=float)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return np.asarray(np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T)


# ---------------------------------------------------------------------------------------------------------------------
# Pages of matplotlib


def recolour(page: Any) -> None:
    """Every part of a drawn figure, from its colour on a light page to that on a dark one."""
    from matplotlib.collections import Collection
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Annotation, Text

    page.draw_without_rendering()  # what grows only when it is drawn, such as ticks
    parts = page.findobj()
    parts += [part.arrow_patch for part in parts if isinstance(part, Annotation) and part.arrow_patch is not None]
    for part in parts:
        if isinstance(part, Text):
            part.set_color(_counterpart(part.get_color()))
        elif isinstance(part, Line2D):
            face, edge = part.get_markerfacecolor(), part.get_markeredgecolor()
            part.set_color(_counterpart(part.get_color()))
            part.set_markerfacecolor(_counterpart(face))
            part.set_markeredgecolor(_counterpart(edge))
        elif isinstance(part, Patch):
            part.set_facecolor(_counterpart(part.get_facecolor()))
            part.set_edgecolor(_counterpart(part.get_edgecolor()))
        elif isinstance(part, Collection | AxesImage) and part.get_array() is not None:
            if not str(part.get_cmap().name).endswith(DARK):
                part.set_cmap(_colour_map(part.get_cmap()))
            if isinstance(part, Collection):
                part.set_edgecolor([_counterpart(colour) for colour in part.get_edgecolor()])
        elif isinstance(part, Collection):
            faces, edges = part.get_facecolor(), part.get_edgecolor()
            part.set_facecolor([_counterpart(colour) for colour in faces])
            part.set_edgecolor([_counterpart(colour) for colour in edges])


DARK = " on a dark page"


def _counterpart(colour: Any) -> Any:
    """Of any colour that matplotlib takes; what cannot be seen stays as it is."""
    from matplotlib.colors import to_hex, to_rgba

    if isinstance(colour, str) and colour.lower() == "none":
        return colour
    alpha = to_rgba(colour)[3]
    return "none" if alpha == 0 else to_rgba(darkened(to_hex(colour)), alpha)


def _colour_map(colours: Any) -> Any:
    from matplotlib.colors import ListedColormap

    shades = turned_round(colours(np.linspace(0.0, 1.0, 256))[:, :3])
    return ListedColormap(shades, name=f"{colours.name}{DARK}").with_extremes(bad=COUNTERPARTS[PAPER])

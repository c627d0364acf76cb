"""What every picture shares: the only file that sets matplotlib up. Colours, sizes, letters, headings, files, pages.

Every picture is laid out in inches from the measured size of its labels, so that nothing overlaps and nothing is cut
off. Pictures of the same data are the same bytes.
"""

from __future__ import annotations

import html
import io
import os
import re
import secrets
import tempfile
import threading
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from seqloom.errors import UserError
from seqloom.inspection.terminal import char_width, display_width, visible
from seqloom.inspection.theme import FAINT, INK, LINES, OUTLINE, PAPER, RULE, is_dark, paper, recolour

__all__ = ["FAINT", "INK", "LINES", "OUTLINE", "PAPER", "RULE"]  # of themes, for those who draw

SUFFIXES = (".svg", ".png", ".pdf", ".html")

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))

# Sizes in inches, font sizes in points.
MARGIN = 0.14
PAD = 0.06
LABEL, SMALL, TINY, TITLE = 9.0, 7.5, 6.5, 10.5
DPI = 150

OTHER_SCRIPTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Devanagari",
    "Nirmala UI",
    "Noto Sans Thai",
)

_lock = threading.RLock()


def figure(width: float, height: float) -> Any:
    """An empty page of that many inches, with our look."""
    with look():
        from matplotlib.figure import Figure

        page: Any = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER)
        page.description = ""
        return page


def axes_at(page: Any, left: float, bottom: float, width: float, height: float, *, frame: bool = False) -> Any:
    """Axes at a place given in inches, bare unless a frame is wanted."""
    page_width, page_height = page.get_size_inches()
    axes = page.add_axes((left / page_width, bottom / page_height, width / page_width, height / page_height))
    for side, spine in axes.spines.items():
        spine.set_visible(frame and side in ("left", "bottom"))
        spine.set_color(RULE)
    return axes


class Sheet:
    """A page of which every inch is placed by the view: a title, a caption, and between them a canvas.

    Places are inches from the upper left corner of what is drawn, to the right and downwards.
    """

    def __init__(self, title: str, caption: str, width: float, height: float) -> None:
        """To be made and drawn on within `look`."""
        heading, notes = Heading(title, width), Notes(caption, width)
        foot = notes.height + (0.08 if caption else 0.0)
        self.page = figure(
            max(width, heading.width, notes.width) + 2 * MARGIN, heading.height + height + foot + 2 * MARGIN
        )
        heading.write(self.page)
        notes.write(self.page)
        self.bottom, self.height = MARGIN + foot, height
        wide, high = self.page.get_size_inches()
        self.canvas = axes_at(self.page, 0.0, 0.0, wide, high)
        self.canvas.set_axis_off()
        self.canvas.set_xlim(0, wide)
        self.canvas.set_ylim(0, high)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A place of ours on the canvas."""
        return MARGIN + x, self.bottom + self.height - y

    def text(self, x: float, y: float, text: str, size: float = LABEL, colour: str = INK, **style: Any) -> None:
        """A text whose middle is at that height; it begins at x unless `ha` says otherwise."""
        style = {"ha": "left", "va": "center_baseline", **style}
        self.canvas.text(*self.at(x, y), text, fontsize=size, color=colour, **style)

    def box(self, x: float, y: float, width: float, height: float, colour: str, **style: Any) -> None:
        """A rectangle with its upper left corner there."""
        from matplotlib.patches import Rectangle

        style = {"linewidth": 0, "edgecolor": "none", **style}
        self.canvas.add_patch(Rectangle(self.at(x, y + height), width, height, facecolor=colour, **style))

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: str = RULE, **style: Any) -> None:
        """A line through places."""
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True)]
        self.canvas.plot(*zip(*points, strict=True), color=colour, **{"linewidth": 0.8, **style})

    def arrow(self, start: tuple[float, float], end: tuple[float, float], colour: str = FAINT, **style: Any) -> None:
        """From one place to another."""
        how = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0, "linewidth": 0.9, **style}
        self.canvas.annotate("", xy=self.at(*end), xytext=self.at(*start), arrowprops={**how, "color": colour})

    def axes(self, x: float, y: float, width: float, height: float) -> Any:
        """Axes with their upper left corner there."""
        left, bottom = self.at(x, y + height)
        return axes_at(self.page, left, bottom, width, height, frame=True)


class Heading:
    """A title, broken into lines that fit above the content."""

    def __init__(self, title: str, content: float) -> None:
        room = max(content, 4.5)
        self.title = visible(title)
        self.lines = _wrapped(self.title, room, TITLE) if title else []
        self.width = max((text_size(line, TITLE)[0] for line in self.lines), default=0.0)
        self.height = 0.2 * len(self.lines) + 0.1 if self.lines else 0.0

    def write(self, page: Any) -> None:
        page.set_label(self.title)  # that of an HTML page
        width, height = page.get_size_inches()
        for i, line in enumerate(self.lines):
            y = (height - MARGIN - 0.2 * i) / height
            page.text(MARGIN / width, y, line, fontsize=TITLE, color=INK, ha="left", va="top")


class Notes:
    """A caption, broken into lines that fit below the content."""

    def __init__(self, caption: str, content: float) -> None:
        self.lines = _wrapped(visible(caption), max(content, 4.5), SMALL) if caption else []
        self.width = max((text_size(line, SMALL)[0] for line in self.lines), default=0.0)
        self.height = 0.16 * len(self.lines) + 0.06 if self.lines else 0.0

    def write(self, page: Any) -> None:
        page.description = " ".join(self.lines)
        width, height = page.get_size_inches()
        for i, line in enumerate(reversed(self.lines)):
            page.text(MARGIN / width, (MARGIN + 0.16 * i) / height, line, fontsize=SMALL, color=FAINT, va="baseline")


def _wrapped(text: str, room: float, size: float) -> list[str]:
    broken: list[str] = []
    for word in text.split():
        if broken and text_size(f"{broken[-1]} {word}", size)[0] <= room:
            broken[-1] += f" {word}"
        else:
            broken.append(word)
    return broken


def text_size(text: str, size: float = LABEL) -> tuple[float, float]:
    """The width and height of a text in inches; to be called within `look`."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    if not text:
        return 0.0, 0.0
    width, height, _ = RendererAgg(1, 1, 72).get_text_width_height_descent(text, FontProperties(size=size), False)
    if any(char_width(char) == 2 for char in text):
        # Our font lacks these; the one that replaces it in a browser sets them a full square wide.
        width = max(width, 0.5 * size * display_width(text))
    return width / 72, height / 72


@lru_cache(maxsize=1)
def _other_scripts() -> tuple[str, ...]:
    """The fonts of this computer that can stand in for letters ours lacks."""
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    return tuple(name for name in OTHER_SCRIPTS if name in known)


@contextmanager
def look(*, fallback: bool = True) -> Iterator[None]:
    """Our settings of matplotlib, for as long as the block lasts and one thread at a time, since they are global."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("drawing needs matplotlib: pip install 'seqloom[plots]'") from None
    settings: dict[Any, Any] = {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", *(_other_scripts() if fallback else ())],
        "text.parse_math": False,  # a token may be a dollar sign
        "text.usetex": False,
        "axes.unicode_minus": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "seqloom",
        "pdf.fonttype": 42,
        "path.simplify": False,
        "image.composite_image": False,
        "savefig.bbox": None,
        "savefig.dpi": DPI,
        "savefig.facecolor": "auto",
        "savefig.transparent": False,
    }
    with _lock, warnings.catch_warnings(), matplotlib.rc_context(settings):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def checked_path(path: str | Path) -> Path:
    """The path, once we know that a picture can be written there."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise UserError(f"{target}: a picture must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not target.parent.is_dir():
        raise UserError(f"{target}: the folder {target.parent} does not exist; create it first")
    if target.is_dir():
        raise UserError(f"{target}: this is a folder, not a file")
    return target


def save_page(page: Any, target: Path, dpi: int = DPI) -> Path:
    """Write a figure aside and put it in place, without dates, so that equal pictures are equal files."""
    if is_dark():
        recolour(page)
    kind = target.suffix.lower()[1:]
    aside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        if kind == "html":
            aside.write_text(_html_page(page, target.stem, dpi), encoding="utf-8")
        elif kind == "svg":
            aside.write_text(_svg(page, target.stem, dpi), encoding="utf-8")
        else:
            _write(page, aside, kind, dpi)
        os.replace(aside, target)
    except OSError as error:
        raise UserError(f"{target}: could not be written ({error.strerror or error})") from error
    finally:
        aside.unlink(missing_ok=True)
    return target


def _write(page: Any, file: Path | io.StringIO, kind: str, dpi: int) -> None:
    metadata = {
        "svg": {"Date": None, "Creator": "seqloom"},
        "png": {"Software": "seqloom"},
        "pdf": {"CreationDate": None, "Creator": "seqloom", "Producer": None},
    }[kind]
    # A viewer of SVG finds letters our font lacks by itself, so that file need not depend on this computer's fonts.
    with look(fallback=kind != "svg"):
        page.savefig(file, format=kind, metadata=metadata, dpi=dpi)


# ---------------------------------------------------------------------------------------------------------------------
# SVG

SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
MOST_DESCRIBED = 600  # letters of a description that is made of the picture's own words
OURS = "'DejaVu Sans', sans-serif"  # as matplotlib writes it to every text
FONTS = "'DejaVu Sans', Verdana, sans-serif"  # of a whole picture; the second is as wide
CLASS = "class:"
"""What the gid of an artist begins with that is to be a class of the page, so that rules of style can name it."""


def _svg(page: Any, name: str, dpi: int) -> str:
    """The picture as SVG, with what a screen reader says of it."""
    drawn = io.StringIO()
    _write(page, drawn, "svg", dpi)
    root = ElementTree.fromstring(drawn.getvalue())
    texts = [node.text or "" for node in root.iter(f"{{{SVG}}}text")]
    used = _named_in(drawn.getvalue())
    for node in root.iter():
        name_of = node.get("id", "")
        if name_of.startswith(CLASS):
            node.set("class", name_of.removeprefix(CLASS))
        if name_of not in used:  # matplotlib names everything, some of it twice
            node.attrib.pop("id", None)
    for node in root.findall(f"{{{SVG}}}metadata"):
        root.remove(node)
    with look(fallback=False):
        _fix_widths(root)
    title, description = _described(page, name, texts)
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        node = ElementTree.Element(f"{{{SVG}}}{tag}")
        node.text = text
        root.insert(place, node)
    for rule in getattr(page, "rules", ()):
        node = ElementTree.SubElement(root, f"{{{SVG}}}style", {"type": "text/css"})
        node.text = rule
    root.set("role", "img")
    root.set("font-family", FONTS)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(root, encoding='unicode')}\n"


def _described(page: Any, name: str, texts: list[str]) -> tuple[str, str]:
    """A title and a description: the caption, or the words that are written in the picture."""
    title = page.get_label() or visible(name)
    words = " · ".join(dict.fromkeys(text for text in texts if text.strip()))
    if len(words) > MOST_DESCRIBED:
        words = words[:MOST_DESCRIBED].rsplit(" · ", 1)[0] + " …"
    return title, page.description or f"A picture of: {words}"


def _fix_widths(root: ElementTree.Element) -> None:
    """Each text as wide as it was measured, whichever font a reader's computer has instead of ours."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.ft2font import LoadFlags

    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    known, widths = font.get_charmap(), dict[str, float]()
    font.set_size(100.0, 72)
    for node in root.iter(f"{{{SVG}}}text"):
        node.set("style", node.get("style", "").replace(f"font-family: {OURS}; ", ""))
        if node.get("transform", "").startswith("rotate(-0 "):
            del node.attrib["transform"]
        text, size = node.text or "", re.search(r"([\d.]+)px", node.get("style", ""))
        if len(text) < 2 or size is None or "bold" in node.get("style", "") or any(ord(c) not in known for c in text):
            continue
        for char in text:
            if char not in widths:
                glyph = font.load_char(ord(char), flags=LoadFlags.NO_HINTING)
                widths[char] = glyph.linearHoriAdvance / 65536 / 100
        node.set("textLength", f"{sum(widths[char] for char in text) * float(size[1]):.2f}")
        node.set("lengthAdjust", "spacingAndGlyphs")


# ---------------------------------------------------------------------------------------------------------------------
# Pages


PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>body {{ margin: 1rem; background: {paper}; font-family: sans-serif }}</style>
{svg}
</html>
"""


def _html_page(page: Any, name: str, dpi: int) -> str:
    """The picture as a page of its own, which loads nothing and needs no scripts."""
    title = page.get_label() or visible(name)
    svg = inline_svg(_svg(page, name, dpi), title, "picture")
    return PAGE.format(title=html.escape(title), svg=svg, paper=paper())


def _named_in(svg: str) -> set[str]:
    """The ids that something refers to."""
    return set(re.findall(r"""(?:url\(|href=["'])#([^)"']+)""", svg))


def inline_svg(svg: str, title: str, name: str) -> str:
    """An SVG file as part of a page: all its ids begin with `name`, and its style stays inside."""
    root = ElementTree.fromstring(svg)
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]  # a page knows what belongs to SVG
        if node.tag == "style":
            node.text = f"#{name} {(node.text or '').strip()}"
        for key, value in list(node.attrib.items()):
            del node.attrib[key]
            key = key.rpartition("}")[2]
            if key == "id":
                value = f"{name}-{value}"
            elif value.startswith("#") and key == "href":
                value = f"#{name}-{value[1:]}"
            node.set(key, value.replace("url(#", f"url(#{name}-"))
    root.attrib |= {"id": name, "role": "figure", "aria-label": title, "style": "max-width: 100%; height: auto"}
    return ElementTree.tostring(root, encoding="unicode").strip()


def html_of(draw: Callable[[Path], Any], text: Callable[[], str], title: str) -> str:
    """What a notebook shows: the picture that `draw` writes into a file, or where that is not possible the text."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "picture.svg"
            draw(path)
            return inline_svg(path.read_text(encoding="utf-8"), title, f"picture-{secrets.token_hex(4)}")
    except UserError:  # no matplotlib
        return f"<pre>{html.escape(text())}</pre>"

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from seqloom.errors import UserError
from seqloom.inspection.terminal import char_width, display_width, visible

SUFFIXES = (".svg", ".png", ".pdf", ".html")

# Colours. Lines follow Okabe & Ito (2008); those of values are in `terminal`.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a6a00", "#56b4e9", "#e69f00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, FAINT, RULE, OUTLINE = "#222222", "#6b6b6b", "#d9dde2", "#aab2bb"

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

        return Figure(figsize=(width, height), dpi=DPI, facecolor="white")


def axes_at(page: Any, left: float, bottom: float, width: float, height: float, *, frame: bool = False) -> Any:
    """Axes at a place given in inches, bare unless a frame is wanted."""
    page_width, page_height = page.get_size_inches()
    axes = page.add_axes((left / page_width, bottom / page_height, width / page_width, height / page_height))
    for side, spine in axes.spines.items():
        spine.set_visible(frame and side in ("left", "bottom"))
        spine.set_color(RULE)
    return axes


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
        "savefig.facecolor": "white",
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
    kind = target.suffix.lower()[1:]
    aside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        if kind == "html":
            aside.write_text(_html_page(page, target.stem, dpi), encoding="utf-8")
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
# Pages


PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>body {{ margin: 1rem; background: white; font-family: sans-serif }}</style>
{svg}
</html>
"""


def _html_page(page: Any, name: str, dpi: int) -> str:
    """The picture as a page of its own, which loads nothing and needs no scripts."""
    drawn = io.StringIO()
    _write(page, drawn, "svg", dpi)
    title = page.get_label() or visible(name)
    return PAGE.format(title=html.escape(title), svg=inline_svg(drawn.getvalue(), title, "picture"))


def inline_svg(svg: str, title: str, name: str) -> str:
    """An SVG file as part of a page: all its ids begin with `name`, and its style stays inside."""
    root = ElementTree.fromstring(svg)
    for parent in root.iter():
        for child in list(parent):
            if child.tag.endswith("}metadata"):
                parent.remove(child)
    used = set(re.findall(r"""(?:url\(|href=["'])#([^)"']+)""", svg))
    for node in root.iter():
        if node.get("id") not in used:  # matplotlib names everything, some of it twice
            node.attrib.pop("id", None)
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

"""Every view of every kind of model as a picture: files that open, pages that load nothing, text without matplotlib."""

from __future__ import annotations

import html
import json
import random
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import tiny_recipe
from seqloom.answers import Answer
from seqloom.errors import UserError
from seqloom.inspection.curves import Curve, draw_curves
from seqloom.inspection.hovering import hovering_words
from seqloom.inspection.page import SUFFIXES, inline_svg
from seqloom.inspection.theme import COUNTERPARTS, INK, PAPER
from seqloom.inspection.trace import Trace
from seqloom.inspection.view import Picture
from seqloom.inspection.views import VIEWS, find_view, views_of

TEXT = "the green witch arrived"
REVIEW = "a <b>great</b> story & a dull plot"
RECALL = "A b c ? A"

ASKED: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "attention": ("transformer", [TEXT], {}),
    "beam": ("recurrent", [TEXT], {"width": 2, "length": 4}),
    "confusion": ("classifier", [], {"most": 2}),
    "contexts": ("transformer_lm", ["b", "A b c", "D b e", "b b c"], {"layer": 1}),
    "forcing": ("recurrent", [TEXT], {"target": "la bruja"}),
    "forecast": ("forecaster", [], {}),
    "gates": ("recurrent", [TEXT], {"side": "decoder", "units": "4"}),
    "gradients": ("recurrent_lm", [RECALL], {"steps": 3}),
    "heads": ("transformer", [], {"sentences": 3}),
    "hierarchy": ("hierarchical_classifier", [REVIEW + ". the end!"], {}),
    "lengths": ("recurrent", [], {"test": "test"}),
    "neighbours": ("vectors", ["paris", "oslo"], {"count": 3}),
    "next": ("recurrent_lm", ["A b"], {"count": 4}),
    "onehot": ("vectors", ["paris oslo", "rome paris"], {"dimensions": 3}),
    "pca": ("vectors", ["countries"], {}),
    "positions": ("transformer", [], {"count": 5}),
    "projection": ("vectors", ["rome"], {"colours": "frequency"}),
    "reliability": ("recurrent_classifier", [], {"bins": 5}),
    "saliency": ("last_classifier", [REVIEW], {"method": "occlusion"}),
    "softmax": ("cbow", ["paris _ oslo"], {"count": 3}),
    "states": ("recurrent", [TEXT], {"units": 3}),
    "tags": ("tagger", ["anna visits old paris"], {}),
    "tokens": ("bpe_lm", ["A b c"], {}),
    "transitions": ("tagger", [], {"most": 3}),
    "windows": ("vectors", ["paris oslo rome"], {"window": 1, "count": 2}),
    "words": ("classifier", [REVIEW], {}),
}
"""View -> whom to ask, about what, with which options."""

OF_CLASSIFIERS = ["confusion", "reliability", "saliency"]
HAS = {
    "recurrent": ["attention", "beam", "forcing", "gates", "lengths", "next", "states", "tokens"],
    "without_attention": ["beam", "forcing", "gates", "lengths", "next", "states", "tokens"],
    "transformer": ["attention", "beam", "forcing", "heads", "lengths", "next", "positions", "tokens"],
    "classifier": [*OF_CLASSIFIERS, "tokens", "words"],
    "recurrent_classifier": ["confusion", "gates", "reliability", "saliency", "states", "tokens", "words"],
    "last_classifier": ["confusion", "gates", "reliability", "saliency", "states", "tokens", "words"],
    "transformer_classifier": ["attention", "confusion", "positions", "reliability", "saliency", "tokens", "words"],
    "hierarchical_classifier": ["confusion", "hierarchy", "reliability", "saliency", "tokens"],
    "forecaster": ["forecast"],
    "recurrent_lm": ["beam", "contexts", "gates", "gradients", "next", "states", "tokens"],
    "bpe_lm": ["beam", "contexts", "gates", "gradients", "next", "states", "tokens"],
    "transformer_lm": ["attention", "beam", "contexts", "gradients", "next", "positions", "tokens"],
    "feed_forward_lm": ["beam", "gradients", "next", "tokens"],
    "ngram_lm": ["beam", "next", "tokens"],
    "masked_lm": ["contexts", "positions", "tokens"],
    "tagger": ["gates", "states", "tags", "transitions"],
    "cbow": ["neighbours", "onehot", "pca", "projection", "softmax", "windows"],
    "vectors": ["neighbours", "onehot", "pca", "projection", "windows"],
}
"""Model -> its views."""


def recipes(folder: Path) -> dict[str, dict[str, Any]]:
    """One of each kind, which learns nothing in two steps."""
    draw = random.Random(3)
    for name in ("train", "valid"):
        rows = [draw.choices(["a", "great", "dull", "story", "film", "plot", "the", "was"], k=5) for _ in range(30)]
        lines = [f"{' '.join(row)}\t{draw.choice(['good', 'bad', 'so so'])}" for row in rows]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    places = ["athens", "greece", "oslo", "norway", "paris", "france", "rome", "italy", "madrid", "spain"]
    (folder / "places.txt").write_text("".join(" ".join(draw.choices(places, k=8)) + "\n" for _ in range(100)))
    (folder / "pairs.txt").write_text(": countries\nathens greece oslo norway\nparis france rome italy\n")
    names = ["anna B-PER", "ben B-PER", "visits O", "old B-LOC", "paris I-LOC", "rome B-LOC"]
    tagged = ["\n".join(draw.choices(names, k=4)) + "\n\n" for _ in range(30)]
    (folder / "tagged.conll").write_text("".join(tagged))
    translate = tiny_recipe(steps=2, validate_every=2, checkpoint_every=2, average=1)
    training = {"steps": 2, "validate_every": 2, "batch_tokens": 200}
    classify = {
        "task": "classify",
        "data": {name: {"file": str(folder / f"{name}.tsv")} for name in ("train", "valid")},
        "training": training,
    }
    language = {
        "task": "model_language",
        "data": {"train": {"text": "recall:4/train", "limit": 60}, "valid": {"text": "recall:4/valid", "limit": 20}},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "training": {**training, "batching": "sentences"},
    }
    small = {"size": 8, "num_heads": 2, "feed_forward_size": 8}
    recurrent = {"kind": "recurrent", "embedding_size": 5, "hidden_size": 6}
    counted = {key: value for key, value in language.items() if key != "training"}
    return {
        "recurrent": translate,
        "without_attention": {**translate, "model": {**translate["model"], "decoder": "state"}},
        "transformer": {
            **translate,
            "model": {"kind": "transformer_translator", **small, "encoder_layers": 1, "decoder_layers": 2},
        },
        "classifier": {**classify, "model": {"kind": "classifier", "encoder": {"kind": "embeddings", "size": 5}}},
        "recurrent_classifier": {
            **classify,
            "model": {"kind": "classifier", "encoder": {**recurrent, "cell": "lstm"}, "pooling": "max"},
        },
        "forecaster": {
            "task": "forecast",
            "data": {
                name: {"series": "made:seasons", "rows": rows}
                for name, rows in (("train", [0, 60]), ("valid", [60, 90]))
            },
            "forecast": {"history": 8, "horizon": 3},
            "model": {"kind": "linear_forecaster"},
            "training": {"steps": 2, "validate_every": 2, "batch_windows": 5},
        },
        "hierarchical_classifier": {
            **classify,
            "model": {
                "kind": "hierarchical_classifier",
                "embedding_size": 5,
                "word_size": 6,
                "sentence_size": 6,
            },
        },
        "last_classifier": {**classify, "model": {"kind": "classifier", "encoder": recurrent, "pooling": "last"}},
        "transformer_classifier": {
            **classify,
            "model": {
                "kind": "classifier",
                "encoder": {"kind": "transformer", **small, "num_layers": 1},
                "pooling": "sum",
            },
        },
        "recurrent_lm": {**language, "model": {"kind": "recurrent_lm", "size": 6, "hidden_size": 7}},
        "transformer_lm": {**language, "model": {"kind": "transformer_lm", **small, "num_layers": 2, "context": 30}},
        "feed_forward_lm": {**language, "model": {"kind": "feed_forward_lm", "size": 6, "hidden_size": 7, "window": 3}},
        "ngram_lm": {**counted, "model": {"kind": "ngram_lm", "order": 2}},
        "masked_lm": {
            **language,
            "task": "model_masked_language",
            "model": {"kind": "masked_lm", **small, "num_layers": 1, "context": 30},
        },
        "tagger": {
            "task": "tag",
            "data": {name: {"file": str(folder / "tagged.conll")} for name in ("train", "valid")},
            "model": {"kind": "tagger", "encoder": recurrent},
            "training": training,
        },
        "bpe_lm": {
            **language,
            "text": {"tokenizer": "bpe", "vocabulary_size": 40},
            "model": {"kind": "recurrent_lm", "size": 6, "hidden_size": 7},
        },
        "cbow": {
            "task": "embed",
            "data": {"train": {"text": str(folder / "places.txt")}},
            "text": {"min_count": 1},
            "model": {"kind": "cbow", "size": 4, "window": 2, "objective": "softmax"},
            "training": {"epochs": 1},
        },
        "vectors": {
            "task": "embed",
            "data": {"train": {"text": str(folder / "places.txt")}, "test": {"pairs": str(folder / "pairs.txt")}},
            "text": {"min_count": 1},
            "model": {"kind": "ppmi", "size": 6},
        },
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    import seqloom

    folder = tmp_path_factory.mktemp("pictures")
    return {name: seqloom.train(recipe, folder / "runs" / name) for name, recipe in recipes(folder).items()}


@pytest.fixture(scope="module")
def pictures(models: dict[str, Any]) -> dict[str, Picture]:
    return {view: models[name].look(view, *inputs, **options) for view, (name, inputs, options) in ASKED.items()}


def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)


# -- files ------------------------------------------------------------------------------------------------------------


def opens(path: Path) -> None:
    """Whether a file is what its name says."""
    match path.suffix:
        case ".svg":
            assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        case ".png":
            image = pytest.importorskip("PIL.Image").open(path)
            image.load()
            assert min(image.size) > 100
        case ".pdf":
            data = path.read_bytes()
            assert data.startswith(b"%PDF-")
            assert data.rstrip().endswith(b"%%EOF")
        case ".html":
            is_page(path.read_text(encoding="utf-8"))


def is_page(page: str) -> None:
    """A page with an inline picture that loads nothing and runs nothing."""
    assert page.startswith("<!doctype html>")
    assert re.search("<title>[^<]+</title>", page)
    assert "://" not in page
    assert "<script" not in page
    assert not re.search(r"\bon[a-z]+=", page)
    assert all(place.startswith(("data:", "#")) for place in re.findall('(?:href|src)="([^"]*)"', page))
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</html>")])
    refers_to_itself(svg)
    assert any("".join(node.itertext()).strip() for node in svg.iter("text"))


def refers_to_itself(svg: ElementTree.Element) -> set[str]:
    """The ids of a picture; each is there once, and no place names another."""
    ids = [node.attrib["id"] for node in svg.iter() if "id" in node.attrib]
    assert len(set(ids)) == len(ids)
    values = [value for node in svg.iter() for value in node.attrib.values()]
    named = {name for value in values for name in re.findall(r"url\(#([^)]*)\)", value)}
    named |= {
        value[1:] for node in svg.iter() for key, value in node.attrib.items() if key == "href" and value[0] == "#"
    }
    assert named <= set(ids)
    return set(ids)


def test_every_view_is_asked() -> None:
    assert set(ASKED) == set(VIEWS)
    assert {view for views in HAS.values() for view in views} == set(VIEWS)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_writes_every_kind_of_file(
    view: str, suffix: str, pictures: dict[str, Picture], tmp_path: Path
) -> None:
    written = pictures[view].save(tmp_path / f"a{suffix}")
    opens(written)
    again = pictures[view].save(tmp_path / f"b{suffix}")
    assert written.read_bytes() == again.read_bytes(), "equal pictures, equal files"


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_for_a_dark_page(
    view: str, models: dict[str, Any], pictures: dict[str, Picture], tmp_path: Path
) -> None:
    name, inputs, options = ASKED[view]
    dark = models[name].look(view, *inputs, theme="dark", **options)
    assert dark.theme == "dark"
    for suffix in SUFFIXES:
        opens(dark.save(tmp_path / f"a{suffix}"))
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert COUNTERPARTS[PAPER] in drawn
    assert f"fill: {INK}" not in drawn, "dark letters cannot be read on a dark page"
    assert f"background: {COUNTERPARTS[PAPER]}" in (tmp_path / "a.html").read_text(encoding="utf-8")
    light = (pictures[view].save(tmp_path / "b.svg")).read_text(encoding="utf-8")
    assert light.count("<text") == drawn.count("<text")


@pytest.mark.parametrize("view", VIEWS)
def test_every_drawing_has_a_title_and_a_description(view: str, pictures: dict[str, Picture], tmp_path: Path) -> None:
    root = ElementTree.parse(pictures[view].save(tmp_path / "a.svg")).getroot()
    title, description = (root.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc"))
    assert title
    assert description
    assert root.attrib["role"] == "img"
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert any("textLength" in node.attrib for node in texts)
    assert all(float(node.attrib.get("textLength", "1")) > 0 for node in texts)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_learning_curves_take_the_same_kinds_of_files(suffix: str, tmp_path: Path) -> None:
    curves = [Curve("one <&> only", [(0.0, 1.0), (2.0, 3.0)])]
    opens(Path(draw_curves(curves, tmp_path / f"a{suffix}", measured="BLEU", title="<i>curves</i>")))


def test_what_a_text_holds_stays_text_in_a_page(models: dict[str, Any], tmp_path: Path) -> None:
    text = "<script>alert(1)</script> \x07 &amp; \"q\" onload='x'"
    page = models["classifier"].look("words", text).save(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<script" not in page
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</html>")])
    assert len(list(svg.iter("script"))) == 0


def test_many_points_are_one_picture_inside_the_page(tmp_path: Path) -> None:
    from seqloom.inspection.projection import draw_projection
    from seqloom.vectors.table import WordVectors

    words = [f"w{i}" for i in range(2500)]
    vectors = WordVectors(words, np.random.default_rng(1).normal(size=(2500, 4)).astype(np.float32))
    page = Path(draw_projection(vectors, tmp_path / "a.html", most=2500)).read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    is_page(page)


def test_two_pictures_on_one_page_do_not_meet(pictures: dict[str, Picture]) -> None:
    drawn = [pictures[view]._repr_html_() for view in ("gates", "pca", "gates")]
    ids = [refers_to_itself(ElementTree.fromstring(svg)) for svg in drawn]
    assert all(own for own in ids)
    assert len(set.union(*ids)) == sum(map(len, ids))
    for svg, own in zip(drawn, ids, strict=True):
        style = re.findall(r"<style[^>]*>([^<]*)</style>", svg)
        assert style
        assert all(any(rule.startswith(f"#{name} ") for name in own) for rule in style), "its style is its own"


def test_an_inline_picture_says_what_the_file_says(pictures: dict[str, Picture], tmp_path: Path) -> None:
    for picture in pictures.values():
        svg = picture.save(tmp_path / "a.svg").read_text(encoding="utf-8")
        inline = ElementTree.fromstring(inline_svg(svg, "a title", "one"))
        texts = [node.text for node in inline.iter("text")]
        assert texts == [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
        assert inline.attrib["aria-label"] == "a title"


# -- text and values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_text_needs_no_matplotlib(
    view: str, models: dict[str, Any], pictures: dict[str, Picture], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = pictures[view].to_text(colour=False, width=80)
    without_matplotlib(monkeypatch)
    name, inputs, options = ASKED[view]
    picture = models[name].look(view, *inputs, **options)
    text = picture.to_text(colour=False, width=80)
    assert text == expected
    assert "\x1b" not in text
    with pytest.raises(UserError, match=r"^drawing needs matplotlib: pip install 'seqloom\[plots\]'$"):
        picture.save(tmp_path / "a.png")
    shown = picture._repr_html_()
    assert shown.startswith("<pre>")
    assert "<b>" not in shown


@pytest.mark.parametrize("view", VIEWS)
def test_values_are_json(view: str, pictures: dict[str, Picture]) -> None:
    values = json.loads(json.dumps(pictures[view].to_dict(), allow_nan=False))
    assert values["title"] == pictures[view].title
    assert len(values) > 1


def test_where_a_picture_cannot_be_written(pictures: dict[str, Picture], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must end in"):
        pictures["gates"].save(tmp_path / "a.gif")
    with pytest.raises(UserError, match="does not exist"):
        pictures["gates"].save(tmp_path / "nowhere" / "a.html")


# -- which model has which view ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HAS)
def test_a_model_names_the_views_it_has(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    assert views_of(model) == HAS[name]
    for view in set(VIEWS) - set(HAS[name]):
        inputs = ASKED[view][1]
        with pytest.raises(UserError) as error:
            model.look(view, *inputs)
        reason, _, listed = str(error.value).partition("; its views: ")
        assert listed.partition("; ")[0] == (", ".join(HAS[name]) or "none")
        assert listed.endswith(f"; a model that has {view}: seqloom train {VIEWS[view].recipe}")
        assert reason.startswith(f"{model.folder}: ")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", HAS)
def test_a_view_that_a_model_says_it_has_can_be_seen(name: str, models: dict[str, Any]) -> None:
    text = RECALL if name.endswith("_lm") else TEXT
    for view in HAS[name]:
        if view == "pca" and name == "cbow":
            continue  # its recipe names no analogy file
        inputs = (
            [text]
            if ASKED[view][1] and VIEWS[view].most == 1 and ASKED[view][0] not in ("cbow", "vectors")
            else ASKED[view][1]
        )
        options = {} if view in ("gates", "states") else ASKED[view][2]
        assert models[name].look(view, *inputs, **options).to_text(colour=False, width=80)


def test_mistakes_are_the_same_sentence_in_python(models: dict[str, Any]) -> None:
    model = models["transformer"]
    for message, call in {
        r"view must be one of attention, .*; got 'atention' \(did you mean 'attention'\?\)": lambda: find_view(
            "atention"
        ),
        "head picks one head of one layer": lambda: model.look("attention", TEXT, head=0),
        r"look attention: hed is not a setting \(did you mean 'head'\?\)": lambda: model.look("attention", TEXT, hed=0),
        "one text in quotes, such as .*; got 2": lambda: model.look("attention", "the", "witch"),
        "there is no layer 5": lambda: model.look("attention", TEXT, layer=5),
        "no head 7": lambda: model.look("attention", TEXT, layer=0, head=7),
        "label must be one of bad, good, so so; got 'god'": lambda: models["classifier"].look(
            "words", "a", label="god"
        ),
        "models of one name": lambda: model.look("lengths", compare=(str(model.folder),)),
        "not for word vectors|are not texts": lambda: model.look("lengths", compare=(str(models["vectors"].folder),)),
        "gradients are measured on one text": lambda: models["recurrent_lm"].look("gradients", RECALL, test="valid"),
    }.items():
        with pytest.raises(UserError, match=message):
            call()


# -- what is right about it -------------------------------------------------------------------------------------------


CLASSIFIERS = [name for name, views in HAS.items() if "words" in views]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_contributions_add_up_to_what_the_model_says(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    answer = model("a great story the plot was dull")
    found = {label: model.look("words", answer.source, label=label).to_dict() for label in answer.probabilities}
    for one in found.values():
        assert sum(one["contributions"]) + one["bias"] == pytest.approx(one["logit"])
    logits = np.array([found[label]["logit"] for label in answer.probabilities])
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert shares == pytest.approx(list(answer.probabilities.values()), abs=1e-6)
    assert model.look("words", answer.source).to_dict()["label"] == answer.label


def test_one_vector_that_has_read_the_others_is_pointed_out(models: dict[str, Any]) -> None:
    (note,) = models["last_classifier"].look("words", "a great story").notes
    assert "all comes from '<eos>'" in note
    assert models["classifier"].look("words", "a great story").notes == []


def test_unknown_words_of_contexts_are_noted(models: dict[str, Any]) -> None:
    notes = models["transformer_lm"].look("contexts", "zebra", "A zebra c", "D zebra").notes
    assert [note.split(":")[0] for note in notes] == ["text 1", "text 2"]


# -- notebooks --------------------------------------------------------------------------------------------------------


def test_an_answer_shows_its_text_and_where_the_model_looked(models: dict[str, Any]) -> None:
    answer = models["recurrent"](TEXT, n_best=2, beam_size=2)
    shown = answer._repr_html_()
    assert shown.count('<div id="alignment-') == 1
    assert f"<b>{answer.text}</b>" in shown
    assert answer.alternatives[0].text in shown
    plain = models["without_attention"](TEXT)._repr_html_()
    assert "alignment" not in plain
    assert models["without_attention"](TEXT).text in plain


def test_words_darken_where_the_model_looked_and_two_answers_do_not_meet(models: dict[str, Any]) -> None:
    answer = models["recurrent"](TEXT)
    weights = answer.trace.alignment
    first, second = answer._repr_html_(), answer._repr_html_()
    ids = [re.findall(r'id="([^"]+)"', shown) for shown in (first, second)]
    assert [len(found) for found in ids] == [1, 1]
    assert ids[0] != ids[1]
    for rule in re.findall(r"^#.*}$", first, re.MULTILINE):
        assert all(part.startswith(f"#{ids[0][0]}") for part in rule.split("{")[0].split(",")), "its style stays inside"
    for row, values in enumerate(weights.values):
        (dark,) = re.findall(rf":has\(\.r{row}:focus\){{(.*)}}$", first, re.MULTILINE)
        shown = {int(k): float(w) for k, w in re.findall(r"--c(\d+):([\d.]+)", dark)}
        assert shown == {k: pytest.approx(w, abs=0.006) for k, w in enumerate(values) if w >= 0.02}
    words = re.findall(r'<span class="[rc]\d+(?: continued)?"[^>]*>(.*?)</span>', first)
    assert [html.unescape(word) for word in words] == [w.removeprefix("·") for w in (*weights.rows, *weights.columns)]
    assert "<script" not in first


def test_words_of_a_stranger_stay_words() -> None:
    shown = hovering_words(np.array([[1.0]]), ["<b>"], ['"><script>'])
    assert "<script" not in shown
    assert "&lt;b&gt;" in shown
    assert "&quot;&gt;&lt;script&gt; 1.00" in shown


def test_a_label_shows_its_bars_and_a_model_its_card(models: dict[str, Any]) -> None:
    answer = models["classifier"](TEXT)
    shown = answer._repr_html_()
    assert shown.startswith(f"<p><b>{answer.label}</b></p>")
    assert f"<td>{100 * answer.probability:.1f} %</td>" in shown
    card = models["classifier"]._repr_html_()
    for cell in ("trained on", "evaluate, predict, trace"):
        assert f">{cell}</t" in card
    assert card.count("<tr>") > 5


class Silent:
    """An engine that shows nothing of how it came to an answer."""

    def sums(self) -> tuple[float, float]:
        return -1.0, -2.0

    def labels(self) -> list[str]:
        return []

    def log_probs(self) -> list[float]:
        return []

    def trace(self) -> Any:
        raise UserError("this engine shows no attention")

    def warnings(self) -> list[str]:
        return []


def test_an_answer_without_a_trace_is_its_text() -> None:
    answer = Answer("a", "<b> & c", True, Silent(), [Answer("a", "<i>", True, Silent())])
    assert answer._repr_html_() == "<p><b>&lt;b&gt; &amp; c</b></p><ol start='2'><li>&lt;i&gt; (-1.000)</li></ol>"


def test_a_trace_lists_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace({"source": ["<a>", "b"], "target": ["c"]})
    trace.add("decoder.attention", [[0.25, 0.75]], rows="target", columns="source")
    trace.add("encoder.0.hidden", np.zeros((2, 3)), rows="source")
    shown = trace._repr_html_()
    assert "<code>encoder.0.hidden</code></td><td>source 2, unit 3</td>" in shown
    assert "<b>source</b> &lt;a&gt; b" in shown
    assert shown.count("<svg") == 1
    without_matplotlib(monkeypatch)
    assert "<svg" not in trace._repr_html_()
    assert trace["decoder.attention"]._repr_html_().startswith("<pre>")

"""Spans in tags: by hand, beside seqeval, and from one scheme to the other and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.evaluation.spans import (
    Scheme,
    Span,
    are_spans,
    follows,
    from_bioes,
    scheme_of,
    spans_of,
    to_bio,
    to_bioes,
)

TAGS = st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y", "I-a-b"]), max_size=9)


@st.composite
def legal(draw: st.DrawFn) -> list[str]:
    """Spans one after the other, as B, I and O."""
    found: list[str] = []
    for label, length in draw(st.lists(st.tuples(st.sampled_from(["", "-x", "-a-b"]), st.integers(0, 3)), max_size=5)):
        found += ["B" + label, *["I" + label] * (length - 1)] if length else ["O"]
    return found


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O B-x I-x O B-y", [Span("x", 1, 3), Span("y", 4, 5)]),
        ("B-x B-x I-y", [Span("x", 0, 1), Span("x", 1, 2), Span("y", 2, 3)]),
        ("I-x I-x O I-y", [Span("x", 0, 2), Span("y", 3, 4)]),
        ("B-x I-x E-x S-x S-y", [Span("x", 0, 3), Span("x", 3, 4), Span("y", 4, 5)]),
        ("B-x E-x I-x", [Span("x", 0, 2), Span("x", 2, 3)]),
        ("B I O B", [Span("span", 0, 2), Span("span", 3, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans_by_hand(tags: str, spans: list[Span]) -> None:
    assert spans_of(tags.split()) == spans


@given(TAGS)
def test_spans_are_those_of_seqeval(tags: list[str]) -> None:
    """Which reads tags as conlleval does; its ends are in the span."""
    entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    # seqeval takes what follows the last hyphen for the label
    tags = [tag.replace("a-b", "z") for tag in tags]
    assert [(one.label, one.start, one.end - 1) for one in spans_of(tags)] == entities(tags)


@given(legal())
def test_there_and_back(tags: list[str]) -> None:
    marked = to_bioes(tags)
    assert from_bioes(marked) == tags
    assert spans_of(marked) == spans_of(tags)
    assert to_bioes(marked) == marked
    assert to_bio(marked) == to_bio(tags) == tags


@given(TAGS)
def test_any_tags_keep_their_spans(tags: list[str]) -> None:
    assert spans_of(to_bioes(tags)) == spans_of(tags)
    assert spans_of(to_bio(tags)) == spans_of(tags)
    assert len(to_bioes(tags)) == len(tags)


@given(legal())
def test_legal_tags_are_followed(tags: list[str]) -> None:
    """Every move of sound tags is allowed, in both schemes."""
    for scheme, found in (("bio", tags), ("bioes", to_bioes(tags))):
        assert all(follows(a, b, scheme) for a, b in zip([None, *found], [*found, None], strict=True))  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["O", "B-x", "I-x", "E-x", "S-x", "I-y", "E-y"]), max_size=6), st.booleans())
def test_what_is_followed_is_sound(tags: list[str], ends: bool) -> None:
    """Tags whose every move is allowed are their own conversion; others are not."""
    scheme: Scheme = "bioes" if ends else "bio"
    if scheme == "bio":
        tags = from_bioes(tags)
    moves = all(follows(a, b, scheme) for a, b in zip([None, *tags], [*tags, None], strict=True))
    assert moves == ((to_bioes(tags) if ends else to_bio(tags)) == tags)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["O B-x I-x"], "bio"),
        (["B I O"], "bio"),
        (["I-x I-x O", "I-y O", "I-x B-x"], "inside"),
        (["B-x I-x", "I-x O", "B-x"], "bio"),  # one slip among sound ones
        (["O S-x B-x E-x"], "bioes"),
        (["NOUN VERB"], "none"),
        (["B C"], "none"),
        (["O X"], "none"),
        (["O O"], "none"),
    ],
)
def test_the_scheme_of_some_data(tags: list[str], scheme: Scheme) -> None:
    sequences = [one.split() for one in tags]
    assert scheme_of(sequences) == scheme
    assert are_spans({tag for one in sequences for tag in one}) == (scheme != "none")

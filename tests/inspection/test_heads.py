"""Attention heads: the formulas by hand, the tables, the pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.inspection.attention import draw_all_heads, draw_attention, draw_head
from seqloom.inspection.heads import (
    SITES,
    HeadMeasures,
    HeadName,
    HeadTally,
    distance,
    divergence,
    draw_heads,
    entropy,
    head_arrays,
    offsets,
    profile,
    share_at,
)
from seqloom.inspection.trace import Trace


def svg_texts(path: str | Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def causal(random: np.random.Generator, num_heads: int, size: int) -> np.ndarray:
    weights = np.tril(random.random((num_heads, size, size)) + 0.01)
    return weights / weights.sum(-1, keepdims=True)


def heads_trace(layers: int = 2, num_heads: int = 3, source: int = 5, target: int = 4, word: str = "w") -> Trace:
    """What a Transformer with random weights would show; lengths count the end symbol."""
    random = np.random.default_rng(11)
    spoken = [f"{word}{i}" for i in range(target - 1)]
    labels = {"source": [f"s{i}" for i in range(source - 1)] + ["<eos>"]}
    trace = Trace({**labels, "target": [*spoken, "<eos>"], "target_in": ["<bos>", *spoken]})
    for layer in range(layers):
        own = random.dirichlet(np.ones(source), (num_heads, source))
        trace.add(f"encoder.{layer}.self", own, axes=("head", "source", "source"))
        trace.add(f"decoder.{layer}.self", causal(random, num_heads, target), axes=("head", "target", "target_in"))
        across = random.dirichlet(np.ones(source), (num_heads, target))
        trace.add(f"decoder.{layer}.cross", across, axes=("head", "target", "source"))
    trace.add("decoder.attention", across.mean(0), rows="target", columns="source")
    return trace


distributions = st.integers(1, 12).flatmap(
    lambda size: st.lists(st.floats(0.0, 1.0), min_size=size, max_size=size).filter(lambda row: sum(row) > 1e-3)
)


# -- formulas ---------------------------------------------------------------------------------------------------------


def test_entropy_by_hand() -> None:
    np.testing.assert_allclose(entropy([[0.5, 0.25, 0.25, 0.0], [1, 0, 0, 0]]), [1.5, 0.0])
    assert not np.signbit(entropy([1.0, 0.0]))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_uniform_attention_has_log_n_bits(size: int) -> None:
    np.testing.assert_allclose(entropy(np.full((2, size), 1 / size)), np.log2(size), atol=1e-12)


@given(distributions)
def test_entropy_lies_between_one_symbol_and_all(row: list[float]) -> None:
    weights = np.array(row) / sum(row)
    assert -1e-9 <= entropy(weights) <= np.log2(len(row)) + 1e-9
    np.testing.assert_allclose(entropy(weights), entropy(weights[::-1]), atol=1e-12)


def test_offsets_of_self_attention_are_steps() -> None:
    np.testing.assert_array_equal(offsets(3, 3), [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]])


def test_offsets_of_cross_attention_follow_the_diagonal() -> None:
    # Two queries share four keys: the first's own place lies between keys 0 and 1, the second's between 2 and 3.
    np.testing.assert_allclose(offsets(2, 4), [[-0.5, 0.5, 1.5, 2.5], [-2.5, -1.5, -0.5, 0.5]])
    np.testing.assert_allclose(offsets(1, 3), [[-1, 0, 1]])


@given(st.integers(1, 20), st.integers(1, 20))
def test_offsets_are_the_same_from_both_ends(num_queries: int, num_keys: int) -> None:
    np.testing.assert_allclose(offsets(num_queries, num_keys), -offsets(num_queries, num_keys)[::-1, ::-1], atol=1e-9)


def test_distance_by_hand() -> None:
    weights = [[1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.25, 0.25, 0.5]]
    np.testing.assert_allclose(distance(weights), [0.0, 1.0, 0.75])
    np.testing.assert_allclose(distance([[0.0, 1.0]]), [0.5])


def test_shares_of_neighbours_by_hand() -> None:
    weights = np.array([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [0.0, 0.4, 0.6]])
    np.testing.assert_allclose(share_at(weights, 0), [0.1, 0.3, 0.6])
    np.testing.assert_allclose(share_at(weights, -1), [np.nan, 0.2, 0.4])
    np.testing.assert_allclose(share_at(weights, 1), [0.9, 0.5, np.nan])
    assert np.isnan(share_at([[1.0]], -1)).all()


def test_profile_by_hand() -> None:
    weights = np.array([[0.1, 0.9, 0.0], [0.2, 0.3, 0.5], [0.6, 0.4, 0.0]])
    np.testing.assert_allclose(profile(weights, 1), [(0.2 + 1.0) / 3, (0.1 + 0.3 + 0.0) / 3, (0.9 + 0.5) / 3])
    np.testing.assert_allclose(profile(weights, 2)[0], 0.6 / 3)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_profiles_add_up_to_one(num_queries: int, num_keys: int, reach: int) -> None:
    weights = np.random.default_rng(num_queries).dirichlet(np.ones(num_keys), (2, num_queries))
    np.testing.assert_allclose(profile(weights, reach).sum(-1), 1.0)


def test_divergence_by_hand() -> None:
    p, q = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    np.testing.assert_allclose(divergence(p, q), [0.5 * np.log2(0.5 / 0.25) + 0.5 * np.log2(0.5 / 0.75)])
    with np.errstate(divide="ignore"):
        never = np.log([1.0, 0.0])
    np.testing.assert_allclose(divergence(never, np.log([0.5, 0.5])), 1.0)
    assert divergence(np.log([0.5, 0.5]), never) == np.inf


@given(st.integers(2, 30), st.integers(0, 1000))
def test_divergence_is_never_negative(size: int, seed: int) -> None:
    p, q = np.log(np.random.default_rng(seed).dirichlet(np.ones(size), 2) + 1e-12).astype(np.float32)
    assert divergence(p, q) >= 0
    assert divergence(p, p) == 0


# -- measures ---------------------------------------------------------------------------------------------------------


def test_what_a_causal_head_cannot_see_is_no_weight_at_all() -> None:
    trace = heads_trace()
    view = head_arrays(trace, "decoder")[1]
    assert np.isnan(view.values[:, *np.triu_indices(4, 1)]).all()
    np.testing.assert_allclose(np.nansum(view.values, -1), 1.0)
    assert not np.isnan(trace["decoder.1.self"].values).any(), "the trace keeps what it was given"


def test_a_tally_takes_means_over_all_symbols() -> None:
    tally = HeadTally()
    for weights in ([[[1.0, 0.0], [0.5, 0.5]]], [[[1.0]]]):
        trace = Trace()
        trace.add("encoder.0.self", weights, axes=("head", "source", "source"))
        tally.look(trace)
    half, most = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    tally.silence(("encoder", 0, 0), half, most, [0])
    tally.silence(("encoder", 0, 0), np.concatenate([half, half]), np.concatenate([half, half]), [1, 0])
    (found,) = tally.measures()
    assert found.name == ("encoder", 0, 0)
    assert found.entropy == pytest.approx((0 + 1 + 0) / 3)
    assert found.distance == pytest.approx((0 + 0.5 + 0) / 3)
    assert found.previous == pytest.approx(0.5), "one position has a symbol before it"
    assert found.itself == pytest.approx((1 + 0.5 + 1) / 3)
    assert found.next == pytest.approx(0.0)
    assert found.edge == pytest.approx((0 + 0.5 + 1) / 3)
    assert found.divergence == pytest.approx((0.5 * np.log2(2) + 0.5 * np.log2(2 / 3)) / 3)
    assert found.loss_change == pytest.approx(1 / 3), "one of three symbols costs a bit more"


def test_shares_without_a_meaning_are_left_out() -> None:
    tally = HeadTally()
    tally.look(heads_trace(layers=1, num_heads=2))
    same = np.log([[0.5, 0.5]])
    for site in ("cross", "decoder", "encoder"):
        for head in (1, 0):
            tally.silence((site, 0, head), same, same, [0])
    found = tally.measures()
    assert [m.name for m in found] == [HeadName(site, 0, head) for site in SITES for head in (0, 1)]
    for m in found:
        assert np.isnan(m.next) == (m.name.site != "encoder")
        assert np.isnan(m.previous) == np.isnan(m.itself) == (m.name.site == "cross")
        assert 0 < m.edge < 1
        assert m.divergence == m.loss_change == 0


# -- the view heads ---------------------------------------------------------------------------------------------------


def measures(layers: int = 2, num_heads: int = 3) -> list[HeadMeasures]:
    random = np.random.default_rng(3)
    nan = float("nan")
    return [
        HeadMeasures(
            HeadName(site, layer, head),
            *random.random(2) * 3,
            previous=nan if site == "cross" else 0.25,
            itself=nan if site == "cross" else 0.5,
            next=0.125 if site == "encoder" else nan,
            edge=0.75,
            divergence=9.0 if (site, layer, head) == ("cross", 0, 1) else random.random(),
            loss_change=random.normal(),
        )
        for site in SITES
        for layer in range(layers)
        for head in range(num_heads)
    ]


def test_table_of_heads() -> None:
    text = draw_heads(measures(), sample="7 sentences of valid")
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:5] == ["site", "layer", "head", "entropy", "distance"]
    rows = [line for line in lines if line and line[0] in SITES and len(line) > 8]
    assert len(rows) == 18
    assert [row for row in rows if "strongest" in row] == [rows[13]]
    assert rows[13][:3] == ["cross", "0", "1"]
    assert rows[13][5:9] == ["–", "–", "–", "75%"]
    assert rows[0][5:9] == ["25%", "50%", "12%", "75%"]
    assert "Means over 7 sentences of valid." in text
    assert "\033" not in text
    assert "\033[1mcross" in draw_heads(measures(), colour=True)


@pytest.mark.parametrize(("layers", "num_heads"), [(1, 1), (2, 4), (6, 12)])
def test_picture_of_heads(layers: int, num_heads: int, tmp_path: Path) -> None:
    found = measures(layers, max(num_heads, 2))
    written = draw_heads(found, tmp_path / "a.svg", sample="7 sentences of valid", title="heads of mine")
    texts = svg_texts(written)
    assert "heads of mine" in texts
    for site in SITES:
        for name in ("entropy, bits", "distance, symbols", "output change, bits", "loss change, bits"):
            assert f"{site}: {name}" in texts
    assert texts.count(f"layer {layers - 1}") == 12
    assert f"{found[0].entropy:.2f}" in texts
    assert "−0.00" not in texts
    assert "7 sentences of valid" in " ".join(texts)


def test_no_heads() -> None:
    with pytest.raises(UserError, match="no attention heads to show; a Transformer has"):
        draw_heads([])


# -- heads in the view attention --------------------------------------------------------------------------------------


def test_the_alignment_stays_the_default() -> None:
    trace = heads_trace()
    text = draw_attention(trace, width=80, colour=False)
    assert text.splitlines()[0].split() == trace.labels["source"]


@pytest.mark.parametrize("site", SITES)
def test_one_head_in_detail(site: str, tmp_path: Path) -> None:
    trace = heads_trace()
    texts = svg_texts(draw_head(trace, tmp_path / "a.svg", site=site, layer=1, head=2))
    assert f"{site}, layer 1, head 2: {SITES[site].about}" in " ".join(texts)
    array = head_arrays(trace, site)[1]
    assert {*array.rows, *array.columns} <= set(texts)
    text = draw_head(trace, site=site, layer=1, head=2, width=80, colour=False)
    assert text.splitlines()[0] == f"{site}, layer 1, head 2: {SITES[site].about}"
    assert text.splitlines()[2].split() == array.columns
    assert ("not to be seen" in text) == (site == "decoder")
    assert text.count("·") == (7 if site == "decoder" else 0), "six hidden cells of a 4 × 4 triangle, and the legend"


def test_a_layer_alone_is_the_mean_of_its_heads() -> None:
    trace = Trace({"source": ["a", "b"], "target": ["c"]})
    trace.add("decoder.0.cross", [[[1.0, 0.0]], [[0.0, 1.0]]], axes=("head", "target", "source"))
    text = draw_head(trace, site="cross", layer=0, width=40, colour=False)
    assert text.startswith("cross, layer 0, mean of 2 heads")
    assert "c ▒▒ ▒▒" in text


def test_heads_that_are_not_there() -> None:
    trace = heads_trace()
    with pytest.raises(UserError, match=r"^there is no layer 2: encoder has layers 0 to 1$"):
        draw_head(trace, site="encoder", layer=2)
    with pytest.raises(UserError, match=r"^cross, layer 0 has no head 3; it has heads 0 to 2$"):
        draw_head(trace, site="cross", layer=0, head=3)
    with pytest.raises(UserError, match="has no head -1"):
        draw_head(trace, site="cross", layer=0, head=-1)
    with pytest.raises(UserError, match=r"no layer 9: encoder has layers 0 to 1; decoder has .*; cross has"):
        draw_all_heads(trace, layer=9)
    recurrent = Trace({"source": ["a"], "target": ["b"]})
    recurrent.add("decoder.attention", [[1.0]], rows="target", columns="source")
    for draw_it in (draw_head, draw_all_heads):
        with pytest.raises(UserError, match="no attention heads to show; a Transformer has"):
            draw_it(recurrent)
    language_model = Trace()
    language_model.add("decoder.0.self", [[[1.0]]], axes=("head", "target", "target_in"))
    with pytest.raises(UserError, match=r"no heads at cross; it has some at: decoder$"):
        draw_head(language_model, site="cross", layer=0)
    with pytest.raises(UserError, match="decoder has layer 0 only"):
        draw_head(language_model, site="decoder", layer=1)


@pytest.mark.parametrize(
    ("layers", "num_heads", "source", "target"),
    [(2, 3, 5, 4), (1, 1, 2, 2), (1, 2, 1, 1), (3, 12, 7, 9), (1, 2, 90, 70)],
)
def test_every_head_in_one_picture(layers: int, num_heads: int, source: int, target: int, tmp_path: Path) -> None:
    trace = heads_trace(layers, num_heads, source, target)
    texts = svg_texts(draw_all_heads(trace, tmp_path / "a.svg"))
    for layer in range(layers):
        for head in range(num_heads):
            assert texts.count(f"layer {layer} · head {head}") == 3, "encoder, decoder and cross"
    for site in SITES:
        assert f"{site}: {SITES[site].about}" in texts
    assert {"0", "1"} <= set(texts), "one bar of colours"
    labelled = max(source, target) < 15
    # Source symbols: rows of each encoder line; columns below each encoder and each cross column.
    assert texts.count("s0") == (layers + 2 * num_heads if labelled and source > 1 else 0)
    assert ("s0 s1" in " ".join(texts)) == (source > 2 and (not labelled or source + target < 40))


def test_long_sentences_are_shortened_in_the_caption(tmp_path: Path) -> None:
    texts = " ".join(svg_texts(draw_all_heads(heads_trace(1, 1, 30, 150), tmp_path / "a.svg")))
    assert "attention of every head" in texts
    assert "Source: s0 s1" in texts
    assert "…" in texts


def test_some_heads_in_one_picture(tmp_path: Path) -> None:
    texts = svg_texts(draw_all_heads(heads_trace(), tmp_path / "a.svg", site="cross", layer=1))
    assert [text for text in texts if "·" in text] == ["layer 1 · head 0", "layer 1 · head 1", "layer 1 · head 2"]
    assert not any(text.startswith(("encoder", "decoder")) for text in texts)


def test_equal_pictures_are_equal_files(tmp_path: Path) -> None:
    first, second = (Path(draw_all_heads(heads_trace(), tmp_path / name)).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second


def test_every_head_is_one_line_on_the_terminal() -> None:
    trace = heads_trace()
    text = draw_all_heads(trace, colour=False)
    lines = [line.split() for line in text.splitlines()]
    rows = [line for line in lines if len(line) > 3 and line[0].isdigit()]
    assert [row[:2] for row in rows] == [[str(i), str(h)] for _ in SITES for i in range(2) for h in range(3)]
    assert float(rows[0][2]) == pytest.approx(entropy(trace["encoder.0.self"].values[0]).mean(), abs=0.006)
    assert float(rows[-1][3]) == pytest.approx(distance(trace["decoder.1.cross"].values[2]).mean(), abs=0.006)
    assert text.startswith("s0 s1 s2 s3 → w0 w1 w2\n")
    assert "\033" not in text
    assert "\033[48;" in draw_all_heads(trace)
    assert max(map(len, text.splitlines())) <= 88


def test_a_head_that_copies_the_previous_symbol_shows_it() -> None:
    trace = Trace({"source": list("abc")})
    trace.add("encoder.0.self", [np.eye(3, k=-1) + np.diag([1.0, 0, 0])], axes=("head", "source", "source"))
    line = next(line for line in draw_all_heads(trace, colour=False).splitlines() if line.startswith("    0"))
    assert line.split() == ["0", "0", "0.00", "0.67", "██", "▓▓", "a", "67%"]

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.embeddings import (
    GENSIM,
    GOOGLE,
    LEARNING_RATES,
    OURS,
    SIMILARITY,
    TITLES,
    arguments,
    differences,
    embeddings_table,
    mean_and_spread,
    score_text,
    summary,
    write_text,
)
from bench.peers import Peer
from bench.sides import run_side
from bench.vectors_job import VectorJob
from bench.venvs import NotInstalled

SCORES = [*SIMILARITY, GOOGLE]


def job_in(folder: Path, **more: Any) -> VectorJob:
    job = VectorJob(
        model="skipgram",
        text=str(folder / "text.txt"),
        vectors=str(folder / "vectors.bin"),
        result=str(folder / "result.json"),
        size=11,
        window=3,
        negatives=2,
        epochs=2,
        min_count=1,
        subsample=0.0,
        learning_rate=0.025,
        threads=1,
        seed=1,
        buckets=101,
    )
    return replace(job, **more)


def figures(pace: float, score: float | None, **more: Any) -> dict[str, Any]:
    return {
        "words_per_second": pace,
        "vocabulary_seconds": pace / 100,
        "processor_seconds": 3.0,
        "vocabulary": 7,
        "kept_words": 50,
        "peak_mb": 10.0,
        "scores": dict.fromkeys(SCORES, score),
        "coverage": dict.fromkeys(SCORES, 0.75),
        **more,
    }


def test_the_text_is_cut_at_the_words_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    assert write_text(path, [["a", "b"], [], ["c", "d", "e"], ["f"]], 4) == 4
    assert path.read_text() == "a b\nc d\n"
    assert write_text(path, [["a", "b"], [], ["c"]], None) == 3
    assert path.read_text() == "a b\nc\n"


def test_summary_over_seeds() -> None:
    one = summary([figures(100, 0.4), figures(300, 0.5), figures(200, None)])
    assert (one["median"], one["vocabulary_seconds"], one["peak_mb"]) == (200, 2.0, 10.0)
    assert one["scores"]["MEN"]["mean"] == pytest.approx(0.45)
    assert one["scores"]["MEN"]["deviation"] == pytest.approx(0.1 / 2**0.5)
    assert one["updates_per_second"] is None
    assert mean_and_spread([]) is None
    assert score_text(None) == "–"
    assert score_text({"mean": 0.512, "deviation": 0.008}) == "51.2 ± 0.8"
    assert score_text({"mean": -0.04, "deviation": None}) == "−4.0"


def found_of(sides: dict[str, dict[str, Any]], ratios: dict[str, float]) -> dict[str, Any]:
    settings = {"size": 100, "window": 5, "negatives": 5, "epochs": 5, "min_count": 5, "subsample": 1e-3, "threads": 2}
    models = {"cbow": {"sides": sides, "missing": {}, "ratios": ratios}}
    return {"text": "articles.txt", "words": 1234, "seeds": 2, "buckets": 10, **settings, "models": models}


def test_the_table_has_a_row_for_each_side_and_says_what_differs() -> None:
    ours, theirs = summary([figures(300, 0.4)]), summary([figures(100, 0.3, kept_words=49)])
    found = found_of({"seqloom": ours, "gensim": theirs}, {"gensim": 3.0})
    written = embeddings_table(found)
    rows = [line.split(" | ") for line in written.splitlines() if line.startswith("| CBOW")]
    assert [row[1] for row in rows] == ["seqloom", "gensim 4.4.0"]
    assert [row[4] for row in rows] == ["–", "3.00×"]
    assert rows[1][-1] == "30.0 |"
    assert "1,234 words of articles.txt, epochs: 5" in written
    assert "75% of MEN" in written
    assert differences(found) == ["Not the same kept words in cbow: seqloom 50, gensim 49."]
    assert differences(found_of({"seqloom": ours, "gensim": ours}, {})) == []


def test_a_side_that_fails_says_why(tmp_path: Path) -> None:
    peer = Peer("nobody", "bench.peers.nobody", steps=())
    with pytest.raises(NotInstalled, match=r"failed: .*No module named bench\.peers\.nobody"):
        run_side(Path(sys.executable), peer, job_in(tmp_path), tmp_path)


def test_every_model_has_a_rate_and_a_side() -> None:
    assert set(TITLES) == set(LEARNING_RATES) == set(OURS.models)
    assert set(GENSIM.models) < set(OURS.models)


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    options = arguments(["--quick", "--models", "cbow,glove"])
    assert (options.models, options.words, options.seeds, options.epochs) == (["cbow", "glove"], 200_000, 1, 1)
    with pytest.raises(SystemExit):
        arguments(["--models", "cbow,lsa"])
    assert "got lsa" in capsys.readouterr().err


@pytest.mark.parametrize("model", GENSIM.models)
def test_gensim_trains_what_is_asked_for(model: str, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    from bench.peers.gensim import main, model_of

    (tmp_path / "text.txt").write_text("the cat sat\nthe dog sat\n" * 5, encoding="utf-8")
    job = job_in(tmp_path, model=model)
    made = model_of(job)
    assert (made.sg, made.hs, made.negative) == (
        model != "cbow",
        model == "skipgram-hs",
        0 if model == "skipgram-hs" else 2,
    )
    assert (made.vector_size, made.window, made.epochs, made.alpha) == (11, 3, 2, 0.025)
    (tmp_path / "job.json").write_text(json.dumps(vars(job)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gensim", str(tmp_path / "job.json")])
        main()
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["vocabulary"], result["kept_words"]) == (4, 30)
    assert (tmp_path / "vectors.bin").read_bytes().startswith(b"4 11\n")

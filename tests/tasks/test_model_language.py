"""Language models through the task: what is asked for, what is counted, what is carried on, and what comes out."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.batches.running import TextBatch
from seqloom.batches.samplers import Position
from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import RecipeError, UserError
from seqloom.experiment import train
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.sources.running_text import RunningText
from seqloom.tasks.model_language import LanguageModelling
from seqloom.tasks.running_text import RunningTextWork
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID, UNK_ID
from seqloom.training.journal import read_journal
from seqloom.training.loop import flat, rebuilt

WORDS = ["the", "green", "witch", "of", "a", "house", "sees", "an", "old", "cat", "and", "sleeps"]
MODELS: dict[str, dict[str, Any]] = {
    "recurrent": {"kind": "recurrent_lm", "cell": "lstm", "size": 6, "hidden_size": 7, "num_layers": 2, "dropout": 0.2},
    "variational": {
        "kind": "recurrent_lm",
        "cell": "gru",
        "size": 6,
        "hidden_size": 6,
        "num_layers": 1,
        "dropout": 0.2,
        "dropout_kind": "variational",
        "weight_drop": 0.3,
        "embedding_dropout": 0.1,
        "tie": True,
    },
    "feed_forward": {"kind": "feed_forward_lm", "size": 5, "hidden_size": 6, "window": 3},
    "transformer": {
        "kind": "transformer_lm",
        "size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "feed_forward_size": 8,
        "context": 10,
        "positions": "learned",
    },
}


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = random.Random(3)
    lines = [" ".join(words.choice(WORDS) for _ in range(words.randint(1, 9))) for _ in range(60)]
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def recipe_for(text: Path, model: str, tokenizer: str = "spaces", **training: Any) -> dict[str, Any]:
    batching = "windows" if model == "transformer" else "stream"
    common = {"steps": 12, "rows": 4, "length": 5, "batching": batching, "validate_every": 6}
    return {
        "task": "model_language",
        "data": {"train": {"text": str(text)}, "valid": {"text": str(text), "limit": 20}},
        "text": {"tokenizer": tokenizer, "vocabulary_size": None},
        "model": MODELS[model],
        "training": {**common, **training},
    }


@pytest.fixture(scope="session", params=list(MODELS))
def trained(request: pytest.FixtureRequest, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return train(recipe_for(text_file, request.param), tmp_path_factory.mktemp("run") / "run")


def by_hand(model: Model, ids: list[int], context: int | None = None) -> list[float]:
    """Log probability of every symbol, from a model that reads all before it in one call."""
    found = []
    with torch.inference_mode():
        for place, symbol in enumerate(ids):
            before = [model.task.text.first, *ids[:place]]
            features, _ = model.network(torch.tensor([before if context is None else before[-context:]]))
            found.append(float(model.network.output(features[0, -1]).log_softmax(-1)[symbol]))
    return found


# -- what is counted --------------------------------------------------------------------------------------------------


def test_a_text_is_read_as_one(trained: Model, text_file: Path) -> None:
    """All models but the Transformer read on and on; every symbol is counted once."""
    corpus = PlainTextSettings(text=str(text_file), limit=12)
    report = trained.evaluate(corpus)
    lines = trained.task.text.encode(corpus)
    ids = lines.tokens[0 : len(lines.tokens)].tolist()
    context = getattr(trained.network.settings, "context", None)
    if context is None:
        expected = by_hand(trained, ids)
    else:  # the first piece whole, then five by five, each with the five before them in sight
        expected = by_hand(trained, ids[:context])
        for start in range(context, len(ids), context // 2):
            end = min(start + context // 2, len(ids))
            piece = [trained.task.text.first, *ids][end - context : end + 1]
            with torch.inference_mode():
                features, _ = trained.network(torch.tensor([piece[:-1]]))
                log_probs = trained.network.output(features[0]).log_softmax(-1)
            expected += [float(log_probs[i, piece[i + 1]]) for i in range(context - (end - start), context)]
    assert report.symbols == len(ids) == len(expected)
    assert -report.nll == pytest.approx(sum(expected), rel=1e-5)


def test_lines_by_themselves(trained: Model) -> None:
    lines = ["the green witch", "", "a cat sees an unheard-of house"]
    for line, found in zip(lines, trained.score(lines), strict=True):
        ids = [*trained.task.text.tokenizer.encode(line), EOS_ID]
        assert found.token_log_probabilities == pytest.approx(by_hand(trained, ids), rel=1e-4)
        assert found.perplexity == pytest.approx(math.exp(-found.log_probability / (len(line.split()) + 1)))
        assert found.tokens[-1] == "<eos>"
    assert UNK_ID in trained.task.text.tokenizer.encode(lines[2])


def test_many_rows_lose_little_and_count_everything(text_file: Path, tmp_path: Path) -> None:
    model = train(recipe_for(text_file, "recurrent"), tmp_path / "run")
    lines = model.task.text.encode(PlainTextSettings(text=str(text_file)))
    quick = np.concatenate(list(model.task.log_probs(model.network, lines, quick=True)))
    careful = np.concatenate(list(model.task.log_probs(model.network, lines)))
    assert len(quick) == len(careful) == len(lines.tokens)
    assert quick.sum() == pytest.approx(careful.sum(), rel=0.02)


@pytest.mark.parametrize("batching", ["stream", "sentences"])
def test_the_loss_of_training_is_the_one_that_is_reported(batching: str, text_file: Path) -> None:
    """Without dropout, the mean over an epoch's batches with carried state is what evaluation finds."""
    values = recipe_for(text_file, "recurrent", batching=batching, rows=1)
    recipe = load_recipe(values | {"data": {name: {"text": str(text_file)} for name in ("train", "valid")}})
    task = LanguageModelling.learn(recipe, lambda text: None)
    torch.manual_seed(1)
    model = task.build(recipe.model).eval()
    work, total, tokens, carried = task.work(recipe), 0.0, 0, None
    with torch.no_grad():
        for (epoch, *_), batch in work.batches(Position()):
            found = work.loss(model, batch, carried)
            carried, total, tokens = found.carried, total + float(found.nll), tokens + batch.num_tokens
            if epoch:
                break
    report = task.evaluate(model, recipe.data.train, "train", recipe.decoding)
    assert tokens == report.symbols
    assert total == pytest.approx(report.nll, rel=1e-5)


# -- what is carried on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "candidates"), [("recurrent", None), ("variational", 4)])
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_crashed_run_resumes_to_the_same_bits(
    model: str,
    candidates: int | None,
    workers: int,
    text_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state that rows carry on is part of a checkpoint, also where two threads have half of the rows each."""
    recipe = recipe_for(text_file, model, workers=workers, checkpoint_every=1, rows=5, candidates=candidates)
    train(recipe, tmp_path / "straight")
    original, calls = RunningTextWork.loss, 0

    def crashing(self: RunningTextWork, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise RuntimeError("as a machine might")
        return original(self, *arguments)

    monkeypatch.setattr(RunningTextWork, "loss", crashing)
    with pytest.raises(RuntimeError, match="as a machine might"):
        train(recipe, tmp_path / "broken")
    monkeypatch.setattr(RunningTextWork, "loss", original)
    train(tmp_path / "broken", resume=True)
    one, other = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("straight", "broken"))
    assert one == other


def test_few_candidates_learn_what_all_symbols_show(text_file: Path, tmp_path: Path) -> None:
    """With label smoothing, which is over all symbols; validation chooses among all of them."""
    settings = {"candidates": 4, "label_smoothing": 0.1, "steps": 80, "validate_every": 10, "learning_rate": 0.02}
    train(recipe_for(text_file, "feed_forward", **settings), tmp_path / "run")
    journal = read_journal(tmp_path / "run" / "journal.jsonl")
    losses = [event["loss"] for event in journal if event["event"] == "validation"]
    assert min(losses) < losses[0] - 0.1


def test_a_cosine_ends_with_the_last_epoch(text_file: Path, tmp_path: Path) -> None:
    limits = {"steps": None, "epochs": 2, "schedule": "cosine", "learning_rate": 0.01, "log_every": 1}
    train(recipe_for(text_file, "feed_forward", **limits), tmp_path / "run")
    rates = [
        event["learning_rate"] for event in read_journal(tmp_path / "run" / "journal.jsonl") if "gradient_norm" in event
    ]
    epoch = len(rates) // 2
    assert len(rates) > 20
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 0.01
    assert rates[epoch] == pytest.approx(0.005, rel=0.15)
    assert rates[-1] < 0.01 * 0.01


def test_state_matters_and_is_forgotten_at_a_fresh_batch(text_file: Path) -> None:
    recipe = load_recipe(recipe_for(text_file, "recurrent"))
    task = LanguageModelling.learn(recipe, lambda text: None)
    model, work = task.build(recipe.model).eval(), task.work(recipe)
    inputs = torch.tensor([[4, 5, 6], [7, 8, 9]])
    fresh, going_on = TextBatch(inputs, inputs), TextBatch(inputs, inputs, None, False)
    first = work.loss(model, fresh)
    second = work.loss(model, going_on, first.carried)
    assert float(first.nll) != pytest.approx(float(second.nll), rel=1e-6)
    assert float(work.loss(model, fresh, second.carried).nll) == pytest.approx(float(first.nll), rel=1e-6)
    assert flat(first.carried)
    assert all(not tensor.requires_grad for tensor in flat(first.carried))


def test_only_a_stream_carries_its_state_on(text_file: Path) -> None:
    recipe = load_recipe(recipe_for(text_file, "recurrent", batching="windows"))
    task = LanguageModelling.learn(recipe, lambda text: None)
    inputs = torch.tensor([[4, 5, 6]])
    assert task.work(recipe).loss(task.build(recipe.model), TextBatch(inputs, inputs)).carried is None


def test_a_state_survives_being_taken_apart() -> None:
    from seqloom.nn.cells import LSTMState

    state = (LSTMState(torch.ones(2, 3), torch.zeros(2, 3)), (torch.full((2,), 5.0), None))
    again = rebuilt(state, iter(flat(state)))
    assert isinstance(again[0], LSTMState)
    assert again[1][1] is None
    assert all(torch.equal(a, b) for a, b in zip(flat(state), flat(again), strict=True))


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_text_goes_on_from_its_prompt(trained: Model) -> None:
    one = trained.generate("the green witch", seed=5, max_length=30, count=2)
    again = trained.generate("the green witch", seed=5, max_length=30, count=2)
    assert one == again
    assert one[0].text != one[1].text
    assert all(text.text.startswith("the green witch ") and "<unk>" not in text.text for text in one)
    for text in one:
        ids = trained.task.text.tokenizer.encode(text.text)
        log_probs = by_hand(trained, [*ids, EOS_ID]) if text.finished else by_hand(trained, ids)
        chosen = log_probs[3:]
        if getattr(trained.network.settings, "context", None) is None:
            # Nothing but reserved symbols and unknown words was forbidden, so each is at least as likely as it was.
            assert len(chosen) == len(text.token_log_probabilities)
            assert all(a >= b - 1e-4 for a, b in zip(text.token_log_probabilities, chosen, strict=True))


def test_a_model_with_a_window_goes_on_beyond_it(text_file: Path, tmp_path: Path) -> None:
    model = train(recipe_for(text_file, "transformer"), tmp_path / "run")
    text = model.generate("the", method="greedy", max_length=40, unknown="keep")[0]
    assert len(text.tokens) == 40 or text.finished
    prompt = " ".join(WORDS * 3)  # longer than the window
    assert model.generate(prompt, method="greedy", max_length=3)[0].text.startswith(prompt)


def test_greedy_takes_the_likeliest_and_a_beam_finds_no_worse(trained: Model) -> None:
    greedy = trained.generate("a cat", method="greedy", max_length=6)[0]
    best = trained.generate("a cat", method="beam", beam_size=20, length_penalty=0.0, max_length=6, count=3)
    assert len(best) == 3
    if greedy.finished:
        assert best[0].log_probability >= greedy.log_probability - 1e-4
    assert [one.log_probability for one in best] == sorted((one.log_probability for one in best), reverse=True)


def test_text_streams_as_it_is_chosen(trained: Model) -> None:
    written: list[str] = []
    callback = trained.task.streamed("the old", written.append)
    text = trained.generate("the old", seed=3, max_length=12, callback=callback)[0]
    assert "".join(written) == text.text
    assert written[0] == "the old"
    assert len(written) == 1 + len(text.tokens) - text.finished


def test_a_repetition_can_be_made_unlikely(trained: Model) -> None:
    text = trained.generate("", method="greedy", repetition_penalty=1000.0, max_length=9)[0]
    words = text.text.split()
    assert len(words) == len(set(words))


# -- characters, and texts as they are --------------------------------------------------------------------------------


def test_characters_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "play.txt"
    path.write_text("ROMEO:\n  ay me!\n\n" * 40)
    recipe = recipe_for(path, "recurrent", tokenizer="verbatim", steps=150, learning_rate=1e-2, validate_every=50)
    recipe["data"] = {"train": {"text": str(path), "share": [0, 0.8]}, "valid": {"text": str(path), "share": [0.8, 1]}}
    recipe["model"] = {"kind": "recurrent_lm", "cell": "lstm", "size": 16, "hidden_size": 32, "num_layers": 1}
    model = train(recipe, tmp_path / "run")
    report = model.evaluate(PlainTextSettings(text=str(path), share=(0.8, 1.0)))
    assert report.symbols == report.size.characters == len(path.read_text()) - int(0.8 * len(path.read_text()))
    assert report.bits_per_character == pytest.approx(report.loss / math.log(2))
    assert report.bits_per_character < 0.3, "it goes round and round"
    assert model.generate("ROMEO:\n", method="greedy", max_length=12)[0].text.startswith("ROMEO:\n  ay me!\n\n")
    scored = model.score(["  ay me!"])[0]
    assert len(scored.token_log_probabilities) == 9
    assert scored.tokens[-1] == "↵"


# -- n-grams behind the same door -------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", ["kneser_ney", "add_k"])
def test_counted_models_are_measured_and_speak_like_others(smoothing: str, text_file: Path, tmp_path: Path) -> None:
    recipe = recipe_for(text_file, "recurrent")
    recipe["model"] = {"kind": "ngram_lm", "order": 3, "smoothing": smoothing}
    del recipe["training"]
    model = train(recipe, tmp_path / "run")
    assert "n-grams" in model.size()
    events = {event["event"]: event for event in read_journal(tmp_path / "run" / "journal.jsonl")}
    report = model.evaluate(PlainTextSettings(text=str(text_file), limit=20))
    assert report.perplexity == pytest.approx(events["validation"]["perplexity"], rel=1e-4)
    lines = text_file.read_text().splitlines()[:20]
    assert sum(one.log_probability for one in model.score(lines)) == pytest.approx(-report.nll)
    text = model.generate("the green", seed=1, max_length=10)[0]
    ids = [*model.task.text.tokenizer.encode(text.text), EOS_ID]
    log_probs = model.network.ngrams.score(np.array(ids))[2 : 2 + len(text.tokens)]
    assert all(a >= b - 1e-5 for a, b in zip(text.token_log_probabilities, log_probs, strict=True))
    assert model.generate("the green", method="beam", max_length=4, count=2)[0].text.startswith("the green")
    with pytest.raises(UserError, match="n-grams have neither gates nor heads"):
        model.trace("the green")


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batching": "stream"}, "carries a state on; a transformer_lm has none"),
        ({"length": 11}, "training.length 11 is longer than model.context 10"),
        ({"shards": 9}, "training.shards 9 is more than training.rows 4"),
        ({"metric": "bleu"}, "training.metric must be one of"),
        ({"scheduled_sampling": 0.5}, "scheduled_sampling is not a setting"),
    ],
)
def test_recipes_that_contradict_themselves(change: dict[str, Any], message: str, text_file: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe_for(text_file, "transformer", **change))


def test_verbatim_text_has_no_sentences(text_file: Path) -> None:
    with pytest.raises(RecipeError, match="verbatim has no ends of lines"):
        load_recipe(recipe_for(text_file, "recurrent", tokenizer="verbatim", batching="sentences"))


def test_a_text_too_short(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("a b\n")
    with pytest.raises(UserError, match=r"short.txt: 3 symbols are too few for training.rows 4"):
        train(recipe_for(tmp_path / "short.txt", "recurrent"), tmp_path / "run")


def test_what_language_models_cannot_do(tmp_path: Path, text_file: Path) -> None:
    model = train(recipe_for(text_file, "feed_forward", steps=1), tmp_path / "run")
    for ask in (lambda: model("the cat"), lambda: model.predict(["the cat"])):
        with pytest.raises(UserError, match="a language model, which cannot predict; ask 'seqloom generate "):
            ask()
    with pytest.raises(UserError, match="a language model has no target"):
        model.trace("the cat", "sleeps")
    config = tmp_path / "run" / "model" / "config.json"
    values = json.loads(config.read_text())
    for wrong in ("steam", [], None):
        config.write_text(json.dumps({**values, "batching": wrong}))
        with pytest.raises(UserError, match="batching must be one of"):
            Model.load(tmp_path / "run")


def test_a_vocabulary_from_words_between_spaces(text_file: Path) -> None:
    settings = TextSettings(tokenizer="spaces", vocabulary_size=None)
    text = RunningText.learn(PlainTextSettings(text=str(text_file)), settings)
    assert len(text.tokenizer) == 4 + len(set(WORDS))
    assert text.encode_lines(["the cat", ""]) == [[*text.tokenizer.encode("the cat"), EOS_ID], [EOS_ID]]


# -- what is seen -----------------------------------------------------------------------------------------------------


def test_a_model_is_watched_while_it_reads(trained: Model) -> None:
    kind = trained.network.settings.kind
    if kind == "recurrent_lm":
        assert "witch" in trained.look("gates", "the green witch").to_text(80, colour=False)
    elif kind == "transformer_lm":
        trained.look("attention", "the green witch")  # every head, for there is no source
        one = trained.look("attention", "the green witch", layer=0, head=1)
        assert "decoder, layer 0, head 1" in one.to_text(80, colour=False)
        weights = trained.trace("the green witch")["decoder.0.self"].values
        assert weights.shape == (2, 4, 4)
        assert weights.sum(-1) == pytest.approx(np.ones((2, 4)))
    else:
        assert not trained.trace("the green witch").names()
    with pytest.raises(UserError, match="there is nothing to look at"):
        trained.trace(" ")


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("freeze", [True, False])
def test_embeddings_start_from_vectors(name: str, freeze: bool, text_file: Path, tmp_path: Path) -> None:
    """Words that have a vector start from its direction; frozen ones end there too."""
    from seqloom.vectors.formats import write_vectors
    from seqloom.vectors.table import WordVectors

    size = MODELS[name]["size"]
    matrix = np.random.default_rng(1).normal(size=(3, size)).astype(np.float32)
    write_vectors(WordVectors(["cat", "old", "nowhere"], matrix), tmp_path / "v.txt", "glove")
    recipe = recipe_for(text_file, name, steps=3, validate_every=3)
    recipe["model"] = {**MODELS[name], "pretrained": {"text": str(tmp_path / "v.txt"), "freeze": freeze}}
    model = train(recipe, tmp_path / "run")
    cat, old = (
        model.network.embedding.weight[model.task.text.tokenizer.encode(word)[0]].detach() for word in ("cat", "old")
    )
    ratios = torch.stack([cat / torch.from_numpy(matrix[0]), old / torch.from_numpy(matrix[1])])
    assert bool(ratios.std() / ratios.mean() < 1e-4) == freeze


def test_a_small_model_may_look_far_back(text_file: Path, tmp_path: Path) -> None:
    """Its context is larger than anything in its file."""
    recipe = recipe_for(text_file, "transformer", steps=1)
    recipe["model"] = {**MODELS["transformer"], "context": 1000, "positions": "alibi"}
    model = train(recipe, tmp_path / "run")
    assert model.generate("the cat", max_length=3)[0].text.startswith("the cat")


def test_validations_show_what_the_model_writes(trained: Model) -> None:
    events = [e for e in read_journal(trained.folder.parent / "journal.jsonl") if e["event"] == "validation"]
    for event in events:
        assert len(event["samples"]) == 2
        assert all(set(sample["sample"].split()) <= set(WORDS) for sample in event["samples"])

"""Every kind of tokenizer keeps the same promises; each promise is one test over all kinds."""

from __future__ import annotations

import json
import os
import string
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import RecipeError, RunError, UserError
from seqloom.settings import check, validated
from seqloom.text import tokenizers
from seqloom.text.settings import TextSettings
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, SPECIAL, UNK, UNK_ID
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.words import split_words

KINDS = ["word", "character", "bpe", "unigram"]
OPEN = ["character", "bpe", "unigram"]  # kinds that can spell any word of their alphabet

SENTENCES = [
    "the green witch arrived at the green house, and the witch's cat slept.",
    "il m'a dit que l'homme qu'il a vu n'est pas là ; c’est l'été !",
    "la bruja verde llegó a la casa; ¿dónde está el niño? ¡aquí!",
    "die grüne Hexe fährt mit der Straßenbahn über die Brücke (täglich).",
    "Where is the <eos> of this <pad> text? It isn't <unk>: it's here.",
]
LETTERS = string.ascii_letters + string.digits + "àâäçéèêëîïñóôöùûüßœÄÖÜ"
MARKS = string.punctuation + "’¿¡«»…"
TRAINING = SENTENCES * 3 + [" ".join(LETTERS + MARKS), LETTERS, MARKS]
VOCABULARY = sorted({word for text in TRAINING for word in split_words(text)})

in_alphabet = st.text(alphabet=LETTERS + MARKS + " \t\n\x1c\u00a0\u2028", max_size=60)
# Such texts as language has, so that words, clitics, marks and gaps come together in every order.
fragments = st.lists(
    st.sampled_from([*VOCABULARY, " ", " ", "  ", "\n", "'", "’", "l'", "e\u0301", "_", "▁", "İ", "ﬁ", "¨", "☃", "न्"]),
    max_size=25,
).map("".join)
anything = fragments | st.text(max_size=60)
# The library's Unicode is newer than an older Python's: a letter that Python does not know yet (Cn) is one to it.
known_to_both = fragments | st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=60)


@cache
def trained(kind: str, size: int | None = 400, **settings: object) -> Tokenizer:
    values = {"tokenizer": kind, "vocabulary_size": size, **settings}
    return Tokenizer.train(TRAINING, validated(TextSettings, values))


def expected(text: str, form: str = "NFC", lowercase: bool = False) -> str:
    """The normalised text, computed without the library under test."""
    text = unicodedata.normalize(form, text)
    text = text.lower() if lowercase else text
    return " ".join(text.replace("▁", "_").split())


# -- round trip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", SENTENCES)
def test_real_sentences_come_back(kind: str, text: str) -> None:
    tokenizer = trained(kind, None if kind == "word" else 400)
    ids = tokenizer.encode(text)
    assert UNK_ID not in ids
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", OPEN)
@given(text=in_alphabet)
def test_text_of_the_alphabet_comes_back_and_is_never_unknown(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    assert UNK_ID not in ids
    assert tokenizer.decode(ids) == expected(text)


@pytest.mark.parametrize("kind", KINDS)
@given(text=anything)
def test_any_text_without_unknowns_comes_back(kind: str, text: str) -> None:
    tokenizer = Tokenizer.train([text, "a"], TextSettings(tokenizer=kind, vocabulary_size=300))
    ids = tokenizer.encode(text)
    assert UNK_ID not in ids
    assert tokenizer.decode(ids) == expected(text) == tokenizer.normalise(text)


@pytest.mark.parametrize("form", ["nfc", "nfkc", "none"])
@pytest.mark.parametrize("lowercase", [False, True])
@given(text=fragments)
def test_normalisation(form: str, lowercase: bool, text: str) -> None:
    tokenizer = trained("character", normalise=form, lowercase=lowercase)
    forms = {"nfc": "NFC", "nfkc": "NFKC"}
    by_hand = expected(text, forms[form], lowercase) if form in forms else " ".join(text.replace("▁", "_").split())
    assert tokenizer.normalise(text) == (by_hand.lower() if lowercase else by_hand)


def test_normalisation_by_hand() -> None:
    assert trained("bpe", normalise="nfkc").normalise("ﬁne\u00a0 x²") == "fine x2"
    assert trained("bpe", lowercase=True).normalise(" Die  STRAẞE ") == "die straße"
    assert trained("bpe", normalise="none").normalise("e\u0301") == "e\u0301"
    assert trained("bpe").normalise("e\u0301 ▁") == "é _"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", " ", "\n\t\x1f\u2003"])
def test_nothing_is_nothing(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    assert tokenizer.encode(text) == []
    assert tokenizer.encode_detailed(text) == ([], [], [], [])
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_many([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_an_odd_character_not_a_crash(kind: str) -> None:
    text = "the \ud800 cat"
    tokenizer = trained(kind)
    assert tokenizer.decode(tokenizer.encode(text)) == "the <unk> cat"
    assert tokenizer.encode_many([text]) == [tokenizer.encode(text)]
    Tokenizer.train([text], TextSettings(tokenizer=kind, vocabulary_size=50))


# -- how text is cut -------------------------------------------------------------------------------------------------


def test_word_pieces_by_hand() -> None:
    tokenizer = trained("word")
    ids = tokenizer.encode("l'homme, the cat's")
    assert tokenizer.pieces(ids) == ["▁l'", "homme", ",", "▁the", "▁cat", "'s"]
    assert tokenizer.labels(ids) == ["l'", "homme", ",", "the", "cat", "'s"]


def test_characters_are_single() -> None:
    tokenizer = trained("character")
    ids = tokenizer.encode("le été")
    assert tokenizer.pieces(ids) == ["▁", "l", "e", "▁", "é", "t", "é"]
    assert tokenizer.labels(ids) == ["␣", "l", "e", "␣", "é", "t", "é"]
    assert all(len(tokenizer.pieces([index])[0]) == 1 for index in range(4, len(tokenizer)))


@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
@given(text=known_to_both)
def test_no_piece_crosses_a_word(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    normalised = tokenizer.normalise(text)
    details = tokenizer.encode_detailed(normalised)
    assert set(details.words) == set(range(len(split_words(normalised))))
    if kind == "word":
        assert details.words == list(range(len(details.ids)))
        assert [normalised[start:end] for start, end in details.spans] == split_words(normalised)


def test_bpe_labels_mark_what_continues_a_word() -> None:
    tokenizer = trained("bpe", 150)
    ids = [*tokenizer.encode("the thewitch, l'homme"), UNK_ID, EOS_ID]
    labels, pieces = tokenizer.labels(ids), tokenizer.pieces(ids)
    assert not any("▁" in label for label in labels)
    assert labels[0] == "the"
    assert labels[pieces.index(",")] == ","
    assert labels[-2:] == [UNK, "<eos>"]
    assert any(label.startswith("·") for label in labels)
    plain = "".join(label.removeprefix("·").replace("␣", "") for label in labels[:-2])
    assert plain == "thethewitch,l'homme"


# -- where pieces come from ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(text=anything)
def test_spans_cover_every_visible_character_in_order(kind: str, text: str) -> None:
    details = trained(kind).encode_detailed(text)
    assert len(details.ids) == len(details.pieces) == len(details.spans) == len(details.words)
    starts = [start for start, _ in details.spans]
    assert starts == sorted(starts)
    assert all(0 <= start <= end <= len(text) for start, end in details.spans)
    covered = {index for start, end in details.spans for index in range(start, end)}
    assert covered >= {index for index, character in enumerate(text) if not character.isspace()}


@pytest.mark.parametrize("kind", KINDS)
@given(text=in_alphabet)
def test_a_span_reads_as_its_piece(kind: str, text: str) -> None:
    details = trained(kind).encode_detailed(text)
    for index, piece, (start, end) in zip(details.ids, details.pieces, details.spans, strict=True):
        if piece == "▁":
            assert text[start:end].strip() == ""
        elif index != UNK_ID:
            assert text[start:end] == piece.removeprefix("▁")


@pytest.mark.parametrize("kind", KINDS)
@given(text=in_alphabet)
def test_the_word_of_a_piece_contains_it(kind: str, text: str) -> None:
    details = trained(kind).encode_detailed(text)
    words = split_words(text)
    rebuilt = [""] * len(words)
    for word, (start, end) in zip(details.words, details.spans, strict=True):
        rebuilt[word] += text[start:end].strip()
    assert rebuilt == words


def test_offsets_by_hand() -> None:
    text = "  E\u0301té\t\tl'homme"
    details = trained("word", lowercase=True).encode_detailed(text)
    assert [text[start:end] for start, end in details.spans] == ["E\u0301té", "l'", "homme"]
    assert details.pieces == [UNK, "▁l'", "homme"]  # "été" is known only after "l'"
    assert details.words == [0, 1, 2]
    spelled = trained("character", lowercase=True).encode_detailed(text)
    assert [text[start:end] for start, end in spelled.spans][:5] == ["", "E\u0301", "t", "é", "\t"]
    assert spelled.words == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("kind", OPEN)
@given(text=in_alphabet)
def test_words_of_an_output_are_those_of_its_text(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    normalised = tokenizer.normalise(text)
    ids = tokenizer.encode(text)
    assert tokenizer.piece_words(ids) == tokenizer.encode_detailed(normalised).words
    framed = [BOS_ID, *ids, EOS_ID, PAD_ID]
    assert tokenizer.piece_words(framed) == [-1, *tokenizer.piece_words(ids), -1, -1]


@pytest.mark.parametrize("form", ["nfc", "nfkc", "none"])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "spaces", "verbatim"])
@given(texts=st.lists(anything | in_alphabet, max_size=4))
def test_many_texts_are_cut_like_one(kind: str, lowercase: bool, form: str, texts: list[str]) -> None:
    """Words that were met before are looked up: that must not change what comes out, whatever stands around them."""
    tokenizer = trained(kind, lowercase=lowercase, normalise=form)
    one_by_one = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_many(texts) == one_by_one
    assert tokenizer.encode_many(texts) == one_by_one, "now that they are known"


def test_what_is_remembered_of_texts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.from_json(trained("bpe").to_json(), "here")
    monkeypatch.setattr(tokenizers, "MOST_KNOWN", 10)
    texts = [f"word{number} house" for number in range(50)]
    for first in range(0, 50, 5):
        asked = [*texts[first : first + 5], "x" * (tokenizers.LONGEST_KNOWN + 1)]
        assert tokenizer.encode_many(asked) == [tokenizer.encode(text) for text in asked]
        assert len(tokenizer._known) <= 10
        assert max(map(len, tokenizer._known)) <= tokenizers.LONGEST_KNOWN


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_ids_decode_to_tidy_text(kind: str, data: st.DataObject) -> None:
    """A model may put out pieces in an order that no text has."""
    tokenizer = trained(kind)
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=20))
    text = tokenizer.decode(ids)
    assert text == " ".join(text.split())
    assert text == tokenizer._rendered(ids, None)[0], "what is joined at once is what is put together piece by piece"
    words = tokenizer.piece_words(ids)
    count = len(split_words(text))
    visible = [word for index, word in zip(ids, words, strict=True) if index not in (PAD_ID, BOS_ID, EOS_ID)]
    assert visible == sorted(visible)
    assert all(0 <= word < count for word in visible) or count == 0
    assert all(word == -1 for index, word in zip(ids, words, strict=True) if index in (PAD_ID, BOS_ID, EOS_ID))
    assert len(tokenizer.labels(ids)) == len(ids)


# -- unknown words ---------------------------------------------------------------------------------------------------


def test_an_unknown_word_is_replaced_as_a_word() -> None:
    tokenizer = trained("word")
    ids = tokenizer.encode("the Zorro, (Zorro) l'Zorro house")
    assert tokenizer.decode(ids) == "the <unk>, (<unk>) l'<unk> house"
    unknown = [position for position, index in enumerate(ids) if index == UNK_ID]
    replacements = dict(zip(unknown, ["Anna", "Bo", "Carl"], strict=True))
    assert tokenizer.decode(ids, replacements) == "the Anna, (Bo) l'Carl house"


def test_replacements_by_hand() -> None:
    tokenizer = trained("word")
    the, house = tokenizer.encode("the house")
    assert tokenizer.decode([UNK_ID, house, UNK_ID]) == "<unk> house <unk>"
    assert tokenizer.decode([the, UNK_ID, house], {1: "rote"}) == "the rote house"
    assert tokenizer.decode([BOS_ID, UNK_ID, house, UNK_ID], {1: "Anna's", 3: "!"}) == "Anna's house!"
    assert tokenizer.decode([*tokenizer.encode("l'homme")[:1], UNK_ID], {1: "hôtel"}) == "l'hôtel"
    assert tokenizer.decode([the, UNK_ID], {0: "no", 1: " two  words "}) == "the two words"
    assert tokenizer.piece_words([the, UNK_ID, house], {1: "two words"}) == [0, 1, 3]


def test_an_unknown_character_keeps_its_place() -> None:
    tokenizer = trained("bpe")
    ids = tokenizer.encode("the ho☃use ☃")
    assert tokenizer.decode(ids) == "the ho<unk>use <unk>"
    place = ids.index(UNK_ID)
    assert tokenizer.decode(ids, {place: "☃"}) == "the ho☃use <unk>"


def test_unknown_characters_are_counted_one_by_one() -> None:
    assert trained("bpe").encode("дд").count(UNK_ID) == 2


def test_unknown_rate() -> None:
    tokenizer = trained("word")
    assert tokenizer.unknown_rate(["the house", "the zzz", ""]) == (1, 4)
    assert tokenizer.unknown_rate(iter([])) == (0, 0)
    assert tokenizer.unknown_rate(iter(["the zzz"] * 2500)) == (2500, 5000)


# -- reserved symbols ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", [*SPECIAL, "a<eos>b", " <pad> <bos>", "▁<eos>", "<eos><eos>", "x <unk>"])
def test_text_never_gives_a_reserved_id(kind: str, text: str) -> None:
    for tokenizer in (trained(kind), Tokenizer.from_json(trained(kind).to_json())):
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(tokenizer.encode(text))
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(tokenizer.encode_many([text, text])[1])


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_reserved_symbols_teaches_no_reserved_id(kind: str) -> None:
    tokenizer = Tokenizer.train(["<eos> <pad>", "<eos>"] * 50, TextSettings(tokenizer=kind, vocabulary_size=60))
    assert tokenizer.decode(tokenizer.encode("<eos> <pad>")) == "<eos> <pad>"
    assert min(tokenizer.encode("<eos> <pad>")) >= len(SPECIAL)


@pytest.mark.parametrize("kind", KINDS)
def test_reserved_symbols_come_first_and_are_dropped_from_text(kind: str) -> None:
    tokenizer = trained(kind)
    assert tuple(tokenizer.pieces(range(4))) == SPECIAL
    ids = tokenizer.encode("the house")
    assert tokenizer.decode([BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID]) == "the house"


@pytest.mark.parametrize("index", [-1, 10**6])
def test_an_id_outside_the_vocabulary(index: int) -> None:
    with pytest.raises(UserError, match=f"there is no token {index}; this vocabulary has ids 0 to"):
        trained("bpe").decode([5, index])


# -- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_size_is_a_ceiling_that_counts_reserved_symbols(kind: str) -> None:
    assert len(trained(kind, 130)) <= 130
    assert len(trained("bpe", 130)) == 130
    assert len(trained("word", 40)) == 40


@pytest.mark.parametrize("kind", ["word", "character"])
def test_no_size_keeps_everything(kind: str) -> None:
    tokenizer = trained(kind, None)
    assert tokenizer.unknown_rate(TRAINING)[0] == 0


@pytest.mark.parametrize("kind", ["word", "character", "bpe"])
def test_training_twice_gives_the_same_file(kind: str) -> None:
    settings = TextSettings(tokenizer=kind, vocabulary_size=200)
    assert Tokenizer.train(TRAINING, settings).to_json() == Tokenizer.train(iter(TRAINING), settings).to_json()


def test_min_frequency() -> None:
    settings = TextSettings(tokenizer="word", min_frequency=2)
    tokenizer = Tokenizer.train(["a b", "a c", "a b"], settings)
    assert tokenizer.pieces(range(4, len(tokenizer))) == ["▁a", "▁b"]
    merged = Tokenizer.train(["ab ab ab cd"], TextSettings(tokenizer="bpe", min_frequency=3))
    assert "▁ab" in merged.pieces(range(len(merged)))
    assert not any("cd" in piece for piece in merged.pieces(range(len(merged))))


def test_bpe_alphabet_is_limited_to_the_frequent() -> None:
    rare = [chr(0x4E00 + index) for index in range(tokenizers.ALPHABET_LIMIT + 200)]
    tokenizer = Tokenizer.train(["common words " * 50, *rare], TextSettings(vocabulary_size=2000))
    assert UNK_ID not in tokenizer.encode("common words")
    assert tokenizer.unknown_rate(rare)[0] >= 200


def test_progress_counts_texts_and_texts_are_streamed() -> None:
    seen: list[int] = []
    held: list[int] = []

    def texts() -> Iterator[str]:
        for index in range(2500):
            held.append(index)
            yield f"text {index % 7}"

    Tokenizer.train(texts(), TextSettings(vocabulary_size=50), progress=seen.append)
    assert seen == [1000, 2000, 2500]
    assert len(held) == 2500


def test_an_error_in_the_stream_keeps_its_type() -> None:
    def texts() -> Iterator[str]:
        yield "a b"
        raise UserError("pairs.tsv:2: expected 2 columns")

    with pytest.raises(UserError, match="expected 2 columns"):
        Tokenizer.train(texts(), TextSettings())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_nothing_to_learn_from(kind: str, texts: list[str]) -> None:
    with pytest.raises(UserError, match="give training texts that are not empty"):
        Tokenizer.train(texts, TextSettings(tokenizer=kind))


def test_min_frequency_that_leaves_nothing() -> None:
    with pytest.raises(UserError, match=r"lower text\.min_frequency"):
        Tokenizer.train(["a b c"], TextSettings(tokenizer="word", min_frequency=5))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_size_below_the_alphabet(kind: str) -> None:
    with pytest.raises(UserError, match=r"text\.vocabulary_size 20 does not even hold"):
        Tokenizer.train(TRAINING, TextSettings(tokenizer=kind, vocabulary_size=20))


def test_one_string_is_not_a_stream_of_texts() -> None:
    with pytest.raises(TypeError):
        Tokenizer.train("a b c", TextSettings())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tokenizer": "bep"}, "did you mean 'bpe'"),
        ({"vocabulary_size": 7}, "vocabulary_size"),
        ({"vocabulary_size": None}, "needs a vocabulary_size"),
        ({"min_frequency": 0}, "min_frequency"),
        ({"tokenizer": "unigram", "min_frequency": 2}, "does nothing for tokenizer unigram"),
        ({"normalize": "nfc"}, "did you mean 'normalise'"),
    ],
)
def test_wrong_settings(values: dict, problem: str) -> None:
    settings, problems = check(TextSettings, values)
    assert settings is None
    assert len(problems) == 1
    assert problem in problems[0]


# -- many at once, and files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(anything, max_size=8))
def test_many_is_one_by_one(kind: str, texts: list[str]) -> None:
    tokenizer = trained(kind)
    assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]


def test_many_keeps_the_order_over_batches() -> None:
    tokenizer = trained("word")
    texts = [["the", "the cat", "house"][index % 3] for index in range(20_000)]
    one_by_one = [tokenizer.encode(text) for text in texts[:3]]
    assert tokenizer.encode_many(texts) == [one_by_one[index % 3] for index in range(20_000)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind, lowercase=True)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.to_json() == tokenizer.to_json() == path.read_text(encoding="utf-8")
    assert loaded.settings == tokenizer.settings
    assert loaded.kind == kind
    assert len(loaded) == len(tokenizer)
    assert loaded.encode_many(SENTENCES) == tokenizer.encode_many(SENTENCES)
    assert os.listdir(tmp_path) == ["tokenizer.json"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_one_of_the_library_as_well(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = library.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "the green witch's house, l'homme"
    assert theirs.encode(text).ids == tokenizer.encode(text)
    assert theirs.decode(tokenizer.encode(text)) == text


def _damaged(change: str) -> str:
    description = json.loads(trained("bpe").to_json())
    match change:
        case "foreign":
            del description["normalizer"]["seqloom"]
        case "kind":
            description["normalizer"]["seqloom"]["tokenizer"] = "word"
        case "setting":
            description["normalizer"]["seqloom"]["tokeniser"] = "word"
        case "specials":
            vocabulary = description["model"]["vocab"]
            vocabulary["<pad>"], vocabulary["<eos>"] = 3, 0
        case "gap":
            description["model"]["vocab"]["<eos>"] = 10**6
        case "unknown":
            description["model"]["unk_token"] = None
        case "merges":
            description["model"]["merges"] = [["no", "such"]]
        case "added":
            description["added_tokens"] = [{"id": 3, "content": "<eos>", "special": True}]
        case "model":
            description["model"] = []
    return json.dumps(description)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        (trained("bpe").to_json()[:-100], "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1, 2]", "not a tokenizer that seqloom wrote"),
        (_damaged("foreign"), "not a tokenizer that seqloom wrote"),
        (_damaged("model"), "not a tokenizer that seqloom wrote"),
        (_damaged("kind"), "not that of a word tokenizer"),
        (_damaged("setting"), "did you mean 'tokenizer'"),
        (_damaged("specials"), "ids 0 to 3 must be"),
        (_damaged("gap"), "ids 0 to 3 must be"),
        (_damaged("unknown"), "is not its unknown token"),
        (_damaged("merges"), "damaged tokenizer file"),
        (_damaged("added"), "added tokens"),
    ],
)
def test_a_damaged_file_gets_one_clear_message(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, RecipeError) == ("did you mean" in message)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        Tokenizer.load(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        Tokenizer.load(tmp_path / "binary.json")
    trained("bpe").save(tmp_path / "big.json")
    monkeypatch.setattr(tokenizers, "MAX_FILE_BYTES", 1000)
    with pytest.raises(UserError, match="over 1,000 bytes"):
        Tokenizer.load(tmp_path / "big.json")


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    trained("bpe").save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        trained("word").save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["tokenizer.json"]
    with pytest.raises(RunError, match="cannot be written"):
        trained("word").save(tmp_path / "no" / "folder" / "tokenizer.json")


def test_importing_needs_no_torch() -> None:
    code = "import sys, seqloom.text.tokenizers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

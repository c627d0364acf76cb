"""Strings <-> ids: words, characters, BPE or Unigram pieces, all behind one class and in one JSON file.

Every kind but one works on the same normalised text, in which a space is written "▁" and glued to what follows it:

    "It's  the  cat." -> "▁It's▁the▁cat." -> ▁It 's ▁the ▁cat .

so pieces put together again give exactly the normalised text, and no language needs rules for spaces. A "▁" of the
user's own becomes "_". The reserved symbols cannot be written in a text: "<eos>" is three ordinary words. Two kinds
are for texts that others have prepared: `spaces` takes the words between spaces as they are, where "<unk>" does stand
for an unknown word; `verbatim`, the one exception, takes every character as it is, spaces and line breaks too.

The file is a plain `tokenizers` file; our settings ride along inside its normalizer, where that library ignores them.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from seqloom.errors import RunError, UserError
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, SPECIAL, UNK, UNK_ID
from seqloom.text.words import word_spans

if TYPE_CHECKING:  # one sentence must be answered soon: settings are made when somebody asks for them
    from seqloom.text.settings import TextSettings

SPACE = "▁"
MAX_FILE_BYTES = 64_000_000
BATCH = 8192  # texts that are encoded at once: the library's own records are much larger than the ids
MOST_KNOWN, LONGEST_KNOWN = 200_000, 40  # words whose ids are remembered, and the characters of one
ALPHABET_LIMIT = 1000  # BPE keeps this many characters, the most frequent: stray symbols must not eat the vocabulary

# The classes below are those of `words.py` in the other engine's spelling; a test compares them over all of Unicode.
_WORD = r"\p{L}\p{M}\p{N}_"
_WORDS = (
    rf"{SPACE}?(?:(?<![{_WORD}])(?:[cdjlmnstCDJLMNST]|[qQ][uU])['’](?=[{_WORD}])"
    rf"|(?<=[{_WORD}])['’][{_WORD}]+|[{_WORD}]+|[^{_WORD}{SPACE}])"
)
_CHARACTERS = r"[\s\S]"
_BETWEEN_SPACES = rf"{SPACE}[^{SPACE}]*"
_SEPARATORS = r"[\x1c-\x1f]"  # the only characters that are whitespace to Python but not to the library
_SURROGATES = re.compile("[\ud800-\udfff]")


class Detailed(NamedTuple):
    """An encoded text with where each piece came from."""

    ids: list[int]
    pieces: list[str]
    spans: list[tuple[int, int]]  # characters of the original text, without the space before a word
    words: list[int]  # index into split_words(text)


class Tokenizer:
    """One trained tokenizer. Immutable; made by `train`, `load` or `from_json`, or by `as_saved` of a file known well.

    Attributes:
        kind: word, spaces, character, verbatim, bpe or unigram.
    """

    def __init__(self, backend: tokenizers.Tokenizer, settings: TextSettings | Mapping[str, Any]) -> None:
        self._given = settings
        self.kind: str = settings["tokenizer"] if isinstance(settings, Mapping) else settings.tokenizer
        self._backend = backend
        self._known: dict[str, list[int]] = {}  # ids of what stood between two spaces before
        self._pieces = [backend.id_to_token(index) or "" for index in range(backend.get_vocab_size())]

    # -- making ------------------------------------------------------------------------------------------------------

    @classmethod
    def train(
        cls, texts: Iterable[str], settings: TextSettings, progress: Callable[[int], None] | None = None
    ) -> Tokenizer:
        """Learn the vocabulary from a stream of texts, read once and never held.

        Args:
            texts: one text per item.
            settings: the kind of tokenizer and its size.
            progress: called now and then, and once at the end, with the number of texts read so far.
        """
        if isinstance(texts, str):
            raise TypeError("texts is an iterable of strings, not one string")
        backend = _untrained(settings)
        try:
            backend.train_from_iterator(_stream(texts, progress), _trainer(settings))
        except Exception as error:
            if "not large enough" in str(error):
                raise UserError(
                    f"text.vocabulary_size {settings.vocabulary_size} does not even hold every character of the texts; "
                    "raise it"
                ) from None
            raise
        size = backend.get_vocab_size()
        if size <= len(SPECIAL):
            lower = " or lower text.min_frequency" if settings.min_frequency > 1 else ""
            raise UserError(
                f"there is nothing to learn a vocabulary from: give training texts that are not empty{lower}"
            )
        if settings.vocabulary_size is not None and size > settings.vocabulary_size:
            raise UserError(
                f"text.vocabulary_size {settings.vocabulary_size} does not even hold the {size - len(SPECIAL)} "
                f"different characters of the texts and the {len(SPECIAL)} reserved symbols; make it more than {size}"
            )
        # The trainer registers the reserved symbols as strings to look for in the text; we want them out of reach.
        description = json.loads(backend.to_str())
        description["added_tokens"] = []
        if settings.tokenizer == "spaces":  # whoever wrote "<unk>" into the text meant a word that is not known
            numbers = backend.get_vocab()
            kept = [word for word in sorted(numbers, key=numbers.__getitem__) if word != SPACE + UNK]
            description["model"]["vocab"] = {word: index for index, word in enumerate(kept)}
        return cls(tokenizers.Tokenizer.from_str(json.dumps(description)), settings)

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Tokenizer:
        """A tokenizer that cuts at spaces, for words that are known already, in the order of their ids after the
        reserved symbols."""
        from seqloom.text.settings import TextSettings

        settings = TextSettings(tokenizer="spaces", vocabulary_size=None, normalise="none")
        description = json.loads(_untrained(settings).to_str())
        pieces = [*SPECIAL, *(SPACE + word for word in words)]
        description["model"]["vocab"] = {piece: index for index, piece in enumerate(pieces)}
        if len(description["model"]["vocab"]) != len(pieces):
            raise UserError("a vocabulary holds each word once; some are there twice")
        return cls(tokenizers.Tokenizer.from_str(json.dumps(description)), settings)

    def to_json(self) -> str:
        """Everything about this tokenizer, in the format of the `tokenizers` library."""
        description = json.loads(self._backend.to_str())
        description["normalizer"]["seqloom"] = self.settings.model_dump()
        return json.dumps(description, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, origin: str = "tokenizer") -> Tokenizer:
        """The tokenizer that `to_json` described; `origin` names the place in errors."""
        from seqloom.settings import validated
        from seqloom.text.settings import TextSettings

        description = _parsed(text, origin)
        settings = validated(TextSettings, description["normalizer"]["seqloom"], origin)
        model = description["model"]
        if model.get("type") != _MODEL_TYPES[settings.tokenizer]:
            raise UserError(f"{origin}: the model inside is not that of a {settings.tokenizer} tokenizer")
        try:
            backend = tokenizers.Tokenizer.from_str(text)
            tokenizer = cls(backend, settings)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library's is no Exception
            raise UserError(f"{origin}: damaged tokenizer file: {error}") from None
        if model.get("unk_token") != UNK and model.get("unk_id") != UNK_ID:
            raise UserError(f"{origin}: damaged vocabulary: {UNK} is not its unknown token")
        if tuple(tokenizer._pieces[: len(SPECIAL)]) != SPECIAL or "" in tokenizer._pieces:
            raise UserError(
                f"{origin}: damaged vocabulary: ids 0 to 3 must be {', '.join(SPECIAL)}, with no id missing"
            )
        return tokenizer

    def save(self, path: str | Path) -> None:
        """Write one JSON file; a reader never sees half of it."""
        path = Path(path)
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with open(aside, "w", encoding="utf-8", newline="\n") as file:
                file.write(self.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError as error:
            raise RunError(f"{path}: cannot be written: {error.strerror}") from None
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a file that `save` wrote."""
        path = Path(path)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise UserError(f"{path}: over {MAX_FILE_BYTES:,} bytes, which no tokenizer of ours is")
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        return cls.from_json(text, str(path))

    @classmethod
    def as_saved(cls, content: bytes, settings: Mapping[str, Any]) -> Tokenizer:
        """From the bytes of a file that are known to be what `save` wrote, with these settings: nothing is checked."""
        return cls(tokenizers.Tokenizer.from_buffer(content), settings)

    # -- text -> ids -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._pieces)

    @cached_property
    def settings(self) -> TextSettings:
        """How it was made."""
        from seqloom.settings import validated
        from seqloom.text.settings import TextSettings

        return validated(TextSettings, self._given) if isinstance(self._given, Mapping) else self._given

    def normalise(self, text: str) -> str:
        """The text as this tokenizer sees it, and as `decode(encode(text))` gives it back."""
        normalised = self._backend.normalizer.normalize_str(_clean(text))
        return normalised if self.kind == "verbatim" else normalised.replace(SPACE, " ").removeprefix(" ")

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without begin or end symbols."""
        return self._backend.encode(_clean(text), add_special_tokens=False).ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts at once.

        No token reaches across a space, and most words were met before: these are looked up. What is new is cut into
        pieces on all cores.
        """
        if self.kind in ("character", "verbatim"):
            return self._encoded(texts)
        encoded: list[list[int]] = []
        for first in range(0, len(texts), BATCH):
            rows = [text.split(" ") for text in texts[first : first + BATCH]]
            known = self._known
            new = list({field for row in rows for field in row if field not in known})
            fresh = dict(zip(new, self._encoded(new), strict=True))
            encoded += [
                [i for field in row for i in (known[field] if field in known else fresh[field])] for row in rows
            ]
            short = {field: ids for field, ids in fresh.items() if len(field) <= LONGEST_KNOWN}
            if len(known) + len(short) <= MOST_KNOWN:
                known.update(short)
            else:
                self._known = dict(islice(short.items(), MOST_KNOWN))
        return encoded

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        encoded: list[list[int]] = []
        for first in range(0, len(texts), BATCH):
            batch = [_clean(text) for text in texts[first : first + BATCH]]
            encoded += [encoding.ids for encoding in self._backend.encode_batch_fast(batch, add_special_tokens=False)]
        return encoded

    def chunks(self, text: str) -> list[str]:
        """The parts of the normalised text that are cut into pieces one by one: words with the "▁" before them."""
        normalised = self._backend.normalizer.normalize_str(_clean(text))
        return [part for part, _ in self._backend.pre_tokenizer.pre_tokenize_str(normalised)]

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The ids of pieces; one that is not in the vocabulary is unknown."""
        found = map(self._backend.token_to_id, pieces)
        return [UNK_ID if index is None else index for index in found]

    def merges(self) -> list[tuple[str, str]]:
        """The pairs that BPE learned to glue together, in order."""
        return [(left, right) for left, right in json.loads(self._backend.to_str())["model"].get("merges", [])]

    def encode_detailed(self, text: str) -> Detailed:
        """The ids of a text, and for each the characters and the word of the original text that it stands for."""
        encoding = self._backend.encode(_clean(text), add_special_tokens=False)
        spans = _tight_spans(text, encoding.tokens, encoding.offsets)
        starts = [start for start, _ in word_spans(text)]
        # A lone space belongs to the word after it, which starts where the space ends.
        words = [bisect_right(starts, end if text[start:end].isspace() else start) - 1 for start, end in spans]
        return Detailed(encoding.ids, self.pieces(encoding.ids), spans, words)

    def unknown_rate(self, texts: Iterable[str]) -> tuple[int, int]:
        """How many tokens of the texts are unknown, and how many there are."""
        unknown = total = 0
        stream = iter(texts)
        while chunk := list(islice(stream, 1000)):
            for ids in self.encode_many(chunk):
                unknown += ids.count(UNK_ID)
                total += len(ids)
        return unknown, total

    # -- ids -> text -------------------------------------------------------------------------------------------------

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens as they are in the vocabulary, "▁" for a space."""
        try:
            return list(map(self._piece_of.__getitem__, ids))
        except KeyError:
            wrong = next(index for index in ids if not 0 <= index < len(self))
            raise UserError(f"there is no token {wrong}; this vocabulary has ids 0 to {len(self) - 1}") from None

    def labels(self, ids: Sequence[int]) -> list[str]:
        """The tokens as a plot's axis shows them: no "▁", and "·" before a piece that continues a word."""
        pieces = self.pieces(ids)
        if self.kind == "verbatim":
            return [_VISIBLE.get(piece, piece) for piece in pieces]
        if self.kind in _WHOLE:
            return ["␣" if piece == SPACE else piece.removeprefix(SPACE) for piece in pieces]
        labels = []
        previous = -1
        for index, piece, word in zip(ids, pieces, self.piece_words(ids), strict=True):
            continues = word == previous and index >= len(SPECIAL) and not piece.startswith(SPACE)
            labels.append("␣" if piece == SPACE else "·" + piece if continues else piece.removeprefix(SPACE))
            previous = -1 if piece == SPACE else word
        return labels

    def labels_of(self, text: str) -> list[str]:
        """The labels of a text's tokens; an unknown one shows what it stands for, as in <unk: Xerxes>."""
        ids, _, spans, _ = self.encode_detailed(text)
        return [
            f"{UNK[:-1]}: {text[start:end]}>" if index == UNK_ID and end > start else label
            for index, label, (start, end) in zip(ids, self.labels(ids), spans, strict=True)
        ]

    def decode(self, ids: Sequence[int], replacements: Mapping[int, str] | None = None) -> str:
        """Natural text: padding, begin and end are dropped, an unknown token reads "<unk>".

        Args:
            ids: tokens, as a model put them out.
            replacements: for positions in `ids` that hold an unknown token, the text to show instead.
        """
        try:
            text = "".join(map(self._shown.__getitem__, ids))
        except KeyError:  # an unknown token, or one that there is not: this says what is wrong
            return self._rendered(ids, replacements)[0]
        if self.kind == "verbatim":
            return text
        return self._rendered(ids, None)[0] if "  " in text else text.strip(" ")

    @cached_property
    def _piece_of(self) -> dict[int, str]:
        """The tokens once more: a list would also answer to numbers below 0."""
        return dict(enumerate(self._pieces))

    @cached_property
    def _shown(self) -> dict[int, str]:
        """Each token, but for the unknown one, as it reads in the middle of a text."""
        shown = self._pieces if self.kind == "verbatim" else [piece.replace(SPACE, " ") for piece in self._pieces]
        silent = dict.fromkeys((PAD_ID, BOS_ID, EOS_ID), "")
        return {index: text for index, text in enumerate(shown) if index != UNK_ID} | silent

    def piece_words(self, ids: Sequence[int], replacements: Mapping[int, str] | None = None) -> list[int]:
        """For each token, the index of its word in `split_words(decode(ids, replacements))`; -1 for what is dropped."""
        text, positions = self._rendered(ids, replacements)
        starts = [start for start, _ in word_spans(text)]
        return [bisect_right(starts, position) - 1 for position in positions]

    def _rendered(self, ids: Sequence[int], replacements: Mapping[int, str] | None) -> tuple[str, list[int]]:
        """The decoded text, and where in it the first visible character of each token is (-1: nowhere)."""
        parts: list[str] = []
        positions: list[int] = []
        length = 0
        for position, (index, piece) in enumerate(zip(ids, self.pieces(ids), strict=True)):
            if index in (PAD_ID, BOS_ID, EOS_ID):
                positions.append(-1)
                continue
            if self.kind == "verbatim":
                shown = (replacements or {}).get(position, UNK) if index == UNK_ID else piece
                positions.append(length)
                parts.append(shown)
                length += len(shown)
                continue
            before = parts[-1] if parts else " "
            if index == UNK_ID:
                shown = " ".join((replacements or {}).get(position, UNK).split())
                # A word-level token took its space along into the unknown; elsewhere the space is a known piece.
                if shown and (self.kind == "spaces" or (self.kind == "word" and not _adjoin(before, shown))):
                    shown = " " + shown
            else:
                shown = piece.replace(SPACE, " ")
            if shown.startswith(" ") and before.endswith(" "):  # models may put out what no text has: two spaces
                shown = shown[1:]
            positions.append(length + shown.startswith(" "))
            if shown:
                parts.append(shown)
                length += len(shown)
        text = "".join(parts)
        return text if self.kind == "verbatim" else text.rstrip(" "), positions


_WHOLE = ("word", "spaces", "character", "verbatim")  # kinds that know a token or do not; the others put it together
_MODEL_TYPES = {**dict.fromkeys(_WHOLE, "WordLevel"), "bpe": "BPE", "unigram": "Unigram"}
_PATTERNS = {"character": _CHARACTERS, "verbatim": _CHARACTERS, "spaces": _BETWEEN_SPACES}
_VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥"}


def _untrained(settings: TextSettings) -> tokenizers.Tokenizer:
    """The pipeline of a kind, with an empty model."""
    model: Any
    match settings.tokenizer:
        case "bpe":
            model = models.BPE(unk_token=UNK, fuse_unk=False)
        case "unigram":
            model = models.Unigram()
        case _:
            model = models.WordLevel(unk_token=UNK)
    backend = tokenizers.Tokenizer(model)
    forms: dict[str, list[Any]] = {"nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()], "none": []}
    steps = forms[settings.normalise]
    steps += [normalizers.Lowercase()] if settings.lowercase else []
    if settings.tokenizer != "verbatim":
        steps += [
            normalizers.Replace(SPACE, "_"),
            normalizers.Replace(Regex(_SEPARATORS), " "),
            normalizers.Strip(),
            normalizers.Prepend(SPACE),
            normalizers.Replace(Regex(r"\s+"), SPACE),
        ]
        backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")  # for other users of the file
    backend.normalizer = normalizers.Sequence(steps)
    pattern = _PATTERNS.get(settings.tokenizer, _WORDS)
    if settings.whole is None:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    else:  # the spaces first: no expression reaches across one
        cut: list[Any] = [SPACE, Regex(f"(?:{settings.whole})|{pattern}")]
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(at, "isolated") for at in cut])
    return backend


def _trainer(settings: TextSettings) -> Any:
    common: dict[str, Any] = {"special_tokens": list(SPECIAL), "show_progress": False}
    size, frequency = settings.vocabulary_size or 1 << 31, settings.min_frequency
    match settings.tokenizer:
        case "bpe":
            return trainers.BpeTrainer(
                vocab_size=size, min_frequency=frequency, limit_alphabet=ALPHABET_LIMIT, **common
            )
        case "unigram":
            return trainers.UnigramTrainer(vocab_size=size, unk_token=UNK, **common)
        case _:
            return trainers.WordLevelTrainer(vocab_size=size, min_frequency=frequency, **common)


def _stream(texts: Iterable[str], progress: Callable[[int], None] | None) -> Iterator[str]:
    count = 0
    for count, text in enumerate(texts, 1):
        yield _clean(text)
        if progress is not None and count % 1000 == 0:
            progress(count)
    if progress is not None:
        progress(count)


def _clean(text: str) -> str:
    """Half a surrogate pair is no character, but JSON can smuggle one in; the library would refuse the whole text."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _tight_spans(text: str, tokens: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The library's offsets, made to cover every visible character of the text and no space before a word."""
    spans = []
    following = [*(start for start, _ in offsets), len(text)][1:]
    for token, (start, end), limit in zip(tokens, offsets, following, strict=True):
        if token == SPACE:
            if not text[start:end].isspace():  # the space put before the text, which is nowhere in the original
                end = start
        else:
            while start < end and text[start].isspace():
                start += 1
            while end < limit and not text[end].isspace():  # marks that were composed with the letter before them
                end += 1
        spans.append((start, end))
    return spans


def _adjoin(before: str, after: str) -> bool:
    """Whether an unknown word is written right after what stands before it: "l'" + hotel, "(" + word, word + ","."""
    clitic = before[-1] in "'’" and len(before.strip()) > 1
    opening = before[-1] in "¿¡" or unicodedata.category(before[-1]) == "Ps"
    closing = after[0] in "'’”.,;:!?…%" or unicodedata.category(after[0]) == "Pe"
    return clitic or opening or closing


def _parsed(text: str, origin: str) -> dict[str, Any]:
    """The JSON of a tokenizer file, with the parts that we rely on checked."""
    try:
        description = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{origin}: not a tokenizer file (not valid JSON: {error}); copy or train it again") from None
    parts = description if isinstance(description, dict) else {}
    normalizer, model = parts.get("normalizer"), parts.get("model")
    if not isinstance(model, dict) or not isinstance(normalizer, dict) or "seqloom" not in normalizer:
        raise UserError(f"{origin}: JSON, but not a tokenizer that seqloom wrote")
    if any(description.get(name) for name in ("added_tokens", "truncation", "padding", "post_processor")):
        raise UserError(
            f"{origin}: holds added tokens, truncation, padding or a post-processor, which seqloom never writes"
        )
    return description

"""Tags as a target: one for each word, and which of them may stand beside each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field as Setting
from torch import Tensor

from seqloom.batches.collate import padded, twice
from seqloom.batches.shards import Field
from seqloom.corpus.examples import TagsAndLabel
from seqloom.errors import UserError, did_you_mean
from seqloom.evaluation.spans import follows, from_bioes, scheme_of, to_bioes
from seqloom.files import read_json
from seqloom.nn.crf import Chain, log_partition, sequence_scores
from seqloom.nn.masks import length_mask
from seqloom.settings import Settings
from seqloom.targets.label import Labels, LabelTarget

FILE = "tags.json"
MOST = 10_000
FORBIDDEN = -1e4  # in place of minus infinity: sums with it stay numbers


class TagSettings(Settings):
    """How tags are learned."""

    scheme: Literal["data", "bioes"] = Setting(
        "data",
        description="data: tags as they are in the data; bioes: tags of spans are learned with a mark for the last "
        "word (E) and for a span of one word (S), and shown as B, I and O",
    )


@dataclass(frozen=True)
class Tags:
    """A tag for each word: `ids` (batch, time), 0 at padding and at the end; `lengths` (batch,) words.

    `labels` (batch,) are those of whole texts, where they have any.
    """

    ids: Tensor
    lengths: Tensor
    labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    @property
    def mask(self) -> Tensor:
        """(batch, time), True at words."""
        return length_mask(self.lengths, self.ids.shape[1])

    def doubled(self) -> Tags:
        ids, lengths = twice(self.ids, self.lengths)
        return Tags(ids, lengths, None if self.labels is None else twice(self.labels)[0])

    def part(self, rows: slice) -> Tags:
        lengths = self.lengths[rows]
        width = int(lengths.max()) + 1 if len(lengths) else 0
        return Tags(self.ids[rows, :width], lengths, None if self.labels is None else self.labels[rows])


@dataclass(frozen=True)
class TagTarget:
    """Tags <-> numbers, in alphabetical order. `names` are those that are learned, after the scheme was changed."""

    names: tuple[str, ...]
    scheme: Literal["data", "bioes"] = "data"
    given: Literal["bio", "bioes", "inside", "none"] = "none"
    """How spans are marked in the data; `inside`: B only between two spans of one label; none: tags are no spans."""
    label: LabelTarget | None = None
    """Of whole texts, where they are labelled."""
    ends = 1  # that of a source is a step too, without a tag
    is_text = False

    @classmethod
    def learn(cls, targets: Iterable[Any], scheme: Literal["data", "bioes"] = "data") -> TagTarget:
        """All tags of the training data, and what they say of spans; and all labels, where there are any."""
        raw = list(targets)
        kept = [tuple(tags_of(one)) for one in raw]
        labels = [one.label for one in raw if isinstance(one, TagsAndLabel)]
        found = {tag for tags in kept for tag in tags}
        if len(found) < 2:
            listed = ", ".join(map(repr, found)) or "none"
            raise UserError(f"a tagger needs two tags or more; the training data has {listed}")
        if len(found) > MOST:
            raise UserError(f"{len(found):,} different tags: is the tag column the right one?")
        given = scheme_of(kept)
        if scheme == "bioes":
            if given == "none":
                some = ", ".join(sorted(found)[:5])
                raise UserError(f"tags.scheme: bioes is for tags of spans (B-…, I-…, O); the data has {some}")
            found = {tag for tags in kept for tag in to_bioes(tags)}
        return cls(tuple(sorted(found)), scheme, given, LabelTarget.learn(labels) if labels else None)

    def save(self, folder: Path) -> None:
        values = {"names": self.names, "scheme": self.scheme, "given": self.given, "labelled": self.label is not None}
        if self.label is not None:
            self.label.save(folder)
        (folder / FILE).write_text(json.dumps(values, ensure_ascii=False, indent=0), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> TagTarget:
        values = read_json(folder / FILE)
        damaged = f"{folder / FILE}: not a list of different tags; copy the whole model folder again"
        if not isinstance(values, dict) or set(values) != {"names", "scheme", "given", "labelled"}:
            raise UserError(damaged)
        names, scheme, given = values["names"], values["scheme"], values["given"]
        sound = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
        if not sound or not 2 <= len(set(names)) == len(names) <= MOST:
            raise UserError(damaged)
        if scheme not in ("data", "bioes") or given not in ("bio", "bioes", "inside", "none"):
            raise UserError(damaged)
        return cls(tuple(names), scheme, given, LabelTarget.load(folder) if values["labelled"] is True else None)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def has_spans(self) -> bool:
        return self.given != "none"

    def key(self) -> str:
        return json.dumps([self.names, self.scheme, None if self.label is None else self.label.names])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    # -- tags as numbers ---------------------------------------------------------------------------------------------

    def fields(self) -> dict[str, Field]:
        found = {"tags": Field(self.encode, size=len(self))}
        if self.label is not None:
            numbers, size = self.label.numbers, len(self.label)
            found["label"] = Field(lambda raw: numbers([label_of(one) for one in raw]), size=size, depth=0)
        return found

    def encode(self, sequences: Sequence[Any]) -> list[list[int]]:
        """The numbers of tags; one that training never met is the data's fault."""
        found = []
        for tags in map(tags_of, sequences):
            learned = to_bioes(tags) if self.scheme == "bioes" else tags
            unknown = next((tag for tag in learned if tag not in self._numbers), None)
            if unknown is not None:
                listed = ", ".join(self.names[:20]) + (" …" if len(self) > 20 else "")
                hint = did_you_mean(unknown, self._numbers)
                raise UserError(f"the tag {unknown!r} is not in the training data{hint}; it has: {listed}")
            found.append([self._numbers[tag] for tag in learned])
        return found

    def shown(self, ids: Sequence[int]) -> list[str]:
        """The tags of numbers, as the data writes them."""
        names = [self.names[number] for number in ids]
        return from_bioes(names) if self.scheme == "bioes" else names

    @cached_property
    def shown_names(self) -> tuple[str, ...]:
        """What `shown` may give, in alphabetical order."""
        return tuple(sorted({self._shown_alone(name) for name in self.names}))

    @cached_property
    def shown_of(self) -> Tensor:
        """(learned, shown) 1 where a learned tag is shown as that one: how probabilities are added up."""
        found = torch.zeros(len(self.names), len(self.shown_names), dtype=torch.float64)
        for number, name in enumerate(self.names):
            found[number, self.shown_names.index(self._shown_alone(name))] = 1.0
        return found

    def _shown_alone(self, name: str) -> str:
        return from_bioes([name])[0] if self.scheme == "bioes" else name

    def unknown_rate(self, sequences: Sequence[Any]) -> tuple[int, int]:
        """How many tags training never met, and how many there are."""
        learned = [
            tag for tags in map(tags_of, sequences) for tag in (to_bioes(tags) if self.scheme == "bioes" else tags)
        ]
        return sum(tag not in self._numbers for tag in learned), len(learned)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Tags:
        lengths = [len(row) for row in rows["tags"]]
        labels = None if self.label is None else self.label.collate(rows).ids
        return Tags(padded(rows["tags"], after=0), torch.tensor(lengths, dtype=torch.long), labels)

    # -- what may stand beside what ----------------------------------------------------------------------------------

    @cached_property
    def penalties(self) -> Chain:
        """What an answer pays for moves that make no spans: 0 or very much. For decoding, never for training."""
        scheme = "bioes" if self.scheme == "bioes" else self.given

        def pay(before: str | None, after: str | None) -> float:
            return 0.0 if follows(before, after, scheme) else FORBIDDEN

        return Chain(
            torch.tensor([[pay(before, after) for after in self.names] for before in self.names]),
            torch.tensor([pay(None, name) for name in self.names]),
            torch.tensor([pay(name, None) for name in self.names]),
        )


def tags_of(raw: Any) -> Sequence[str]:
    """The tags of an example, with a label beside them or not."""
    tags: Sequence[str] = raw.tags if isinstance(raw, TagsAndLabel) else raw
    return tags


def label_of(raw: Any) -> str:
    """The label of an example whose corpus has them."""
    if not isinstance(raw, TagsAndLabel):
        raise UserError("the training data has a label for every text, other data has none; name it by data.….label")
    return raw.label


def tag_loss(
    emissions: Tensor, target: Tags, chain: Chain | None, smoothing: float = 0.0, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(batch, time, tags) scores -> the summed loss to minimise, and the one without smoothing to report.

    With a chain it is that of whole sequences, log Z(x) - s(x, y); without, the cross-entropy at each word. Where there
    are `labels`, (batch, labels) logits, their cross-entropy is added.
    """
    if labels is not None:
        assert target.labels is not None
        both = tag_loss(emissions, target, chain, smoothing), LabelTarget.loss(labels, Labels(target.labels), smoothing)
        (tags, plain_tags), (label, plain_label) = both
        return tags + label, plain_tags + plain_label
    mask = target.mask
    if chain is not None:
        loss = (log_partition(emissions, mask, chain) - sequence_scores(emissions, target.ids, mask, chain)).sum()
        return loss, loss.detach()
    rows, gold = emissions[mask].float(), target.ids[mask]
    loss = F.cross_entropy(rows, gold, reduction="sum", label_smoothing=smoothing)
    return loss, F.cross_entropy(rows.detach(), gold, reduction="sum")

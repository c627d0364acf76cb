"""Words from their letters, by a recurrent layer that reads them from both ends (Lample et al. 2016, section 4.1)."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.recurrent import RecurrentStack


class RecurrentCharacterEncoder(nn.Module):
    """(words, letters) numbers of letters, 0 after the end -> (words, size): the last state of either direction."""

    def __init__(self, *, num_letters: int, letter_size: int, size: int) -> None:
        """`size` is that of both directions together."""
        super().__init__()
        self.embedding = SymbolEmbedding(num_letters, letter_size)
        self.stack = RecurrentStack(
            cell="lstm", input_size=letter_size, hidden_size=size, num_layers=1, bidirectional=True
        )

    def forward(self, letters: Tensor) -> Tensor:
        lengths = (letters != 0).sum(1).clamp(min=1)  # a word without letters is read as one that is not there
        _, finals = self.stack(self.embedding(letters), lengths=lengths)
        hidden: Tensor = finals[0].hidden
        return hidden

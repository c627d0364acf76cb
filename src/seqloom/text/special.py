"""Every reserved symbol, in one place. They hold ids 0 to 3 in every vocabulary, and no text can produce them."""

from __future__ import annotations

PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
SPECIAL = (PAD, UNK, BOS, EOS)
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

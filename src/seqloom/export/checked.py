"""What was checked when it was written is not checked again, as long as a checksum says that it is still the same.

Without this, loading the library that checks settings would take longer than answering many sentences. A checksum is no
signature: whoever makes a folder can make one. So values that are not plainly sound are checked in any case. No torch.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seqloom
from seqloom.decoding.known import is_sound

BLOCK = 1 << 20


def checksum(folder: Path, decoding: Any, text: Mapping[str, Any]) -> str:
    """Of an exported folder's decoding settings, its tokenizers' settings by file name, and these files."""
    sum_so_far = zlib.crc32(json.dumps([decoding, text], sort_keys=True).encode())
    for name in sorted(text):
        with open(folder / name, "rb") as file:
            while block := file.read(BLOCK):
                sum_so_far = zlib.crc32(block, sum_so_far)
    return f"{sum_so_far:08x}"


def is_as_written(folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether nothing of that was changed since this very version of seqloom wrote it."""
    decoding, text = about.get("decoding"), _tokenizers(folder, about.get("text"))
    if about.get("seqloom") != seqloom.__version__ or not is_sound(decoding) or text is None:
        return False
    try:
        return bool(about.get("checksum") == checksum(folder, decoding, text))
    except OSError:  # whoever loads the file says what is wrong with it
        return False


def _tokenizers(folder: Path, text: Any) -> dict[str, Any] | None:
    """The settings of the folder's tokenizers, by file; None where these are something else."""
    is_joint = (folder / "tokenizer.json").is_file()
    names = {"tokenizer.json"} if is_joint else {"tokenizer.source.json", "tokenizer.target.json"}
    if not isinstance(text, dict) or text.keys() != names:
        return None
    known = all(isinstance(one, dict) and isinstance(one.get("tokenizer"), str) for one in text.values())
    return text if known else None

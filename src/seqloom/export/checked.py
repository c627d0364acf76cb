"""What was checked when it was written is not checked again, as long as a checksum says that it is still the same.

Without this, loading the library that checks settings would take longer than answering many sentences. No torch.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seqloom
from seqloom.decoding.known import FIELDS

BLOCK = 1 << 20


def checksum(folder: Path, decoding: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """Of an exported folder's decoding settings, its tokenizers' settings by file name, and these files."""
    sum_so_far = zlib.crc32(json.dumps([decoding, text], sort_keys=True).encode())
    for name in sorted(text):
        with open(folder / name, "rb") as file:
            while block := file.read(BLOCK):
                sum_so_far = zlib.crc32(block, sum_so_far)
    return f"{sum_so_far:08x}"


def is_as_written(folder: Path, description: Mapping[str, Any]) -> bool:
    """Whether nothing of that was changed since this very version of seqloom wrote it."""
    decoding, text = description.get("decoding"), description.get("text")
    if description.get("seqloom") != seqloom.__version__ or not isinstance(decoding, dict) or decoding.keys() != FIELDS:
        return False
    if not isinstance(text, dict):
        return False
    try:
        return description.get("checksum") == checksum(folder, decoding, text)
    except OSError:  # whoever loads the file tells what is wrong with it
        return False

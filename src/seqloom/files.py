"""Writing so that nothing is lost: aside first, onto the disk, then renamed. A reader sees the old or the new."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from seqloom.errors import RunError, UserError


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replace a file's content in one move."""
    data = content.encode() if isinstance(content, str) else content
    write_aside(Path(path), lambda file: file.write(data))


def write_json(path: str | Path, values: Any) -> None:
    """A JSON file of ours, in one move."""
    write_atomically(path, json.dumps(values, indent=2, ensure_ascii=False))


def write_aside(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """A file written piece by piece, that appears under its name when it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def folder_written_aside(final: Path) -> Iterator[Path]:
    """A new folder to fill, moved to its final name when the block ends well and removed when it does not."""
    import shutil
    import tempfile

    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    except OSError as error:
        raise RunError(f"cannot write {final}: {error.strerror or error}") from None
    try:
        yield aside
        for file in aside.iterdir():
            os.chmod(file, 0o644)  # safetensors writes files that only their owner can read
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        os.chmod(aside, 0o755)
        old = final.with_name(f".{final.name}.old")
        try:
            if final.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.replace(final, old)
            os.replace(aside, final)
        except BaseException:
            if old.exists() and not final.exists():
                os.replace(old, final)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise RunError(f"cannot write {final}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_json(path: str | Path, max_bytes: int = 50_000_000) -> Any:
    """A JSON file of ours, or one sentence about what is wrong with it."""
    path = Path(path)
    try:
        if path.stat().st_size > max_bytes:
            raise UserError(f"{path}: larger than {max_bytes:,} bytes; not a file seqloom wrote")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path}: not valid JSON; the file is damaged or was not written by seqloom") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None

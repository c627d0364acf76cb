"""An environment for each peer, made on demand in the cache folder: torch if it needs it, then the peer, all pinned."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from bench.peers import Peer

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = ("torch==2.13.0", "numpy")
UNWANTED = re.compile(r"^(torch|triton|nvidia[-_].*|cuda[-_].*)$", re.IGNORECASE)


class NotInstalled(Exception):
    """Why a peer cannot be measured here; it says so in the table."""


def environment_of(name: str, peer: Peer) -> Path:
    """The Python of a peer's environment, which is made unless it is there."""
    if peer.steps is None:
        return Path(sys.executable)
    from seqloom.folders import cache_folder

    folder = cache_folder() / "bench" / name
    python = folder / "bin" / "python"
    wanted = hashlib.blake2b(json.dumps([TORCH if peer.torch else (), peer.steps]).encode(), digest_size=8).hexdigest()
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"making an environment for {peer.title}", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True, symlinks=True)
    if peer.torch:
        _install(python, TORCH, torch=True)
    for step in peer.steps:
        _install(python, step)
    stamp.write_text(wanted)
    return python


def _install(python: Path, packages: Sequence[str], torch: bool = False) -> None:
    """One call of pip, after a rehearsal that shows that no other torch and nothing for a GPU would come along."""
    plan = _pip(python, ["--dry-run", "--report", "-", "--quiet", *packages])
    coming = [item["metadata"] for item in json.loads(plan or "{}").get("install", [])]
    unwanted = [
        f"{item['name']} {item['version']}"
        for item in coming
        if UNWANTED.match(item["name"]) and not (torch and item["name"] == "torch" and "cu" not in item["version"])
    ]
    if unwanted:
        raise NotInstalled(f"it would bring {', '.join(unwanted)}")
    _pip(python, ["--quiet", *packages])


def _pip(python: Path, arguments: Sequence[str]) -> str:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(CONSTRAINTS), *arguments]
    environment = {**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)}  # also where a package is built
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise NotInstalled((errors or lines or ["pip failed and printed nothing"])[-1])
    return done.stdout

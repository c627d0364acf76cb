"""Options that several verbs have: what they take, and what help calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Overrides = Annotated[tuple[str, ...], Parameter(name="--set", metavar="NAME=VALUE", negative="", show_default=False)]
DataFiles = Annotated[tuple[str, ...], Parameter(metavar="FILE", negative="", show_default=False)]
File = Annotated[Path, Parameter(metavar="FILE")]
Folder = Annotated[Path, Parameter(metavar="DIR")]
Number = Annotated[int | None, Parameter(metavar="N", show_default=False)]
RunFolder = Annotated[Path | None, Parameter(name=("--run", "--run-dir"), metavar="DIR")]

"""`seqloom export`: a model for another engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seqloom.cli.options import DataFiles, File, Flag, Overrides

if TYPE_CHECKING:
    from seqloom.model import Model


def export(
    model: Path,
    /,
    *,
    to: Literal["arpa", "ctranslate2"],
    output: File | None = None,
    compute: Literal["float32", "int8"] = "float32",
    verify: bool = True,
    data: DataFiles = (),
    sentences: int = 1000,
    overwrite: Flag = False,
    overrides: Overrides = (),
) -> None:
    """Write a model for another program.

    ctranslate2: a Transformer that answers faster and without torch. The folder holds everything: 'seqloom predict' and
    'seqloom evaluate' take it as they take a model folder. It is kept only if it answers the validation data as the
    original does. arpa: n-grams as other programs read them; 'generate', 'score' and 'evaluate' take the file, too.

    seqloom export runs/my --to ctranslate2

    Parameters
    ----------
    model
        A model folder or a run folder.
    to
        The engine, or the kind of file, to write for.
    output
        Folder to write; default: ctranslate2 or ctranslate2-int8 in the run folder, or beside the model folder. arpa:
        the file, .arpa or .arpa.gz; default: model.arpa there.
    compute
        float32: the same answers. int8: a quarter of the size, faster, answers differ a little; BLEU is measured.
    verify
        Compare with the original (int8: refuse when BLEU falls by more than 1).
    data
        Verify with this data instead of the run's validation data, given as for 'seqloom evaluate'.
    sentences
        Verify with at most so many sentences.
    overwrite
        Replace an exported model of the same name.
    overrides
        A decoding setting for the exported model, such as --set beam_size=4.
    """
    from seqloom.cli.output import note
    from seqloom.errors import UserError
    from seqloom.model import load

    if to == "arpa":
        if compute != "float32" or data or overrides or not verify:
            raise UserError("--to arpa takes --output and --overwrite only")
        note(f"wrote {_write_arpa(load(model), output, overwrite)}")
        return
    if sentences < 1:
        raise UserError(f"--sentences must be 1 or more; got {sentences} (--no-verify goes without)")
    if data and not verify:
        raise UserError("--data is what to verify with; it does not go together with --no-verify")
    from seqloom.export.ctranslate2 import export as write
    from seqloom.settings import apply_overrides
    from seqloom.training.progress import Progress

    loaded = load(model)
    corpora = loaded.corpora(data) if data else {}
    with Progress("verifying") as progress:
        folder, found = write(
            loaded,
            output,
            compute=compute,
            data=next(iter(corpora.values()), None),
            sentences=sentences,
            verify=verify,
            overwrite=overwrite,
            decoding=apply_overrides({}, overrides),
            progress=lambda what, share: progress.update(share, what),
        )
    note(f"verified: {found.summary()}" if found else "not verified")
    note(f'wrote {folder}; next: seqloom predict {folder} "some text"')


def _write_arpa(model: Model, output: Path | None, overwrite: bool) -> Path:
    from seqloom.errors import UserError
    from seqloom.folders import is_arpa

    to_arpa = getattr(model.task, "to_arpa", None)
    if to_arpa is None:
        raise model.task.refusal("be written as n-grams", model.folder)
    file = model.folder.parent / "model.arpa" if output is None else output
    if not is_arpa(file):
        raise UserError(f"--output must end in .arpa or .arpa.gz; got {file}")
    if file.exists() and not overwrite:
        raise UserError(f"{file}: there is such a file already; --overwrite replaces it")
    to_arpa(model.network, file)
    return file

"""`seqloom train`: from a recipe to a model."""

from __future__ import annotations

from seqloom.cli.options import Flag, Number, Overrides, RunFolder


def train(
    recipe: str,
    /,
    *,
    run: RunFolder = None,
    overrides: Overrides = (),
    resume: Flag = False,
    restart: Flag = False,
    more_steps: Number = None,
    dry_run: Flag = False,
) -> None:
    """Train a model from a recipe.

    Ctrl-C saves a checkpoint; --resume goes on as if nothing had happened.

    Parameters
    ----------
    recipe
        Path of a YAML file, name of a shipped recipe (`seqloom list recipes`), or a run folder to resume.
    run
        Folder of the run; default: runs/NAME. Behind torchrun write --run-dir: it takes --run for an option of its own.
    overrides
        Change a setting of the recipe, such as --set model.cell=gru; may be repeated.
    resume
        Go on from the last checkpoint.
    restart
        Throw away what the run folder holds and begin again.
    more_steps
        With --resume: train a finished run for so many steps more.
    dry_run
        Train nothing and write no run: show the whole recipe, with every default, and what the training would take.
    """
    from seqloom.cli.output import leads, note, strong
    from seqloom.cli.stopping import run_to_the_end
    from seqloom.experiment import run_folder
    from seqloom.experiment import train as run_experiment

    folder = run_folder(recipe, run)
    if dry_run:
        _show(recipe, overrides)
        return
    model = run_to_the_end(
        lambda: run_experiment(
            recipe, folder, overrides=overrides, resume=resume, restart=restart, more_steps=more_steps
        ),
        folder,
    )
    if leads():
        note(f"\nThe model is in {strong(str(folder / 'model'))} ({model.size()}). Next:")
        for command in model.task.next_steps(folder, model.network):
            note(f"  {command}")


def _show(recipe: str, overrides: tuple[str, ...]) -> None:
    """The whole recipe, and what it would take, as comments: what is printed is a recipe, too."""
    from seqloom.experiment import rehearse

    text, found = rehearse(recipe, overrides)
    longest = max(map(len, found))
    print(text + "\n".join(f"# {name:<{longest}}  {about}" for name, about in found.items()))

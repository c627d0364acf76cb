"""More steps for a run that is finished: its last checkpoint goes on, as if its recipe had asked for more from then on.

What was computed until then stays as it is: recipe and journal say where the extension begins, the finished model
is kept beside the new one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from seqloom.errors import UserError
from seqloom.files import read_json, write_atomically
from seqloom.recipe import load_recipe, recipe_text

SCHEDULES = {
    "constant": "the learning rate goes on as it was",
    "inverse_square_root": "the learning rate goes on falling with the root of the steps",
    "plateau": "the learning rate goes on from where it was",
    "cosine": "the learning rate becomes that of a cosine over all steps, old and new: it rises, then falls again",
}
"""What becomes of the learning rate."""


def extend(run: Path, more_steps: int) -> str:
    """Make a finished run ready to be resumed for so many steps more; -> what happens, in a sentence.

    Whoever is interrupted here finds the run finished, and can ask again.
    """
    from seqloom.training.checkpoints import checkpoints_in
    from seqloom.training.journal import Journal
    from seqloom.training.settings import FittingSettings

    if more_steps < 1:
        raise UserError(f"--more-steps must be 1 or more; got {more_steps}")
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"{run}: there is no run to resume here")
    if not (run / "model" / "config.json").is_file():
        raise UserError(f"{run}: this run is not finished; 'seqloom train {run} --resume' finishes it first")
    recipe = load_recipe(run / "recipe.yaml")
    s, found = getattr(recipe, "training", None), checkpoints_in(run)
    if not isinstance(s, FittingSettings) or not found:
        raise UserError(f"{run}: this model was not fitted step by step, so it cannot take more of them; train it anew")
    last = found[-1]
    if not (last.folder / "optimizer.safetensors").is_file():
        raise UserError(f"{last.folder}: the state of the optimiser is missing; the run cannot go on from here")
    state = read_json(last.folder / "state.json")
    step, steps = int(state["step"]), int(state["step"]) + more_steps
    journal = Journal(run / "journal.jsonl", state["journal_bytes"])
    journal.write("extend", step=step, steps=steps, schedule=s.schedule)
    state |= {"finished": False, "waited": 0, "journal_bytes": journal.size()}
    journal.close()
    write_atomically(last.folder / "state.json", json.dumps(state))
    longer = s.model_copy(update={"steps": steps, "epochs": None, "minutes": None})
    write_atomically(run / "recipe.yaml", recipe_text(recipe.model_copy(update={"training": longer})))
    kept = run / f"model-{step}"
    os.replace(run / "model", kept)
    fixed = s.schedule == "cosine" and s.decay_steps is not None
    rate = "the learning rate stays at its lowest" if fixed else SCHEDULES[s.schedule]
    return f"going on from step {step:,} to {steps:,}; {rate}; the model of before is kept in {kept}"

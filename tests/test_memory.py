"""Training takes as much memory as its model and its batches, however large the corpus is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALLOWED = 15 * 2**20

CHILD = """
import sys
from pathlib import Path
import numpy as np
from seqloom.batches.samplers import BucketSampler
from seqloom.batches.shards import Sequences
from seqloom.recipe import load_recipe
from seqloom.tasks.supervised import Examples
from seqloom.tasks.translate import Translation
from seqloom.training.loop import fit

folder, work_folder = Path(sys.argv[1]), Path(sys.argv[2])


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


recipe = load_recipe({
    "data": {
        "train": {"grammar": "en-es", "split": "train", "size": 300},
        "valid": {"grammar": "en-es", "split": "valid", "size": 20},
    },
    "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
    "model": {"kind": "recurrent_translator", "embedding_size": 8, "hidden_size": 8},
    "training": {"steps": 120, "batch_tokens": 256, "validate_every": 1000, "validation_sentences": 0},
})
task = Translation.learn(recipe, print)
work, model = task.work(recipe), task.build(recipe.model)
fit(model, work, recipe.training, work_folder / "small")

Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = status("VmRSS")
sides = {f"{side}.ids": Sequences(folder, side, "uint16") for side in ("source", "target")}
work.train = Examples(task.source, task.target, sides)
work.sampler = BucketSampler(work.train.lengths, batch_tokens=256, seed=1, max_length=200)
assert work.sampler.num_pools > 10
fit(model, work, recipe.training, work_folder / "large")
for pool in range(5):  # as training goes on
    for batch in work.sampler.pool(0, pool):
        work.train.batch(batch)
print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads memory use from /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    import numpy as np

    random, sentences, words = np.random.default_rng(1), 4_000_000, 16
    for side in ("source", "target"):
        random.integers(4, 300, sentences * words, np.uint16).tofile(tmp_path / f"{side}.values.bin")
        (np.arange(sentences + 1, dtype=np.int64) * words).tofile(tmp_path / f"{side}.offsets.bin")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size > 20 * ALLOWED
    child = [sys.executable, "-c", CHILD, str(tmp_path), str(tmp_path / "runs")]
    done = subprocess.run(child, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < ALLOWED

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
from seqloom.batches.shards import TokenSequences
from seqloom.corpus.readers import CorpusSettings
from seqloom.models.recurrent_translator import RecurrentTranslatorSettings
from seqloom.tasks.translate import EncodedPairs, Translation, TranslationWork
from seqloom.text.settings import TextSettings
from seqloom.training.loop import fit
from seqloom.training.settings import TrainingSettings

folder, work_folder = Path(sys.argv[1]), Path(sys.argv[2])


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


corpus = CorpusSettings(grammar="en-es", split="train", size=300)
task = Translation.learn(corpus, TextSettings(tokenizer="word", vocabulary_size=None, joint=False))
s = TrainingSettings(steps=120, batch_tokens=256, validate_every=1000, validation_sentences=0)
work = TranslationWork(task, corpus, CorpusSettings(grammar="en-es", split="valid", size=20), s, 1)
model = task.build(RecurrentTranslatorSettings(embedding_size=8, hidden_size=8))
fit(model, work, s, work_folder / "small")

Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = status("VmRSS")
work.train = EncodedPairs(TokenSequences(folder, "source", "uint16"), TokenSequences(folder, "target", "uint16"))
work.sampler = BucketSampler(work.train.lengths, batch_tokens=256, seed=1, max_length=200)
assert work.sampler.num_pools > 10
fit(model, work, s, work_folder / "large")
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
        random.integers(4, 300, sentences * words, np.uint16).tofile(tmp_path / f"{side}.tokens.bin")
        (np.arange(sentences + 1, dtype=np.int64) * words).tofile(tmp_path / f"{side}.offsets.bin")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size > 20 * ALLOWED
    child = [sys.executable, "-c", CHILD, str(tmp_path), str(tmp_path / "runs")]
    done = subprocess.run(child, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < ALLOWED

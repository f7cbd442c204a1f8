"""What a script prints that has done nothing wrong."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from tests.support.ragen_trl.trainers import lottery, small_trainer
from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start

trainer = small_trainer(Path(sys.argv[1]), lottery(), max_steps=1, gradient_checkpointing=True)
trainer.train()
config = WarmStartConfig(demonstrations=4, demo_batch_size=4)
warm_start(trainer.model, trainer.tokenizer, "ragen/FrozenLake-v0", trainer.args, config, Path(sys.argv[1]) / "warm")
"""


def test_no_word_of_a_name_that_a_script_does_not_use(root: Path, tmp_path: Path) -> None:
    """Transformers renames gradient_checkpointing, which TRL sets and calls: four warnings in every script."""
    command = [sys.executable, "-c", CODE, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "FutureWarning" not in done.stderr
    assert (tmp_path / "run" / "warm" / "warm_start.json").exists()

"""What another process finds of A*-PO: digests and fingerprints, and a run that is killed in stage 1."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from ragen_trl.trainers.reference import Reference
from tests.support.quick import libraries_are_settled
from tests.support.ragen_trl.astar_runs import Spy, astar
from tests.support.ragen_trl.references import KEY


class Killed(Spy):
    """Dies after two batches of 8 episodes, in the middle of the third."""

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        """Play, or die."""
        if len(self.reference_played) == 16:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().rollout(starts, envs, policy)


def main(folder: Path) -> None:
    """Write the digest of a key and the fingerprint of the model in ``model``, then train in ``run``."""
    libraries_are_settled()
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    (folder / "found.txt").write_text(f"{KEY.digest()}\n{Reference(model).fingerprint()}\n")
    astar(folder / "run", trainer=Killed).train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The model card of a trained agent: TRL's, with what it plays in place of a question to a chat model.

Relies on TRL's card having a section "Quick start" before "Training procedure".
"""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen_trl.rollout.environments import EnvSpec
from ragen_trl.system.atomic import write_atomically

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

_FILE = "README.md"
_QUICK_START = re.compile(r"## Quick start\n.*?(?=## Training procedure\n)", re.DOTALL)
_PROCEDURE = "## Training procedure\n"
_BY_A_PROGRAM = re.compile(r"generated_from_trainer|base_model:adapter:|library_name: peft")


def has_own_card(folder: Path) -> bool:
    """Whether a folder has a card that a person wrote, which is left alone."""
    path = folder / _FILE
    return path.is_file() and not _BY_A_PROGRAM.search(path.read_text(encoding="utf-8"))


def write_agent_card(folder: Path, specs: Sequence[EnvSpec], args: "StarPOConfig") -> None:
    """Change the card that TRL wrote in a folder to one of an agent that plays ``specs``."""
    path = folder / _FILE
    card = path.read_text(encoding="utf-8").replace("[None](https://huggingface.co/None)", "a local model")
    envs = [f"{spec.label}:{json.dumps(dict(spec.kwargs), default=str)}".removesuffix(":{}") for spec in specs]
    section = f"""## What it plays

```bash
python -m ragen_trl eval --model {args.hub_model_id or "path/to/this/folder"} --env {shlex.join(envs)}
```

An episode has at most {args.max_turns} turns of {args.max_actions_per_turn} actions, {args.max_actions} in all. Replies
{"begin with a thought" if args.think else "are bare actions"}. The file `play.json` beside the model says how it is
spoken to; other limits or messages are prompts that it has never seen.

"""
    write_atomically(path, _QUICK_START.sub(lambda _: section, card))


def add_results(folder: Path, table: str, played: str = "") -> None:
    """Add a section with a run's results (plain text), and other arguments of the environment, to a model's card."""
    path = folder / _FILE
    card = path.read_text(encoding="utf-8") if path.is_file() else ""
    where = f" Played with `{played}`." if played else ""
    section = f"## Results on held-out start states\n\n```\n{table}\n```\n\nSuccess has a 95 % interval.{where}\n\n"
    if _PROCEDURE in card:  # it is no user's own
        write_atomically(path, card.replace(_PROCEDURE, section + _PROCEDURE, 1))

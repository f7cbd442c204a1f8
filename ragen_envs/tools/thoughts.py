"""What somebody who knows the next call thinks before making it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragen_envs.calling.tool import read_action
from ragen_envs.wording import TRIALS, pick


def call_thought(env: Any, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the name of the first call's tool; see `TextEnv.explain`."""
    made = read_action(actions[0])
    if made is None or isinstance(made, str):
        return pick(rng, "Nothing more can be done, so I answer.", "I can do no more, and I answer.", "I answer.")
    left = len(env.way)
    about = " and ".join(str(value) for value in made.arguments.values()) or "nothing"
    if made not in env.way:
        return f"The task is not done yet{pick(rng, *TRIALS)} {made.name}."
    if made.name in env.lookups:
        return pick(
            rng,
            f"I need to know more about {about}. I call {made.name}.",
            f"First I look up {about}, so I call {made.name}.",
            f"What is there about {about}? Let me call {made.name}.",
            f"I look for {about} with {made.name}.",
            f"There is something to find out about {about}. I use {made.name}.",
        )
    last = "This is the last step" if left == 1 else "Now I know enough for a change"
    return pick(
        rng,
        f"{last}, so I call {made.name}.",
        f"{last}. I call {made.name}.",
        f"{last}: I use {made.name}.",
        f"I know the numbers that I need, so I call {made.name}.",
        f"I have what the change needs. I call {made.name}.",
    )

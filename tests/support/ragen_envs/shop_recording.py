"""A file in the form of WebShop's published episodes of people, written by the scripted rule."""

import json
from pathlib import Path

from ragen_envs.webshop import WebShop
from ragen_envs.webshop.shoppers import scripted_shop_action


def recording(path: Path, goals: int = 3) -> Path:
    """Episodes of the scripted rule on the original's pages, as the published file has those of people."""
    env = WebShop(catalog="toy", parity=True, observation_mode="text_rich")
    lines = []
    for goal in range(goals):
        page, _ = env.reset(options={"goal": goal})
        states, actions, over = [], [], False
        while not over:
            states.append(page)
            actions.append(scripted_shop_action(env))
            page, _, over, _, _ = env.step(actions[-1])
        states[0] = states[0].replace("WebShop\n", "Amazon Shopping Game\n", 1)
        others = {"available_actions": [[]] * len(actions), "action_idxs": [-1] * len(actions), "images": [0]}
        lines.append(json.dumps({"states": states, "actions": actions, **others}))
    path.write_text("\n".join(lines) + "\n\n")
    return path

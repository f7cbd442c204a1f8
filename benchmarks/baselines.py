"""What random play and the oracle reach in each environment: the two rows that a model's result is read against.

    python benchmarks/baselines.py [--smoke]

Each plays 2,048 start states with as many actions as RAGEN allows (2 to 5 minutes in all); in the shops 500 held-out
requests, also by the scripted rule that published numbers are compared with.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium
from record import place, table, write

from ragen_envs import wilson_interval
from ragen_envs.baselines import default_horizon, measure
from ragen_envs.webshop import ToyShop
from ragen_envs.webshop.shoppers import scripted_shop_action

GAMES = ("Bandit", "BanditRev", "Countdown", "FrozenLake", "FrozenLakeNotSlippery", "Sokoban", "SokobanLarge", "Tools")
HELD_OUT = ("unseen_tools", "unseen_domain")  # splits of Tools


def scripted_toy_action(env: ToyShop) -> str:
    """Searches for the instruction and buys the first result."""
    return f"buy:{env.hits[0].asin}" if env.hits else f"search:{env.session.instruction}"


SHOPS = {"ragen/ToyShop-v0": ("eval", scripted_toy_action), "ragen/WebShop-v0": ("test", scripted_shop_action)}


def main() -> None:
    """Play all rows and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for env in (f"ragen/{name}-v0" for name in GAMES):
        rows += [measure(env, name, episodes=8 if asked.smoke else 2048) for name in ("random", "oracle")]
    for split in HELD_OUT:
        kwargs, episodes = {"split": split}, 8 if asked.smoke else 1000
        for name in ("random", "oracle"):
            rows.append(measure("ragen/Tools-v0", name, episodes=episodes, env_kwargs=kwargs))
    for env, (split, rule) in SHOPS.items():
        kwargs, episodes = {"split": split}, 4 if asked.smoke else 500 if "Web" in env else 256
        for name in ("random", "oracle"):
            rows.append(measure(env, name, episodes=episodes, env_kwargs=kwargs))
        rows.append(scripted(env, kwargs, rule, episodes))
    command = "python benchmarks/baselines.py"
    write(place("baselines", asked.smoke, asked.out), command, rows=rows, table=shown(rows))


def scripted(env_id: str, kwargs: dict[str, Any], rule: Any, episodes: int) -> dict[str, Any]:
    """The scripted rule on the first requests of a split."""
    env = gymnasium.make(env_id, **kwargs)
    won, returns, horizon = 0, 0.0, default_horizon(env)
    for seed in range(episodes):
        env.reset(seed=seed)
        for _ in range(horizon):
            _, reward, terminated, truncated, info = env.step(rule(env.unwrapped))
            returns += float(reward)
            if terminated or truncated:
                won += info["success"]
                break
    low, high = wilson_interval(won, episodes)
    found = {"env": env_id, "env_kwargs": kwargs, "policy": "scripted rule", "horizon": horizon, "n": episodes}
    return {**found, "success": won / episodes, "low": low, "high": high, "mean_return": returns / episodes}


def shown(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row an environment."""
    games: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        split = row["env_kwargs"].get("split", "")
        games.setdefault(f"`{row['env']}` {split}".strip(), {})[row["policy"]] = row
    lines = []
    for env, found in games.items():
        cells = {name: f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for name, row in found.items()}
        rates = [cells.get(name, "") for name in ("random", "scripted rule", "oracle")]
        lines.append([env, found["random"]["horizon"], *rates, found["random"]["n"]])
    return table(["id", "actions", "random", "scripted rule", "oracle", "n"], lines, "Success [95 % interval].")


if __name__ == "__main__":
    main()

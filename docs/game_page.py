"""The page of an environment, in Markdown and in the form of Gymnasium's own pages: ``python docs/game_page.py ID``.

Everything on it is read from where it is declared: the id, its arguments and limit from the registry; spaces and render
modes from the environment; description, rewards and arguments from the docstrings; what oracles there are from its
methods. So an environment has its page as soon as it is registered. ``--rows FILE`` shows results of
``python -m ragen_envs baselines --json FILE``, or of `benchmarks/baselines.py`.
"""

import argparse
import contextlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ragen_envs import AgentTurns, NoOracleError, TextEnv, ToolEnv, ToolTurns, episode_seeds, make_named
from ragen_envs.__main__ import Game
from ragen_envs.baselines import Episode, default_horizon

_LAST = ("Version History", "Source")  # what Gymnasium has at the end, and whose work it is
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ARGS = re.compile(r"^Args:\n((?: {4}.*\n?|\n)*)", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}\*{0,2}(\w+)(?: \([^)\n]*\))?: ", re.MULTILINE)
_SEEDS, _ENOUGH, _LONGEST = 10, 3, 20  # episodes to choose from; actions that show something; actions without a limit
_MESSAGE, _WIDTH = 1600, 86  # characters of a message, and of a line of it


def describe(name: str, rows: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page of an environment.

    Args:
        name: A Gymnasium id, ``module:id`` included. It is shown as it is given.
        rows: Results as of `baselines.measure`; those of other ids are left out.

    Returns:
        Markdown.

    Raises:
        EnvError: If the environment cannot be made.
    """
    env = make_named(name, {})
    assert env.spec is not None  # gymnasium.make sets it
    made_by: Any = env.spec.entry_point
    made_by = load_env_creator(made_by) if isinstance(made_by, str) else made_by
    kind = made_by if isinstance(made_by, type) else type(env.unwrapped)
    # The docstring of a base class is not taken instead: it describes something else.
    summary, *parts = _HEADING.split(_ARGS.sub("", inspect.cleandoc(kind.__doc__ or "")))
    said = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    ending = {title: said.pop(title) for title in _LAST if title in said}
    said["Arguments"] = _argument_table(made_by, env.spec.kwargs)
    if isinstance(env.unwrapped, TextEnv):
        said["An Episode"] = _transcript(env, env.spec.id)
    said["Baselines"] = _baselines(name, env, rows)
    blocks = [f"# {env.spec.id}", summary.strip(), _facts(name, env, env.spec)]
    blocks += [f"## {title}\n\n{text}" for title, text in {**said, **ending}.items()]
    env.close()
    return "\n\n".join(block for block in blocks if block) + "\n"


def _facts(name: str, env: gymnasium.Env[Any, Any], spec: EnvSpec) -> str:
    """The table at the top, as Gymnasium has it, and what else can be asked without playing."""
    inner = env.unwrapped
    made_by = spec.entry_point if isinstance(spec.entry_point, str) else getattr(spec.entry_point, "__name__", "")
    most = spec.max_episode_steps
    limit = "" if most is None else f", truncated after {most} actions (`TimeLimit`)"
    given = f" with {_code(_arguments(spec.kwargs))}" if spec.kwargs else ""
    rows = {
        "Action space": _space(env.action_space),
        "Observation space": _space(env.observation_space),
        "Import": f'`gymnasium.make("{name}")`',
        "Registered": f"`{made_by}`{given}{limit}",
        "Render modes": ", ".join(map(_code, inner.metadata.get("render_modes", ()))),
        "Options of `reset`": ", ".join(map(_code, inner.option_names)) if isinstance(inner, TextEnv) else "",
        "Oracle": _written("best_action", inner),
        "Thoughts that explain it": _written("explain", inner),
        "Difficulty of a state": _written("difficulty", inner),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items() if value)])


def _written(method: str, env: gymnasium.Env[Any, Any]) -> str:
    """Whether the environment has a method of its own that `TextEnv` leaves to it."""
    found = getattr(type(env), method, None) not in (None, getattr(TextEnv, method))
    return f"`ragen_envs.{method}`" if found else "no"


def _space(space: gymnasium.Space[Any]) -> str:
    if isinstance(space, gymnasium.spaces.Text):
        return f"`{type(space).__name__}`, {space.min_length} to {space.max_length:,} characters"
    return _code(" ".join(repr(space).split()))


def _argument_table(made_by: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """The arguments that can be given by name, with their defaults and what the docstrings say of them."""
    meanings: dict[str, str] = {}
    for where in (made_by, made_by.__init__ if isinstance(made_by, type) else None):  # type: ignore[misc]
        block = _ARGS.search(inspect.cleandoc(where.__doc__ or ""))
        parts = _ARGUMENT.split(block[1])[1:] if block else []
        new = {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
        meanings = new | meanings
    lines, bar = [], "\\|"  # which does not end a cell
    for parameter in inspect.signature(made_by).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = given.get(parameter.name, parameter.default)
            code = "must be given" if default is parameter.empty else _code(repr(default))
            lines.append(f"| `{parameter.name}` | {code} | {meanings.get(parameter.name, '').replace('|', bar)} |")
    return "\n".join(["| argument | default | |", "|---|---|---|", *lines]) if lines else "None."


def _baselines(name: str, env: gymnasium.Env[Any, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of an environment as a table, or how to get them."""
    mine = [row for row in rows if row["env"].rpartition(":")[2] == name.rpartition(":")[2]]
    if not mine:
        limit = "" if default_horizon(env, 0) else " --max_actions N"
        return f"`python -m ragen_envs baselines {name}{limit} --json FILE` measures random play and the oracle."
    lines = ["| arguments | actions | policy | success [95 %] | mean return | n |", "|---|---|---|---|---|---|"]
    for row in mine:
        given = _arguments(row.get("env_kwargs", {}))
        rate = f"{row['success']:.3f}" + (f" [{row['low']:.3f}, {row['high']:.3f}]" if "low" in row else "")
        mean = f"{row['mean_return']:.3f}" if "mean_return" in row else ""
        cells = (_code(given) if given else "defaults", row["horizon"], row["policy"], rate, mean, f"{row['n']:,}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _transcript(env: gymnasium.Env[str, str], name: str) -> str:
    """The messages that a model gets and the replies of the policy; only the first if nothing can play it."""
    assert isinstance(env.unwrapped, TextEnv)
    length, limit = 1 if env.unwrapped.actions is None else 2, default_horizon(env, _LONGEST)
    policy, seed = _policy_and_seed(env, limit)
    wrapper = ToolTurns if isinstance(env.unwrapped, ToolEnv) else AgentTurns
    turns = wrapper(env, max_turns=limit, max_actions_per_turn=length, max_actions=limit, think=True)
    game, rng = Game(turns, name), np.random.default_rng(episode_seeds(seed)[1])
    shown = [_shortened(game.begin(seed))]
    while policy and not game.is_over:
        reply = game.suggest(policy, rng)
        shown += [textwrap.indent(_shortened(reply), "> "), _shortened(game.take(reply))]
    who = f"The replies, after `>`, are those of {'the oracle' if policy == 'oracle' else 'random play'}."
    who = who if policy else "Only the first message: the class has no `best_action`."
    episode = "\n\n".join(shown)
    return f"{who}\n\n````text\n{episode}\n````"


def _policy_and_seed(env: gymnasium.Env[str, str], limit: int) -> tuple[str, int]:
    """The policy that shows the environment, "" if there is none, and a seed.

    It is the first of ten seeds whose episode succeeds and is long enough; else the first that succeeds, or 0.
    """
    for policy in ("oracle", "random"):
        with contextlib.suppress(NoOracleError):
            played = [Episode.start(env, seed).play_policy(policy, limit) for seed in range(_SEEDS)]
            won = [seed for seed, one in enumerate(played) if one.success]
            return policy, next((seed for seed in won if len(played[seed].actions) >= _ENOUGH), [*won, 0][0])
    return "", 0


def _shortened(message: str) -> str:
    """A message with lines that can be read on a page; a long one is cut."""
    text = message if len(message) <= _MESSAGE else f"{message[:_MESSAGE].rstrip()} …"
    lines = [textwrap.wrap(line, _WIDTH, break_on_hyphens=False) or [""] for line in text.splitlines()]
    return "\n".join(part for line in lines for part in line)


def _arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in given.items())


def _code(text: str) -> str:
    """Code in a cell."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", metavar="ID", help="any Gymnasium id, or your own module:id")
    parser.add_argument("--rows", type=Path, nargs="+", metavar="FILE", default=[])
    asked = parser.parse_args()
    sys.path.insert(0, "")  # an environment of one's own may lie in this folder
    found = [row for path in asked.rows for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    sys.stdout.write(describe(asked.env, found))

"""The page of an environment, in Markdown and in the form of Gymnasium's own pages, with an episode of its oracle.

Everything on it is read from where it is declared: the id, its arguments and limit from the registry; spaces and render
modes from the environment; description, rewards and arguments from the docstrings; what oracles there are from its
methods. So an environment has its page as soon as it is registered.
"""

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from ragen_envs.baselines import POLICIES, default_horizon, episode_seeds
from ragen_envs.cli.lookup import EnvironmentChoiceError, creator, make_named
from ragen_envs.cli.play import Game, turns_of
from ragen_envs.errors import EnvError
from ragen_envs.oracles import NoOracleError, TextGym
from ragen_envs.text_env import TextEnv

_LAST = ("Version History", "Source")  # what Gymnasium has at the end, and whose work it is
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_ARGS = re.compile(r"^Args:\n((?: {4}.*\n?|\n)*)", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}\*{0,2}(\w+)(?: \([^)\n]*\))?: ", re.MULTILINE)
_SEEDS, _ENOUGH, _LONGEST = 10, 3, 20  # episodes to choose from; actions that show something; actions without a limit
_MESSAGE, _WIDTH = 1600, 86  # characters of a message, and of a line of it


class ResultsError(EnvError, ValueError):
    """A file of baselines cannot be read; the message says what is wrong."""


class NoPictureError(EnvError, ValueError):
    """An environment cannot be drawn here, mostly because a package is not installed; the message says which."""


def describe(name: str, rows: Sequence[Mapping[str, Any]] = (), picture: str | None = None) -> str:
    """The page of an environment.

    Args:
        name: A Gymnasium id, ``module:id`` included. It is shown as it is given.
        rows: Results with the keys of `baselines.Baseline`; those of other ids are left out.
        picture: Address of a picture to show.

    Returns:
        Markdown.

    Raises:
        EnvironmentChoiceError: If the environment cannot be made.
    """
    env = make_named(name, {})
    assert env.spec is not None  # gymnasium.make sets it
    made_by = creator(env.spec)
    kind = made_by if isinstance(made_by, type) else type(env.unwrapped)
    # The docstring of a base class is not taken instead: it describes something else.
    summary, *parts = _HEADING.split(_ARGS.sub("", inspect.cleandoc(kind.__doc__ or "")))
    said = dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    ending = {title: said.pop(title) for title in _LAST if title in said}
    said["Arguments"] = _argument_table(made_by, env.spec.kwargs)
    if isinstance(env.unwrapped, TextEnv):
        said["An Episode"] = _transcript(env, env.spec.id)
    said["Baselines"] = _baselines(name, env.spec, rows)
    shown = f"![An episode]({picture})" if picture else ""
    blocks = [f"# {env.spec.id}", shown, summary.strip(), _facts(name, env, env.spec)]
    blocks += [f"## {title}\n\n{text}" for title, text in {**said, **ending}.items()]
    env.close()
    return "\n\n".join(block for block in blocks if block) + "\n"


def write_page(
    folder: Path, name: str, rows: Sequence[Mapping[str, Any]] = (), pictured: bool = True
) -> list[Path]:
    """Writes the page of an environment, and beside it a moving picture if the environment draws itself.

    Args:
        folder: Where to write; it is made if it is missing.
        name: A Gymnasium id, ``module:id`` included.
        rows: As `describe` takes them.
        pictured: Whether there is a picture.

    Returns:
        The files that were written.

    Raises:
        EnvironmentChoiceError: If the environment cannot be made.
        NoPictureError: If it cannot be drawn. Then there is no page.
        OSError: If a file cannot be written.
    """
    title = name.rpartition(":")[2].rpartition("/")[2]
    page, film = folder / f"{title}.md", folder / f"{title}.gif"
    env = make_named(name, {}).unwrapped
    drawn = env.draws_pictures if isinstance(env, TextEnv) else "rgb_array" in env.metadata.get("render_modes", ())
    drawn = drawn and pictured
    text = describe(name, rows, film.name if drawn else None)
    folder.mkdir(parents=True, exist_ok=True)
    if drawn:
        try:
            _write_film(film, _frames(make_named(name, {"render_mode": "rgb_array"})))
        except (EnvironmentChoiceError, gymnasium.error.DependencyNotInstalled) as error:
            raise NoPictureError(str(error)) from error
    page.write_text(text, encoding="utf-8")
    return [page, film] if drawn else [page]


def read_rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of files that ``python -m ragen_envs baselines --json FILE`` has written.

    Raises:
        ResultsError: If a file cannot be read or has no such rows.
    """
    rows = []
    for path in paths:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["rows"]
            rows += [row | {name: row[name] for name in ("env", "policy", "horizon", "success", "n")} for row in found]
        except (OSError, ValueError, KeyError, TypeError) as error:
            wanted = "a file that `python -m ragen_envs baselines --json FILE` has written"
            raise ResultsError(f"{path} has no baselines ({type(error).__name__}: {error}); give {wanted}") from None
    return rows


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
        "Render modes": _codes(inner.metadata.get("render_modes", ())),
        "Options of `reset`": _codes(inner.option_names) if isinstance(inner, TextEnv) else "",
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
    lines = []
    for parameter in inspect.signature(made_by).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = given.get(parameter.name, parameter.default)
            code = "must be given" if default is parameter.empty else _code(repr(default))
            lines.append(f"| `{parameter.name}` | {code} | {_cell(meanings.get(parameter.name, ''))} |")
    return "\n".join(["| argument | default | |", "|---|---|---|", *lines]) if lines else "None."


def _baselines(name: str, spec: EnvSpec, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of an environment as a table, or how to get them."""
    mine = [row for row in rows if row["env"].rpartition(":")[2] == spec.id]
    if not mine:
        limit = "" if default_horizon(spec, 0) else " --max_actions N"
        return f"`python -m ragen_envs baselines {name}{limit} --json FILE` measures random play and the oracle."
    lines = ["| arguments | actions | policy | success [95 %] | mean return | n |", "|---|---|---|---|---|---|"]
    for row in mine:
        given = _arguments(row.get("env_kwargs", {}))
        rate = f"{row['success']:.3f}" + (f" [{row['low']:.3f}, {row['high']:.3f}]" if "low" in row else "")
        mean = f"{row['mean_return']:.3f}" if "mean_return" in row else ""
        cells = (_code(given) if given else "defaults", row["horizon"], row["policy"], rate, mean, f"{row['n']:,}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _transcript(env: TextGym, name: str) -> str:
    """The messages that a model gets and the replies of the policy; only the first if nothing can play it."""
    assert isinstance(env.unwrapped, TextEnv)
    policy, seed = _policy_and_seed(env)
    length, limit = 1 if env.unwrapped.actions is None else 2, default_horizon(env.spec, _LONGEST)
    turns = turns_of(env, max_turns=limit, max_actions_per_turn=length, max_actions=limit, think=True)
    game, rng = Game(turns, name), np.random.default_rng(episode_seeds(seed)[1])
    shown = [_shortened(game.begin(seed))]
    while policy and not game.is_over:
        reply = game.suggest(policy, rng)
        shown += [textwrap.indent(_shortened(reply), "> "), _shortened(game.take(reply))]
    who = f"The replies, after `>`, are those of {'the oracle' if policy == 'oracle' else 'random play'}."
    who = who if policy else "Only the first message: the class has no `best_action`."
    episode = "\n\n".join(shown)
    return f"{who}\n\n````text\n{episode}\n````"


def _frames(env: TextGym) -> list[NDArray[np.uint8]]:
    """The pictures of one episode, from the start on; only the first if nothing can play the environment."""
    policy, seed = _policy_and_seed(env)
    env.reset(seed=seed, **_outcomes(env, seed))
    shown: list[Any] = [env.render()]
    shown += [env.render() for _ in _steps(env, policy, seed)] if policy else []
    env.close()
    return [np.asarray(frame, dtype=np.uint8) for frame in shown]


def _write_film(path: Path, frames: Sequence[NDArray[np.uint8]]) -> None:
    """Writes RGB pictures, each uint8 of shape (height, width, 3), as a GIF that plays again and again."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    for picture in pictures:
        picture.thumbnail((400, 400))
    first, *rest = [picture.quantize(128) for picture in pictures]
    pauses = [*[500] * len(rest), 2000]  # milliseconds
    first.save(path, save_all=True, append_images=rest, duration=pauses, loop=0, optimize=True)


def _policy_and_seed(env: TextGym) -> tuple[str, int]:
    """The policy that shows the environment, "" if there is none, and a seed.

    It is the first of ten seeds whose episode succeeds and is long enough; else the first that succeeds, or 0.
    """
    env.reset(seed=0)
    for policy in ("oracle", "random"):
        try:
            POLICIES[policy](env, default_horizon(env.spec, _LONGEST), np.random.default_rng(0))
        except NoOracleError:
            continue
        played = [list(_steps(env, policy, seed)) for seed in range(_SEEDS)]
        won = [seed for seed, infos in enumerate(played) if infos and infos[-1].get("success", False)]
        return policy, next((seed for seed in won if len(played[seed]) >= _ENOUGH), [*won, 0][0])
    return "", 0


def _steps(env: TextGym, policy: str, seed: int) -> Iterator[dict[str, Any]]:
    """The info of each action of an episode."""
    rng = np.random.default_rng(episode_seeds(seed)[1])
    env.reset(seed=seed, **_outcomes(env, seed))
    for left in range(default_horizon(env.spec, _LONGEST), 0, -1):
        _, _, terminated, truncated, info = env.step(POLICIES[policy](env, left, rng))
        yield info
        if terminated or truncated:
            return


def _outcomes(env: TextGym, seed: int) -> dict[str, dict[str, int]]:
    """The option of `reset` that fixes the outcomes as in the baselines, where an environment has it."""
    return {"options": {"outcome_seed": episode_seeds(seed)[0]}} if isinstance(env.unwrapped, TextEnv) else {}


def _shortened(message: str) -> str:
    """A message with lines that can be read on a page; a long one is cut."""
    text = message if len(message) <= _MESSAGE else f"{message[:_MESSAGE].rstrip()} …"
    lines = [textwrap.wrap(line, _WIDTH, break_on_hyphens=False) or [""] for line in text.splitlines()]
    return "\n".join(part for line in lines for part in line)


def _arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in given.items())


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _code(text: str) -> str:
    """Code in a cell."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{_cell(text)}{fence}"


def _cell(text: str) -> str:
    """A text that does not end its cell."""
    return text.replace("|", "\\|")

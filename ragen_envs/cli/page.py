"""The page of an environment, in Markdown and in the form of Gymnasium's own pages.

Everything on it is read from where it is declared: the id, its arguments and limit from the registry; spaces and render
modes from the environment; description, rewards and arguments from the docstrings; what oracles there are from their
registers. So an environment has its page as soon as it is registered.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from ragen_envs.baselines import HORIZONS
from ragen_envs.cli.docstring import Argument, arguments, sections
from ragen_envs.cli.episode import Frame, frames, policy_of, transcript
from ragen_envs.cli.lookup import EnvironmentChoiceError, creator, make_named
from ragen_envs.errors import EnvError
from ragen_envs.oracles import best_action, difficulty
from ragen_envs.pictures.film import write_film
from ragen_envs.text_env import TextEnv
from ragen_envs.thoughts import explain

_LAST = ("Version History", "Source")  # what Gymnasium has at the end, and whose work it is


class ResultsError(EnvError, ValueError):
    """A file of baselines cannot be read; the message says what is wrong."""


class NoPictureError(EnvError, ValueError):
    """An environment cannot be drawn here, mostly because a package is not installed; the message says which."""


def page_name(env_id: str) -> str:
    """The name of an id's page, without its ending: ``Sokoban-v0`` for ``ragen_envs:ragen/Sokoban-v0``."""
    return env_id.rpartition(":")[2].rpartition("/")[2]


def describe(
    name: str,
    rows: Sequence[Mapping[str, Any]] = (),
    picture: str | None = None,
    more: Mapping[str, str] | None = None,
) -> str:
    """The page of an environment.

    Args:
        name: A Gymnasium id, ``module:id`` included. It is shown as it is given.
        rows: Results with the keys of `baselines.Baseline`; those of other ids are left out.
        picture: Address of a picture to show.
        more: Title and text of further sections, which come after the baselines.

    Returns:
        Markdown.

    Raises:
        EnvironmentChoiceError: If the environment cannot be made.
    """
    env = make_named(name, {})
    assert env.spec is not None  # gymnasium.make sets it
    made_by = creator(env.spec)
    kind = made_by if isinstance(made_by, type) else type(env.unwrapped)
    summary, said = sections(kind)
    ending = {title: said.pop(title) for title in _LAST if title in said}
    said["Arguments"] = _argument_table(arguments(made_by, env.spec.kwargs))
    if isinstance(env.unwrapped, TextEnv):
        said["An Episode"] = f"{_player(env)}\n\n````text\n{transcript(env, env.spec.id)}\n````"
    said["Baselines"] = _baselines(name, env.spec, rows)
    parts = [f"# {env.spec.id}", *([f"![An episode]({picture})"] if picture else []), summary, _facts(name, env)]
    parts += [f"## {title}\n\n{text}" for title, text in {**said, **(more or {}), **ending}.items()]
    env.close()
    return "\n\n".join(part for part in parts if part) + "\n"


def write_page(
    folder: Path,
    name: str,
    rows: Sequence[Mapping[str, Any]] = (),
    more: Mapping[str, str] | None = None,
    pictured: bool = True,
) -> list[Path]:
    """Writes the page of an environment, and beside it a moving picture if the environment draws itself.

    Args:
        folder: Where to write; it is made if it is missing.
        name: A Gymnasium id, ``module:id`` included.
        rows: As `describe` takes them.
        more: As `describe` takes them.
        pictured: Whether there is a picture.

    Returns:
        The files that were written.

    Raises:
        EnvironmentChoiceError: If the environment cannot be made.
        NoPictureError: If it cannot be drawn. Then there is no page.
        OSError: If a file cannot be written.
    """
    page, film = folder / f"{page_name(name)}.md", folder / f"{page_name(name)}.gif"
    drawn = pictured and draws_itself(name)
    text = describe(name, rows, film.name if drawn else None, more)
    folder.mkdir(parents=True, exist_ok=True)
    if drawn:
        write_film(film, _drawn(name))
    page.write_text(text, encoding="utf-8")
    return [page, film] if drawn else [page]


def _drawn(name: str) -> list[Frame]:
    try:
        env = make_named(name, {"render_mode": "rgb_array"})
        shown = frames(env)
    except (EnvironmentChoiceError, gymnasium.error.DependencyNotInstalled) as error:
        raise NoPictureError(str(error)) from error
    env.close()
    return shown


def draws_itself(name: str) -> bool:
    """Whether an environment has a picture that is more than its text.

    Raises:
        EnvironmentChoiceError: If the environment cannot be made.
    """
    env = make_named(name, {}).unwrapped
    return env.draws_pictures if isinstance(env, TextEnv) else "rgb_array" in env.metadata.get("render_modes", ())


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


def _facts(name: str, env: gymnasium.Env[Any, Any]) -> str:
    """The table at the top, as Gymnasium has it, and what else can be asked without playing."""
    spec, inner = env.spec, env.unwrapped
    assert spec is not None
    made_by = spec.entry_point if isinstance(spec.entry_point, str) else getattr(spec.entry_point, "__name__", "")
    most = spec.max_episode_steps
    limit = "" if most is None else f", truncated after {most} actions (`TimeLimit`)"
    rows = {
        "Action space": _space(env.action_space),
        "Observation space": _space(env.observation_space),
        "Import": f'`gymnasium.make("{name}")`',
        "Registered": f"`{made_by}`{_given(spec)}{limit}",
        "Render modes": _codes(inner.metadata.get("render_modes", ())),
        "Options of `reset`": _codes(inner.option_names) if isinstance(inner, TextEnv) else "",
        "`make_vec`": f"`{spec.vector_entry_point}`" if spec.vector_entry_point else "",
        "Oracle": _registered(best_action, inner),
        "Thoughts that explain it": _registered(explain, inner),
        "Difficulty of a state": _registered(difficulty, inner),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items() if value)])


def _given(spec: EnvSpec) -> str:
    """The arguments that the id sets."""
    given = ", ".join(f"{key}={value!r}" for key, value in spec.kwargs.items())
    return f" with {_code(given)}" if given else ""


def _space(space: gymnasium.Space[Any]) -> str:
    if isinstance(space, gymnasium.spaces.Text):
        return f"`{type(space).__name__}`, {space.min_length} to {space.max_length:,} characters"
    return _code(" ".join(repr(space).split()))


def _registered(function: Any, env: gymnasium.Env[Any, Any]) -> str:
    """Whether one of the registers of `oracles` knows the environment."""
    found = function.dispatch(type(env)) is not function.dispatch(object)
    return f"`ragen_envs.{function.__name__}`" if found else "no"


def _argument_table(found: Sequence[Argument]) -> str:
    if not found:
        return "None."
    lines = ["| argument | default | |", "|---|---|---|"]
    for name, default, meaning in found:
        lines.append(f"| `{name}` | {_code(default) if default else 'must be given'} | {_cell(meaning)} |")
    return "\n".join(lines)


def _player(env: gymnasium.Env[str, str]) -> str:
    """Who plays the episode."""
    policy = policy_of(env)
    if policy is None:
        return "Only the first message: no policy is registered (`@ragen_envs.best_action.register`)."
    return f"The replies, after `>`, are those of {'the oracle' if policy == 'oracle' else 'random play'}."


def _baselines(name: str, spec: EnvSpec, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of an environment as a table, or how to get them."""
    mine = [row for row in rows if row["env"].rpartition(":")[2] == spec.id]
    if not mine:
        limit = "" if spec.id in HORIZONS or spec.max_episode_steps else " --max_actions N"
        return f"`python -m ragen_envs baselines {name}{limit} --json FILE` measures random play and the oracle."
    lines = ["| arguments | actions | policy | success [95 %] | mean return | n |", "|---|---|---|---|---|---|"]
    for row in mine:
        given = ", ".join(f"{key}={value!r}" for key, value in row.get("env_kwargs", {}).items())
        rate = f"{row['success']:.3f}" + (f" [{row['low']:.3f}, {row['high']:.3f}]" if "low" in row else "")
        mean = f"{row['mean_return']:.3f}" if "mean_return" in row else ""
        cells = (_code(given) if given else "defaults", row["horizon"], row["policy"], rate, mean, f"{row['n']:,}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _code(text: str) -> str:
    """Code in a cell."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{_cell(text)}{fence}"


def _cell(text: str) -> str:
    """A text that does not end its cell."""
    return text.replace("|", "\\|")

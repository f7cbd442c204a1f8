"""The docstring of every registered environment agrees with its spaces, infos and arguments."""

import inspect
import re

import gymnasium
import numpy as np

from ragen_envs import TextEnv
from ragen_envs.oracles import random_action
from tests.support.ragen_envs.registered import IDS, every_id, make

SECTIONS = [
    *("Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End", "Information"),
    *("Arguments", "Version History", "Source"),
]


def started(env_id: str) -> TextEnv:
    """The bare environment, after a reset."""
    env = make(env_id)
    env.reset(seed=0)
    return env


def sections(env: TextEnv) -> dict[str, str]:
    """Title and text of each section of the class docstring, in order."""
    parts = re.split(r"^## (.+)$", inspect.cleandoc(type(env).__doc__ or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))


def argument_docs(env: TextEnv) -> dict[str, str]:
    """What the docstring of `__init__` says about each argument, in order."""
    doc = inspect.cleandoc(type(env).__init__.__doc__ or "")
    block = re.search(r"^Args:\n((?: {4}.*\n?|\n)*)", doc, flags=re.MULTILINE)
    assert block, "no Args: in the docstring of __init__"
    parts = re.split(r"^ {4}(\w+): ", block[1], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@every_id
def test_sections_are_gymnasiums_in_gymnasiums_order(env_id: str) -> None:
    said = sections(started(env_id))
    assert list(said) == SECTIONS
    assert all(said.values()), said


@every_id
def test_kinds_of_space_are_the_live_ones(env_id: str) -> None:
    env, said = started(env_id), sections(started(env_id))
    assert said["Action Space"].startswith(f"{type(env.action_space).__name__}:")
    assert said["Observation Space"].startswith(f"{type(env.observation_space).__name__}:")


@every_id
def test_named_actions_are_the_live_ones(env_id: str) -> None:
    env = started(env_id)
    lists = {env.actions for seed in range(20) if env.reset(seed=seed)}
    if len(lists) > 1 or lists == {None}:  # names of this episode, or free text: the section describes them
        return
    first_sentence = sections(env)["Action Space"].split(". ")[0]
    assert re.findall(r"`([^`]+)`", first_sentence) == list(env.actions or ())


@every_id
def test_information_names_every_key_and_no_other(env_id: str) -> None:
    env = started(env_id)
    _, info = env.reset(seed=0)
    info_of_step = env.step(random_action(env, np.random.default_rng(0)))[-1]
    said = re.findall(r"`(\w+)`(?=:|,| and )", sections(env)["Information"])
    assert set(said) == set(info) == set(info_of_step)
    assert {"success", "action_is_valid", "action_is_effective", *env.idle_info} == set(info)


@every_id
def test_step_limit_is_the_registered_one(env_id: str) -> None:
    limit = gymnasium.spec(env_id).max_episode_steps
    said = re.findall(r"`TimeLimit`", sections(started(env_id))["Episode End"])
    assert bool(said) == (limit is not None)
    if limit is not None:
        assert str(limit) in sections(started(env_id))["Episode End"]


@every_id
def test_arguments_are_described_in_their_order(env_id: str) -> None:
    env = started(env_id)
    parameters = [name for name in inspect.signature(type(env).__init__).parameters if name != "self"]
    assert list(argument_docs(env)) == parameters
    assert "`__init__`" in sections(env)["Arguments"]
    assert set(gymnasium.spec(env_id).kwargs) <= set(parameters)


@every_id
def test_render_modes_are_described(env_id: str) -> None:
    env = started(env_id)
    said = set(re.findall(r'"(\w+)"', argument_docs(env)["render_mode"]))
    assert said == set(env.metadata["render_modes"])


@every_id
def test_version_history_knows_this_version(env_id: str) -> None:
    version = gymnasium.spec(env_id).version
    assert re.search(rf"^(- )?v{version}: .", sections(started(env_id))["Version History"], flags=re.MULTILINE)


@every_id
def test_ids_are_named_where_one_class_has_several(env_id: str) -> None:
    env = started(env_id)
    siblings = [other for other in IDS if type(started(other)) is type(env)]
    if len(siblings) > 1:
        assert f"`{env_id}`" in sections(env)["Description"]

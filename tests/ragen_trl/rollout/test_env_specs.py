"""The environments of a run: which they are, what is refused, and their names."""

import re
from functools import partial
from typing import Any

import gymnasium
import pytest

from ragen_envs import AgentTurns
from ragen_trl import StarPOConfig
from ragen_trl.rollout.env_specs import EnvSpec, EnvSpecError, env_specs, unique_names
from tests.support.ragen_trl.trainers import Lottery

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none"}
    return StarPOConfig(output_dir="unused", **{**quiet, **values})


def small_lottery() -> gymnasium.Env[str, str]:
    return Lottery(0.5)


class Maker:
    """A callable without a name of its own."""

    def __call__(self) -> gymnasium.Env[str, str]:
        return Lottery()


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (LAKE, "FrozenLake-v0"),
        ("ragen_envs:ragen/Sokoban-v0", "Sokoban-v0"),
        ("gymnasium:CartPole", "CartPole"),
        ("a/b/Deep-v3", "Deep-v3"),
        (small_lottery, "small_lottery"),
        (partial(partial(small_lottery)), "small_lottery"),
        (Maker(), "Maker"),
    ],
)
def test_metrics_are_named_by_id_or_function(env: Any, name: str) -> None:
    assert EnvSpec(env).name == name


def test_a_label_says_which_id_it_is() -> None:
    assert (EnvSpec(LAKE).label, EnvSpec(small_lottery).label) == (LAKE, "small_lottery")


def test_keyword_arguments_that_make_no_difference_give_one_key() -> None:
    assert EnvSpec(LAKE, {"size": 5, "is_slippery": False}).key == EnvSpec(LAKE, {"is_slippery": False, "size": 5}).key
    assert EnvSpec(LAKE, {"size": 5}).key != EnvSpec(LAKE, {"size": 6}).key
    assert EnvSpec(LAKE, {"size": 5}).name == EnvSpec(LAKE, {"size": 6}).name


def test_a_function_takes_no_keyword_arguments() -> None:
    with pytest.raises(EnvSpecError, match=r"env_kwargs is \{'win': 2\}, but env is a function"):
        EnvSpec(small_lottery, {"win": 2})


@pytest.mark.parametrize(
    "env", [Lottery(), AgentTurns(Lottery()), {"env": LAKE}, None, 3], ids=["env", "turns", "dict", "None", "3"]
)
def test_what_makes_no_new_environment_is_refused(env: Any) -> None:
    """An environment itself cannot play many episodes side by side, and no other object says how to make one."""
    message = re.escape(f"env is {env!r}; pass a Gymnasium id, or a function that makes a new environment")
    with pytest.raises(EnvSpecError, match=message):
        EnvSpec(env)
    with pytest.raises(EnvSpecError, match=message):
        env_specs([LAKE, env], config())


def test_keyword_arguments_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(EnvSpecError, match="desc.*of ragen/FrozenLake-v0 cannot be written as JSON.*pass a function"):
        EnvSpec(LAKE, {"desc": {1, 2}})


def test_a_single_environment_gets_the_keyword_arguments_of_the_configuration() -> None:
    assert env_specs(LAKE, config(env_kwargs={"size": 5})) == [EnvSpec(LAKE, {"size": 5})]
    assert env_specs([LAKE], config(env_kwargs={"size": 5})) == [EnvSpec(LAKE, {"size": 5})]
    assert env_specs(LAKE, config()) == [EnvSpec(LAKE)]


def test_a_list_keeps_its_order_and_may_hold_specs_and_functions() -> None:
    large = EnvSpec(LAKE, {"size": 8})
    assert env_specs([LAKE, large, small_lottery], config()) == [EnvSpec(LAKE), large, EnvSpec(small_lottery)]


@pytest.mark.parametrize("envs", [[LAKE, BANDIT], [EnvSpec(LAKE)], EnvSpec(LAKE)])
def test_keyword_arguments_that_could_mean_several_are_refused(envs: Any) -> None:
    with pytest.raises(EnvSpecError, match=r"env_kwargs is \{'size': 5\}, which is for a single id"):
        env_specs(envs, config(env_kwargs={"size": 5}))


def test_a_list_must_say_something_and_say_it_once() -> None:
    with pytest.raises(EnvSpecError, match="is empty"):
        env_specs([], config())
    with pytest.raises(EnvSpecError, match=r"FrozenLake-v0 with \{\} is listed 2 times.*env_weights"):
        env_specs([BANDIT, LAKE, LAKE], config())


def test_environments_of_one_id_have_names_that_tell_them_apart() -> None:
    lakes = [{"size": 4, "is_slippery": False}, {"size": 5, "is_slippery": False}, {"is_slippery": False}]
    specs = [EnvSpec("ragen/FrozenLake-v0", kwargs) for kwargs in lakes]
    names = ["FrozenLake-v0(size=4)", "FrozenLake-v0(size=5)", "FrozenLake-v0"]
    assert unique_names(specs) == names
    assert unique_names([EnvSpec("ragen/Bandit-v0", {}), *specs]) == ["Bandit-v0", *names]
    assert unique_names([EnvSpec(lambda: gymnasium.make("ragen/Bandit-v0")) for _ in range(2)]) == [
        *("<lambda>#0", "<lambda>#1")
    ]

"""The environments of a run: their instances, which rollouts share, their names, and how a model played in them."""

import signal
import time
from pathlib import Path
from threading import Event, main_thread
from typing import Any

import gymnasium
import pytest
from datasets import Dataset

import ragen_envs
from ragen_trl.errors import OptionError
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.env_executor import Failure
from ragen_trl.rollout.environments import EnvPool, EnvSpec, load_play_options, make_turns, unique_names
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.rollout.tasks import Tasks, reset_options
from tests.support.ragen_trl.trainers import Lottery, on_cpu, small_trainer

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"


def test_one_take_gives_every_row_an_instance_of_its_own_and_the_next_gives_the_same() -> None:
    pool = EnvPool(on_cpu())
    lake, bandit = EnvSpec(LAKE), EnvSpec(BANDIT)
    first = pool.take([lake, bandit, lake])
    assert len({id(turns) for turns in first}) == 3
    assert [turns.unwrapped.spec.id for turns in first] == [LAKE, BANDIT, LAKE]  # type: ignore[union-attr]
    second = pool.take([bandit, lake, lake, lake])
    assert [second[0], second[1], second[2]] == [first[1], first[0], first[2]]
    assert second[3] not in first


def test_a_function_that_returns_one_environment_again_is_found_out() -> None:
    shared = Lottery()
    pool, spec = EnvPool(on_cpu()), EnvSpec(lambda: shared)
    pool.take([spec])
    with pytest.raises(OptionError, match="function <lambda> returned an environment that it had returned before"):
        pool.take([spec, spec])


def test_a_failed_environment_is_replaced_by_a_new_one_of_its_kind() -> None:
    pool = EnvPool(on_cpu())
    large, bandit = EnvSpec(LAKE, {"size": 6, "is_slippery": False}), EnvSpec(BANDIT)
    first, second, other = pool.take([large, large, bandit])
    new = pool.replace(second, Failure("timeout", "what happened", None))
    assert new not in (first, second, other)
    assert (new.unwrapped.spec.id, new.unwrapped.spec.kwargs) == (LAKE, second.unwrapped.spec.kwargs)
    assert [id(turns) for turns in pool.take([large, bandit, large])] == [id(first), id(other), id(new)]


class Log(ragen_envs.TextEnv):
    """Shows the actions of its episode. An instance may wait for a gate in a step, or be slow to make."""

    instruction = "Write."
    actions = ("a", "b")
    gate: Event | None = None

    def _start(self, options: dict[str, Any]) -> str:
        self.log = ""
        return "nothing"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if self.gate is not None:
            self.gate.wait(60)
        self.log += action
        return self.log, 0.0, False, {"success": False, "action_is_effective": True}


@pytest.mark.usefixtures("python_handles_interrupts")
def test_what_a_thread_may_still_be_inside_is_not_played_again() -> None:
    """Regression: after Ctrl-C the thread took its step in the episode that was played next."""
    gate, left = Event(), Event()

    class Waits(Log):
        armed = False

        def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
            if self.armed:
                ident = main_thread().ident
                assert ident is not None
                signal.pthread_kill(ident, signal.SIGINT)
                self.armed = False
                gate.wait(60)
            answer = super()._act(action)
            left.set()
            return answer

    pool = EnvPool(on_cpu(env_timeout=60, think=False, max_actions_per_turn=1, max_turns=2))
    specs, starts = [EnvSpec(Waits), EnvSpec(Log)], [Start(1), Start(2)]
    policy = ScriptedPolicy(lambda env, random: "<answer>a</answer>")
    before = pool.take(specs)
    before[0].unwrapped.armed = True
    with pytest.raises(KeyboardInterrupt):
        pool.play(before, policy, starts)
    left.clear()
    after = pool.take(specs)
    gate.set()
    assert left.wait(10)
    assert not set(map(id, before)) & set(map(id, after))
    played = pool.play(after, policy, starts)
    assert [[turn.observation.partition("State:\n")[2].split("\n")[0] for turn in each.turns] for each in played] == [
        ["nothing", "a"]
    ] * 2


def logs_of(pool: EnvPool, spec: EnvSpec, action: str) -> tuple[Any, str, list[str]]:
    """The environment that was taken, why its episode of four turns ended, and what it showed."""
    (turns,) = pool.take([spec])
    (episode,) = pool.play([turns], ScriptedPolicy(lambda env, random: f"<answer>{action}</answer>"), [Start(1)])
    return turns, episode.limit, [turn.observation.partition("State:\n")[2].split("\n")[0] for turn in episode.turns]


@pytest.mark.parametrize("successor", ["made slowly", "not made"])
def test_an_environment_that_hung_is_never_played_again(successor: str) -> None:
    """Its thread went on in the episode that had begun in it, if a new one took longer to make than a step may."""
    gate, made = Event(), 0

    def make() -> Log:
        nonlocal made
        made += 1
        env = Log()
        if made == 1:
            env.gate = gate
        elif made == 2 and successor == "not made":
            raise ConnectionError("nobody there")
        elif made == 2:
            time.sleep(0.3)
        return env

    pool = EnvPool(on_cpu(env_timeout=0.1, think=False, max_actions_per_turn=1, max_turns=4))
    hung, limit, shown = logs_of(pool, EnvSpec(make), "a")
    assert (limit, shown) == ("timeout", ["nothing"])
    gate.set()
    new, limit, shown = logs_of(pool, EnvSpec(make), "b")
    assert new is not hung
    assert (limit, shown) == ("turns", ["nothing", "b", "bb", "bbb"])
    assert made == (2 if successor == "made slowly" else 3)


class Counting:
    """As for TRL's ``environment_factory``."""

    def reset(self, start: int) -> str:
        """From TRL: called with a row's columns."""
        self.number = start
        return f" It is {start}."

    def add(self, by: int) -> int:
        """Add to the number.

        Args:
            by: How much.
        """
        self.number += by
        return self.number

    async def get_reward(self) -> float:
        """From TRL: called at the end."""
        return self.number / 10


def test_a_class_for_trl_and_its_rows_are_played_as_they_are() -> None:
    """From TRL 1.16's documentation of `environment_factory`."""
    args = on_cpu(think=False, max_turns=3, success_return=1.0, num_generations=64)
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Count."}]}]  # TRL takes them, too
    rows = Dataset.from_list([{"prompt": blocks, "start": start} for start in (4, 7)])
    tasks = Tasks(Counting, rows, args)
    starts = [Start(row["seed"], options=reset_options(row)) for row in tasks.rows.select(range(2))]
    said = ['<tool_call>{"name": "add", "arguments": {"by": 2}}</tool_call>', "Enough."]
    policy = ScriptedPolicy(lambda turns, random: said[turns.game._made.number == 6])
    played = play([make_turns(spec.env, args) for spec in tasks.specs * 2], policy, starts)
    assert [one.turns[0].observation for one in played] == ["Count. It is 4.", "Count. It is 7."]
    assert [(one.seed, one.success, one.terminated) for one in played] == [(10_000, False, True), (10_001, True, False)]
    assert [[turn.reward for turn in one.turns] for one in played] == [
        pytest.approx([0.6, 0.0]),
        pytest.approx([0.9, 0.2, 0.2]),
    ]


def test_environments_of_one_id_have_names_that_tell_them_apart() -> None:
    lakes = [{"size": 4, "is_slippery": False}, {"size": 5, "is_slippery": False}, {"is_slippery": False}]
    specs = [EnvSpec(LAKE, kwargs) for kwargs in lakes]
    names = ["FrozenLake-v0(size=4)", "FrozenLake-v0(size=5)", "FrozenLake-v0"]
    assert unique_names(specs) == names
    assert unique_names([EnvSpec(BANDIT, {}), *specs]) == ["Bandit-v0", *names]
    assert unique_names([EnvSpec(lambda: gymnasium.make(BANDIT)) for _ in range(2)]) == [*("<lambda>#0", "<lambda>#1")]


def test_a_trainer_records_how_it_played(tmp_path: Path) -> None:
    first = small_trainer(tmp_path / "a", LAKE, think=False, max_steps=1, save_strategy="steps", save_steps=1)
    first.train()
    first.save_model(str(tmp_path / "saved"))
    for folder in (tmp_path / "saved", tmp_path / "a" / "checkpoint-1"):
        found = load_play_options(str(folder))
        assert (found["env"], found["think"]) == (LAKE, False)

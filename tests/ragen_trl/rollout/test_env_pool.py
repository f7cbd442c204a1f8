"""The instances of environments that rollouts share."""

import signal
import time
from threading import Event, get_ident, main_thread
from typing import Any

import gymnasium
import pytest

import ragen_envs
from ragen_envs import AgentTurns
from ragen_trl import StarPOConfig
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.env_executor import Failure
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import EnvSpec, EnvSpecError
from ragen_trl.rollout.environments import about
from ragen_trl.rollout.interfaces import Start
from tests.support.ragen_trl.trainers import Lottery

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none"}
    return StarPOConfig(output_dir="unused", **{**quiet, **values})


def small_lottery() -> gymnasium.Env[str, str]:
    return Lottery(0.5)


def test_one_take_gives_every_row_an_instance_of_its_own_and_the_next_gives_the_same() -> None:
    pool = EnvPool(config())
    lake, bandit = EnvSpec(LAKE), EnvSpec(BANDIT)
    first = pool.take([lake, bandit, lake])
    assert len({id(turns) for turns in first}) == 3
    assert [turns.unwrapped.spec.id for turns in first] == [LAKE, BANDIT, LAKE]  # type: ignore[union-attr]
    second = pool.take([bandit, lake, lake, lake])
    assert [second[0], second[1], second[2]] == [first[1], first[0], first[2]]
    assert second[3] not in first


def test_what_a_row_plays_depends_on_its_own_keyword_arguments() -> None:
    pool = EnvPool(config())
    specs = [EnvSpec(LAKE, {"size": 5}), EnvSpec(LAKE), EnvSpec(LAKE, {"size": 6})]
    boards = [turns.reset(seed=1)[0].partition("State:\n")[2].splitlines()[0] for turns in pool.take(specs)]
    assert [len(board.split()) if " " in board else len(board) for board in boards] == [5, 4, 6]


def test_the_arguments_of_a_spec_replace_those_of_the_configuration() -> None:
    pool = EnvPool(config(env_kwargs={"size": 6}))
    assert pool.take([EnvSpec(LAKE)])[0].unwrapped.spec.kwargs.get("size") is None  # type: ignore[union-attr]


def test_turn_limits_are_those_of_the_configuration() -> None:
    (turns,) = EnvPool(config(max_turns=3, max_actions=7, think=False)).take([EnvSpec(small_lottery)])
    assert (turns.max_turns, turns.max_actions, turns.reply_prefix) == (3, 7, "<answer>")


def test_closing_closes_every_environment_and_a_closed_pool_begins_anew() -> None:
    closed: list[object] = []

    class Counted(Lottery):
        def close(self) -> None:
            closed.append(self)

    pool, spec = EnvPool(config()), EnvSpec(Counted)
    taken = pool.take([spec, spec])
    pool.close()
    assert {id(env) for env in closed} == {id(turns.unwrapped) for turns in taken}
    assert pool.take([spec])[0] not in taken
    pool.close()
    assert len(closed) == 3


def test_one_that_cannot_be_closed_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    pool, spec = EnvPool(config()), EnvSpec(Door)
    taken = pool.take([spec, spec])
    pool.close()
    assert all(turns.unwrapped.closed.is_set() for turns in taken)
    assert "2 of 2 environments could not be closed: OSError('cannot be closed either')" in caplog.text


def test_a_function_that_returns_one_environment_again_is_found_out() -> None:
    shared = Lottery()
    pool, spec = EnvPool(config()), EnvSpec(lambda: shared)
    pool.take([spec])
    with pytest.raises(EnvSpecError, match="function <lambda> returned an environment that it had returned before"):
        pool.take([spec, spec])


def test_environments_whose_replies_start_differently_need_a_free_prefix() -> None:
    def quiet() -> AgentTurns:
        return AgentTurns(Lottery(), think=False)

    specs = [EnvSpec(small_lottery), EnvSpec(quiet)]
    with pytest.raises(EnvSpecError, match="quiet start with <answer>, those to the other environments with <think>"):
        EnvPool(config()).take(specs)
    assert len(EnvPool(config(force_reply_prefix=False)).take(specs)) == 2


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(gymnasium.error.NameNotFound, match="Nothing"):
        EnvPool(config()).take([EnvSpec("ragen/Nothing-v0")])


def test_a_summary_says_what_every_environment_says_of_itself() -> None:
    class Talkative(Lottery):
        def about(self) -> dict[str, Any]:
            return {"tickets": 7}

    assert about(LAKE, config(), {"size": 5}) == ragen_envs.FrozenLake(size=5).about()
    assert about(Talkative, config()) == {"tickets": 7}


def failure(error: Exception | None = None) -> Failure:
    return Failure("timeout" if error is None else "crash", "what happened", error)


def test_a_failed_environment_is_replaced_by_a_new_one_of_its_kind() -> None:
    pool = EnvPool(config())
    large, bandit = EnvSpec(LAKE, {"size": 6, "is_slippery": False}), EnvSpec(BANDIT)
    first, second, other = pool.take([large, large, bandit])
    new = pool.replace(second, failure())
    assert new not in (first, second, other)
    assert (new.unwrapped.spec.id, new.unwrapped.spec.kwargs) == (LAKE, second.unwrapped.spec.kwargs)
    assert [id(turns) for turns in pool.take([large, bandit, large])] == [id(first), id(other), id(new)]


class Door(Lottery):
    """Says when it was closed, and that may take long."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = Event()

    def close(self) -> None:
        self.closed.set()
        raise OSError("cannot be closed either")


def test_one_that_crashed_is_closed_and_one_that_hangs_is_left_alone() -> None:
    pool = EnvPool(config())
    (crashed,) = pool.take([EnvSpec(Door)])
    hung = pool.replace(crashed, failure(OSError("broken")))
    assert crashed.unwrapped.closed.wait(10)
    assert pool.replace(hung, failure()) is not hung
    assert not hung.unwrapped.closed.wait(0.05)


def test_only_environments_of_the_pool_can_be_replaced() -> None:
    pool = EnvPool(config())
    pool.take([EnvSpec(Lottery)])
    with pytest.raises(ValueError, match="was not taken from this pool"):
        pool.replace(AgentTurns(Lottery()), failure())


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

    pool = EnvPool(config(env_timeout=0.1, think=False, max_actions_per_turn=1, max_turns=4))
    hung, limit, shown = logs_of(pool, EnvSpec(make), "a")
    assert (limit, shown) == ("timeout", ["nothing"])
    gate.set()
    new, limit, shown = logs_of(pool, EnvSpec(make), "b")
    assert new is not hung
    assert (limit, shown) == ("turns", ["nothing", "b", "bb", "bbb"])
    assert made == (2 if successor == "made slowly" else 3)


@pytest.mark.usefixtures("python_handles_interrupts")
@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit])
def test_what_a_thread_may_still_be_inside_is_not_played_again(fault: type[BaseException]) -> None:
    """Regression: after Ctrl-C the thread took its step in the episode that was played next."""
    gate, left = Event(), Event()

    class Waits(Log):
        armed = False

        def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
            if self.armed and fault is KeyboardInterrupt:
                ident = main_thread().ident
                assert ident is not None
                signal.pthread_kill(ident, signal.SIGINT)
            if self.armed:
                self.armed = False
                gate.wait(60)
            answer = super()._act(action)
            left.set()
            return answer

    class Ends(Log):
        armed = False

        def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
            if self.armed and fault is SystemExit:
                raise SystemExit
            return super()._act(action)

    pool = EnvPool(config(env_timeout=60, think=False, max_actions_per_turn=1, max_turns=2))
    specs, starts = [EnvSpec(Waits), EnvSpec(Ends)], [Start(1), Start(2)]
    policy = ScriptedPolicy(lambda env, random: "<answer>a</answer>")
    before = pool.take(specs)
    for turns in before:
        turns.unwrapped.armed = True
    with pytest.raises(fault):
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


def test_a_pool_does_not_close_what_hangs() -> None:
    doors: list[Door] = []

    def make() -> Door:
        if doors:
            raise ConnectionError("nobody there")
        doors.append(Door())
        return doors[0]

    pool = EnvPool(config())
    (hung,) = pool.take([EnvSpec(make)])
    with pytest.raises(ConnectionError):
        pool.replace(hung, failure())
    pool.close()
    assert not doors[0].closed.is_set()


def test_without_threads_environments_are_closed_where_they_were_made() -> None:
    """SQLite refuses another thread, and so do browsers."""
    threads: list[int] = []

    class Tied(Lottery):
        def close(self) -> None:
            threads.append(get_ident())

    pool = EnvPool(config(env_workers=0))
    pool.replace(pool.take([EnvSpec(Tied)])[0], failure(OSError("broken")))
    assert threads == [get_ident()]


class Sized(Lottery):
    """Takes what JSON changes: a tuple becomes a list, and a whole number as a key becomes text."""

    def __init__(self, size: tuple[int, int], names: dict[int, str]) -> None:
        super().__init__()
        self.given = (size, names)


def test_a_new_environment_gets_the_arguments_of_the_failed_one() -> None:
    gymnasium.register("tests/Sized-v0", Sized)
    try:
        pool = EnvPool(config())
        (first,) = pool.take([EnvSpec("tests/Sized-v0", {"size": (2, 3), "names": {1: "one"}})])
        new = pool.replace(first, failure(OSError("broken")))
    finally:
        del gymnasium.registry["tests/Sized-v0"]
    assert new.unwrapped.given == first.unwrapped.given == ((2, 3), {1: "one"})

"""`ragen/TextWorld-v0` on generated games. They are made once, into the user's cache, some seconds each."""

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, TextWorld, best_action, difficulty, random_action
from ragen_envs.textworld import scenes

pytest.importorskip("textworld")

SMALL = {"size": "w1-o2-q2", "games": 4}


def solve(env: TextWorld, seed: int) -> list[tuple[str, float]]:
    """The oracle's commands and what they earned."""
    env.reset(seed=seed)
    played, over = [], False
    while not over:
        command = best_action(env, 10)
        _, reward, over, _, info = env.step(command)
        played.append((command, reward))
    assert info["success"]
    return played


def test_an_episode_by_hand() -> None:
    env = TextWorld(**SMALL)
    first, info = env.reset(seed=0)
    game = {seed: env.reset(seed=seed)[1]["game"] for seed in range(12)}
    assert set(game.values()) == {f"w1-o2-q2/{number}" for number in range(4)}
    assert info == {
        **{"success": False, "action_is_valid": False, "action_is_effective": False},
        **{"game": game[0], "task_type": ""},
    }
    assert env.reset(seed=0)[0] == first
    task, room, *_, listed = first.splitlines()
    assert task == env.task and task.startswith("Task: ") and room.startswith("-= ")
    assert listed == f"Commands: {', '.join(env.scene.commands)}"
    assert {"look", "inventory"} <= set(env.scene.commands)
    assert "$$" not in first and ">" not in first  # neither the title nor the prompt of the interpreter
    looked, reward, over, _, info = env.step(" LOOK ")
    assert looked.startswith(room) and (reward, over) == (0.0, False)
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, False)
    assert env.step("fly to the moon")[0] == looked  # not a command: nothing changes
    command = env.plan[0]
    assert env.step(command)[4]["action_is_effective"]


def test_the_oracle_needs_the_quests_length_and_rewards_add_up_to_one() -> None:
    for rewards, expected in (("final", [0.0, 1.0]), ("progress", [0.5, 0.5])):
        env = TextWorld(**SMALL, rewards=rewards)
        for seed in range(4):
            assert [reward for _, reward in solve(env, seed)] == expected


def test_progress_can_be_lost_and_earned_back_but_not_earned_twice() -> None:
    env = TextWorld(**SMALL, rewards="progress")
    for seed in range(20):
        env.reset(seed=seed)
        rng, total, over = np.random.default_rng(seed), 0.0, False
        for _ in range(15):
            before = len(env.plan)
            _, reward, over, _, info = env.step(random_action(env, rng))
            total += reward
            if over:
                break
            assert not env.plan or reward == pytest.approx((before or 2) / 2 - len(env.plan) / 2)
        if not info["success"]:
            assert total == pytest.approx(1 - (len(env.plan) or 2) / 2)
        else:
            assert total == pytest.approx(1.0)


def test_commands_may_be_hidden() -> None:
    shown, hidden = TextWorld(**SMALL), TextWorld(**SMALL, show_commands=False)
    text, _ = hidden.reset(seed=1)
    assert shown.reset(seed=1)[0] == f"{text}\nCommands: {', '.join(hidden.scene.commands)}"
    assert "take X from Y" in hidden.instruction and "take X" not in shown.instruction
    command = best_action(hidden, 5)
    assert hidden.step(command)[4]["action_is_valid"]


def test_splits_share_no_game() -> None:
    train, held_out = TextWorld(**SMALL), TextWorld("w1-o2-q2", games=2, split="eval")
    names = [{env.reset(seed=seed)[1]["game"] for seed in range(10)} for env in (train, held_out)]
    assert names[1] == {"w1-o2-q2/1000000", "w1-o2-q2/1000001"} and not names[0] & names[1]


def test_difficulty_is_the_length_of_a_plan() -> None:
    env = gymnasium.make("ragen/TextWorld-v0", **SMALL)
    env.reset(seed=2)
    assert difficulty(env) == 2.0
    env.step(best_action(env, 5))
    assert difficulty(env) == 1.0
    env.step(best_action(env, 5))
    assert difficulty(env) == 0.0


def test_scenes_are_the_games_own_answers() -> None:
    """The scene of a way is what TextWorld's own interpreter says, whatever was played before and in between."""
    import textworld

    env = TextWorld(**SMALL)
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    wanted = textworld.EnvInfos(admissible_commands=True, policy_commands=True)
    for _ in range(6):
        env.reset(seed=3)
        game = textworld.start(env._path, wanted)
        answer = game.reset()
        for _ in range(5):
            assert env.scene.commands == tuple(answer.admissible_commands)
            assert env.scene.plan == tuple(answer.policy_commands)
            command = random_action(env, rng)
            answer, score, over = game.step(command)
            observation, reward, terminated, _, _ = env.step(command)
            assert (terminated, reward) == (over, float(score))
            spoken = " ".join(str(answer.feedback).split("\n>")[0].split("*** ")[0].split())
            spoken = spoken.replace(" Your score has just gone up by one point.", "")
            assert " ".join(observation.split("\nCommands")[0].split("\nThe task")[0].split()) == spoken
            if over:
                break
        game.close()


def test_copies_share_nothing_and_many_ways_need_few_interpreters() -> None:
    env = TextWorld(**SMALL)
    env.reset(seed=5)
    twins: list[Any] = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    ways = set()
    for number, twin in enumerate([*twins, *(copy.deepcopy(env) for _ in range(40))]):
        rng = np.random.default_rng(number)
        for _ in range(3):
            twin.step(random_action(twin, rng))
        ways.add(twin._commands)
    assert env._commands == () and len(ways) > scenes.MOST_INTERPRETERS
    assert len(scenes._interpreters(env._path, True)._idle) <= scenes.MOST_INTERPRETERS
    for way in ways:
        assert scenes.scene.__wrapped__(env._path, way, True) == scenes.scene(env._path, way, True)


def test_a_model_reads_the_task_again_where_its_context_begins_later() -> None:
    turns = AgentTurns(gymnasium.make("ragen/TextWorld-v0", **SMALL), think=False, max_actions_per_turn=1)
    first, _ = turns.reset(seed=0)
    assert first.count("Task: ") == 1
    later = turns.step("<answer>look</answer>")[0]
    assert "Task: " not in later and turns.opening.count("Task: ") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": "small"}, "size='small' is no size"),
        ({"games": 0}, "games=0 leaves nothing to play"),
        ({"games": 1_000_001}, "games=1000001 is more than the 1,000,000 of split='train'; use at most so many"),
        ({"split": "test"}, "split='test' is unknown; use one of train, eval"),
        ({"rewards": "dense"}, "rewards='dense' is unknown; use one of final, progress"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextWorld(**arguments)

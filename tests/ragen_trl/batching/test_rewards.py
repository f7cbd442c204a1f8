"""Extra rewards: values by hand, from episodes whose replies and lengths are written down."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from trl.trainer.utils import get_callable_name

import ragen_envs
from ragen_envs import AgentTurns
from ragen_trl.batching.rewards import consistency_reward, description_reward, format_reward, length_reward
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory, Turn


def turn(reply: str = "", actions: tuple[str, ...] = (), readable: bool = True, tokens: int = 1) -> Turn:
    info = {"actions": actions, "format_is_valid": readable}
    return Turn((1,), tuple(range(tokens)), (), observation="?", reply=reply, reward=0.0, info=info)


def episode(*turns: Turn) -> Trajectory:
    return Trajectory(turns, seed=0, terminated=True)


def said(thought: str, action: str) -> Turn:
    return turn(f"<think>{thought}</think><answer>{action}</answer>", (action,))


def test_a_thought_that_announces_its_action_earns_the_whole_bonus() -> None:
    buying = said("The price fits. I will buy it now.", "click[Buy Now]")
    assert consistency_reward(trajectory=[episode(buying)]) == [0.2]


def test_consistency_is_a_mean_over_turns() -> None:
    buying = said("I will buy it now.", "click[Buy Now]")  # 0.2
    named = said("Red shoes it is.", "search[red shoes]")  # all words named, no word for searching: 0.75 · 0.2
    silent = said("Hm.", "search[red shoes]")  # 0
    rewards = consistency_reward(trajectory=[episode(buying, named), episode(named, silent, silent)])
    assert rewards == pytest.approx([0.175, 0.05], abs=1e-12)
    assert consistency_reward(trajectory=[episode(*[buying] * 9)]) == pytest.approx([0.2])  # length earns nothing


def test_several_actions_of_a_turn_share_its_thought() -> None:
    thought = "<think>I search for shoes.</think><answer>search[shoes] || click[Buy Now]</answer>"
    assert consistency_reward([episode(turn(thought, ("search[shoes]", "click[Buy Now]")))]) == pytest.approx([0.1])


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        ("<answer>click[Buy Now]</answer>", ("click[Buy Now]",)),  # no thought
        ("I buy it. <answer>click[Buy Now]</answer>", ("click[Buy Now]",)),  # words, but outside a thought
        ("<think>I buy it now.</think> and <answer>click[Buy Now]</answer>", ()),  # unreadable
        ("<think>I buy it now.</think><answer>click[Buy Now]</answer>", ()),  # read, but not executed
        ("<think>I go left.</think><answer>Left</answer>", ("Left",)),  # no action of a shop
        ("", ()),
    ],
)
def test_consistency_is_0_where_there_is_nothing_to_compare(reply: str, actions: tuple[str, ...]) -> None:
    assert consistency_reward([episode(turn(reply, actions))]) == [0.0]


def test_the_thought_is_what_the_environment_takes_for_it() -> None:
    """Text before the tags does not count, and a thought ends where the first answer follows it."""
    outside = "I buy it. <think>Hm.</think><answer>click[Buy Now]</answer> I buy it."
    inner = "<think>a </think> b; I buy it.</think>\n <answer>click[Buy Now]</answer><think>x</think><answer>y</answer>"
    rewards = consistency_reward([episode(turn(reply, ("click[Buy Now]",))) for reply in (outside, inner)])
    assert rewards == [0.0, 0.2]


def test_unreadable_replies_cost_their_share() -> None:
    good, bad = turn(), turn(readable=False)
    assert format_reward(trajectory=[episode(good), episode(good, bad, bad, bad), episode(bad)]) == [0.0, -0.75, -1.0]


@pytest.mark.parametrize(
    ("tokens", "charge"), [(0, 0.0), (100, 0.0), (101, -0.02), (125, -0.5), (149, -0.98), (150, -1.0), (4000, -1.0)]
)
def test_length_is_free_up_to_the_target_then_charged_in_proportion(tokens: int, charge: float) -> None:
    assert length_reward(100, 50)(trajectory=[episode(turn(tokens=tokens))]) == pytest.approx([charge], abs=1e-12)


def test_length_is_charged_per_reply_not_per_episode() -> None:
    limited = length_reward(target=10, scale=10)
    short, long = turn(tokens=10), turn(tokens=15)
    assert limited(trajectory=[episode(*[short] * 20), episode(short, long), episode(long)]) == [0.0, -0.25, -0.5]


@pytest.mark.parametrize(("target", "scale"), [(-1, 5), (5, 0), (5, -1)])
def test_limits_that_make_no_sense_are_refused(target: int, scale: int) -> None:
    with pytest.raises(ValueError, match=f"target is {target} and scale is {scale}"):
        length_reward(target, scale)


def test_a_length_reward_survives_pickling() -> None:
    limited = length_reward(10, 10)
    again = pickle.loads(pickle.dumps(limited))
    assert again(trajectory=[episode(turn(tokens=12))]) == limited(trajectory=[episode(turn(tokens=12))]) == [-0.2]


REWARDS: list[Callable[..., list[float]]] = [consistency_reward, format_reward, length_reward(100, 50)]


def test_trl_logs_them_under_names_that_tell_them_apart() -> None:
    names = [get_callable_name(reward) for reward in [*REWARDS, length_reward(10, 5)]]
    assert names == ["consistency_reward", "format_reward", "length_reward_100_50", "length_reward_10_5"]


@pytest.mark.parametrize("reward", REWARDS, ids=get_callable_name)
def test_every_trajectory_of_a_real_shop_gets_a_finite_number(reward: Callable[..., list[float]]) -> None:
    """As TRL calls them: by name, with all other columns; some replies are readable, some are not."""
    shop = "<think>I search for a lamp.</think><answer>search:lamp</answer>"
    script = {0: shop, 1: "buy!", 2: "<think></think><answer></answer>", 3: "<think>buy</think><answer>buy:1</answer>"}
    policy = ScriptedPolicy(lambda env, random: script[int(random.integers(4))])
    envs = [AgentTurns(ragen_envs.ToyShop(), max_actions_per_turn=1) for _ in range(4)]
    played = play(envs, policy, [Start(seed, sampling_seed=seed) for seed in range(4)])
    columns: dict[str, Any] = {"seed": [0] * 4, "trainer_state": None, "log_metric": print, "log_extra": print}
    rewards = reward(prompts=["?"] * 4, completions=["!"] * 4, completion_ids=[[1]] * 4, trajectory=played, **columns)
    assert len(rewards) == 4
    assert all(isinstance(value, float) and math.isfinite(value) for value in rewards)
    if reward is consistency_reward:
        searched = [sum(turn.reply == shop for turn in one.turns) / len(one.turns) for one in played]
        assert sum(searched) > 0
        assert rewards == pytest.approx([0.2 * share for share in searched])


def test_descriptions_are_compared_with_the_states_before_and_after() -> None:
    before, after = "####\n#P_#\n#XO#\n####", "####\n#_P#\n#XO#\n####"
    told = "player (1, 1), box (2, 1), target (2, 2)"
    predicted = "player (1, 2), box (2, 1), target (2, 2)"

    def described(thought: str) -> Turn:
        reply = f"<think>{thought}</think><answer>Right</answer>"
        return Turn((1,), (2,), (), observation="?", reply=reply, reward=0.0, info={"state": after}, state=before)

    both = described(f"<observation>{told}</observation>So.<prediction>{predicted}</prediction>")
    seen = described(f"<observation>{told}</observation><prediction>{told}</prediction>")
    silent = described("Right.")
    assert description_reward([episode(both), episode(silent)]) == [1.0, 0.0]
    assert description_reward([episode(seen, silent)]) == pytest.approx([(1 + 1 / 3 * 2 / 3) / 2 / 2])

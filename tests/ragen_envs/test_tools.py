"""Tools-v0: the state that is reached counts, and no way is shorter."""

from typing import Any

import numpy as np
import pytest

from ragen_envs import Tools, best_action, difficulty
from ragen_envs.calling.tool import write_call
from ragen_envs.tools.domains import LENGTHS, Orders, Row
from ragen_envs.tools.env import SPLITS


def orders() -> Tools:
    """An episode whose rows and goal are written here: Anna's mug must be cancelled."""
    env = Tools(calls=3)
    customers = [Row(id=11, name="Anna", city="Oslo"), Row(id=12, name="Ben", city="Rome")]
    products = [Row(id=21, name="mug", price=5), Row(id=22, name="lamp", price=30)]
    bought = ((31, 11, 21, 2), (32, 11, 22, 1), (33, 12, 21, 4))
    orders = [Row(id=a, customer_id=b, product_id=c, quantity=d) for a, b, c, d in bought]
    env.reset(seed=0)
    env.domain = Orders(np.random.default_rng(0))
    env.domain.tables = {"customer": customers, "product": products, "order": orders}
    env._goal = {**env.domain.state(), "order": [(11, 22, 1), (12, 21, 4)]}
    return env


def called(env: Tools, name: str, /, **arguments: Any) -> tuple[str, float, bool, dict[str, Any]]:
    text, reward, terminated, _, info = env.step(write_call(name, arguments))
    return text, reward, terminated, info


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_oracle_needs_as_many_calls_as_the_task_says(split: str, length: int) -> None:
    env = Tools(split=split, calls=length)
    kinds = set()
    for seed in range(12):
        env.reset(seed=seed)
        kinds.add(type(env.domain))
        assert difficulty(env) == length
        for left in range(length, 0, -1):
            assert difficulty(env) == left
            _, reward, terminated, _, info = env.step(best_action(env, left))
            assert not info["tool_failed"] and (reward, terminated) == ((1.0, True) if left == 1 else (0.0, False))
        assert info["success"]
    assert kinds == set(SPLITS[split][0])


def test_the_state_counts_and_not_the_calls() -> None:
    """The same end by another way: a wrong order is placed and cancelled, and the city is changed there and back."""
    env = orders()
    assert called(env, "place_order", customer_id=12, product_id=22, quantity=1)[:3] == ("order 100 placed", 0.0, False)
    assert called(env, "cancel_order", order_id=31)[1:3] == (0.0, False)
    assert called(env, "change_city", customer_id=11, city="Lima")[1:3] == (0.0, False)
    assert called(env, "change_city", customer_id=11, city="Oslo")[1:3] == (0.0, False)
    assert called(env, "cancel_order", order_id=100)[1:3] == (1.0, True)
    env = orders()
    assert called(env, "cancel_order", order_id=33)[1:3] == (0.0, False)
    assert called(env, "cancel_order", order_id=31)[1:3] == (0.0, False)  # that of Ben is gone, too

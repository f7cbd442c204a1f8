"""Lessons for models that see: what they tell, and that a model learns from the picture what it tells."""

import gymnasium
import pictures
import pytest
from learning.seeing import described, imitate, lessons, places_right

from ragen_envs import best_action
from tests.support.ragen_trl.vision import TOKENIZER, processor_of, vision_model

LAKE = {"size": 3, "is_slippery": False}


def test_a_description_names_every_place() -> None:
    assert described("_P_\nO_G\n__O") == "player (0, 1), goal (1, 2), hole (1, 0), hole (2, 2)"


def test_a_lesson_is_a_picture_and_what_is_on_it() -> None:
    model = vision_model()
    processor = processor_of(model)
    first, second = lessons("ragen/FrozenLake-v0", LAKE, 84, processor, TOKENIZER, [0, 1])
    assert first.pictures != second.pictures
    assert first.turns[0].prompt_ids.count(processor.image_id) == 9  # a token a tile
    assert TOKENIZER.decode(first.turns[0].reply_ids[:-1]).strip() == first.turns[0].reply
    assert first.turns[0].reply.startswith("player (") and "goal (" in first.turns[0].reply


def test_a_lesson_may_name_the_oracles_move_instead() -> None:
    processor = processor_of(vision_model())
    (told,) = lessons("ragen/FrozenLake-v0", LAKE, 84, processor, TOKENIZER, [3], noise=0.0)
    env = gymnasium.make("ragen/FrozenLake-v0", **LAKE)
    env.reset(seed=3)
    assert told.turns[0].reply == f"move {best_action(env, 5)}"


def test_a_model_learns_what_lessons_tell() -> None:
    model = vision_model()
    processor = processor_of(model)
    told = lessons("ragen/FrozenLake-v0", LAKE, 84, processor, TOKENIZER, range(2))
    losses = imitate(model, told, processor, 60, learning_rate=3e-3, batch_size=2)
    assert losses[-1] < 0.5 < 5 < losses[0]
    assert places_right(model, told, processor, TOKENIZER) > 0.7


@pytest.mark.parametrize("blank", [False, True])
def test_places_are_counted_without_a_gradient(blank: bool) -> None:
    model = vision_model()
    processor = processor_of(model)
    told = lessons("ragen/FrozenLake-v0", LAKE, 84, processor, TOKENIZER, [0])
    assert 0 <= places_right(model, told, processor, TOKENIZER, is_blank=blank) <= 1
    assert all(parameter.grad is None for parameter in model.parameters())


def test_each_run_has_the_commit_that_it_was_made_with() -> None:
    """Regression: runs of other seeds stood under the commit and the machine of the last one."""
    earlier = {"commit": "old", "machine": {"cpus": 2}, "env_kwargs": {}, "runs": [{"seed": 1}, {"seed": 0}]}
    rows = pictures.joined(earlier, {"seed": 1, "minutes": 3.0}, {"commit": "new", "machine": {"cpus": 4}})
    assert rows == [
        {"commit": "old", "machine": {"cpus": 2}, "seed": 0},
        {"commit": "new", "machine": {"cpus": 4}, "seed": 1, "minutes": 3.0},
    ]
    (seed_2, *_) = reversed(pictures.joined({"commit": "new", "runs": rows}, {"seed": 2}, {"commit": "newer"}))
    assert [row["commit"] for row in rows] == ["old", "new"] and seed_2["commit"] == "newer"

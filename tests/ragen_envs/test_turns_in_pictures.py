"""Messages with a picture: what is on it, what stays text, and which environments have none."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns, best_action
from ragen_envs.pictures.frames import on_square

SHOPS = ("ragen/WebShop-v0", "ragen/ToyShop-v0")
DRAWN = ("ragen/Sokoban-v0", "ragen/SokobanLarge-v0", "ragen/FrozenLake-v0", "ragen/Bandit-v0", *SHOPS)


def seen(env: str, **options: Any) -> AgentTurns:
    return AgentTurns(gymnasium.make(env, render_mode="rgb_array"), observation="image", **options)


@pytest.mark.parametrize("env", DRAWN)
def test_the_space_is_a_valid_one(env: str) -> None:
    turns = seen(env, image_size=56)
    assert turns.observation_space["image"].shape == (56, 56, 3)
    check_env(turns, skip_render_check=True)


def test_the_picture_is_the_rendered_state_and_the_text_has_no_map() -> None:
    turns = seen("ragen/Sokoban-v0", image_size=288)
    message, info = turns.reset(seed=0)
    assert np.array_equal(message["image"], turns.env.render())
    assert info["state"].count("\n") == 5 and info["state"] not in message["text"]
    assert "State: the picture\nActions left: 10" in message["text"]
    assert "brick wall" in message["text"] and "# wall" not in message["text"]
    message, *_ = turns.step(turns.format_reply(["Up", "Left", "Down"], "go"))
    assert np.array_equal(message["image"], turns.env.render())
    assert message["text"].startswith("Turn 2 of 5\n")


@pytest.mark.parametrize("env", ["ragen/Sokoban-v0", "ragen/FrozenLake-v0"])
def test_coordinates_stand_beside_the_picture(env: str) -> None:
    """Regression: with pictures, `coordinates=True` was accepted and did nothing."""
    turns = AgentTurns(gymnasium.make(env, coordinates=True, render_mode="rgb_array"), observation="image")
    message, info = turns.reset(seed=0)
    assert "Coordinates are (row, column), from 0 at the top left.\n" in message["text"]
    for _ in range(2):
        places = info["state"][info["state"].index("You: (") :]
        assert f"State: the picture and\n{places}\nActions left: " in message["text"]
        message, *_, info = turns.step(turns.format_reply(["Up"], "go"))


def test_a_smaller_picture_has_the_means_of_the_areas() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (192, 192, 3), np.uint8)
    blocks = picture.reshape(48, 4, 48, 4, 3).mean(axis=(1, 3))
    assert np.array_equal(on_square(picture, 48), blocks.round().astype(np.uint8))
    wide = on_square(np.zeros((10, 20, 3), np.uint8), 12)
    assert (wide[:3] == 255).all() and (wide[3:9] == 0).all() and (wide[9:] == 255).all()
    assert np.array_equal(on_square(picture[:8, :8], 8), picture[:8, :8])  # never larger than it was drawn


@pytest.mark.parametrize("env", SHOPS)
def test_the_oracle_shops_with_pictures_and_the_page_beside_them(env: str) -> None:
    turns = seen(env, image_size=84)
    message, info = turns.reset(seed=3)
    assert "The picture shows the product" in message["text"]
    pictures = [message["image"]]
    while not info["purchased"]:
        assert f"State: the picture and\n{info['state']}\nActions left" in message["text"]
        message, *_, info = turns.step(turns.format_reply([best_action(turns.env, turns.actions_left)], "go"))
        assert turns.observation_space.contains(message)
        pictures.append(message["image"])
    assert info["success"] and len({picture.tobytes() for picture in pictures}) >= 3
    assert np.array_equal(message["image"], on_square(turns.env.render(), 84))


@pytest.mark.parametrize("env", ["ragen/Countdown-v0"])
def test_an_environment_of_text_is_refused_by_name(env: str) -> None:
    with pytest.raises(ValueError, match="Countdown is text only.*observation='text'"):
        seen(env)


def test_what_is_missing_for_pictures_is_named() -> None:
    with pytest.raises(ValueError, match="render_mode=None.*pass render_mode='rgb_array'"):
        AgentTurns(gymnasium.make("ragen/FrozenLake-v0"), observation="image")
    with pytest.raises(ValueError, match="observation='video'"):
        AgentTurns(gymnasium.make("ragen/FrozenLake-v0"), observation="video")
    with pytest.raises(ValueError, match="image_size=8"):
        seen("ragen/FrozenLake-v0", image_size=8)

"""The lesson of benchmarks/webshop_training.py: the careless shopper, and the store it learns in."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from learning import shop_task

from ragen_trl.config.recipes import defaults
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.policies.tiny_model import build_tiny_tokenizer


def bought(noise: float, episodes: int) -> list[dict[str, Any]]:
    """Infos at the end of episodes of the shopper."""
    made = gymnasium.make("ragen/WebShop-v0", disable_env_checker=True, **shop_task.store("train"))
    ends = []
    for seed in range(episodes):
        random, over = np.random.default_rng(seed), False
        _, info = made.reset(seed=seed)
        while not over:
            _, _, terminated, truncated, info = made.step(shop_task.careless_action(made.unwrapped, 9, random, noise))
            assert info["action_is_valid"]
            over = terminated or truncated
        ends.append(info)
    return ends


def test_mistakes_cost_the_shopper_most_of_its_success_but_not_its_purchase() -> None:
    careful, careless = (bought(noise, 48) for noise in (0.0, 1.0))
    assert all(info["purchased"] for info in (*careful, *careless))
    assert sum(info["success"] for info in careful) > 4 * sum(info["success"] for info in careless) > 0


def test_a_search_is_for_words_that_stand_side_by_side() -> None:
    found = {shop_task.some_words("a b c d e", np.random.default_rng(seed)) for seed in range(40)}
    assert found == {"a b c", "b c d", "c d e"}
    assert shop_task.some_words("a b", np.random.default_rng(0)) == "a b"


def test_an_identifier_is_one_token_on_the_page_and_in_the_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = build_tiny_tokenizer()  # the store's own takes many seconds, and knows most identifiers without us
    monkeypatch.setattr(shop_task, "build_tiny_tokenizer", lambda env: plain)
    recipe = {**defaults("ragen/WebShop-v0", None), **shop_task.PLAY, "env_kwargs": shop_task.store("train")}
    args = StarPOConfig(output_dir=str(tmp_path), seed=0, **recipe)
    config = WarmStartConfig(demonstrations=24, noise=0.5)
    tokenizer, episodes = shop_task.shopping("ragen/WebShop-v0", args, config)
    clicked = [turn for episode in episodes for turn in episode.turns if "click[B0" in turn.reply]
    assert clicked
    for turn in clicked:
        identifier = turn.reply.removeprefix("<answer>click[").removesuffix("]</answer>")
        (token,) = tokenizer(identifier).input_ids
        assert token in turn.reply_ids
        assert token in turn.prompt_ids
    assert len(episodes) == 24
    assert max(len(episode.token_ids) for episode in episodes) < 2048 == tokenizer.model_max_length

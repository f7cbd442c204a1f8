"""What the commands take for granted about the embedded model and its descendants."""

import json
from pathlib import Path

from ragen_trl.config.recipes import defaults, is_embedded, warm_start_defaults
from ragen_trl.policies.tiny_model import save_tiny_model

LAKE = "ragen/FrozenLake-v0"


def test_a_saved_embedded_model_keeps_its_recipe_and_no_other_model_gets_it(tmp_path: Path) -> None:
    """A warm-started folder was once trained with the options of a model 5000 times as large, and learnt nothing."""
    own = str(save_tiny_model(tmp_path / "own"))
    assert is_embedded(None) and is_embedded(own)
    assert defaults(LAKE, own) == defaults(LAKE, None)
    assert defaults(LAKE, own, "starpo", "gae")["critic_learning_rate"] == 1e-3
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for model in (str(other), "Qwen/Qwen2.5-0.5B-Instruct", str(tmp_path / "nothing")):
        assert not is_embedded(model)
        assert "learning_rate" not in defaults(LAKE, model)


def test_warm_starts_are_of_the_embedded_model() -> None:
    assert warm_start_defaults("ragen/ToyShop-v0", None)["noise"] == 0.4
    assert warm_start_defaults("ragen/Bandit-v0", None)["demonstrations"] == 4000
    assert warm_start_defaults(LAKE, None) == warm_start_defaults("ragen/Bandit-v0", "Qwen/Qwen2.5-0.5B-Instruct") == {}


def test_webshop_is_trained_with_credit_on_the_way() -> None:
    """Its success stays the task's own: the environment says so, whatever the reward is."""
    assert defaults("ragen/WebShop-v0", None)["env_kwargs"] == {"reward": "tiered"}

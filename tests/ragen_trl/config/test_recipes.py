"""What the commands take for granted about the embedded model and its descendants."""

import json
from pathlib import Path

from ragen_trl.config.recipes import defaults, is_embedded
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer

LAKE = "ragen/FrozenLake-v0"
ANOTHER = "Qwen/Qwen2.5-0.5B-Instruct"


def test_a_saved_embedded_model_keeps_its_recipe_and_no_other_model_gets_it(tmp_path: Path) -> None:
    """A warm-started folder was once trained with the options of a model 5000 times as large, and learnt nothing."""
    own = str(tmp_path / "own")
    build_tiny_model(build_tiny_tokenizer()).save_pretrained(own)
    assert is_embedded(None) and is_embedded(own)
    assert defaults(LAKE, own) == defaults(LAKE, None)
    assert defaults(LAKE, own, "starpo", "gae")["critic_learning_rate"] == 1e-3
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    for model in (str(other), ANOTHER, str(tmp_path / "nothing")):
        assert not is_embedded(model)
        assert "learning_rate" not in defaults(LAKE, model)

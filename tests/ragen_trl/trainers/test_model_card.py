"""The card beside a saved model: what it plays, how to let it play, and what it learnt."""

import shlex
from pathlib import Path

from peft import LoraConfig
from trl import GRPOTrainer

from ragen_trl import StarPOTrainer
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.trainers.model_card import add_results
from tests.support.ragen_trl.trainers import lottery, small_trainer

LAKE = EnvSpec("ragen/FrozenLake-v0", {"is_slippery": False})


def test_trls_card_has_the_sections_that_are_relied_on(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery())
    GRPOTrainer.create_model_card(trainer, model_name="learner")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "time machine" in card.partition("\n## Quick start\n")[2].partition("\n## Training procedure\n")[0]


def test_a_saved_model_says_how_it_is_played_with(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path / "run", LAKE, filter_ratio=0.5, max_turns=3, max_actions_per_turn=1)
    trainer.save_model(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "time machine" not in card and "huggingface.co/None" not in card
    assert "- `ragen/FrozenLake-v0` with `{\"is_slippery\": false}`" in card
    assert "at most 3 turns, 1 action a turn and 10 actions in all. Replies are bare actions." in card
    (command,) = [line for line in card.splitlines() if line.startswith("python -m ragen_trl eval")]
    assert shlex.split(command)[-2:] == ["--env", 'ragen/FrozenLake-v0:{"is_slippery": false}']
    assert "trained with StarPO-S" in card and "## Training procedure" in card
    assert {"play.json", "model.safetensors"} <= {path.name for path in (tmp_path / "model").iterdir()}


def test_an_adapter_has_the_card_instead_of_a_form(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path / "run", LAKE, peft_config=LoraConfig(target_modules="all-linear"))
    trainer.save_model(str(tmp_path / "adapter"), _internal_call=True)
    assert "More Information Needed" in (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8")
    trainer.save_model(str(tmp_path / "adapter"))
    card = (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "More Information Needed" not in card and "## What it plays" in card and "library_name: peft" in card


def test_other_algorithms_are_not_called_starpo_s(tmp_path: Path) -> None:
    class Mine(StarPOTrainer):
        pass

    mass = {"filter_strategy": "top_p", "filter_ratio": 0.9}
    assert small_trainer(tmp_path, lottery(), **mass)._name == "StarPO"
    assert small_trainer(tmp_path, lottery(), trainer=Mine, filter_ratio=0.5)._name == "StarPO"


def test_a_card_of_the_user_stays(tmp_path: Path) -> None:
    """Regression: save_model replaced it."""
    trainer = small_trainer(tmp_path / "run", lottery())
    for folder in (tmp_path / "run", tmp_path / "mine"):
        folder.mkdir(exist_ok=True)
        (folder / "README.md").write_text("my own words")
        trainer.save_model(str(folder))
        add_results(folder, "trained  0.80")
        assert (folder / "README.md").read_text() == "my own words"
    (tmp_path / "run" / "README.md").unlink()
    trainer.save_model(str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "README.md").read_text() == "my own words"


def test_an_environment_without_an_id_is_named_and_has_no_command(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery())
    trainer.create_model_card(model_name="learner")
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "`, not registered" in card and "ragen_trl eval" not in card
    assert "trained with StarPO," in card  # keeps all groups


def test_results_are_shown_once_before_the_procedure(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, lottery())
    trainer.create_model_card(model_name="learner")
    add_results(tmp_path, "policy   success\ntrained  0.80", '{"size": 5}')
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    results, procedure = card.index("trained  0.80"), card.index("## Training procedure")
    assert card.index("## What it plays") < results < procedure
    assert card.count("## Results") == 1 and 'Played with `{"size": 5}`.' in card

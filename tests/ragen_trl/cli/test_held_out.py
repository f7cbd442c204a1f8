"""What training is evaluated on, and what its reward has beside the environment's return, by options of `train`."""

import json
from pathlib import Path

import pytest

from ragen_envs import WebShop
from ragen_trl import consistency_reward
from ragen_trl.cli.eval_plan import read_plan
from ragen_trl.cli.options import parse
from ragen_trl.cli.training_run import _bonuses, _quick_rows, check, evaluated
from ragen_trl.config.commands import RunArguments
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import save_play_options
from ragen_trl.rollout.seeds import evaluation_seeds
from tests.support.ragen_envs.alfworld_game import write_game

TOY_SHOP = ("--env", "ragen/ToyShop-v0")


def options(folder: Path, *words: str) -> tuple[RunArguments, StarPOConfig]:
    (run, _, args), _ = parse("train", {}, [*words, "--output_dir", str(folder)], RunArguments, WarmStartConfig)
    return run, args


def test_toyshop_is_evaluated_on_its_256_prompts_and_trained_on_the_others(tmp_path: Path) -> None:
    """Regression: `train` evaluated on the training tasks, and no option could say otherwise."""
    run, args = options(tmp_path, *TOY_SHOP)
    assert (run.eval_episodes, evaluated(run, args).env_kwargs, args.env_kwargs) == (256, {"split": "eval"}, None)
    run, args = options(
        tmp_path, *TOY_SHOP, "--env_kwargs", '{"reward": "tiered"}', "--eval_env_kwargs", '{"split": "all"}'
    )
    assert evaluated(run, args).env_kwargs == {"reward": "tiered", "split": "all"}
    run, args = options(tmp_path)
    assert (run.eval_episodes, run.eval_env_kwargs) == (512, None)
    assert evaluated(run, args).env_kwargs == args.env_kwargs


def test_webshop_is_evaluated_on_other_products_than_it_is_trained_on(tmp_path: Path) -> None:
    """Regression: without `eval_env_kwargs` the products that were trained on were evaluated, with their reward."""

    def kwargs(trained: dict[str, str], *words: str) -> dict[str, str]:
        shop = ("--env", "ragen/WebShop-v0", "--env_kwargs", json.dumps(trained), *words)
        run, args = options(tmp_path, *shop, "--eval_strategy", "steps", "--eval_steps", "10")
        assert args.env_kwargs == trained
        found: dict[str, str] = evaluated(run, args).env_kwargs  # type: ignore[assignment]
        rows = _quick_rows(run, args)
        quick = {**found, "split": found["split"].replace("test", "eval")}
        assert json.loads(rows[0]["kwargs"]) == quick if rows is not None else found == trained
        return found

    trained = {"split": "train_by_product", "reward": "tiered", "observation_mode": "short"}
    assert kwargs(trained) == {**trained, "split": "test_by_product", "reward": "fixed"}
    assert kwargs({"split": "train"}) == {"split": "test", "reward": "fixed"}
    assert kwargs({"split": "all", "reward": "tiered"}) == {"split": "all", "reward": "tiered"}
    for given in ({"split": "train_by_product"}, {"split": "eval_by_product"}, {"reward": "webshop"}, {}):
        assert kwargs(trained, "--eval_env_kwargs", json.dumps(given)) == {**trained, **given}


@pytest.mark.parametrize("by", ["", "_by_product"])
def test_no_goal_is_reported_by_which_a_checkpoint_is_chosen(tmp_path: Path, by: str) -> None:
    """Regression: seed 8000 is goal 0 of 500, so that all of selection's goals were evaluated again at the end."""
    trained = json.dumps({"catalog": "toy", "split": f"train{by}"})
    words = f"--env ragen/WebShop-v0 --eval_strategy steps --eval_steps 9 --env_kwargs {trained.replace(' ', '')}"
    run, args = options(tmp_path, *words.split())
    rows = _quick_rows(run, args)
    assert rows is not None
    chosen, reported = WebShop(**json.loads(rows[0]["kwargs"])), WebShop(**evaluated(run, args).env_kwargs or {})
    goals = {chosen.reset(seed=seed)[1]["goal_id"] for seed in rows["seed"]}
    assert goals.isdisjoint(reported.reset(seed=seed)[1]["goal_id"] for seed in evaluation_seeds(500))


def test_wrong_arguments_of_the_evaluation_are_named(tmp_path: Path) -> None:
    run, args = options(tmp_path, *TOY_SHOP, "--eval_env_kwargs", "split=eval")
    with pytest.raises(OptionError, match="eval_env_kwargs is 'split=eval', which is no JSON object"):
        evaluated(run, args)
    with pytest.raises(OptionError, match="did you mean --eval_env_kwargs"):
        options(tmp_path, *TOY_SHOP, "--eval_env_kwarg", "{}")
    with pytest.raises(OptionError, match=r"did you mean --lora_r\?"):
        options(tmp_path, *TOY_SHOP, "--lora_rank", "8")


def test_games_of_a_folder_are_trained_on_and_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the split of generated games was added to a folder, which has none, and refused as the user's own."""
    monkeypatch.setattr("ragen_envs.textworld.games.version", lambda name: "none is played")
    games, others = ({"folder": str(write_game(tmp_path / name).parent)} for name in ("train", "valid"))
    adventure = ("--env", "ragen/TextWorld-v0", "--env_kwargs", json.dumps(games))
    run, args = options(tmp_path, *adventure, "--eval_env_kwargs", json.dumps(others))
    check(run, args)
    assert (args.env_kwargs, evaluated(run, args).env_kwargs) == (games, others)
    run, args = options(tmp_path, *adventure)
    with pytest.raises(OptionError, match=r"'split': 'eval'.*with a folder.*; eval_env_kwargs changes it"):
        check(run, args)
    save_play_options(tmp_path / "model", env_specs("ragen/TextWorld-v0", args), args)
    for words, wanted in (
        (["--env", f"ragen/TextWorld-v0:{json.dumps(others)}"], others),
        (["--env", "ragen/TextWorld-v0", "--env_kwargs", json.dumps(others)], others),
        (["--model", str(tmp_path / "model")], games),
    ):
        plan = read_plan({}, ["--use_cpu", "true", "--bf16", "false", *words])
        assert plan.tasks[0].spec.kwargs == wanted


def test_the_consistency_bonus_has_its_weight_and_is_refused_where_there_are_no_thoughts(tmp_path: Path) -> None:
    run, args = options(tmp_path, *TOY_SHOP, "--consistency_weight", "0.4", "--think", "true")
    assert _bonuses(run, args) == [consistency_reward]
    assert args.reward_weights == [1.0, 0.4]
    check(run, args)
    run, args = options(tmp_path, *TOY_SHOP, "--consistency_weight", "0.4")
    with pytest.raises(OptionError, match="consistency_weight is 0.4, but think is False"):
        check(run, args)
    run, args = options(tmp_path, *TOY_SHOP)
    assert (_bonuses(run, args), args.reward_weights) == ([], None)


def test_ten_cases_every_ten_steps_are_options(tmp_path: Path) -> None:
    words = "--eval_strategy steps --eval_steps 10 --num_eval_seeds 10 --num_generations_eval 1".split()
    run, args = options(tmp_path, *TOY_SHOP, *words, "--per_device_eval_batch_size", "10")
    assert (args.eval_steps, args.num_eval_seeds) == (10, 10)
    rows = _quick_rows(run, args)
    assert rows is not None and rows[9] == {"env": "ragen/ToyShop-v0", "seed": 8009, "kwargs": '{"split": "eval"}'}
    assert len(rows) == 10

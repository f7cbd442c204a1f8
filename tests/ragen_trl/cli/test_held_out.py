"""What training is evaluated on, and what its reward has beside the environment's return, by options of `train`."""

from pathlib import Path

import pytest

from ragen_trl import consistency_reward
from ragen_trl.cli.options import OptionError, parse
from ragen_trl.cli.training_run import RunArguments, RunOptionError, _bonuses, _quick_rows, check, evaluated
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig

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


def test_wrong_arguments_of_the_evaluation_are_named(tmp_path: Path) -> None:
    run, args = options(tmp_path, *TOY_SHOP, "--eval_env_kwargs", "split=eval")
    with pytest.raises(RunOptionError, match="eval_env_kwargs is 'split=eval', which is no JSON object"):
        evaluated(run, args)
    with pytest.raises(OptionError, match="did you mean --eval_env_kwargs"):
        options(tmp_path, *TOY_SHOP, "--eval_env_kwarg", "{}")
    with pytest.raises(OptionError, match=r"did you mean --lora_r\?"):
        options(tmp_path, *TOY_SHOP, "--lora_rank", "8")


def test_the_consistency_bonus_has_its_weight_and_is_refused_where_there_are_no_thoughts(tmp_path: Path) -> None:
    run, args = options(tmp_path, *TOY_SHOP, "--consistency_weight", "0.4", "--think", "true")
    assert _bonuses(run, args) == [consistency_reward]
    assert args.reward_weights == [1.0, 0.4]
    check(run, args)
    run, args = options(tmp_path, *TOY_SHOP, "--consistency_weight", "0.4")
    with pytest.raises(RunOptionError, match="consistency_weight is 0.4, but think is False"):
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

"""What an evaluation plays, of `eval` and of `train`, and whose options hold where."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen_trl import StarPOSConfig
from ragen_trl.cli.options import parse, read_plan
from ragen_trl.cli.training_run import evaluated, quick_rows
from ragen_trl.config.options import RunArguments, WarmStartConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.comparison import EvalPlan
from ragen_trl.rollout.environments import env_specs, save_play_options

LAKE, BANDIT, SOKOBAN = "ragen/FrozenLake-v0", "ragen/Bandit-v0", "ragen/Sokoban-v0"


def plan(*options: str, **given: Any) -> EvalPlan:
    return read_plan(given, ["--use_cpu", "true", "--bf16", "false", *options])


def trained(folder: Path, env: str, **options: Any) -> str:
    """A folder that says how its model plays; there are no weights in it."""
    args = StarPOSConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **options)
    save_play_options(folder, env_specs(env, args), args)
    return str(folder)


def test_limits_go_by_environment_and_the_manner_of_speaking_by_model(tmp_path: Path) -> None:
    model = trained(tmp_path / "model", LAKE, max_turns=7, max_actions=9, think=False, max_reply_length=33)
    other = trained(tmp_path / "other", BANDIT, max_turns=2, max_reply_length=44)
    own, bandit, sokoban = (plan("--model", model, "--env", env) for env in (LAKE, BANDIT, SOKOBAN))
    assert (own.args[model].max_turns, own.args[model].max_actions) == (7, 9)  # as it was trained
    assert bandit.args[model].max_turns == 1  # the recipe: one arm is pulled
    assert sokoban.args[model].max_turns == 5  # RAGEN's
    assert all(each.args[model].max_reply_length == 33 for each in (own, bandit, sokoban))
    assert all(each.task()["max_turns"] == each.args[model].max_turns for each in (own, bandit, sokoban))
    given = [plan("--model", model, "--env", env, "--max_turns", "4") for env in (LAKE, BANDIT)]
    assert [each.args[model].max_turns for each in given] == [4, 4]  # the command line wins everywhere
    for env, turns in ((LAKE, 7), (BANDIT, 2)):  # one task, that of the model that was trained there
        both = plan("--model", model, other, "--env", env).args
        assert [both[name].max_turns for name in ("random", model, other)] == [turns] * 3
        assert [both[name].max_reply_length for name in (model, other)] == [33, 44]


@pytest.mark.parametrize("first", [0, 1])
def test_models_without_a_record_play_one_task_in_either_order(tmp_path: Path, first: int) -> None:
    """Regression: the embedded model's easier limits held for it alone, in a table that told those of the first."""
    (tmp_path / "config.json").write_text(json.dumps({"ragen_embedded": True}))
    models = [str(tmp_path), "hub/model"]
    both = plan("--model", models[first], models[1 - first], "--env", LAKE)
    limits = {(one.max_turns, one.max_actions_per_turn, one.max_actions) for one in both.args.values()}
    assert limits == {(both.task()["max_turns"], both.task()["max_actions_per_turn"], both.task()["max_actions"])}


def test_without_env_a_model_plays_where_it_was_trained(tmp_path: Path) -> None:
    lake = trained(tmp_path / "lake", LAKE, env_kwargs={"size": 5})
    bandit = trained(tmp_path / "bandit", BANDIT)
    for found in (plan("--model", lake), plan("--model", lake, env=LAKE, episodes=4)):
        assert (found.spec.env, dict(found.spec.kwargs)) == (LAKE, {"size": 5})
    with pytest.raises(OptionError, match="trained in ragen/Bandit-v0 and ragen/FrozenLake-v0; say with --env"):
        plan("--model", lake, bandit)
    with pytest.raises(OptionError, match="samples_per_start is -1; it must be in"):
        plan("--model", lake, "--samples_per_start", "-1")


def test_eval_plays_other_products_of_webshop_than_a_model_was_trained_on(tmp_path: Path) -> None:
    """Regression: a model's own split was played, with its own reward."""
    shop, short = "ragen/WebShop-v0", {"observation_mode": "short"}
    trained_on = {"split": "train_by_product", "reward": "tiered"}
    model = trained(tmp_path / "a", shop, max_turns=9, max_actions=9, env_kwargs={**trained_on, **short})
    held_out = {"split": "test_by_product", "reward": "fixed"}
    assert plan("--model", model).spec.kwargs == {**held_out, **short}
    for given, wanted in (
        (short, {**held_out, **short}),
        ({"reward": "webshop"}, {**held_out, "reward": "webshop"}),
        (trained_on, trained_on),
        ({"split": "train"}, {"split": "train"}),
        ({"split": "all", **short}, {"split": "all", **short}),
    ):
        assert plan("--model", model, "--env", shop, "--env_kwargs", json.dumps(given)).spec.kwargs == wanted
    assert plan("--env", shop, "--env_kwargs", json.dumps(short)).spec.kwargs == short


def test_webshop_is_evaluated_on_other_products_than_it_is_trained_on(tmp_path: Path) -> None:
    """Regression: without `eval_env_kwargs` the products that were trained on were evaluated, with their reward."""

    def kwargs(trained: dict[str, str], *words: str) -> dict[str, str]:
        shop = ("--env", "ragen/WebShop-v0", "--env_kwargs", json.dumps(trained), *words)
        argv = [*shop, "--eval_strategy", "steps", "--eval_steps", "10", "--output_dir", str(tmp_path)]
        (run, _, args), _ = parse({}, argv, RunArguments, WarmStartConfig)
        assert args.env_kwargs == trained
        found: dict[str, str] = evaluated(run, args).env_kwargs  # type: ignore[assignment]
        quick = {**found, "split": found["split"].replace("test", "eval")}
        assert json.loads(quick_rows(run, args)[0]["kwargs"]) == quick
        return found

    trained = {"split": "train_by_product", "reward": "tiered", "observation_mode": "short"}
    assert kwargs(trained) == {**trained, "split": "test_by_product", "reward": "fixed"}
    assert kwargs({"split": "train"}) == {"split": "test", "reward": "fixed"}
    assert kwargs({"split": "all", "reward": "tiered"}) == {"split": "all", "reward": "tiered"}
    for given in ({"split": "train_by_product"}, {"split": "eval_by_product"}, {"reward": "webshop"}, {}):
        assert kwargs(trained, "--eval_env_kwargs", json.dumps(given)) == {**trained, **given}

"""What training is evaluated on, and what its reward has beside the environment's return, by options of `train`."""

import json
from pathlib import Path

from ragen_trl.cli.options import parse
from ragen_trl.cli.training_run import evaluated, quick_rows
from ragen_trl.config.options import RunArguments, WarmStartConfig
from ragen_trl.config.starpo import StarPOConfig


def options(folder: Path, *words: str) -> tuple[RunArguments, StarPOConfig]:
    (run, _, args), _ = parse({}, [*words, "--output_dir", str(folder)], RunArguments, WarmStartConfig)
    return run, args


def test_webshop_is_evaluated_on_other_products_than_it_is_trained_on(tmp_path: Path) -> None:
    """Regression: without `eval_env_kwargs` the products that were trained on were evaluated, with their reward."""

    def kwargs(trained: dict[str, str], *words: str) -> dict[str, str]:
        shop = ("--env", "ragen/WebShop-v0", "--env_kwargs", json.dumps(trained), *words)
        run, args = options(tmp_path, *shop, "--eval_strategy", "steps", "--eval_steps", "10")
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

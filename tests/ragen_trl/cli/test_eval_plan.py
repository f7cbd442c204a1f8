"""What an evaluation plays: environments as text, suites, and whose options hold where."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragen_envs import EnvError
from ragen_trl import StarPOSConfig
from ragen_trl.cli.eval_plan import NamedEnv, read_plan, read_spec
from ragen_trl.cli.options import options_as_yaml, parse
from ragen_trl.config.commands import RunArguments
from ragen_trl.config.play import LIMITS, MANNER
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.plan import EvalPlan
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.rollout.env_specs import EnvSpecError, env_specs
from ragen_trl.rollout.environments import save_play_options

LAKE, BANDIT, SOKOBAN = "ragen/FrozenLake-v0", "ragen/Bandit-v0", "ragen/Sokoban-v0"


def plan(*options: str, **given: Any) -> EvalPlan:
    return read_plan(given, ["--use_cpu", "true", "--bf16", "false", *options])


def trained(folder: Path, env: str, **options: Any) -> str:
    """A folder that says how its model plays; there are no weights in it."""
    args = StarPOSConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **options)
    save_play_options(folder, env_specs(env, args), args)
    return str(folder)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (LAKE, NamedEnv(LAKE)),
        (f'{LAKE}:{{"size": 8}}', NamedEnv(LAKE, {"size": 8})),
        (f"{LAKE}:{{}}", NamedEnv(LAKE, {})),
        ('ragen_envs:ragen/Sokoban-v0:{"num_boxes": 2}', NamedEnv(f"ragen_envs:{SOKOBAN}", {"num_boxes": 2})),
    ],
)
def test_an_environment_is_read_from_its_text(text: str, spec: NamedEnv) -> None:
    assert read_spec(text) == spec


def test_a_model_of_no_single_environment_asks_where_to_play(tmp_path: Path) -> None:
    """Regression: it would have played FrozenLake."""
    args = StarPOSConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", think=False)
    save_play_options(tmp_path, env_specs([BANDIT, LAKE], args), args)
    with pytest.raises(OptionError, match="has learnt in several environments.*choose with --env"):
        plan("--model", str(tmp_path))
    (task,) = plan("--model", str(tmp_path), "--env", BANDIT).tasks
    assert task.args[str(tmp_path)].think is False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--env", "ragen/Sokoban-v0:{symbols: W}"], ["{symbols: W}", "no JSON", "'ragen/Sokoban-v0:{\"dim_room\""]),
        (["--env", ""], ["env is ''", "Gymnasium id"]),
        (["--suite", "lakes"], ["suite is 'lakes'", "sokoban, bandit"]),
        (["--suite", "bandit", "--env", BANDIT], ["give one of them"]),
        (["--env", BANDIT, LAKE, "--env_kwargs", '{"size": 8}'], ["env_kwargs", "'ID:{…}'"]),
        (["--env", BANDIT, BANDIT], ["listed 2 times"]),
        (["--env", f'{LAKE}:{{"slippery": 1}}'], ["FrozenLake-v0 has no argument 'slippery'; it takes"]),
        (["--episodes", "0"], ["episodes is 0"]),
        (["--samples_per_start", "-1"], ["samples_per_start is -1"]),
        (["--model", "a", "a"], ["model 'a' is listed 2 times"]),
        (["--algo", "ppo"], ["algo is 'ppo'"]),
        (["--reward_weights", "1", "2"], ["reward_weights is [1.0, 2.0]"]),
    ],
)
def test_a_mistake_is_named_with_its_value(options: list[str], words: list[str]) -> None:
    with pytest.raises((OptionError, EnvSpecError, EnvError)) as caught:
        plan(*options)
    assert all(word in str(caught.value) for word in words), caught.value


def test_the_suites_are_those_of_the_paper(tmp_path: Path) -> None:
    """The other symbols come on top of what the model's own Sokoban is made with."""
    model = trained(tmp_path / "model", SOKOBAN, env_kwargs={"dim_room": [5, 5]})
    found = {task.name: dict(task.spec.kwargs) for task in plan("--suite", "sokoban", "--model", model).tasks}
    assert found == {
        "Sokoban-v0": {"dim_room": [5, 5]},
        "SokobanLarge-v0": {},
        'Sokoban-v0(symbols="W.GCBA@")': {"dim_room": [5, 5], "symbols": "W.GCBA@"},
        "FrozenLake-v0": {},  # the lake of RAGEN's Table 4, which slips
    }
    assert [task.spec.env for task in plan("--suite", "bandit").tasks] == [BANDIT, "ragen/BanditRev-v0"]


def test_only_the_embedded_model_is_evaluated_on_its_easy_lake(tmp_path: Path) -> None:
    """A model behind an API, or one from the hub, once was, too. Random play goes with the models of its table."""
    own = Path(trained(tmp_path / "own", SOKOBAN, max_turns=4))
    (own / "config.json").write_text('{"ragen_embedded": true}')
    easy = {"is_slippery": False, "frozen_prob": 0.9}
    for options, kwargs, turns in (
        (["--model", str(own)], easy, 3),
        (["--model", "Qwen/Qwen2.5-0.5B-Instruct"], {}, 5),
        (["--api_model", "qwen", "--api_base", "http://127.0.0.1:1/v1"], {}, 5),
        ([], {}, 5),
    ):
        (task,) = plan("--env", LAKE, *options).tasks
        assert dict(task.spec.kwargs) == kwargs, options
        assert {args.max_turns for args in task.args.values()} == {turns}, options


def test_limits_go_by_environment_and_the_manner_of_speaking_by_model(tmp_path: Path) -> None:
    model = trained(tmp_path / "model", LAKE, max_turns=7, max_actions=9, think=False, max_reply_length=33)
    own, bandit, sokoban = plan("--model", model, "--env", LAKE, BANDIT, SOKOBAN).tasks
    assert (own.args[model].max_turns, own.args[model].max_actions) == (7, 9)  # as it was trained
    assert bandit.args[model].max_turns == 1  # the recipe: one arm is pulled
    assert sokoban.args[model].max_turns == 7  # nothing else is known
    assert all(task.args[model].max_reply_length == 33 for task in (own, bandit, sokoban))
    assert all(task.settings()["max_turns"] == task.args[model].max_turns for task in (own, bandit, sokoban))
    given = plan("--model", model, "--env", LAKE, BANDIT, "--max_turns", "4").tasks
    assert [task.args[model].max_turns for task in given] == [4, 4]  # the command line wins everywhere


def test_the_temperature_of_training_is_not_taken_for_that_of_evaluation() -> None:
    """It was accepted and had no effect."""
    for argv, given in ((["--temperature", "0.5"], {}), (["--temperature=0.5"], {}), ([], {"temperature": 0.5})):
        with pytest.raises(OptionError, match="sampled at eval_temperature"):
            read_plan(given, ["--env", "ragen/Bandit-v0", *argv])


def test_without_env_a_model_plays_where_it_was_trained(tmp_path: Path) -> None:
    lake = trained(tmp_path / "lake", LAKE, env_kwargs={"size": 5})
    bandit = trained(tmp_path / "bandit", BANDIT)
    (task,) = plan("--model", lake).tasks
    assert (task.spec.env, dict(task.spec.kwargs)) == (LAKE, {"size": 5})
    (task,) = plan("--model", lake, env=LAKE, eval_episodes=4).tasks
    assert dict(task.spec.kwargs) == {"size": 5}
    with pytest.raises(OptionError, match="trained in ragen/Bandit-v0 and ragen/FrozenLake-v0; say with --env"):
        plan("--model", lake, bandit)


def test_models_that_were_trained_with_other_limits_are_not_put_into_one_table(tmp_path: Path) -> None:
    one, two = trained(tmp_path / "one", LAKE, max_turns=3), trained(tmp_path / "two", LAKE, max_turns=5)
    with pytest.raises(OptionError, match=f"{one} plays with max_turns 3, {two} with 5"):
        plan("--model", one, two)
    assert plan("--model", one, two, "--max_turns", "3").tasks[0].args[two].max_turns == 3


def test_every_recorded_option_is_the_tasks_or_the_models(tmp_path: Path) -> None:
    recorded = json.loads(Path(trained(tmp_path, LAKE), "play.json").read_text())
    assert set(recorded) == {"env", "env_kwargs", *LIMITS, *MANNER}


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ([], "eval-on-frozenlake"),
        (["--model", "runs/lake-seed42/model", "--env", BANDIT], "eval-lake-seed42-on-bandit"),
        (["--model", "Qwen/Qwen2.5-0.5B", "--suite", "bandit"], "eval-qwen2.5-0.5b-on-bandit-banditrev"),
        (["--suite", "sokoban"], "eval-on-sokoban-sokobanlarge-and-2-more"),
    ],
)
def test_the_default_folder_names_who_plays_what(options: list[str], folder: str) -> None:
    assert plan(*options).folder == Path("runs") / folder


def test_eval_plays_the_prompts_on_which_train_evaluates(tmp_path: Path) -> None:
    """Regression: after training in ToyShop `eval` planned 512 start states of the training split."""
    shop = "ragen/ToyShop-v0"
    model = trained(tmp_path / "a", shop, max_turns=5, env_kwargs={"reward": "tiered", "split": "all"})
    found = plan("--model", model)
    assert (found.run.episodes, found.tasks[0].spec.kwargs) == (256, {"reward": "tiered", "split": "eval"})
    found = plan("--env", shop)
    assert (found.run.episodes, found.tasks[0].spec.kwargs) == (256, {"split": "eval"})
    for words in ([f'{shop}:{{"reward": "tiered"}}'], [shop, "--env_kwargs", '{"reward": "tiered"}']):
        assert plan("--env", *words).tasks[0].spec.kwargs == {"reward": "tiered", "split": "eval"}
    for words in ([f'{shop}:{{"split": "train"}}'], [shop, "--env_kwargs", '{"split": "train"}']):
        assert plan("--env", *words).tasks[0].spec.kwargs == {"split": "train"}
    assert plan("--env", shop, "--episodes", "8").run.episodes == plan(env=shop, eval_episodes=8).run.episodes == 8
    assert plan("--env", shop, LAKE).run.episodes == 512


def test_the_file_of_a_training_run_is_read(tmp_path: Path) -> None:
    """Regression: that of the embedded model has options of its warm start, which were refused as unknown."""
    words = f"--env {BANDIT} --algo starpo --use_cpu true --max_turns 3 --monitor off --output_dir".split()
    parsed, options = parse("train", {}, [*words, str(tmp_path)], RunArguments, WarmStartConfig)
    assert {"demonstrations", "monitor"} <= options.keys()
    found = plan(**yaml.safe_load(options_as_yaml(options, tmp_path)))
    assert (found.tasks[0].spec.env, found.tasks[0].args["random"].max_turns, found.run.algo) == (BANDIT, 3, "starpo")
    assert found.run.episodes == parsed[0].eval_episodes
    with pytest.raises(OptionError, match="sampled at eval_temperature: set that, or delete temperature"):
        plan(**yaml.safe_load(options_as_yaml({**options, "temperature": 0.9}, tmp_path)))


def test_the_file_of_a_training_run_names_what_its_evaluations_play(tmp_path: Path) -> None:
    """Regression: the arguments of a run's evaluations were refused, with advice to take those of training."""
    words = "--env ragen/ToyShop-v0 --algo starpo --use_cpu true --output_dir".split()
    for trained_on, changed, played in (
        ({"split": "train"}, {"split": "eval"}, {"split": "eval"}),
        ({}, {}, {}),  # evaluated on what is trained on
        ({"reward": "tiered"}, {"reward": "fixed"}, {"reward": "fixed"}),
    ):
        given = ["--env_kwargs", json.dumps(trained_on), "--eval_env_kwargs", json.dumps(changed)]
        _, options = parse("train", {}, [*words, str(tmp_path), *given], RunArguments, WarmStartConfig)
        config = yaml.safe_load(options_as_yaml(options, tmp_path))
        assert plan(**config).tasks[0].spec.kwargs == played
        assert plan("--env_kwargs", '{"split": "train"}', **config).tasks[0].spec.kwargs == {"split": "train"}
    with pytest.raises(OptionError, match="eval_env_kwargs is '\\[1\\]', which is no JSON object"):
        plan(env="ragen/ToyShop-v0", eval_env_kwargs="[1]")


def test_eval_plays_other_products_of_webshop_than_a_model_was_trained_on(tmp_path: Path) -> None:
    """Regression: a model's own split was played, with its own reward."""
    shop, short = "ragen/WebShop-v0", {"observation_mode": "short"}
    trained_on = {"split": "train_by_product", "reward": "tiered"}
    model = trained(tmp_path / "a", shop, max_turns=9, max_actions=9, env_kwargs={**trained_on, **short})
    held_out = {"split": "test_by_product", "reward": "fixed"}
    assert plan("--model", model).tasks[0].spec.kwargs == {**held_out, **short}
    for given, wanted in (
        (short, {**held_out, **short}),
        ({"reward": "webshop"}, {**held_out, "reward": "webshop"}),
        (trained_on, trained_on),
        ({"split": "train"}, {"split": "train"}),
        ({"split": "all", **short}, {"split": "all", **short}),
    ):
        for words in ([f"{shop}:{json.dumps(given)}"], [shop, "--env_kwargs", json.dumps(given)]):
            assert plan("--model", model, "--env", *words).tasks[0].spec.kwargs == wanted
    assert plan("--env", shop, "--env_kwargs", json.dumps(short)).tasks[0].spec.kwargs == short

"""Options: the help page against the dataclasses, nearest names, YAML values, and a file that repeats a run."""

from argparse import Action
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragen_trl.cli.help import options_of
from ragen_trl.cli.options import OptionParser, options_as_yaml, parse, read_yaml
from ragen_trl.config.astar_po import AStarPOConfig
from ragen_trl.config.commands import ApiArguments, EvaluationArguments, RunArguments, WarmStartArguments
from ragen_trl.config.critic import CriticOptions
from ragen_trl.config.play import PlayOptions
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.imitation.fine_tuning import WarmStartConfig

CLASSES = {
    kind.__name__: kind
    for kind in (
        *(WarmStartArguments, RunArguments, WarmStartConfig, AStarPOConfig),
        *(PlayOptions, CriticOptions, StarPOConfig),
        *(EvaluationArguments, ApiArguments),
    )
}
TRAIN = (RunArguments, WarmStartConfig)
TRAINING = ("PlayOptions", "CriticOptions", "StarPOConfig")


@pytest.mark.parametrize("command", ["train", "warm-start", "eval"])
def test_the_help_page_says_what_the_dataclasses_say(command: str) -> None:
    """It reads their source, so that torch need not be loaded."""
    described = options_of(command)
    assert {name for name, _ in described} <= set(CLASSES)
    # Each option that a class declares itself is there; fields without help are no options.
    declared = {
        option.name
        for kind in (CLASSES[name] for name in TRAINING)
        for option in fields(kind)
        if option.name in kind.__dict__.get("__annotations__", {}) and "help" in option.metadata
    }
    assert declared <= {option.name for _, option in described}
    for name, option in described:
        found = {one.name: one for one in fields(CLASSES[name])}[option.name]
        assert option.help == found.metadata["help"]
        if option.default is not None:
            assert option.default == str(found.default)
        else:
            assert found.default in (None, "", MISSING)


def read(argv: list[str], **given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return parse("train", given, argv, *TRAIN)


@pytest.mark.parametrize(
    ("argv", "given", "words"),
    [
        (["--max_stpes", "3"], {}, "there is no option --max_stpes; did you mean --max_steps?"),
        (["--lerning-rate=3"], {}, "there is no option --lerning-rate; did you mean --learning_rate?"),
        (["--max_st", "3"], {}, "there is no option --max_st; did you mean --max_steps?"),
        (["--qqqqq", "3"], {}, "there is no option --qqqqq; --help lists what there is"),
        (["stray"], {}, "'stray' belongs to no option"),
        (["--max_steps", "many"], {}, "option --max_steps: invalid int value: 'many'"),
        (["--max_steps"], {}, "option --max_steps: expected one argument"),
        ([], {"max_stpes": 3}, "'max_stpes', which is no option; did you mean max_steps?"),
        ([], {"max_steps": "many"}, "max_steps: 'many'; it takes a whole number"),
        ([], {"max_steps": 2.5}, "max_steps: 2.5; it takes a whole number"),
        ([], {"max_steps": [1, 2]}, "max_steps: [1, 2]; it takes one value"),
        ([], {"max_steps": True}, "max_steps: True; it is no truth value"),
        ([], {"learning_rate": "fast"}, "learning_rate: 'fast'; it takes a number"),
        ([], {"think": "perhaps"}, "think: 'perhaps'; it takes true or false"),
        ([], {"save_strategy": False}, "save_strategy: False; it is no truth value (YAML reads yes, no,"),
        ([], {"baseline": "median"}, "baseline: 'median'; choose one of mean, leave_one_out"),
        ([], {"env_weights": 2}, "env_weights: 2; it takes a list: [2]"),
        ([], {"model": {"path": "x"}}, "model: {'path': 'x'}; it takes one value"),
        (["--learning_rate", "nan"], {}, "learning_rate is nan; it takes a finite number"),
        (["--lora_r", "-3"], {}, "lora_r is -3; it must be at least 0"),
        (["--eval_episodes", "0"], {}, "eval_episodes is 0; it must be at least 1"),
        (["--per_device_train_batch_size", "0"], {}, "per_device_train_batch_size is 0; it must be at least 1"),
        (["--env_kwargs", "{bad"], {}, "env_kwargs is '{bad', which is no JSON"),
        (["--algo", "ppo"], {}, "algo is 'ppo'; choose one of starpo, starpo-s"),
        (["--algo", "gigpo"], {}, "a-star-po; gigpo is an advantage, --advantage gigpo"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_would_do(
    argv: list[str], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read(argv, **given)
    assert words in str(caught.value)


def test_values_of_a_file_get_the_types_of_their_options() -> None:
    """PyYAML reads 1e-4 as a text."""
    given = yaml.safe_load("learning_rate: 1e-4\nmax_steps: '7'\nthink: 'true'\nenv_kwargs: {size: 6}\nlora_r: 8\n")
    (run, _, args), _ = read(["--max_steps", "9"], **given)
    assert args.learning_rate == 1e-4
    assert args.max_steps == 9  # the command line wins
    assert args.think is True
    assert args.env_kwargs == {"size": 6}
    assert run.lora_r == 8


@pytest.mark.parametrize(
    "argv",
    [
        ["--think", "true", "--seed", "7"],  # what the recipe of the tiny model turns off
        ["--env", "ragen/Bandit-v0", "--algo", "starpo", "--advantage", "gae", "--report_to", "none"],
        ["--algo", "a-star-po", "--beta1", "2.5", "--env_kwargs", '{"size": 5}', "--gradient_accumulation_steps", "2"],
    ],
)
def test_a_run_is_repeated_by_the_file_in_its_folder(tmp_path: Path, argv: list[str]) -> None:
    first, options = read([*argv, "--output_dir", str(tmp_path / "run"), "--overwrite", "true"])
    path = tmp_path / "config.yaml"
    path.write_text(options_as_yaml(options, tmp_path / "run"), encoding="utf-8")
    again, _ = parse("train", read_yaml(path), [], *TRAIN)
    assert again[0].overwrite is False  # nobody wants that twice
    again[0].overwrite = True
    assert again == first


def test_trl_reads_truth_values_with_the_function_that_is_relied_on() -> None:
    actions: dict[str, Action] = {action.dest: action for action in OptionParser("train", [StarPOConfig])._actions}
    assert getattr(actions["bf16"].type, "__name__", "") == "string_to_bool"

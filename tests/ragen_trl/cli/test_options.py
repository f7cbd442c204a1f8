"""Options on the command line, in a file, and in a folder from elsewhere, which says how it plays and runs nothing."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from trl import GRPOConfig

from ragen_envs import EnvError
from ragen_trl.cli.options import options_as_yaml, parse, read_plan
from ragen_trl.config import names
from ragen_trl.config.names import check_early, names_of_trl
from ragen_trl.config.options import RunArguments, WarmStartConfig
from ragen_trl.config.recipes import read_options
from ragen_trl.errors import OptionError
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.environments import load_play_options

TRAIN = (RunArguments, WarmStartConfig)


def read(argv: list[str], **given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return parse(given, argv, *TRAIN)


@pytest.mark.parametrize(
    ("argv", "given", "words"),
    [
        (["--max_stpes", "3"], {}, "there is no option --max_stpes; did you mean --max_steps?"),
        ([], {"max_stpes": 3}, "the config file has max_stpes; did you mean max_steps?"),
        (["--env_kwargs", "{bad"], {}, "env_kwargs is '{bad', which is no JSON"),
    ],
)
def test_a_wrong_option_is_named(argv: list[str], given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(argv, **given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "given", "words"),
    [
        (["--max-step=3"], {}, "there is no option --max_step; did you mean --max_steps?"),
        (["--seed", "3"], {"environments": {"ragen/Bandit-v0": {"max_turn": 1}}}, "max_turn; did you mean max_turns?"),
        (["--algo", "starpo-x"], {}, "algo cannot be starpo-x; did you mean starpo-s?"),
        (["--env", "ragen/Sobokan-v0"], {}, "Did you mean: `Sokoban`?"),
    ],
)
def test_a_name_that_nothing_knows_is_found_before_torch_is_loaded(
    argv: list[str], given: dict[str, Any], words: str
) -> None:
    with pytest.raises((OptionError, EnvError)) as caught:
        check_early(argv, given)
    assert words in str(caught.value)


def test_the_first_look_refuses_nothing_that_the_parser_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names_of_trl() == {option.name for option in fields(GRPOConfig)}
    words = ["--no_use_vllm", "--model", "a", "--env", "ragen_envs:ragen/Bandit-v0", "--help", "-h"]
    check_early(words, {"algorithms": {"starpo-s": {"beta1": 1}}, "vllm_mode": "server"})
    monkeypatch.setattr(names, "_OF_TRL", ("trl/trainer/grpo_config.py",))  # the class below it is elsewhere
    assert names_of_trl() == set()
    check_early(["--of_a_newer_trl", "3"], {"of_a_newer_trl": 3})


def test_values_of_a_file_get_the_types_of_their_options() -> None:
    """PyYAML reads 1e-4 as a text."""
    given = yaml.safe_load("learning_rate: 1e-4\nmax_steps: '7'\nthink: 'true'\nenv_kwargs: {size: 6}\nlora_r: 8\n")
    (run, _, args), _ = read(["--max_steps", "9"], **given)
    assert args.learning_rate == 1e-4
    assert args.max_steps == 9  # the command line wins
    assert args.think is True
    assert args.env_kwargs == {"size": 6}
    assert run.lora_r == 8


def test_a_file_may_say_something_of_one_environment_alone() -> None:
    given = {"max_turns": 4, "environments": {"ragen/Bandit-v0": {"max_turns": 2}}}
    assert read(["--env", "ragen/Bandit-v0"], **given)[0][2].max_turns == 2
    assert read([], **given)[0][2].max_turns == 4


@pytest.mark.parametrize(
    "argv",
    [
        ["--think", "true", "--seed", "7"],  # what the recipe of the tiny model turns off
        ["--env", "ragen/Bandit-v0", "--algo", "starpo", "--advantage", "gae", "--report_to", "none"],
        ["--algo", "a-star-po", "--beta1", "2.5", "--env_kwargs", '{"size": 5}', "--gradient_accumulation_steps", "2"],
    ],
)
def test_a_run_is_repeated_by_the_file_in_its_folder(tmp_path: Path, argv: list[str]) -> None:
    secret = ["--hub_token", "hf_secret"]
    first, options = read([*argv, "--output_dir", str(tmp_path / "run"), "--overwrite", "true", *secret])
    path = tmp_path / "config.yaml"
    path.write_text(options_as_yaml(options, tmp_path / "run"), encoding="utf-8")
    assert "hf_secret" not in path.read_text()
    again, _ = parse(read_options(path), secret, *TRAIN)
    assert again[0].overwrite is False  # nobody wants that twice
    again[0].overwrite = True
    assert again == first


# A model folder or a checkpoint from elsewhere: it says how it plays, and runs nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("model")
    tokenizer = build_tiny_tokenizer()
    build_tiny_model(tokenizer, 0, hidden_size=32, num_layers=1).save_pretrained(found)
    tokenizer.save_pretrained(found)
    return found


def recorded(folder: Path, **options: object) -> str:
    (folder / "play.json").write_text(json.dumps({"env": "ragen/Bandit-v0", "max_turns": 3, **options}))
    return str(folder)


def test_only_options_of_play_are_read(folder: Path) -> None:
    others = {"output_dir": "precious", "overwrite": True, "push_to_hub": True, "trust_remote_code": True}
    model = recorded(folder, **others, learning_rate=123.0)
    (run, _, args), _ = parse({}, ["--model", model, "--use_cpu", "true"], RunArguments, WarmStartConfig)
    assert (run.env, args.max_turns) == ("ragen/Bandit-v0", 3)
    assert args.output_dir != "precious" and not run.overwrite
    assert not args.push_to_hub and not args.trust_remote_code and args.learning_rate != 123.0


@pytest.mark.parametrize("named", [{"env": "theirs:Game-v0"}, {"context": "theirs:write"}])
def test_a_module_is_imported_only_if_the_user_names_it(folder: Path, named: dict[str, str]) -> None:
    model, (option, value) = recorded(folder, **named), *named.items()
    with pytest.raises(OptionError, match=f"--{option} {value}"):
        parse({}, ["--model", model], RunArguments, WarmStartConfig)
    with pytest.raises(OptionError, match=f"--{option} {value}"):
        read_plan({}, ["--model", model])


@pytest.mark.parametrize(
    "kwargs",
    [
        {"env": "ragen/WebShop-v0", "env_kwargs": {"base_url": "http://theirs"}},
        {"env": "ragen/WebShop-v0", "env_kwargs": {"catalog": "/etc"}},
        {"env": "ragen/Sokoban-v0", "env_kwargs": {"levels": "/etc/passwd"}},
        {"env": "CartPole-v1", "env_kwargs": {"command": ["rm"]}},
    ],
)
def test_what_an_environment_opens_is_named_by_the_user_alone(folder: Path, kwargs: dict[str, Any]) -> None:
    model = recorded(folder, **kwargs)
    with pytest.raises(OptionError, match="add --env_kwargs"):
        parse({}, ["--model", model], RunArguments, WarmStartConfig)
    with pytest.raises(OptionError, match="add --env_kwargs"):
        read_plan({}, ["--model", model])
    plain = {"env": "ragen/Sokoban-v0", "env_kwargs": {"dim_room": [5, 5], "symbols": "W.GCBA@", "coordinates": True}}
    assert load_play_options(recorded(folder, **plain))["env_kwargs"] == plain["env_kwargs"]


HOSTILE = ['"1e999"', "1e999", "true", "[3]", "1000000000000", "9" * 5000, "NaN", "{}", "[" * 100_000, "-1", "null"]


@pytest.mark.parametrize(
    "content",
    ["", "[1]", '{"max_turns": 3', b"\xff\xfe{}"]
    + [f'{{"max_turns": {value}}}' for value in HOSTILE]
    + ['{"env": []}', '{"env_kwargs": 5}', '{"think": "yes"}', f'{{"env_kwargs": {"[" * 900}{"]" * 900}}}'],
    ids=lambda content: str(content)[:25],
)
def test_a_damaged_play_json_is_named(folder: Path, content: str | bytes) -> None:
    (folder / "play.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(OptionError, match=r"play\.json is damaged .*; delete it and pass the options") as found:
        parse({}, ["--model", str(folder)], RunArguments, WarmStartConfig)
    assert len(str(found.value)) < 6000 and "\n" not in str(found.value)

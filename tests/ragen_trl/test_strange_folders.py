"""What a model folder or a checkpoint from elsewhere can do: say how it plays, and run nothing."""

import json
from pathlib import Path

import pytest

from ragen_trl.cli.options import parse, read_plan
from ragen_trl.config.options import RunArguments, WarmStartConfig
from ragen_trl.errors import OptionError
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer


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


@pytest.mark.parametrize("content", ["", "[1]", '{"max_turns": 3'])
def test_a_damaged_play_json_is_named(folder: Path, content: str) -> None:
    (folder / "play.json").write_text(content)
    with pytest.raises(OptionError, match=r"play\.json is damaged .*; delete it and pass the options"):
        parse({}, ["--model", str(folder)], RunArguments, WarmStartConfig)

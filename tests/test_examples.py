"""The scripts in examples/ run as a user would run them, with the embedded model and settings of seconds."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from accelerate.commands.launch import _validate_launch_command as validated
from accelerate.commands.launch import launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

SCRIPTS = ("starpo_frozen_lake", "astar_po_toyshop", "custom_trainer")
# Enough demonstrations that the model succeeds at times; without, there is nothing to train on.
SMALL = {
    "starpo_frozen_lake": "--demonstrations 320 --noise 0.2 --per_device_train_batch_size 32 --eval_episodes 16 "
    "--max_steps 2",
    "astar_po_toyshop": "--demonstrations 64 --noise 0 --demo_epochs 9 --demo_batch_size 8 --demo_learning_rate 5e-3 "
    "--num_train_seeds 16 --reference_samples 4 --max_reference_samples 4 --per_device_train_batch_size 16 "
    "--eval_episodes 8 --max_steps 1",
    "custom_trainer": "--demonstrations 640 --per_device_train_batch_size 32 --eval_episodes 64 --save_steps 1 "
    "--max_steps 2",
}


def script(root: Path, name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, root / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trained(root: Path, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[ModuleType, Any]:
    """An example that has run, and the trainer that it made."""
    module = script(root, request.param)
    arguments = f"{SMALL[request.param]} --use_cpu true --output_dir {tmp_path / 'run'}"
    return module, module.main(*module.parse(arguments.split()))


@pytest.mark.parametrize("trained", ["starpo_frozen_lake"], indirect=True)
def test_starpo_trains_on_the_kept_groups(trained: tuple[ModuleType, Any], capsys: pytest.CaptureFixture[str]) -> None:
    _, trainer = trained
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["filter/trajectories_sampled"] for row in rows] == [32.0, 32.0]
    assert [row["filter/kept_groups"] for row in rows] == [1.0, 1.0]  # a quarter of four
    assert all(row["grad_norm"] > 0 and row["rollout/env_failures"] == 0 for row in rows)
    assert (Path(trainer.args.output_dir) / "model" / "config.json").is_file()


@pytest.mark.parametrize("trained", ["astar_po_toyshop"], indirect=True)
def test_astar_po_estimates_values_and_regresses(trained: tuple[ModuleType, Any]) -> None:
    _, trainer = trained
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["astar/reference_episodes"] for row in rows] == [16 * 4]
    assert rows[0]["astar/residual_squared"] > 0 and rows[0]["loss"] > 0
    assert rows[0]["astar/log_ratio"] == pytest.approx(0, abs=1e-4)  # the model is still its reference
    assert (Path(trainer.args.output_dir) / "values.sqlite").is_file()


@pytest.mark.parametrize("trained", ["custom_trainer"], indirect=True)
def test_a_custom_trainer_keeps_its_state(trained: tuple[ModuleType, Any]) -> None:
    module, trainer = trained
    rows = [row for row in trainer.state.log_history if "loss" in row]
    rates = [row["rewards/succeeded/mean"] for row in rows]
    kept = [0.1 * rates[0], 0.1 * rates[0] + 0.1 * (rates[1] - 0.1 * rates[0])]
    checkpoints = [Path(trainer.args.output_dir) / f"checkpoint-{step}" for step in (1, 2)]
    saved = [json.loads((path / "frontier.json").read_text())["running_success"] for path in checkpoints]
    assert saved == pytest.approx(kept, abs=1e-6)
    assert trainer.running_success == saved[1]
    trainer.load_algorithm_state(checkpoints[0])
    assert trainer.running_success == saved[0]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_named_model_gets_the_defaults_of_a_real_one(root: Path, tmp_path: Path, name: str) -> None:
    module = script(root, name)
    named = module.parse(["--model", "some/model", "--output_dir", str(tmp_path)])
    assert named[0].model == "some/model"
    assert (named[2].max_reply_length, named[2].think, named[2].learning_rate) == (400, True, 1e-6)
    embedded = module.parse(["--output_dir", str(tmp_path)])
    assert embedded[0].model is None
    assert (embedded[2].think, embedded[2].learning_rate) == (False, 5e-4)
    assert embedded[2].max_turns == named[2].max_turns == module.GAME["max_turns"]


# What divides the training state, by Accelerate's own variables; DDP divides nothing.
LAUNCHES = {
    "ddp": {},
    "fsdp2": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"},
    "zero2": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
}


def test_every_example_and_launch_configuration_is_tried(root: Path) -> None:
    assert {path.stem for path in (root / "examples").glob("*.py")} == set(SCRIPTS)
    assert {path.stem for path in (root / "examples" / "accelerate").iterdir()} == set(LAUNCHES)


@pytest.mark.parametrize("name", LAUNCHES)
def test_accelerate_reads_a_launch_configuration(root: Path, name: str) -> None:
    """What Accelerate would tell the processes that it starts."""
    path = root / "examples" / "accelerate" / f"{name}.yaml"
    assert path.read_text(encoding="utf-8").startswith("# ")  # when to take it
    args = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    args, _, _ = validated(args)
    args.deepspeed_fields_from_accelerate_config = ""  # what the command itself fills in
    environ = prepare_deepspeed_cmd_env(args)[1] if args.use_deepspeed else prepare_multi_gpu_env(args)
    assert environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert args.num_processes == 8
    divided = ("ACCELERATE_USE_FSDP", "FSDP_VERSION", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_DEEPSPEED_ZERO_STAGE")
    assert {variable: environ[variable] for variable in divided if variable in environ} == LAUNCHES[name]

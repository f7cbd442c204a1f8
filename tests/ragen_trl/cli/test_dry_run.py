"""``--dry-run``: what is counted, what is said where something is missing, and that nothing is made."""

import json
import re
from pathlib import Path

import pytest
from transformers import AutoConfig, MistralConfig

from ragen_envs import MissingTextWorldError
from ragen_trl.cli.main import main
from tests.support.ragen_trl.trainers import TOKENIZER, small_model
from tests.support.ragen_trl.vision import TOKENIZER as VISION_TOKENIZER
from tests.support.ragen_trl.vision import vision_model

OPTIONS = "--max_steps 5 --per_device_train_batch_size 8 --num_generations 4 --eval_episodes 16".split()


def plan(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What a dry run prints, its white space made plain."""
    assert main([*argv, "--dry-run"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_plan_of_a_run_counts_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = plan(capsys, "train", *OPTIONS, "--max_turns", "2", "--max_reply_length", "10")
    assert "run folder runs/frozenlake-starpo-s-seed42: new" in said
    assert "limits: actions per turn 2, actions in all 6, turns 2" in said
    assert "2 start states · 4 = 8 a rollout; 5 rollouts = 40" in said
    assert "trains on 1 of 2 groups (top_k)" in said  # a quarter of two groups is still one
    assert "4 · 16 episodes" in said
    assert "20 sampled and 700 after the first prompt of a trajectory; 800 sampled in all rollouts" in said
    assert "36,000 demonstrations (noise 0.5) · 1 epochs = 2,250 updates of 16" in said
    assert "weights, held: 531,744 parameters · 4 bytes" in said
    ((shown, written),) = re.findall(r"(\d+) shown and (\d+) written", said)
    ((most, longest),) = re.findall(r"at most ([\d.]+) MiB at its peak, if every trajectory has (\d+) tokens", said)
    ((usual, less),) = re.findall(r"with the typical (\d+) tokens ([\d.]+) MiB", said)
    assert abs(int(usual) - int(shown) - int(written)) <= 1 and int(usual) < int(longest) and float(less) < float(most)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_sees_is_planned_with_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vision_model().save_pretrained(tmp_path / "model")
    VISION_TOKENIZER.save_pretrained(tmp_path / "model")
    options = [*OPTIONS, "--observation", "image", "--image_size", "56", "--output_dir", str(tmp_path / "run")]
    said = plan(capsys, "train", *options, "--model", str(tmp_path / "model"))
    assert "qwen2_5_vl" in said and "sampled and" in said
    assert main(["train", *options, "--dry_run"]) == 2
    assert "observation is 'image', but the embedded model reads text" in capsys.readouterr().err
    assert main(["train", *options]) == 2  # the same without a plan, before anything is played
    for more in ([], ["--dry_run"]):
        assert main(["warm-start", *options[-6:], *more]) == 2
        assert "observation is 'image', but a warm start learns from text" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_star_po_plays_its_reference_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--algo", "a-star-po", "--num_generations", "1", "--num_train_seeds", "10", "--dry_run"]
    said = plan(capsys, "train", *OPTIONS, *options, "--output_dir", str(tmp_path / "run"))
    assert "before that 80 to 320 of the reference, from 10 start states" in said
    assert "reference, held: 531,744 parameters" in said
    assert "algorithm a-star-po, 5 updates" in said  # regression: "advantage group", which it refuses


@pytest.fixture
def named(tmp_path: Path) -> list[str]:
    """The options of a small model in a folder, without weights."""
    small_model().config.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    return ["--model", str(tmp_path), "--bf16", "false", "--think", "false"]


@pytest.mark.parametrize("rule", [("--window_turns", "1"), ("--context", "actions_so_far")])
def test_a_plan_counts_the_rows_of_contexts_that_are_built_again(
    capsys: pytest.CaptureFixture[str], named: list[str], rule: tuple[str, str]
) -> None:
    """Regression: with a window the plan was that of a whole context; with a function its rows counted as one."""
    lake = ["train", *OPTIONS, *named, "--max_reply_length", "10"]
    whole, rows = plan(capsys, *lake), plan(capsys, *lake, *rule)
    assert "contexts are built again" not in whole
    ((turns, longest),) = re.findall(r"built again: ([\d.]+) rows a trajectory, of at most ([\d,]+) tokens", rows)
    assert f"written in {turns} turns" in rows  # a row each
    (grown,) = re.findall(r"if every trajectory has ([\d,]+) tokens and shares none", whole)
    ((trained, row),) = re.findall(r"if every trajectory has ([\d,]+) tokens \(rows of at most ([\d,]+)\)", rows)
    assert number(longest) <= number(row) < number(grown) < number(trained)
    for said, tokens in ((whole, grown), (rows, row)):
        assert f" · {round(1.125 * number(tokens)):,} slots" in said  # of keys and values in a rollout
    assert f"8 trajectories · {trained} tokens" in rows and f"8 rows · {grown} tokens" in whole  # in an update


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_a_plan_says_what_is_evaluated(capsys: pytest.CaptureFixture[str], named: list[str]) -> None:
    said = plan(capsys, "train", *OPTIONS, *named, "--env_kwargs", '{"size": 5}')
    assert "evaluated in ragen/FrozenLake-v0 {'size': 5} algorithm" in said
    said = plan(capsys, "train", *OPTIONS, *named, "--env_kwargs", "{}", "--eval_env_kwargs", '{"size": 6}')
    assert "evaluated in ragen/FrozenLake-v0 {'size': 6} algorithm" in said
    trained = {"catalog": "toy", "split": "train_by_product", "reward": "tiered"}
    shop = ["--env", "ragen/WebShop-v0", "--env_kwargs", json.dumps(trained)]
    said = plan(capsys, "train", *OPTIONS, *named, *shop)
    held_out = {"catalog": "toy", "split": "test_by_product", "reward": "fixed"}
    assert f"environment ragen/WebShop-v0 {trained}" in said
    assert f"evaluated in ragen/WebShop-v0 {held_out} algorithm" in said


def test_memory_is_that_of_the_most_trajectories_that_are_played_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: with updates of one trajectory it was that of one, but an evaluation plays 128 (16 GiB, not 44)."""
    few = ["train", "--preset", "report-1", "--env", "ragen/Bandit-v0", "--eval_episodes"]
    said = plan(capsys, *few, "512")
    assert "at a time 1 in a rollout 128 in an evaluation, before and after training 1 of the reference" in said
    assert " · 128 rows · " in said
    assert " · 9 rows · " in plan(capsys, *few, "9")
    said = plan(capsys, *few, "512", "--rollout_batch_size", "4", "--per_device_train_batch_size", "32")
    assert "at a time 4 in a rollout 4 in an evaluation, before and after training 4 of the reference" in said
    assert " · 4 rows · " in said
    said = plan(
        capsys, *few, "9", "--eval_strategy", "steps", "--eval_steps", "5", "--per_device_eval_batch_size", "16"
    )
    assert "16 in an evaluation during training" in said and " · 16 rows · " in said


def test_a_folder_says_what_the_run_would_go_on_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "stages.json").write_text(json.dumps({"settings": {}, "values": {"random": {}, "oracle": {}}}))
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / "trainer_state.json").write_text('{"global_step": 3}')
    folder = ["--output_dir", str(tmp_path)]
    said = plan(capsys, "train", *OPTIONS, *folder)
    assert "an unfinished run; goes on if no option has changed finished: random, oracle; checkpoint-3 of 5" in said
    assert "would be deleted first" in plan(capsys, "train", *OPTIONS, *folder, "--overwrite", "true")
    (tmp_path / "summary.json").write_text("{}")
    assert "holds a finished run, so the command would refuse" in plan(capsys, "train", *OPTIONS, *folder)
    assert (tmp_path / "checkpoint-3").exists()


def test_a_model_folder_is_measured_without_its_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, named: list[str]
) -> None:
    model = small_model()
    said = plan(capsys, "train", *OPTIONS, *named, "--lora_r", "4")
    assert f"{model.num_parameters():,} parameters" in said
    assert "LoRA, held: 4 ranks ·" in said
    assert AutoConfig.from_pretrained(tmp_path).hidden_size == model.config.hidden_size


@pytest.mark.parametrize("dry", [["--dry-run"], []], ids=["dry", "wet"])
def test_a_model_that_cannot_be_trained_is_refused_before_anything_is_played(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dry: list[str]
) -> None:
    """Regression: random play and the oracle took their minutes, the weights were loaded, and the rollout refused."""
    MistralConfig(num_hidden_layers=2, sliding_window=64, max_position_embeddings=512).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    options = ["--model", str(tmp_path), "--output_dir", str(tmp_path / "run"), *dry]
    assert main(["train", *OPTIONS, *options]) == 2
    assert "(mistral) has sliding_attention layers (a window of 64 of 512 positions)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_model_of_a_hub_out_of_reach_leaves_the_other_lines(capsys: pytest.CaptureFixture[str]) -> None:
    said = plan(capsys, "train", "--model", "nobody/no-such-model")
    assert "its config.json cannot be read here; save the model to a folder and give --model FOLDER" in said
    assert "not estimated: the tokenizer cannot be read here" in said
    assert "not estimated: needs the model's config.json" in said
    assert "8 start states · 16 = 128 a rollout" in said


def _no_textworld() -> str:
    raise MissingTextWorldError("pip install textworld")


def test_a_mistake_is_one_in_a_dry_run_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragen_envs.textworld.env.check_installed", _no_textworld)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00 no more")
    mistakes = {
        "there is no folder './no/such/folder'": ["train", "--model", "./no/such/folder"],
        "merge_lora is True and lora_r 0": ["train", "--merge_lora", "true"],
        "train_seed_start is 17": ["train", "--train_seed_start", "17"],
        "leaves none of 1 demonstrations": ["train", "--demonstrations", "1", "--demo_held_out", "0.5"],
        "is a folder without config.json": ["eval", "--model", str(tmp_path / "empty"), "--env", "ragen/Bandit-v0"],
        "pip install textworld": ["train", "--env", "ragen/TextWorld-v0"],
        "cut.gguf": ["warm-start", "--model", str(tmp_path / "cut.gguf")],
    }
    for message, command in mistakes.items():
        assert main([*command, "--dry-run"]) == 2
        assert message in capsys.readouterr().err


def test_the_first_prompt_shows_what_the_template_and_the_format_add(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "warm-start"):
        said = " ".join(plan(capsys, command, "--system_prompt", "Be brief.").split())
        shown = "<|im_start|>system Be brief.<|im_end|> <|im_start|>user …<|im_end|> <|im_start|>assistant <answer>"
        assert f"first prompt {shown}" in said


def test_the_plans_of_the_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = plan(capsys, "warm-start", "--demonstrations", "100", "--demo_epochs", "2")
    assert "100 demonstrations (noise 0.5) · 2 epochs = 14 updates of 16, all weights at learning" in said
    said = plan(capsys, "eval", "--episodes", "10", "--env", "ragen/Bandit-v0", "ragen/BanditRev-v0")
    assert "10 start states · 1 episodes · 2 environments · 2 policies = 40" in said
    assert list(tmp_path.iterdir()) == []


def test_a_completion_without_a_limit_is_counted_and_groups_by_spread_have_no_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Regression: it ended in a TypeError, and a share of the spread was told as a number of groups."""
    options = ["--max_completion_length", "none", "--filter_strategy", "top_p", "--filter_ratio", "0.9"]
    told = plan(capsys, "train", *options)
    assert "sampled and any number of them after the first prompt" in told
    assert "trains on the groups with 90% of the spread (top_p)" in told
    assert "groups (top_k)" in plan(capsys, "train", "--filter_ratio", "0.5")

"""What a beginner types first, and the line that says what to do instead."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import pytest
import torch
from transformers import Qwen2Config

from ragen_envs import EnvError, best_action
from ragen_trl.cli import main as commands
from ragen_trl.cli.main import main
from ragen_trl.system import precision
from tests.support.ragen_trl.reports import success_only, write_run
from tests.support.ragen_trl.trainers import TOKENIZER, Lottery, small_model


def test_a_report_of_all_runs_leaves_evaluations_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``report runs/*`` is the example of the help; an ``eval`` there ended it with "history.json does not exist"."""
    trained, played, empty = write_run(tmp_path / "a", history=success_only(3)), tmp_path / "eval", tmp_path / "empty"
    for folder in (played, empty):
        folder.mkdir()
    for name in ("summary.json", "evaluation.json"):
        (played / name).write_text("{}")
    assert main(["report", *map(str, (trained, played, empty)), "--output", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"left out: {played} holds an evaluation; its tables are in results.md",
        f"left out: {empty} holds no finished run (no summary.json)",
    ]
    assert (tmp_path / "page.html").exists()


@pytest.fixture
def lottery(monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of an environment without an oracle, and without random play, since its actions are free text."""
    spec = gymnasium.envs.registration.EnvSpec("me/Lottery-v0", Lottery)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    return spec.id


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The line with which a command refuses, with status 2."""
    try:
        status = main(list(argv))
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    assert status == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize("command", ["train", "eval"])
@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("nomodule:me/X-v0", ["nomodule:me/X-v0 cannot be made", "No module named 'nomodule'"]),
        ("me/X-v0", ["there is no environment 'me/X-v0'", "for your own: module:me/X-v0"]),
        ("Sokobn", ["there is no environment 'Sokobn' (did you mean ragen/Sokoban-v0?)"]),
        ("FrozenLake", ["'FrozenLake', which is no environment of texts; did you mean ragen/FrozenLake-v0?"]),
        ("FrozenLake-v1", ["'FrozenLake-v1', which is no environment of texts; did you mean ragen/FrozenLake-v0?"]),
        ("Blackjack-v1", ["TextFromDiscrete makes one of it, in a module of yours: --env module:Blackjack-v1"]),
    ],
)
def test_an_environment_that_is_not_there(
    capsys: pytest.CaptureFixture[str], command: str, env: str, words: list[str]
) -> None:
    """A module that is not there was a traceback; the others were refused without what to do."""
    line = refused(capsys, command, "--env", env, "--dry-run")
    assert all(word in line for word in words), line


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["run", "plan"])
@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("train eval", "--top_p 0", "top_p is 0.0; it must be in (0, 1], 1 keeps all tokens"),
        ("train eval", "--top_p 2", "top_p is 2.0; it must be in (0, 1], 1 keeps all tokens"),
        ("train eval", "--top_k -1", "top_k is -1; use 0 to keep all tokens or a positive number"),
        ("train eval", "--seed 5000000000", "seed is 5000000000; it must be in [0, 2**32)"),
        ("train eval", "--eval_temperature 1e-40", "eval_temperature is 1e-40; use 0 for greedy sampling, or at least"),
        ("train eval", "--eval_temperature -1", "eval_temperature is -1.0; it must be at least 0"),
        ("train eval", "--eval_episodes 8001", "8001 evaluation episodes; there are 8000 evaluation seeds"),
        ("train", "--eval_strategy steps --num_eval_seeds 0", "num_eval_seeds is 0; there are 2000 such seeds"),
        ("eval", "--api_base http://localhost:1/v1", "api_base is 'http://localhost:1/v1', but there is no api_model"),
        ("eval", "--api_model X --api_base foo", "the base URL 'foo' is not an http address"),
    ],
)
def test_a_value_that_nothing_can_use_is_refused_before_anything_is_played(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, options: str, words: str, dry_run: tuple[str, ...]
) -> None:
    """Regression: most were tracebacks after the warm start, of which a plan said nothing."""
    for each in command.split():
        folder = tmp_path / each
        assert words in refused(capsys, each, *options.split(), *dry_run, "--output_dir", str(folder))
        assert not folder.exists()


def test_a_plan_says_that_a_folder_cannot_be_written_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Regression: it said that it is new."""
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stages.json").write_text("{}")
    below = ["--output_dir", str(tmp_path / "file" / "run"), "--dry-run"]
    for command in ("train", "warm-start", "eval"):
        assert main([command, *below]) == 0
        assert f"the command would refuse: {tmp_path / 'file'} is a file" in capsys.readouterr().out
    assert main(["eval", "--output_dir", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "the command would refuse: " in capsys.readouterr().out


def test_an_argument_that_an_environment_does_not_take(capsys: pytest.CaptureFixture[str], lottery: str) -> None:
    line = refused(capsys, "train", "--env", lottery, "--env_kwargs", '{"price": 1}', "--dry-run")
    assert line == "me/Lottery-v0 has no argument 'price'; it takes win, draws"
    line = refused(capsys, "eval", "--env", f'{lottery}:{{"price": 1}}', "--dry-run")
    assert line == "me/Lottery-v0 has no argument 'price'; it takes win, draws"
    line = refused(capsys, "train", "--eval_env_kwargs", '{"price": 1}', "--dry-run")
    assert "ragen/FrozenLake-v0 has no argument 'price'; it takes size" in line and "eval_env_kwargs" in line


NO_SPLIT = "split='foo' is unknown; use one of all, test, eval, train, test_by_product"
TOY_WEBSHOP = {"catalog": "toy", "split": "foo"}


def test_an_unknown_split_is_refused_in_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a plan was printed, and training ended at its first evaluation."""
    small_model().config.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    model = ["--model", str(tmp_path), "--bf16", "false"]
    shop = ["--env", "ragen/WebShop-v0", *model, "--env_kwargs", '{"catalog": "toy", "split": "train"}']
    line = refused(capsys, "train", *shop, "--eval_env_kwargs", '{"split": "foo"}', "--dry-run")
    assert line.startswith(f"evaluations have {TOY_WEBSHOP}: ") and NO_SPLIT in line
    assert line.endswith("; eval_env_kwargs changes it")
    line = refused(capsys, "eval", "--env", f"ragen/WebShop-v0:{json.dumps(TOY_WEBSHOP)}", "--dry-run")
    assert NO_SPLIT in line
    shop = ["--env", "ragen/WebShop-v0", *model, "--env_kwargs", json.dumps(TOY_WEBSHOP)]
    for command in ("train", "warm-start"):
        line = refused(capsys, command, *shop, "--dry-run")
        assert NO_SPLIT in line and "no episode could start" not in line


NO_RANDOM = "random_action knows no Lottery; write one and register it with @random_action.register(Lottery)"
NO_ORACLE = "best_action knows no Lottery; write one and register it with @best_action.register(Lottery)"
FEW = "--max_steps 1 --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --num_generations 4".split()


def test_a_named_model_trains_without_random_play_and_oracle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lottery: str
) -> None:
    """``eval`` played it, with rows that say so; ``train`` evaluated first, and then refused."""
    small_model().save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    options = "--eval_episodes 4 --max_turns 1 --think false --max_reply_length 8 --bf16 false".split()
    run = tmp_path / "run"
    named = ["--env", lottery, "--model", str(tmp_path / "model"), "--output_dir", str(run)]
    assert main(["train", *named, *FEW, *options]) == 0
    said = capsys.readouterr().out
    assert f"  random: not played: {NO_RANDOM}\n  oracle: not played: {NO_ORACLE}\n" in said
    assert "\ntraining: 1 update\n" in said
    table = [line.split() for line in said.splitlines() if line.startswith(("random ", "trained ", "oracle "))]
    assert [line[0] for line in table] == ["random", "trained", "oracle"]
    assert [line[1] for line in table] == ["random_action", "0.00", "best_action"]
    results = json.loads((run / "summary.json").read_text())["results"]
    assert list(results) == ["random", "oracle", "before", "trained"]
    assert results["oracle"] == {"not_played": NO_ORACLE} and results["trained"]["n"] == 4
    page = (run / "report.html").read_text()
    assert NO_ORACLE in page and "after training. " in page and "paired by start state." in page


def test_the_embedded_model_is_refused_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lottery: str
) -> None:
    remedy = "The embedded model learns its first steps from it; or give another model by --model"
    for more in (["--dry-run"], []):
        line = refused(capsys, "train", "--env", lottery, "--output_dir", str(tmp_path / "run"), *more)
        assert line == f"{NO_ORACLE}. {remedy}"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["models/SmolLM2", "runs/first"])
def test_a_folder_that_is_not_there_is_no_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A dry run took it for a model on a hub that cannot be reached, and printed the rest of the plan."""
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "train", "--model", name, "--dry-run")
    assert line == f"there is no folder {name!r}; give a saved model's folder or a hub id (owner/name)"


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_folder_that_is_not_there_is_named_before_what_its_environment_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """Regression: without its play.json the lake was asked, and had no split to evaluate."""
    monkeypatch.chdir(tmp_path)
    kwargs = ["--eval_env_kwargs", '{"split": "test_by_product"}']
    line = refused(capsys, "train", "--model", "runs/shop/warm_start", "--output_dir", "runs/shop/more", *kwargs, *more)
    assert line.startswith("there is no folder 'runs/shop/warm_start'; ")


def test_the_folder_of_a_run_is_not_that_of_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "first" / "model").mkdir(parents=True)
    (tmp_path / "first" / "model" / "config.json").write_text("{}")
    line = refused(capsys, "eval", "--model", str(tmp_path / "first"), "--dry-run")
    assert line.endswith(f"so it is not a saved model; did you mean '{tmp_path}/first/model'?")


def test_a_plan_says_that_a_trajectory_may_outgrow_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = "max_completion_length is 100,000, but the model's context ends at 2,048 tokens, and an episode with it"
    for command in ("train", "warm-start"):
        assert main([command, "--max_completion_length", "2048", "--dry-run"]) == 0
        assert "context ends" not in capsys.readouterr().out
        assert main([command, "--max_completion_length", "100000", "--dry-run"]) == 0
        assert words in capsys.readouterr().out


class HiddenLottery(Lottery):
    """Its oracle is a mistake of the user's, as that of a store on a server is."""


@best_action.register
def _(env: HiddenLottery, actions_left: int) -> str:
    raise EnvError("only the server knows the goal")


def test_an_oracle_that_cannot_see_the_goal_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a WebShop on a server ``eval`` played everything, and then ended without a table."""
    spec = gymnasium.envs.registration.EnvSpec("me/Hidden-v0", HiddenLottery)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    assert main(["eval", "--env", spec.id, "--episodes", "2", "--output_dir", str(tmp_path / "eval")]) == 0
    assert "oracle: not played: only the server knows the goal" in capsys.readouterr().out
    results = json.loads((tmp_path / "eval" / "summary.json").read_text())["environments"]["Hidden-v0"]["results"]
    assert results["oracle"] == {"not_played": "only the server knows the goal"}


@pytest.mark.parametrize(
    ("busy", "threads", "device", "says"),
    [(1.9, 2, "cpu", True), (0.4, 2, "cpu", False), (1.9, 1, "cpu", False), (1.9, 2, "cuda", False)],
)
def test_threads_beside_other_programs_are_warned_of(
    busy: float,
    threads: int,
    device: str,
    says: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (busy, 0.0, 0.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    commands._say_what_is_slow(SimpleNamespace(device=torch.device(device)), None)
    said = capsys.readouterr().out
    assert ("1.9 threads shared 2 CPUs, and this command computes with 2 threads" in said) == says == bool(said)


@pytest.mark.parametrize(
    ("speedup", "model", "bf16", "device", "says"),
    [
        (4.6, "large", False, "cpu", True),
        (1.4, "large", False, "cpu", False),
        (4.6, "large", True, "cpu", False),
        (4.6, None, False, "cpu", False),
        (4.6, "small", False, "cpu", False),
        (4.6, "missing", False, "cpu", False),
        (4.6, "large", False, "cuda", False),
    ],
)
def test_who_trains_in_the_slower_precision_is_told(
    speedup: float,
    model: str | None,
    bf16: bool,
    device: str,
    says: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, layers in (("small", 2), ("large", 32)):
        config = Qwen2Config(num_hidden_layers=layers, hidden_size=512, intermediate_size=2048, vocab_size=1000)
        config.architectures = ["Qwen2ForCausalLM"]
        config.save_pretrained(tmp_path / name)
        (tmp_path / name / "model.safetensors").touch()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(precision, "_seconds_of_a_product", {torch.float32: speedup, torch.bfloat16: 1.0}.__getitem__)
    args = SimpleNamespace(device=torch.device(device), bf16=bf16, fp16=False)
    commands._say_what_is_slow(args, None if model is None else str(tmp_path / model))
    said = capsys.readouterr().out
    hint = "this CPU multiplies matrices 4.6 times as fast in bfloat16; --bf16 true makes use of it\n"
    assert said == (hint if says else "")


def test_the_speed_of_a_precision_is_that_of_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch.nn.functional.linear

    def slow_in_float32(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05 * (rows.dtype == torch.float32))
        return product(rows[:8], weights)

    monkeypatch.setattr(torch.nn.functional, "linear", slow_in_float32)
    assert precision.bfloat16_speedup() > 2 and precision.is_bfloat16_faster()
    monkeypatch.setattr(precision, "_seconds_of_a_product", {torch.float32: 1.9, torch.bfloat16: 1.0}.__getitem__)
    assert not precision.is_bfloat16_faster()

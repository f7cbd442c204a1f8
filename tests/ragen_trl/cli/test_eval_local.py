"""``python -m ragen_trl eval`` with models of this machine: several environments, stopping and going on, mistakes."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import pytest
import trl.import_utils as trl_imports
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import ragen_envs
from ragen_trl.cli.eval_plan import read_plan
from ragen_trl.cli.main import main
from ragen_trl.config import starpo
from ragen_trl.evaluation import comparison
from ragen_trl.evaluation.folder import EvalFolder, StoredEpisode
from ragen_trl.evaluation.players import LocalModel, fingerprint, local_models
from ragen_trl.policies import model_calls
from ragen_trl.policies import transformers as transformers_policy
from ragen_trl.rollout import loop
from tests.support.ragen_trl.fake_vllm import FakeLLM, FakeModel
from tests.support.ragen_trl.trainers import TOKENIZER, small_model

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"
PLAIN = ["--think", "false", "--max_reply_length", "6", "--max_completion_length", "600", "--bf16", "false"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved model, never trained."""
    folder = tmp_path_factory.mktemp("models") / "small"
    small_model().save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return str(folder)


def evaluate(folder: Path, *options: str, episodes: int = 6) -> int:
    return main(["eval", *PLAIN, "--episodes", str(episodes), "--output_dir", str(folder), *options])


def episodes_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of every file, without times."""
    files = {path.name: path.read_text().splitlines() for path in (folder / "episodes").iterdir()}
    rows = {name: [json.loads(line) for line in lines] for name, lines in files.items()}
    return {name: [{k: v for k, v in row.items() if k != "seconds"} for row in each] for name, each in rows.items()}


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def test_an_adapter_is_merged_where_that_is_asked_for(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: `eval` took the option and merged nothing."""
    adapter = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=2))
    adapter.save_pretrained(str(tmp_path / "adapter"))
    TOKENIZER.save_pretrained(str(tmp_path / "adapter"))
    seen: list[int] = []

    @contextmanager
    def counted(one: Any) -> Iterator[None]:
        with model_calls.lora_merged(one):
            seen.append(sum(bool(getattr(layer, "merged_adapters", ())) for layer in one.modules()))
            yield

    monkeypatch.setattr(transformers_policy, "lora_merged", counted)
    options = ["--model", str(tmp_path / "adapter"), "--env", BANDIT]
    assert evaluate(tmp_path / "apart", *options, episodes=2) == 0 and seen == []
    assert evaluate(tmp_path / "merged", *options, "--merge_lora", "true", episodes=2) == 0
    assert seen and set(seen) == {4}  # two layers, queries and values
    assert summary(tmp_path / "merged")["policies"][str(tmp_path / "adapter")]["merge_lora"]


@pytest.fixture(scope="module")
def whole(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation in two environments, two episodes a start state, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert evaluate(folder, "--model", model, "--env", LAKE, BANDIT, "--samples_per_start", "2") == 0
    return folder


def test_every_policy_plays_every_environment(whole: Path, model: str) -> None:
    found = summary(whole)
    assert list(found["environments"]) == ["FrozenLake-v0", "Bandit-v0"]
    for environment in found["environments"].values():
        assert list(environment["results"]) == ["random", model, "oracle"]
        assert [result["n"] for result in environment["results"].values()] == [12, 12, 12]
        oracle = environment["results"]["oracle"]
        assert oracle["pass_at_k"]["2"]["value"] >= oracle["pass_at_k"]["1"]["value"] == oracle["success"]
    assert found["environments"]["FrozenLake-v0"]["env_kwargs"] == {"is_slippery": False, "frozen_prob": 0.9}
    assert found["policies"][model]["model"] == fingerprint(model)
    tables = (whole / "results.md").read_text()
    assert "| success [95 %] | FrozenLake-v0 | Bandit-v0 |" in tables
    assert "pass@2 [95 %]" in tables


def test_rates_can_be_recomputed_from_the_episodes(whole: Path) -> None:
    for rows in episodes_in(whole).values():
        assert [(row["seed"], row["sample"]) for row in rows] == [(seed, k) for seed in range(6) for k in range(2)]
        result = summary(whole)["environments"][rows[0]["env"]]["results"][rows[0]["policy"]]
        assert result["success"] == pytest.approx(sum(row["success"] for row in rows) / 12)
        assert result["mean_return"] == pytest.approx(sum(row["return"] for row in rows) / 12)


def test_differences_are_those_of_the_episodes_by_start_state(model: str, tmp_path: Path) -> None:
    twin = shutil.copytree(model, tmp_path / "twin")
    assert evaluate(tmp_path / "eval", "--model", model, str(twin), "--env", BANDIT, "--samples_per_start", "2") == 0
    results = summary(tmp_path / "eval")["environments"]["Bandit-v0"]["results"]
    means = {name: each["success"] for name, each in results.items()}
    first, second = results[model]["differences"], results[str(twin)]["differences"]
    assert list(first) == ["random"] and list(second) == ["random", model]
    assert second["random"]["value"] == pytest.approx(means[str(twin)] - means["random"])
    assert (second[model]["value"], second[model]["starts"]) == (0.0, 6)  # the same weights, the same replies
    assert second[model]["low"] == -second[model]["high"] < 0
    assert "differences" not in results["oracle"]
    assert f"| success above that of | random | {model} |" in (tmp_path / "eval" / "results.md").read_text()


def test_a_stopped_evaluation_plays_nothing_twice_and_ends_like_a_whole_one(
    whole: Path, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[int] = []
    add = EvalFolder.add

    def add_and_stop(self: EvalFolder, policy: str, env: str, block: Any) -> None:
        add(self, policy, env, block)
        played.append(len(block))
        if len(played) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(EvalFolder, "add", add_and_stop)
    options = ["--model", model, "--env", LAKE, BANDIT, "--samples_per_start", "2", "--side_by_side", "5"]
    assert evaluate(tmp_path, *options) == 130
    kept = sum(played)
    assert not (tmp_path / "summary.json").exists()
    said = capsys.readouterr()
    assert said.err.strip().endswith(f" of 72 episodes are kept in {tmp_path}. To go on, run the same command again.")
    assert "\r" not in said.out
    assert evaluate(tmp_path, *options) == 0
    assert f"{kept} of 72 episodes are there already" in capsys.readouterr().out
    assert sum(played) == 72
    assert episodes_in(tmp_path) == episodes_in(whole)
    assert evaluate(tmp_path, *options) == 0
    assert sum(played) == 72


def test_more_episodes_and_samples_join_those_that_are_there(whole: Path, model: str, tmp_path: Path) -> None:
    options = ["--model", model, "--env", LAKE, BANDIT]
    assert evaluate(tmp_path, *options, episodes=3) == 0
    assert evaluate(tmp_path, *options, "--samples_per_start", "2") == 0
    assert episodes_in(tmp_path) == episodes_in(whole)
    assert evaluate(tmp_path, *options, episodes=3) == 0
    assert summary(tmp_path)["environments"]["Bandit-v0"]["results"]["random"]["n"] == 3


def test_episodes_of_several_versions_of_the_package_are_counted_by_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a stopped evaluation went on with a changed package, and nothing said so."""
    for version, episodes in (("1.0 (commit a)", 2), ("1.1 (commit b)", 6)):
        monkeypatch.setattr(comparison, "package_version", lambda version=version: version)
        assert evaluate(tmp_path, "--env", BANDIT, episodes=episodes) == 0
        said = capsys.readouterr().out
        assert ("versions of ragen-trl differ" in said) == (episodes == 6)
    assert "versions of ragen-trl differ: 4 by 1.1 (commit b), 2 by 1.0 (commit a); --overwrite true" in said
    for result in summary(tmp_path)["environments"]["Bandit-v0"]["results"].values():
        assert result["versions"] == {"1.1 (commit b)": 4, "1.0 (commit a)": 2}
    lines = [json.loads(line) for path in (tmp_path / "episodes").iterdir() for line in path.read_text().splitlines()]
    for line in lines:  # as a folder has them that an older version wrote
        del line["version"]
    assert {StoredEpisode.from_line(json.dumps(line)).version for line in lines} == {""}


def test_another_model_under_the_same_name_is_noticed(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    assert fingerprint(str(copy)) == fingerprint(model)
    options = ["--model", str(copy), "--env", BANDIT]
    assert evaluate(tmp_path / "out", *options) == 0
    changed = small_model()
    changed.lm_head.weight.data[0, 0] += 1
    changed.save_pretrained(copy)
    assert evaluate(tmp_path / "out", *options) == 2
    error = capsys.readouterr().err
    assert "holds an evaluation with other settings" in error and "model was '" in error
    assert evaluate(tmp_path / "out", *options, "--max_reply_length", "7", "--overwrite", "true") == 0
    assert evaluate(tmp_path / "out", *options) == 2
    assert "max_reply_length was 7, now 6" in capsys.readouterr().err


class Riddle(ragen_envs.TextEnv):
    """Free text, so nobody knows a random action, and nobody wrote an oracle."""

    instruction = "What is it?"
    actions = None

    def _start(self, options: dict[str, Any]) -> str:
        return "It has a bed and never sleeps."

    def _parse_action(self, text: str) -> str:
        return text

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return "No.", 0.0, True, {"success": False, "action_is_effective": True}


class Chatty(Riddle):
    """Says more than a small model can read."""

    def _start(self, options: dict[str, Any]) -> str:
        return "§" * 3000


@pytest.fixture
def registered() -> Any:
    """Two environments of a user."""
    for name, entry in (("me/Riddle-v0", Riddle), ("me/Chatty-v0", Chatty)):
        gymnasium.register(name, entry_point=entry)  # type: ignore[arg-type]
    yield
    for name in ("me/Riddle-v0", "me/Chatty-v0"):
        del gymnasium.registry[name]


def test_where_there_are_no_baselines_the_rows_say_so(registered: None, model: str, tmp_path: Path) -> None:
    assert evaluate(tmp_path, "--model", model, "--env", "me/Riddle-v0", BANDIT) == 0
    results = summary(tmp_path)["environments"]["Riddle-v0"]["results"]
    assert "no random policy: random_action knows no Riddle" in results["random"]["not_played"]
    assert "register it with @best_action.register(Riddle)" in results["oracle"]["not_played"]
    assert (results[model]["n"], results[model]["normalised"]) == (6, None)
    assert "| oracle | no oracle policy: best_action knows no Riddle" in (tmp_path / "results.md").read_text()


class Outage(ragen_envs.Bandit):
    """Cannot begin an episode while the server is down, which it is after ``left`` of them."""

    left = 0

    def _start(self, options: dict[str, Any]) -> str:
        type(self).left -= 1
        if type(self).left < 0:
            raise ConnectionError("the server is down")
        return super()._start(options)


class LaterOutage(Outage):
    """Its server goes down after an episode has begun."""

    def _start(self, options: dict[str, Any]) -> str:
        return ragen_envs.Bandit._start(self, options)

    def _act(self, action: str) -> Any:
        type(self).left -= 1
        if type(self).left < 0:
            raise ConnectionError("the server is down")
        return super()._act(action)


def test_a_baseline_that_the_environment_failed_is_no_baseline_that_it_lacks(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: status 0, and a difference from the half of random play that was stored."""
    spec = gymnasium.envs.registration.EnvSpec("me/Outage-v0", Outage)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(loop, "PAUSES", ())
    options = ["--model", model, "--env", spec.id, "--side_by_side", "4"]
    make = LocalModel.policy

    def up(self: LocalModel, task: Any) -> Any:
        Outage.left = 1000
        return make(self, task)

    monkeypatch.setattr(LocalModel, "policy", up)
    Outage.left = 6  # more than one block, with a look at the environment before
    assert evaluate(tmp_path, *options, episodes=8) == 2
    assert "random in Outage-v0: no episode could start at reset(" in capsys.readouterr().err.splitlines()[-1]
    results = summary(tmp_path)["environments"]["Outage-v0"]["results"]
    assert results["random"]["failed"] and "the server is down" in results["random"]["not_played"]
    assert (results[model]["n"], results[model]["differences"], results["oracle"]["n"]) == (8, {}, 8)
    table = [line for line in (tmp_path / "results.md").read_text().splitlines() if line.startswith("|")]
    assert [row.split(" | ")[0] for row in table] == ["| policy", table[1], "| random", f"| {model}", "| oracle"]
    assert evaluate(tmp_path, *options, episodes=8) == 0
    assert summary(tmp_path)["environments"]["Outage-v0"]["results"]["random"]["n"] == 8


def test_a_baseline_whose_every_episode_fails_is_none_either(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: status 0, and a reason that was cut before the error."""
    spec = gymnasium.envs.registration.EnvSpec("me/LaterOutage-v0", LaterOutage)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    make = LocalModel.policy

    def up(self: LocalModel, task: Any) -> Any:
        LaterOutage.left = 1000
        return make(self, task)

    monkeypatch.setattr(LocalModel, "policy", up)
    LaterOutage.left = 0
    assert evaluate(tmp_path, "--model", model, "--env", spec.id, episodes=8) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "random in LaterOutage-v0: all of 8 episodes failed" in last
    assert last.endswith("ConnectionError: the server is down")
    assert summary(tmp_path)["environments"]["LaterOutage-v0"]["results"]["random"]["failed"]


def test_a_prompt_that_the_model_cannot_read_is_named_before_anything_is_played(
    registered: None, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(tmp_path, "--model", model, "--env", BANDIT, "me/Chatty-v0") == 2
    error = capsys.readouterr().err
    assert "cannot play Chatty-v0: the first message has" in error
    assert "leave this environment out" in error
    assert not list(tmp_path.rglob("*.jsonl"))


def test_episodes_that_outgrow_their_tokens_are_counted(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(tmp_path, "--model", model, "--env", LAKE, "--max_completion_length", "20") == 0
    assert "6 episodes ended where max_completion_length (20) or the model's context" in capsys.readouterr().out
    assert summary(tmp_path)["environments"]["FrozenLake-v0"]["results"][model]["limits"] == {"context": 6}


def test_each_model_plays_in_the_precision_that_is_recorded(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: on a GPU all played in that of the first one, so that another order gave other episodes."""
    monkeypatch.setattr(starpo, "is_torch_bf16_gpu_available", lambda: True)
    shutil.copytree(model, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    del config["ragen_embedded"]
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    for names in ([model, str(tmp_path / "other")], [str(tmp_path / "other"), model]):
        plan = read_plan({}, ["--env", BANDIT, "--model", *names])
        (task,) = plan.tasks
        for player in local_models(plan, print):
            recorded = player.settings(task.args[player.name])["bf16"]
            assert recorded is (player.name != model)
            assert player.policy(task)._autocast()._enabled is recorded  # type: ignore[attr-defined]


def test_vllm_plays_without_a_trainer(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake samples greedily from the same weights, so that its episodes are those of Transformers."""
    made: list[dict[str, Any]] = []

    def start(**options: Any) -> FakeLLM:
        made.append(options)
        llm = FakeLLM(FakeModel(small_model()), options["max_model_len"] or 2048)
        llm.llm_engine.engine_core = SimpleNamespace(shutdown=lambda: made.append({}))
        return llm

    vllm = ModuleType("vllm")
    vllm.__spec__ = ModuleSpec("vllm", None)
    vllm.LLM, vllm.SamplingParams = start, SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(trl_imports, "is_vllm_available", lambda: True)
    options = ["--model", model, "--env", LAKE, BANDIT, "--eval_temperature", "0"]
    assert evaluate(tmp_path / "vllm", *options, "--use_vllm", "true") == 0
    assert [each.get("model") for each in made] == [model, None]  # one engine for both, shut down at the end
    assert (made[0]["logprobs_mode"], made[0]["dtype"]) == ("processed_logprobs", "float32")
    assert evaluate(tmp_path / "transformers", *options) == 0
    assert episodes_in(tmp_path / "vllm") == episodes_in(tmp_path / "transformers")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "./no/such/model"], "there is no folder './no/such/model'"),
        (["--use_vllm", "true"], "vLLM is not installed"),
        (["--episodes", "20000"], "20000 evaluation episodes"),
    ],
)
def test_a_mistake_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert evaluate(tmp_path / "out", *options) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.rglob("*.jsonl"))

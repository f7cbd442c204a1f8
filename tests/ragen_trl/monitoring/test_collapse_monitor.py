"""The monitor in real training: what it logs, that it changes nothing, and what it does when alerts fire."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ragen_trl import AStarPOConfig, AStarPOTrainer, CollapseMonitor
from ragen_trl.errors import OptionError
from ragen_trl.monitoring import episode_measures
from ragen_trl.monitoring.collapse_monitor import best_step
from ragen_trl.monitoring.episode_measures import (
    pairs_of_completions,
    pairs_of_trajectories,
    rollout_measures,
    text_of,
    token_pieces,
)
from ragen_trl.monitoring.mutual_information import ThoughtPair
from ragen_trl.trainers.checkpoints import whole_checkpoints
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import (
    SMALL,
    TOKENIZER,
    lottery,
    parameters,
    rollout_of,
    small_model,
    small_trainer,
)

PIECES = token_pieces(TOKENIZER)
REPLIES = {"reply_tokens", "identical_replies", "distinct_1", "distinct_2", "distinct_3", "in_group_std", "zero_std"}
EPISODES = {*REPLIES, "actions_per_turn", "effective", "identical_episodes", "first_actions"}
DEPENDENCE = {"mi", "mi_sequence", "mi_bound", "mi_zscore", "mi_retrieval", "mi_chance", "mi_seconds"}


class Story(TrainerCallback):
    """Puts a success of a test's own into the log, before the monitor reads it."""

    def __init__(self, trainer: GRPOTrainer, success: Any) -> None:
        self.trainer, self.success = trainer, success

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        for name in ("success", "eval_success"):
            self.trainer._metrics["train"][name] = [self.success(state.global_step)]


def letters(completions: list[str], **_: Any) -> list[float]:
    return [float(len(completion) % 3) for completion in completions]


def plain_trainer(folder: Path, **changes: Any) -> GRPOTrainer:
    ours = {"think", "max_turns", "max_reply_length"}
    options = {name: value for name, value in SMALL.items() if name not in ours}
    args = GRPOConfig(output_dir=str(folder), **{**options, "max_completion_length": 8, **changes})
    rows = Dataset.from_dict({"prompt": [f"Go to {place}." for place in range(8)]})
    return GRPOTrainer(small_model(), letters, args, train_dataset=rows, processing_class=TOKENIZER)


def logged(trainer: GRPOTrainer) -> list[set[str]]:
    """The monitor's names in each row of a training step."""
    rows = [row for row in trainer.state.log_history if "loss" in row]
    return [{key.removeprefix("collapse/") for key in row if key.startswith("collapse/")} for row in rows]


def test_measures_of_trajectories_are_logged_and_the_mutual_information_every_so_often(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, max_steps=3)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=2))
    trainer.train()
    first, second, third = logged(trainer)
    assert first >= EPISODES | DEPENDENCE | {"seconds", "early_signs", "confirmation_signs"}
    assert not second & DEPENDENCE
    assert third == first
    row = trainer.state.log_history[0]
    assert row["collapse/in_group_std"] == pytest.approx(row["filter/in_group_std"], abs=1e-6)
    assert row["collapse/actions_per_turn"] == pytest.approx(row["actions"] / row["turns"])
    assert row["collapse/reply_tokens"] == pytest.approx(row["reply_tokens"] / row["turns"])
    assert row["collapse/mi_chance"] == 0.5  # two groups


@pytest.mark.parametrize("think", [False, True])
def test_thoughts_are_measured_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, think: bool
) -> None:
    """A reply that samples <think> by chance was logged as a thought, now and then, in runs without thoughts."""
    found = {"thought_tokens": 3.0, "thought_followed": 0.5, "reply_tokens": 8.0}
    monkeypatch.setattr("ragen_trl.monitoring.collapse_monitor.rollout_measures", lambda *_: dict(found))
    trainer = small_trainer(tmp_path, max_steps=1, think=think)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=0))
    trainer.train()
    (names,) = logged(trainer)
    assert names >= {"reply_tokens"} and ("thought_tokens" in names) is think
    assert ("thought_followed" in names) is think


def test_a_run_takes_the_same_steps_with_it(tmp_path: Path) -> None:
    plain = small_trainer(tmp_path / "plain", advantage="gae")
    plain.train()
    watched = small_trainer(tmp_path / "watched", advantage="gae")
    watched.add_callback(CollapseMonitor(watched, mi_every=1))
    watched.train()
    after = parameters(watched)
    for name, value in parameters(plain).items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=0)


def test_runs_without_groups_have_everything_but_spread_and_echo(tmp_path: Path) -> None:
    options = {"num_generations": 1, "num_train_seeds": 8, "reference_samples": 2, "max_reference_samples": 2}
    trainer = small_trainer(tmp_path, lottery(), AStarPOConfig, AStarPOTrainer, max_steps=1, **options)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=1))
    trainer.train()
    of_groups = {"in_group_std", "zero_std", "identical_replies", "identical_episodes", "first_actions"}
    (names,) = logged(trainer)
    assert names >= (EPISODES - of_groups) | DEPENDENCE
    assert not names & of_groups


def test_a_plain_grpo_trainer_is_measured_by_its_completions(tmp_path: Path) -> None:
    """Contract with TRL: ``_logs`` holds the last rollout, groups contiguous; ``_buffered_inputs`` its tokens."""
    trainer = plain_trainer(tmp_path, max_steps=2)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=2))
    trainer.train()
    first, second = logged(trainer)
    assert first >= REPLIES | DEPENDENCE
    assert second >= REPLIES
    assert not second & DEPENDENCE
    prompts, rewards = list(trainer._logs["prompt"]), list(trainer._logs["rewards"]["letters"])
    assert prompts[:4] == [prompts[0]] * 4 and prompts[4:] == [prompts[4]] * 4
    assert rewards == letters(list(trainer._logs["completion"]))
    expected = torch.tensor(rewards).view(2, 4).std(dim=1).mean().item()
    assert trainer.state.log_history[1]["collapse/in_group_std"] == pytest.approx(expected, abs=1e-6)
    pairs = pairs_of_completions(trainer._buffered_inputs, PIECES)
    shown = {TOKENIZER.decode(pair.prompt) for pair in pairs}
    assert shown == set(prompts)


def test_what_is_appended_to_the_metrics_is_averaged_into_the_next_row(tmp_path: Path) -> None:
    """Contract with TRL: ``_metrics["train"]`` holds lists that ``log`` averages and clears."""
    trainer = small_trainer(tmp_path, max_steps=1)
    trainer._metrics["train"]["mine"] += [1.0, 2.0]
    trainer.train()
    assert trainer.state.log_history[0]["mine"] == 1.5
    assert not trainer._metrics["train"]["mine"]


def test_thoughts_are_found_in_tokens() -> None:
    prompt, reply = TOKENIZER.encode("Go <think>"), TOKENIZER.encode("left or up</think><answer>Up</answer>")
    turn = Turn(tuple(prompt), tuple(reply), (), "?", "<think>" + TOKENIZER.decode(reply), 0.0)
    (pair,) = pairs_of_trajectories([Trajectory((turn,), seed=0)], PIECES)
    assert pair.prompt == tuple(prompt)
    assert "".join(map(PIECES, pair.thought)) == "left or up"


def test_a_completion_opens_its_thought_itself_or_has_none() -> None:
    def pair(prompt: str, reply: str) -> ThoughtPair:
        ids = {"prompt_ids": TOKENIZER.encode(prompt), "completion_ids": TOKENIZER.encode(reply)}
        batch = {name: torch.tensor([[*row, 0]]) for name, row in ids.items()}
        masks = {name.replace("ids", "mask"): torch.tensor([[1] * len(row) + [0]]) for name, row in ids.items()}
        (found,) = pairs_of_completions([{**batch, **masks}], PIECES)
        return found

    opens = pair("Go", "<think>left</think>Up")
    assert "".join(map(PIECES, opens.thought)) == "left"
    assert "".join(map(PIECES, opens.prompt)).endswith("<think>")
    assert "".join(map(PIECES, pair("Go", "left</think>Up").thought)) == "left"
    assert "".join(map(PIECES, pair("Go", "Up").thought)) == "Up"


def test_of_messages_the_assistants_count() -> None:
    assert text_of("left") == "left"
    spoken = [("assistant", "a"), ("tool", "b"), ("assistant", "c"), ("assistant", None)]
    assert text_of([{"role": role, "content": content} for role, content in spoken]) == "ac"


TINY: dict[str, Any] = {"max_turns": 1, "max_reply_length": 1, "num_generations": 2, "per_device_train_batch_size": 2}


def collapsing(folder: Path, action: str, **options: Any) -> tuple[Any, CollapseMonitor]:
    """A run of 8 steps that is told to fail from step 5 on; its weights are its own."""
    trainer = small_trainer(folder, **{**TINY, "max_steps": 8, **options})
    trainer.add_callback(Story(trainer, lambda step: 0.5 if step < 5 else 0.0))
    monitor = CollapseMonitor(trainer, action=action, mi_every=0)
    trainer.add_callback(monitor)
    trainer.train()
    return trainer, monitor


def test_it_warns_once_an_alert_and_lets_the_run_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ragen_trl.monitoring.collapse_monitor"):
        trainer, monitor = collapsing(tmp_path, "warn")
    assert trainer.state.global_step == 8
    (found,) = monitor.fired
    # Three values of at best 0.5, and a threshold of 0.4: 0.5, 0, 0 is the first mean below it with six values.
    assert (found.rule.name, found.step, found.threshold) == ("eval_success_falls", 6, 0.4)
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == ["step 6: eval_success_falls"]
    counts = [row["collapse/confirmation_signs"] for row in trainer.state.log_history if "loss" in row]
    assert counts == [0, 0, 0, 0, 0, 0, 1, 1]  # how many fired up to the row before
    summary = json.loads(json.dumps(monitor.summary()))
    (alert,) = summary["signs"]
    assert (alert["name"], alert["kind"], alert["step"]) == ("eval_success_falls", "confirmation", 6)
    assert summary["stopped_at"] is summary["rolled_back_to"] is None


@pytest.mark.parametrize("kind", ["all weights", "LoRA"])
def test_it_rolls_back_to_the_best_checkpoint_with_its_critic_and_stops(tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "advantage": "gae", "learning_rate": 1e-2}
    if kind == "LoRA":
        options["peft_config"] = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer, monitor = collapsing(tmp_path, "rollback", **options)
    assert monitor.stopped_at == trainer.state.global_step == 6
    assert monitor.rolled_back_to == 4  # 2 and 4 are as good; the later one counts
    best, last = tmp_path / "checkpoint-4", tmp_path / "checkpoint-6"
    trainer.save_model(str(tmp_path / "kept"))
    trainer.critic.save(tmp_path / "kept" / "critic")
    name = "adapter_model.safetensors" if kind == "LoRA" else "model.safetensors"
    weights = [load_file(folder / name) for folder in (best, last, tmp_path / "kept")]
    assert same(weights[2], weights[0]) and not same(weights[2], weights[1])
    critics = [critic_weights(folder / "critic") for folder in (best, last, tmp_path / "kept")]
    assert same(critics[2], critics[0]) and not same(critics[2], critics[1])


def test_the_best_checkpoint_is_not_rotated_away(tmp_path: Path) -> None:
    """Two are kept; without a name for it, the best one had to make room for the newer ones."""
    _, monitor = collapsing(tmp_path, "rollback", save_strategy="steps", save_steps=1, save_total_limit=2)
    assert monitor.rolled_back_to == 4
    assert sorted(folder.name for folder in tmp_path.glob("checkpoint-*")) == ["checkpoint-4", "checkpoint-6"]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys() and one
    return all(torch.equal(one[name], other[name]) for name in one)


def critic_weights(folder: Path) -> dict[str, torch.Tensor]:
    files = [(file.name, load_file(file)) for file in folder.glob("*.safetensors")]
    return {f"{file} {name}": value for file, loaded in files for name, value in loaded.items()}


def test_what_fired_before_a_checkpoint_is_known_after_it(tmp_path: Path) -> None:
    stopped, monitor = collapsing(tmp_path, "stop", save_strategy="steps", save_steps=6)
    assert stopped.state.global_step == monitor.stopped_at == 6
    again = small_trainer(tmp_path, **TINY, max_steps=8)
    resumed = CollapseMonitor(again, action="stop", mi_every=0)
    again.add_callback(resumed)
    again.train(resume_from_checkpoint=True)
    assert resumed.fired == monitor.fired
    assert again.state.global_step == resumed.stopped_at == 7  # what was a reason to stop still is one


def test_the_best_checkpoint_is_that_of_the_best_ten_rollouts() -> None:
    rows = [{"step": step, "success": 0.1 * (step <= 20), "return": -float(step)} for step in range(1, 41)]
    assert best_step([10, 20, 25, 40], rows) == 20
    assert best_step([30, 40], [{"step": step, "reward": float(-step)} for step in range(1, 41)]) == 30
    assert best_step([], rows) is None
    assert best_step([5], [{"step": 6, "success": 1.0}]) is None


def test_a_checkpoint_that_a_kill_left_behind_is_not_whole(tmp_path: Path) -> None:
    for name, text in (("checkpoint-1", '{"global_step": 1}'), ("checkpoint-2", '{"glo'), ("checkpoint-3", None)):
        (tmp_path / name).mkdir()
        if text:
            (tmp_path / name / "trainer_state.json").write_text(text)
    assert whole_checkpoints(tmp_path) == {1: tmp_path / "checkpoint-1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "rollback"}, "save_strategy='no' writes none"),
        ({"action": "hope"}, "action is 'hope'"),
        ({"stop_on": "late"}, "stop_on 'late'"),
        ({"mi_every": -1}, "mi_every is -1"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CollapseMonitor(small_trainer(tmp_path), **options)


def test_the_best_checkpoint_has_one_meaning(tmp_path: Path) -> None:
    """Regression: at the end the monitor's best was loaded, and not that of ``metric_for_best_model``."""
    steps = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_success"}
    trainer = small_trainer(tmp_path, **steps, **best, num_eval_seeds=16)
    with pytest.raises(OptionError, match="load_best_model_at_end would load that instead of the best by metric_for"):
        CollapseMonitor(trainer, action="rollback")


class Exchange:
    """Stands in for the exchange of objects between processes, which take their turns here, twice each."""

    def __init__(self) -> None:
        self.sent: dict[int, list[Any]] = {0: [], 1: []}
        self.process, self.call, self.replay = 0, 0, False

    def __call__(self, mine: list[Any]) -> list[Any]:
        if not self.replay:
            self.sent[self.process].append(mine)
            return mine * 2
        self.call += 1
        return self.sent[0][self.call - 1] + self.sent[1][self.call - 1]


def test_thoughts_are_measured_by_their_own_tokens() -> None:
    """Four thoughts of two tokens, three of them the same: of 8 tokens 3 are distinct, of 4 pairs 2."""
    texts = {0: "<think>", 1: "</think>", 2: "go", 3: " Up", 4: " Down"}
    info = {"actions": ("Up",), "action_is_effective": True, "action_names": ("Up", "Down")}
    played = []
    for move in (3, 3, 3, 4):
        ids = (2, move, 1, 3)
        reply = "<think>" + "".join(texts[token] for token in ids)
        played.append(Trajectory((Turn((0,), ids, (), "?", reply, 0.0, info),), seed=0))
    found = rollout_measures(rollout_of(played, 2), texts.__getitem__)
    assert (found["thought_distinct_1"], found["thought_distinct_2"]) == (3 / 8, 2 / 4)
    assert "thought_distinct_3" not in found  # no thought has three tokens
    assert (found["thought_tokens"], found["thought_names"], found["thought_followed"]) == (2.0, 1.0, 0.75)


def test_thoughts_that_only_repeat_the_request_are_counted() -> None:
    texts = dict(enumerate(["</think>", "The user wants a red shirt.", "The second one costs $9.", "A shirt?"]))
    info = {"actions": (), "action_is_effective": True, "action_names": (), "request": "red shirt, size large"}
    turns = [Turn((9,), (said, 0), (), "?", f"<think>{texts[said]}</think>", 0.0, info) for said in (1, 2, 3, 1)]
    unasked = Turn((9,), (1, 0), (), "?", "<think>A shirt.</think>", 0.0, {**info, "request": ""})
    found = rollout_measures(
        rollout_of([Trajectory((*turns, unasked), seed=0)], 1), {9: "<think>", **texts}.__getitem__
    )
    assert found["thought_restates"] == 3 / 4
    assert "thought_names" not in found


def test_two_processes_measure_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three groups of four, the second one half here and half there."""
    generator = torch.Generator().manual_seed(0)

    def said(token: int) -> Turn:
        info = {"actions": ("Up",) * (token % 3), "action_is_effective": token % 2 == 0}
        return Turn((1,), (token, token + 1), (), "?", str(token), float(token % 2), info)

    played = [Trajectory((said(int(torch.randint(9, (), generator=generator))),), seed=0) for _ in range(12)]
    alone = rollout_measures(rollout_of(played, 4), PIECES)
    exchange = Exchange()
    monkeypatch.setattr(episode_measures, "gather_object", exchange)
    for exchange.replay in (False, True):
        for exchange.process in (0, 1):
            exchange.call = 0
            found = rollout_measures(rollout_of(played, 4, processes=2, process=exchange.process), PIECES)
            if exchange.replay:
                assert found == pytest.approx(alone, abs=1e-12)
    assert 0 < alone["identical_replies"] < 1 and 0 < alone["distinct_1"] < 1

"""One step off: the next rollout is played with the weights before the present one's updates, which is corrected."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback

from ragen_trl import AStarPOConfig, StarPOConfig, StarPOSConfig, StarPOTrainer
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.trainers import one_step_off
from ragen_trl.trainers.checkpoints import StopOnInterrupt
from ragen_trl.trainers.checks import EnvironmentsFailError
from ragen_trl.trainers.observers import RolloutEvent
from ragen_trl.trainers.one_step_off import RolloutAheadError
from ragen_trl.trainers.rollout import LaunchError
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.fake_vllm import LORA, fake_of, vllm_trainer
from tests.support.ragen_trl.trainers import (
    SMALL,
    TOKENIZER,
    AnyReply,
    Lottery,
    logged,
    lottery,
    parameters,
    small_model,
    small_trainer,
)

RUN: dict[str, Any] = {"max_steps": 4, "learning_rate": 1e-2, "one_step_off_policy": True}


def checksum(model: Any) -> float:
    """A number that any update changes."""
    return sum(float(value.detach().double().abs().sum()) for value in model.parameters())


class Watched(StarPOTrainer):
    """Notes with which weights, in which thread and from which seeds each rollout is played."""

    def rollout(self, starts: list[Start], envs: list[Any], policy: Policy) -> list[Trajectory]:
        """As in training."""
        if self.use_vllm:
            self.send_weights()
        model = fake_of(self).model if self.use_vllm else policy.model
        self.threads.append(threading.current_thread().name)
        self.weights.append(before := checksum(model))
        self.before_play()
        played = super().rollout(starts, envs, policy)
        assert checksum(model) == before
        self.seeds.append([(start.seed, start.outcome_seed, start.sampling_seed) for start in starts])
        self.played.append([trajectory.token_ids for trajectory in played])
        return played

    def before_play(self) -> None:
        """Nothing, unless a test replaces it."""

    def training_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        """Notes the weights that a rollout is trained with."""
        self.trained.append(checksum(self.accelerator.unwrap_model(self.model)))
        return super().training_loss(model, inputs)


def watched(folder: Path, env: Any = None, make: Callable[..., Any] = small_trainer, **options: Any) -> Watched:
    trainer = make(folder, env or lottery(draws=2), trainer=Watched, **{**RUN, **options})
    assert isinstance(trainer, Watched)
    trainer.threads, trainer.weights, trainer.seeds, trainer.played, trainer.trained = [], [], [], [], []
    return trainer


@pytest.mark.parametrize("lora", [False, True])
def test_every_rollout_but_the_first_is_one_update_old_and_no_seed_changes(tmp_path: Path, lora: bool) -> None:
    more = {"peft_config": LoraConfig(**LORA, init_lora_weights=False)} if lora else {}
    torch.manual_seed(0)
    ahead = watched(tmp_path, **more)
    ahead.train()
    assert ahead.threads == ["MainThread"] + ["rollout ahead"] * 3
    assert len(set(ahead.trained)) == 4
    assert ahead.weights == [ahead.trained[0], *ahead.trained[:3]]  # rollout k + 1 with the weights before update k
    assert logged(ahead, "rollout/staleness") == [0, 1, 1, 1]
    torch.manual_seed(0)
    now = watched(tmp_path, one_step_off_policy=False, **more)
    now.train()
    assert now.threads == ["MainThread"] * 4
    assert now.weights == now.trained
    assert ahead.seeds == now.seeds
    assert ahead.played[0] == now.played[0]
    assert ahead.played[1:] != now.played[1:]
    assert not logged(now, "rollout/staleness")


def test_weights_may_change_at_any_time_while_a_rollout_is_played(tmp_path: Path) -> None:
    """Every rollout that is played ahead begins only after the update that it is played beside."""
    plain, late = watched(tmp_path), watched(tmp_path)
    stepped = threading.Event()

    class Tells(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            stepped.set()

    def wait() -> None:
        if threading.current_thread() is not threading.main_thread():
            assert stepped.wait(120)
            stepped.clear()

    late.before_play = wait  # type: ignore[method-assign]
    late.add_callback(Tells())
    for trainer in (plain, late):
        trainer.train()
    assert late.played == plain.played
    end = parameters(plain)
    assert all(torch.equal(value, end[name]) for name, value in parameters(late).items())


def scored(model: Any, trajectory: Trajectory) -> torch.Tensor:
    """Log-probabilities of the sampled tokens, from the model's logits."""
    logits = model(torch.tensor([trajectory.token_ids])).logits[0, :-1].log_softmax(-1)
    ids, mask = torch.tensor(trajectory.token_ids[1:]), torch.tensor(trajectory.action_mask[1:]).bool()
    return logits.gather(1, ids[:, None]).squeeze(1)[mask]


def test_an_update_on_an_older_rollout_is_the_one_that_is_worked_out_by_hand(tmp_path: Path) -> None:
    """Each token's gradient is weighted by π(present) / π(sampler), at most 1.05 here."""
    events: list[RolloutEvent] = []
    weights: list[dict[str, torch.Tensor]] = []

    class Notes(StarPOTrainer):
        def training_loss(self, model: Any, inputs: Any) -> torch.Tensor:
            weights.append(parameters(self))
            return super().training_loss(model, inputs)

    rate, cap = 3.0, 1.05
    plain = {"optim": "sgd", "learning_rate": rate, "max_grad_norm": 0.0, "entropy_coef": 0.0, "max_steps": 2}
    corrects = {"vllm_importance_sampling_clip_max": cap}
    trainer = small_trainer(tmp_path, lottery(draws=2), trainer=Notes, **{**RUN, **plain, **corrects})
    trainer.observers.append(type("Keeps", (), {"on_rollout": lambda _, event: events.append(event)})())
    trainer.train()
    sampler, policy = small_model(), small_model()
    sampler.load_state_dict(weights[0], strict=False)
    policy.load_state_dict(weights[1], strict=False)
    ratios, terms = [], []
    for trajectory, advantages in zip(events[1].rollout.trajectories, events[1].advantages, strict=True):
        sampled = torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])
        torch.testing.assert_close(scored(sampler, trajectory).detach(), sampled, rtol=0.0, atol=1e-5)
        now = scored(policy, trajectory)
        ratios.append((now.detach() - sampled).exp())
        terms.append(-(ratios[-1].clamp(max=cap) * now * torch.tensor(advantages)).mean())
    loss = torch.stack(terms).mean()
    loss.backward()
    largest = float(torch.cat(ratios).max())
    assert largest > 1.2
    assert logged(trainer, "sampling/importance_sampling_ratio/max") == pytest.approx([1.0, cap], abs=1e-5)
    deviation = float((torch.cat(ratios) - 1).abs().max())
    assert logged(trainer, "sampling/ratio_deviation_max")[1] == pytest.approx(deviation, rel=1e-3)
    for name, value in policy.named_parameters():
        expected = value.detach() - rate * value.grad
        torch.testing.assert_close(trainer.model.get_parameter(name).detach(), expected, rtol=1e-4, atol=1e-5, msg=name)


def test_evaluations_play_the_present_weights_and_refills_too(tmp_path: Path) -> None:
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "num_eval_seeds": 4, "max_steps": 3}
    trainer = watched(tmp_path, **options)
    trainer.train()
    main, ahead = "MainThread", "rollout ahead"
    assert trainer.threads == [main, ahead, main, ahead, main, main]  # an evaluation after each update
    now = [*trainer.trained, checksum(trainer.model)]
    assert trainer.weights == [now[0], now[0], now[1], now[1], now[2], now[3]]
    few: dict[str, Any] = {"config": StarPOSConfig, "filter_ratio": 1.0, "num_generations": 2, "max_refills": 4}
    refilling = watched(tmp_path, lottery(), max_steps=3, **few)
    refilling.train()
    first = [place for place, name in enumerate(refilling.threads) if name == ahead]
    assert len(first) == 2 and len(refilling.threads) > 3  # each is followed by refills, played in the main thread
    assert [refilling.weights[place] for place in first] == refilling.trained[:2]
    rollout = [sum(place < index for place in first) for index in range(len(refilling.threads))]
    for index, name in enumerate(refilling.threads):
        if name == main:
            assert refilling.weights[index] == refilling.trained[rollout[index]]


@pytest.mark.parametrize("lora", [False, True])
def test_a_server_plays_with_the_weights_it_was_sent_when_a_rollout_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: bool
) -> None:
    def make(folder: Path, env: Any, **options: Any) -> StarPOTrainer:
        made: StarPOTrainer = vllm_trainer(folder, monkeypatch, env, vllm_mode="server", **options)
        return made

    more = {"peft_config": LoraConfig(**LORA, init_lora_weights=False)} if lora else {}
    trainer = watched(tmp_path, make=make, **more)
    before = parameters(trainer)
    trainer.train()
    assert trainer.threads == ["MainThread"] + ["rollout ahead"] * 3
    assert len(set(trainer.weights)) == 3  # the first two rollouts have the same
    assert trainer.weights[0] == trainer.weights[1]
    if not lora:
        assert trainer.weights == [trainer.trained[0], *trainer.trained[:3]]
    assert fake_of(trainer).loads == 4
    assert [value > 1e-3 for value in logged(trainer, "sampling/ratio_deviation_max")] == [False, True, True, True]
    frozen = {name: value for name, value in parameters(trainer).items() if lora and ".lora_" not in name}
    assert all(torch.equal(value, before[name]) for name, value in frozen.items())


def test_rows_come_in_the_order_of_every_epoch(tmp_path: Path) -> None:
    rows = Dataset.from_dict(
        {"env": ["ragen/FrozenLake-v0"] * 6, "seed": [10_005, 10_001, 10_009, 10_002, 10_003, 10_004]}
    )
    seeds = []
    for on in (True, False):
        args = {**SMALL, "max_steps": -1, "num_train_epochs": 2, "one_step_off_policy": on}
        args = StarPOConfig(str(tmp_path), **args)
        trainer = Watched(small_model(), args=args, train_dataset=rows, processing_class=TOKENIZER)
        trainer.threads, trainer.weights, trainer.seeds, trainer.played, trainer.trained = [], [], [], [], []
        trainer.train()
        seeds.append(trainer.seeds)
        assert logged(trainer, "rollout/staleness") == ([0, 1, 1, 1, 1, 1] if on else [])
    assert seeds[0] == seeds[1]
    assert [start[0] for start in seeds[0][3]] == [10_005] * 4 + [10_001] * 4  # the second epoch begins


# Killed and resumed


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"advantage": "gae"},
        {"filter_ratio": 0.5, "num_generations": 2, "max_refills": 2},
        {"steps_per_generation": 2, "per_device_train_batch_size": 4, "num_iterations": 1},
    ],
    ids=["group", "critic", "refills", "two updates a rollout"],
)
def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path: Path, options: dict[str, Any]) -> None:
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    unbroken = watched(tmp_path, **saves, **options)
    unbroken.train()
    resumed = watched(tmp_path, **saves, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())
    assert timeless(resumed)[2:6] == timeless(unbroken)[2:6]
    assert logged(resumed, "rollout/staleness") == logged(unbroken, "rollout/staleness")
    if not options:
        again = watched(tmp_path, **saves)
        (tmp_path / "checkpoint-2" / "rollout_ahead.json").unlink()  # it is this that makes them equal
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
        assert any(not torch.equal(value, end[name]) for name, value in parameters(again).items())
    assert not (tmp_path / "checkpoint-6" / "rollout_ahead.json").exists()


@pytest.mark.usefixtures("python_handles_interrupts")
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    unbroken = watched(tmp_path / "unbroken", max_steps=5)
    unbroken.train()
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": 100, "max_steps": 5}
    stop = StopOnInterrupt()
    stopped = watched(tmp_path, callbacks=[stop], **saves)
    stopped.before_play = lambda: os.kill(os.getpid(), signal.SIGINT) if len(stopped.weights) == 3 else None  # type: ignore
    stopped.train()
    assert stop.stopped and stopped.state.global_step < 5
    resumed = watched(tmp_path, **saves)
    resumed.train(resume_from_checkpoint=True)
    assert stopped.played + resumed.played == unbroken.played
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())


@pytest.mark.usefixtures("python_handles_interrupts")
def test_a_rollout_that_hangs_does_not_hold_back_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_step_off, "_PATIENCE", 0.1)
    trainer, release = watched(tmp_path), threading.Event()

    def hang() -> None:
        if threading.current_thread() is not threading.main_thread():
            while trainer.state.global_step < 1:  # until the trainer waits for this rollout, or is about to
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            release.wait(120)

    trainer.before_play = hang  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert (trainer.state.global_step, len(trainer.played)) == (1, 1)
    release.set()
    trainer.policy()  # waits for its end
    assert len(trainer.played) == 1  # it was stopped before its first reply


# Errors


def test_an_error_of_the_thread_ends_the_run_with_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    saves: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1}
    failing = watched(tmp_path, **saves)

    def fail() -> None:
        if len(failing.weights) == 3:
            raise ConnectionError("the store does not answer")

    failing.before_play = fail  # type: ignore[method-assign]
    with pytest.raises(ConnectionError, match="the store does not answer") as caught:
        failing.train()
    assert "fail" in [entry.name for entry in caught.traceback]
    assert failing.state.global_step == 2
    resumed = watched(tmp_path, **saves)
    resumed.train(resume_from_checkpoint=True)
    assert logged(resumed, "rollout/staleness") == [0, 1, 0, 1]
    assert resumed.state.global_step == 4


def test_environments_that_all_fail_end_the_run(tmp_path: Path) -> None:
    class Breaks(Lottery):
        def _act(self, action: str) -> Any:
            if threading.main_thread() is not threading.current_thread() and trainer.trained:
                raise OSError("broken")
            return super()._act(action)

    trainer = watched(tmp_path, lambda: AnyReply(Breaks(), think=False, max_turns=1, max_actions_per_turn=1))
    with pytest.raises(EnvironmentsFailError, match="(?s)all 8 episodes failed in the environment .*OSError: broken"):
        trainer.before_play = lambda: [trainer.trained or trainer.trained.append(0.0)]  # type: ignore
        trainer.train()


def test_a_hook_that_asks_for_another_policy_is_told_so(tmp_path: Path) -> None:
    trainer = watched(tmp_path)
    trainer.before_play = lambda: trainer.policy(0.5)  # type: ignore
    with pytest.raises(RolloutAheadError, match="play the policy that the hook is given"):
        trainer.train()


def test_rows_in_another_order_are_refused(tmp_path: Path) -> None:
    trainer = watched(tmp_path, num_train_seeds=8)
    order = trainer.rows_of_rollouts()
    trainer.rows_of_rollouts = lambda: order[::-1]  # type: ignore[method-assign]
    with pytest.raises(RolloutAheadError, match="step 2 asks for episodes from the start states .* after step 0 those"):
        trainer.train()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vllm_importance_sampling_correction": False}, "nothing would correct"),
        ({"use_vllm": True}, "set vllm_mode='server'"),
        ({"steps_per_generation": 2, "gradient_accumulation_steps": 4}, "an update takes 2 rollouts"),
        ({"env_workers": 0}, "set env_workers to 1 or more"),
        ({"ignore_data_skip": True}, "leave one of them off"),
        ({"config": AStarPOConfig}, "A\\*-PO has no importance ratio"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    config = options.pop("config", StarPOConfig)
    with pytest.raises(ValueError, match=f"one_step_off_policy is True.*{message}"):
        config(str(tmp_path), **{**SMALL, **RUN, "num_generations": 4, **options})


def test_weights_that_a_launch_splits_are_not_copied(tmp_path: Path) -> None:
    trainer = watched(tmp_path)
    trainer.is_deepspeed_enabled = True
    with pytest.raises(LaunchError, match="one_step_off_policy copies the policy's weights .*vllm_mode='server'"):
        trainer._check_launch()

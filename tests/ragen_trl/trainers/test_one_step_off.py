"""One step off: the next rollout is played with the weights before the present one's updates, which is corrected."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import TrainerCallback

from ragen_trl import StarPOTrainer
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.trainers.observers import RolloutEvent
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.fake_vllm import LORA, fake_of
from tests.support.ragen_trl.trainers import (
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


def test_every_rollout_but_the_first_is_one_update_old_and_no_seed_changes(tmp_path: Path) -> None:
    more = {"peft_config": LoraConfig(**LORA, init_lora_weights=False)}
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


# Killed and resumed


OTHERS = {"filter_ratio": 0.5, "num_generations": 2, "max_refills": 2, "steps_per_generation": 2}


@pytest.mark.parametrize("options", [{}, {"advantage": "gae", "per_device_train_batch_size": 4, **OTHERS}], ids=str)
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


def test_an_error_of_the_thread_ends_the_run(tmp_path: Path) -> None:
    failing = watched(tmp_path)

    def fail() -> None:
        if len(failing.weights) == 3:
            raise ConnectionError("the store does not answer")

    failing.before_play = fail  # type: ignore[method-assign]
    with pytest.raises(ConnectionError, match="the store does not answer") as caught:
        failing.train()
    assert "fail" in [entry.name for entry in caught.traceback]
    assert failing.state.global_step == 2

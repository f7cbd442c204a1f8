"""Training with vLLM: whose weights it samples from, and what its log-probabilities do in the update."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from ragen_trl import StarPOConfig, StarPOSConfig, StarPOTrainer, evaluate
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm.weights import unchanged_base
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.equivalence import Alone, assert_same_step, step
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.fake_vllm import (
    LORA,
    FakeModel,
    fake_of,
    starts,
    vllm_trainer,
)
from tests.support.ragen_trl.trainers import TOKENIZER, lottery, parameters, small_model


def test_training_samples_from_the_weights_of_every_step_and_sends_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, max_steps=3, learning_rate=1e-2)
    before = parameters(trainer)
    trainer.train()
    assert max(float((value - before[name]).abs().max()) for name, value in parameters(trainer).items()) > 1e-2
    assert [row["sampling/ratio_deviation_max"] < 1e-4 for row in trainer.state.log_history[:3]] == [True] * 3
    assert [row["sampling/importance_sampling_ratio/mean"] for row in trainer.state.log_history[:3]] == pytest.approx(
        [1.0] * 3, abs=1e-4
    )
    assert fake_of(trainer).loads == 3


def test_a_second_training_begins_with_the_weights_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: both began at step 0, of which vLLM had weights already."""
    trainer = vllm_trainer(tmp_path, monkeypatch, max_steps=1, learning_rate=1e-2)
    trainer.train()
    trainer.train()
    assert trainer.state.log_history[0]["sampling/ratio_deviation_max"] < 1e-4
    assert fake_of(trainer).loads == 2


def test_an_evaluation_compares_rebuilt_contexts_with_the_sampler_as_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: they were scored as one long row. Weights are sharp, so that it matters what was read."""
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=4), window_turns=1, num_eval_seeds=8)
    with torch.no_grad():
        for value in trainer.model.parameters():
            value *= 4
    trainer.evaluate()
    row = trainer.state.log_history[-1]
    assert row["eval_sampling/sampling_logp_difference/max"] < 1e-3
    assert row["eval_sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-4)


def test_the_deviation_of_stale_weights_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail: with the weights of the first step the ratios are off."""
    trainer = vllm_trainer(tmp_path, monkeypatch, max_steps=2, learning_rate=1e-2)
    monkeypatch.setattr(FakeModel, "load", lambda *_: None)
    trainer.train()
    assert trainer.state.log_history[1]["sampling/ratio_deviation_max"] > 1e-2


def test_refills_and_evaluation_during_training_play_on_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vllm_trainer(
        tmp_path,
        monkeypatch,
        lottery(),
        config=StarPOSConfig,
        filter_ratio=1.0,
        num_generations=2,
        max_refills=4,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        num_eval_seeds=8,
    )
    trainer.train()
    assert max(row.get("filter/trajectories_sampled", 0) for row in trainer.state.log_history) > 8
    assert fake_of(trainer).loads == 3  # two updates, and the evaluation after the second
    assert any("eval_success" in row for row in trainer.state.log_history)


def test_a_policy_that_is_asked_for_has_the_weights_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), max_steps=1, learning_rate=1e-2)
    greedy = trainer.policy(temperature=0.0)
    first = evaluate(greedy, lottery(draws=3), trainer.args, episodes=6)
    assert (first.n, first.reply_tokens > 0) == (6, True)
    trainer.train()
    for loaded in (trainer.model, small_model(1)):  # after training; after weights were loaded without a step
        trainer.model.load_state_dict(loaded.state_dict())
        ours = play(quizzes([2, 1]), trainer.policy(temperature=0.0), starts(2))
        reference = TransformersPolicy(trainer.model, trainer.chat, Sampling(6, 0.0))
        expected = play(quizzes([2, 1]), reference, starts(2))
        assert [one.token_ids for one in ours] == [one.token_ids for one in expected]
    assert fake_of(trainer).requests[-1].temperature == 0.0


@pytest.mark.parametrize(("advantage", "lora"), [("gae", True), ("gigpo", False)])
def test_every_form_trains_with_and_without_lora(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advantage: str, lora: bool
) -> None:
    more = {"peft_config": LoraConfig(**LORA)} if lora else {}
    trainer = vllm_trainer(tmp_path, monkeypatch, advantage=advantage, learning_rate=1e-2, **more)
    trainer.train()
    assert [row["sampling/ratio_deviation_max"] < 1e-4 for row in trainer.state.log_history[:2]] == [True] * 2
    assert fake_of(trainer).loads == 2


def test_sending_an_adapter_leaves_the_base_as_it_was_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding and subtracting rounds; A*-PO's reference, TRL's KL term and their fingerprint are that base."""
    peft = LoraConfig(**LORA, init_lora_weights=False)
    trainer = vllm_trainer(tmp_path, monkeypatch, peft_config=peft)
    before = parameters(trainer)
    trainer.vllm_generation.sync_weights()
    rounded = parameters(trainer)
    assert any(not torch.equal(value, before[name]) for name, value in rounded.items())
    for name, value in trainer.model.named_parameters():
        value.data.copy_(before[name])
    play(quizzes([1]), trainer.policy(), starts(1))
    assert all(torch.equal(value, before[name]) for name, value in parameters(trainer).items())
    merged = trainer.model.merge_and_unload().state_dict()
    for name, value in fake_of(trainer).model.state_dict().items():
        torch.testing.assert_close(value, merged[name])


def test_the_base_comes_back_even_when_sending_fails() -> None:
    model = get_peft_model(small_model(), LoraConfig(**LORA, init_lora_weights=False))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="server"), unchanged_base(model):
        model.merge_adapter()
        model.unmerge_adapter()
        raise RuntimeError("server")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# Importance ratios


# Plain SGD: a step is the gradient. Filtered to half of the groups, in micro-batches, so that there is filler.
PLAIN: dict[str, Any] = {
    "optim": "sgd",
    "learning_rate": 1.0,
    "max_grad_norm": 0.0,
    "max_steps": 1,
    "entropy_coef": 0.0,
    "per_device_train_batch_size": 3,
    "gradient_accumulation_steps": 8,
    "filter_ratio": 0.4,
    "max_reply_length": 3,
}


# An engine that is as far off as here would stop the run.
OFF: dict[str, Any] = {**PLAIN, "sampler_check": "warn"}


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_a_ratio_weighs_every_token_and_none_of_what_the_loss_is_divided_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str
) -> None:
    """An engine that calls all tokens half as likely as they are: ratio 2, twice the step; beyond 3 it is cut off."""
    steps = {}
    for offset in (0.0, math.log(0.5), math.log(0.1)):
        trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), loss_type=loss_type, **OFF)
        fake_of(trainer).offset = offset
        steps[offset] = step(trainer)
        sampled, trained = (trainer.state.log_history[0][f"filter/trajectories_{kind}"] for kind in ("sampled", "used"))
        assert trained < sampled
    exact, doubled, capped = steps.values()
    assert max(float(value.abs().max()) for value in exact.values()) > 1e-3
    for name, value in exact.items():
        torch.testing.assert_close(doubled[name], 2 * value, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(capped[name], 3 * value, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("mode", "beyond"), [("token_mask", 0), ("sequence_truncate", 3), ("sequence_mask", 0)])
def test_the_other_modes_weigh_tokens_or_whole_replies_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, beyond: int
) -> None:
    """Episodes of one turn and 2 tokens: a sequence's ratio is the square of a token's; bounded at 3."""
    steps, shares = [], []
    tokens = 2 if "sequence" in mode else 1
    for ratio in (1.0, 2.0, 10.0):
        options = {**OFF, "filter_ratio": 1.0, "max_reply_length": 2, "seed": 1, "vllm_importance_sampling_mode": mode}
        trainer = vllm_trainer(tmp_path, monkeypatch, lottery(), **options)
        fake_of(trainer).offset = -math.log(ratio) / tokens
        steps.append(step(trainer))
        row = trainer.state.log_history[0]
        assert (row["turns"], row["reply_tokens"]) == (1, 2)
        shares.append(row["sampling/ratio_cut_share"])
    assert shares == [0.0, 0.0, 1.0]
    assert max(float(value.abs().max()) for value in steps[0].values()) > 1e-3
    for name, value in steps[0].items():
        torch.testing.assert_close(steps[1][name], 2 * value, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(steps[2][name], beyond * value, rtol=1e-3, atol=1e-6)


def test_no_trajectory_is_dropped_for_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own default drops whole trajectories; a small difference in each of many tokens is enough."""
    fields = StarPOConfig(output_dir=str(tmp_path), use_cpu=True)
    assert fields.vllm_importance_sampling_mode == "token_truncate"
    trainer = vllm_trainer(tmp_path, monkeypatch, **{**OFF, "filter_ratio": 1.0})
    fake_of(trainer).offset = -0.3  # over 4 tokens more than TRL's bound of 3
    trainer.train()
    row = trainer.state.log_history[0]
    assert row["sampling/importance_sampling_ratio/min"] == pytest.approx(math.exp(0.3), abs=1e-3)


MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


@pytest.mark.parametrize("mode", MODES)
def test_ratios_and_their_metrics_are_trls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """TRL's own of the same trajectories, which it computes outside training, with some of them out of bounds."""
    trls: list[dict[str, Any]] = []

    class Both(StarPOTrainer):
        def score_trajectories(self, rows: Any, played: Any) -> Any:
            self.model.eval()
            trls.append(super().score_trajectories(rows, played)[0])
            self.model.train()
            return super().score_trajectories(rows, played)

        def _learn_from(self, rollout: Any, kept: Any) -> Any:
            trls.append(super()._learn_from(rollout, kept))
            return trls[-1]

    bounds = {"vllm_importance_sampling_clip_min": 0.9, "vllm_importance_sampling_clip_max": 1.1}
    options = {"vllm_importance_sampling_mode": mode, "max_steps": 1, "max_reply_length": 3, **bounds}
    options["sampler_check"] = "warn"  # an engine that is so far off would stop the run
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), trainer=Both, **options)
    fake_of(trainer).offset = -0.2 if "token" in mode else -0.03
    trainer.train()
    theirs, ours = trls
    mask = (theirs["completion_mask"] * theirs["tool_mask"]).bool()
    ratios = [batch["importance_sampling_ratio"] for batch in (theirs, ours)]
    assert ratios[0].shape == ratios[1].shape == (mask.shape if "token" in mode else (len(mask), 1))
    torch.testing.assert_close(ratios[1], ratios[0])
    assert ("token" in mode) == (len(ratios[0][mask if "token" in mode else slice(None)].unique()) == 1)
    evaluated = {name: values[0] for name, values in trainer._metrics["eval"].items() if name.startswith("sampling/")}
    logged = {name: value for name, value in trainer.state.log_history[0].items() if name in evaluated}
    assert len(logged) == 5 and logged == pytest.approx(evaluated, rel=1e-4)


@pytest.mark.parametrize(
    ("loss_type", "mode"),
    [("grpo", "token_mask"), ("grpo", "sequence_truncate"), ("dapo", "token_truncate"), ("dapo", "sequence_mask")],
)
def test_the_ratio_of_a_trajectory_is_that_of_all_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss_type: str, mode: str
) -> None:
    """An engine that is off, and every turn in a row of its own: the step of whole trajectories.

    Rows of "grpo" are weighed by us, those of "dapo" by TRL; the ratios are made before either.
    """
    bounds = {"vllm_importance_sampling_clip_min": 0.9, "vllm_importance_sampling_clip_max": 1.1}
    options = {**OFF, "vllm_importance_sampling_mode": mode, "loss_type": loss_type, **bounds}
    steps = []
    for trainer in (StarPOTrainer, Alone):
        made = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), trainer=trainer, **options)
        fake_of(made).offset = -0.03
        steps.append(step(made))
    assert_same_step(*steps)


def test_the_engine_reads_the_window_and_its_rows_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"window_turns": 1, "advantage": "gae", "max_steps": 2, "learning_rate": 1e-2}
    trainer = vllm_trainer(tmp_path, monkeypatch, lottery(draws=3), **options)
    trainer.train()
    prompts = [TOKENIZER.decode(request.ids) for request in fake_of(trainer).requests]
    assert any("Turn 3 of" in text for text in prompts)
    assert all(text.count("Turn ") == 1 and "Say something." in text for text in prompts)
    assert [row["sampling/ratio_deviation_max"] < 1e-4 for row in trainer.state.log_history[:2]] == [True] * 2

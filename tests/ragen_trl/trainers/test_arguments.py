"""A trainer's arguments as users of TRL's GRPOTrainer give them: what works as there, and what is refused by name."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForSequenceClassification
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import grpo_trainer

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.config.trl_options import REFUSED_ARGUMENTS
from ragen_trl.policies.model_support import UnsupportedModelError
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.env_specs import EnvSpecError
from ragen_trl.rollout.seeds import StartStateError
from ragen_trl.trainers.arguments import ArgumentError, check_arguments, unique_reward_names
from ragen_trl.trainers.checks import HookError, checked_rewards
from ragen_trl.trainers.rollout import RolloutTrainer
from tests.support.ragen_trl.trainers import LAKE, SMALL, TOKENIZER, lottery, small_model, small_trainer


def constant(completions: Any, value: float = 0.0, **_: Any) -> list[float]:
    return [value] * len(completions)


def per_level(completions: Any, level: list[int]) -> list[float]:
    return [0.0] * len(completions)


async def later(completions: Any, **_: Any) -> list[float]:
    return [2.0] * len(completions)


class Judge:
    """An object that TRL awaits."""

    async def __call__(self, completions: Any, **_: Any) -> list[float]:
        return [3.0] * len(completions)


class Hasty:
    async def __call__(self, completions: Any, **_: Any) -> list[float]:
        return [float("nan")] * len(completions)


class Maker:
    def __call__(self) -> Any:
        return lottery()()


def reward_model(folder: Path, seed: int) -> str:
    """A folder with a reward model that shares the policy's tokenizer."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(TOKENIZER), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_labels=1, pad_token_id=TOKENIZER.pad_token_id,
    )  # fmt: skip
    Qwen2ForSequenceClassification(config).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("env", [constant, [LAKE, constant], partial(constant, value=1.0), later, per_level])
def test_a_reward_function_in_the_place_of_the_environment(tmp_path: Path, env: Any) -> None:
    """GRPOTrainer's order; it used to be called as one: "missing 1 required positional argument"."""
    with pytest.raises(EnvSpecError, match="env is .*GRPOTrainer's order .*name them, reward_funcs=…, train_dataset=…"):
        StarPOTrainer(small_model(), env, StarPOConfig(output_dir=str(tmp_path), **SMALL), processing_class=TOKENIZER)


def test_a_reward_model_or_a_data_set_in_anothers_place(tmp_path: Path) -> None:
    args = StarPOConfig(output_dir=str(tmp_path), **SMALL)
    with pytest.raises(EnvSpecError, match="env is a Qwen2ForCausalLM, a model. GRPOTrainer's order"):
        StarPOTrainer(small_model(), small_model(), args, processing_class=TOKENIZER)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="processing_class is a Dataset. GRPOTrainer's order"):
        StarPOTrainer(small_model(), LAKE, args, Dataset.from_dict({"prompt": ["a"]}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="args is a GRPOConfig; pass a StarPOConfig"):
        StarPOTrainer(small_model(), LAKE, GRPOConfig(str(tmp_path), bf16=False, use_cpu=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("env", [lottery(), [lottery(), LAKE], partial(lottery(), *()), Maker(), None, Maker])
def test_makers_of_environments_are_none(env: Any) -> None:
    check_arguments(env, TOKENIZER, {})


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
def test_arguments_that_do_not_exist_here_have_a_remedy(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{name} is given; ") as raised:
        small_trainer(tmp_path, **{name: [constant]})
    assert REFUSED_ARGUMENTS[name] in str(raised.value)


def test_the_remedies_lead_somewhere(root: Path) -> None:
    text = (root / "docs" / "your_own_trainer.md").read_text(encoding="utf-8")
    assert "`rollout(starts, envs, policy)`" in text


def test_a_data_set_beside_an_environment_has_a_column_for_it(tmp_path: Path) -> None:
    """With TRL's prompts the first error said to leave one of them out, and the next to have both."""
    prompts = Dataset.from_dict({"prompt": ["Play."]})
    with pytest.raises(EnvSpecError, match="leave env out, and write its id into a column 'env', beside 'seed'"):
        small_trainer(tmp_path, train_dataset=prompts)
    with pytest.raises(StartStateError, match="need env .* and seed, and no prompts, which the environment writes"):
        small_trainer(tmp_path, None, train_dataset=prompts)


def test_arguments_that_do_not_fit_name_the_trainer_that_was_called(tmp_path: Path) -> None:
    """It was "RolloutTrainer.__init__() got multiple values for argument 'processing_class'"."""
    args = StarPOConfig(output_dir=str(tmp_path), **SMALL)
    rows = Dataset.from_dict({"prompt": ["a"]})
    message = "^StarPOTrainer: multiple values for argument 'processing_class'. GRPOTrainer's order"
    with pytest.raises(ArgumentError, match=message):
        StarPOTrainer(small_model(), constant, args, rows, processing_class=TOKENIZER)  # type: ignore[misc]
    with pytest.raises(ArgumentError, match="^StarPOTrainer: got an unexpected keyword argument 'reward_function'$"):
        StarPOTrainer(model=small_model(), env=LAKE, args=args, reward_function=constant)


def test_what_a_model_in_memory_lacks_is_asked_last(tmp_path: Path) -> None:
    """StarPOConfig's own beta hid every other mistake; without a tokenizer the hub was asked for ''."""
    args = StarPOConfig(output_dir=str(tmp_path), **{**SMALL, "beta": 0.001})
    with pytest.raises(EnvSpecError, match="neither of env and train_dataset given"):
        StarPOTrainer(small_model(), args=args)
    with pytest.raises(StartStateError, match="a column 'seed'"):
        StarPOTrainer(small_model(), LAKE, args, eval_dataset=Dataset.from_dict({"prompt": ["a"]}))
    with pytest.raises(ArgumentError, match="no path to load a tokenizer from; pass processing_class=tokenizer"):
        StarPOTrainer(small_model(), LAKE, args)
    with pytest.raises(UnsupportedModelError, match="beta is 0.001, the default of StarPOConfig, .*set beta=0"):
        StarPOTrainer(small_model(), LAKE, args, TOKENIZER)


def test_asynchronous_functions_and_objects_are_awaited_and_checked(tmp_path: Path) -> None:
    """An object with an async ``__call__`` was not awaited."""
    trainer = small_trainer(tmp_path, lottery(), reward_funcs=[later, Judge(), partial(later)], max_steps=1)
    trainer.train()
    row = trainer.state.log_history[0]
    assert [row[f"rewards/{name}/mean"] for name in ("later_1", "Judge", "later_2")] == [2.0, 3.0, 2.0]
    with pytest.raises(HookError, match="reward function Hasty returned nan for trajectory 0"):
        small_trainer(tmp_path, lottery(), reward_funcs=Hasty(), max_steps=1).train()


def test_functions_of_one_name_keep_their_own_metrics(tmp_path: Path) -> None:
    """Two ``functools.partial`` were both called "partial", and their means were averaged."""
    two = [partial(constant, value=1.0), partial(constant, value=5.0)]
    trainer = small_trainer(tmp_path, lottery(), reward_funcs=two, max_steps=1)
    assert trainer.reward_func_names == ["environment_return", "constant_1", "constant_2"]
    trainer.train()
    row = trainer.state.log_history[0]
    assert (row["rewards/constant_1/mean"], row["rewards/constant_2/mean"]) == (1.0, 5.0)
    assert checked_rewards(two[0]).__name__ == "constant"
    assert unique_reward_names(["a", "a", "a_1"]) == ["a_0", "a_1", "a_1_2"]


def test_a_reward_model_by_its_path_and_one_of_each_kind(tmp_path: Path) -> None:
    """A single path was taken for a list of letters."""
    path = reward_model(tmp_path / "judge", 0)
    single = small_trainer(tmp_path / "a", lottery(), reward_funcs=path, max_steps=1)
    single.train()
    assert single.reward_func_names == ["environment_return", "judge"]
    assert abs(single.state.log_history[0]["rewards/judge/mean"]) > 1e-6
    loaded = Qwen2ForSequenceClassification.from_pretrained(path)
    mixed = small_trainer(
        tmp_path / "b", lottery(), reward_funcs=[loaded, constant, Path(path)], max_steps=1,
        reward_processing_classes=[TOKENIZER, None, None], reward_weights=[1.0, 2.0, 0.0, 0.5],
    )  # fmt: skip
    mixed.train()
    row = mixed.state.log_history[0]
    assert mixed.reward_func_names == ["environment_return", "judge_1", "constant", "judge_2"]
    judged = row["rewards/judge_1/mean"]
    assert judged == row["rewards/judge_2/mean"] == single.state.log_history[0]["rewards/judge/mean"]
    assert row["reward"] == pytest.approx(row["return"] + 2.5 * judged)


def test_tokenizers_of_reward_models_are_counted_without_the_environment(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="there are 2 reward_processing_classes for 1 reward_funcs"):
        small_trainer(tmp_path, reward_funcs=[constant], reward_processing_classes=[TOKENIZER, TOKENIZER])
    trainer = small_trainer(tmp_path, reward_funcs=[constant], reward_processing_classes=TOKENIZER)
    assert trainer.reward_processing_classes == [None, TOKENIZER]


def test_what_is_no_reward_function_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="reward_funcs has 1.0; give functions, reward models, or the path"):
        small_trainer(tmp_path, reward_funcs=[1.0])
    with pytest.raises(ValueError, match=r"reward_weights is \[1.0\]; give one each to environment_return, constant"):
        small_trainer(tmp_path, reward_funcs=[partial(constant)], reward_weights=[1.0])


def test_a_quantization_config_reaches_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library for quantised weights is installed here, so what TRL loads the model with is looked at."""
    small_model().save_pretrained(tmp_path / "model")
    seen: list[Any] = []

    def create(path: str, **options: Any) -> Any:
        seen.append(options["quantization_config"])
        return small_model()

    monkeypatch.setattr(grpo_trainer, "create_model_from_path", create)
    small_trainer(tmp_path, lottery(), model=str(tmp_path / "model"), quantization_config="four bits")
    assert seen == ["four bits"]


def test_epochs_are_passes_over_the_start_states(tmp_path: Path) -> None:
    """They were ignored: 200 updates. Two groups a rollout, so that 6 rows make three updates an epoch."""
    rows = Dataset.from_list([{"env": LAKE, "seed": 20_000 + place} for place in range(6)])
    changes: dict[str, Any] = {"max_steps": None, "num_train_epochs": 2, "save_strategy": "epoch"}
    trainer = small_trainer(tmp_path, None, train_dataset=rows, **changes)
    trainer.train()
    assert (trainer.state.global_step, trainer.state.epoch) == (6, 2.0)
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-6"}
    of_seeds = small_trainer(tmp_path, lottery(), num_train_seeds=4, **{**changes, "save_strategy": "no"})
    of_seeds.train()
    assert of_seeds.state.global_step == 4
    message = "max_steps is -1 and num_train_epochs is 2.0, but an epoch needs start states: set num_train_seeds"
    with pytest.raises(StartStateError, match=message):
        small_trainer(tmp_path, lottery(), **{**changes, "num_train_epochs": 2.0})


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, 200),
        ({"max_steps": 5}, 5),
        ({"max_steps": 5, "num_train_epochs": 2}, 5),
        ({"num_train_epochs": 2}, -1),
        ({"steps_per_generation": 4}, 800),
        ({"num_iterations": 4}, 800),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, 100),
        ({"gradient_accumulation_steps": None, "advantage": "gae"}, 800),
        ({"gradient_accumulation_steps": 8, "steps_per_generation": 32, "advantage": "gae", "num_iterations": 2}, 1600),
    ],
)
def test_the_length_of_a_run(tmp_path: Path, given: dict[str, Any], steps: int) -> None:
    """As in TRL, ``max_steps`` wins where both are given; without either a run has 200 rollouts."""
    config = {**SMALL, "max_steps": None}
    assert StarPOConfig(output_dir=str(tmp_path), **{**config, **given}).max_steps == steps


def test_an_update_that_mixes_parts_of_rollouts_is_refused(tmp_path: Path) -> None:
    """Three passes over rollouts of one micro-batch, two micro-batches an update: every second one had two rollouts."""
    with pytest.raises(ValueError, match=r"num_iterations 3\) and gradient_accumulation_steps 2: one must divide"):
        StarPOConfig(
            output_dir=str(tmp_path),
            **{**SMALL, "gradient_accumulation_steps": 2, "steps_per_generation": 1, "num_iterations": 3},
        )


def test_an_update_that_mixes_parts_of_passes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"steps_per_generation 3 \(· num_iterations 2\).*one must divide"):
        StarPOConfig(
            output_dir=str(tmp_path),
            **{**SMALL, "gradient_accumulation_steps": 2, "steps_per_generation": 3, "num_iterations": 2},
        )


def test_an_epoch_that_ends_within_an_update_is_refused(tmp_path: Path) -> None:
    """Transformers made a smaller update of what was left, which was weighted as a whole one."""
    of_two = {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "max_steps": None, "num_train_epochs": 2}
    message = r"an epoch has 3 rollouts and an update takes 2, .* a multiple of 4 start states"
    with pytest.raises(ValueError, match=message):
        small_trainer(tmp_path, lottery(), num_train_seeds=6, **of_two).train()
    whole = small_trainer(tmp_path, lottery(), num_train_seeds=8, **of_two)
    whole.train()
    assert whole.state.global_step == 4


def test_a_reward_models_name_in_the_place_of_the_environment(tmp_path: Path) -> None:
    with pytest.raises(gymnasium.error.NamespaceNotFound) as raised:
        small_trainer(tmp_path, "OpenAssistant/reward", max_steps=1)
    first, second = raised.value.__notes__
    assert first.endswith("is an environment of yours, import its module first, or write module:OpenAssistant/reward")
    assert second.startswith("If 'OpenAssistant/reward' is a reward model: ")


def test_a_trajectory_that_may_outgrow_the_model_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was accepted without a word, and episodes ended at the end of the context."""
    known = small_model().config.max_position_embeddings
    small_trainer(tmp_path, max_completion_length=known)
    assert "context" not in caplog.text
    small_trainer(tmp_path, max_completion_length=known + 1)
    assert f"max_completion_length is {known + 1:,}, but the model's context ends at {known:,} tokens" in caplog.text


def test_a_completion_of_trl_is_no_trajectory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A script of TRL's trained with 32 tokens for all turns: every episode ended in its first reply."""
    small_trainer(tmp_path, max_completion_length=32, max_reply_length=32)
    small_trainer(tmp_path, max_completion_length=32, max_reply_length=40, max_turns=1)  # one reply, TRL's completion
    small_trainer(tmp_path, max_completion_length=None, max_reply_length=40)
    assert "one reply" not in caplog.text
    small_trainer(tmp_path, max_completion_length=32, max_reply_length=40)
    words = "max_completion_length is 32, the tokens of a whole trajectory of up to 2 turns"
    assert words in caplog.text and "those of one reply, is 40: the first reply may end an episode" in caplog.text


def test_a_compiled_model_trains_as_another(tmp_path: Path) -> None:
    """It was refused for positions that it has. The backend is the one that compiles nothing, as that takes minutes."""
    trained = []
    for name, options in (("plain", {}), ("compiled", {"torch_compile": True, "torch_compile_backend": "eager"})):
        model = build_tiny_model(TOKENIZER, hidden_size=16, num_layers=1)
        trainer = small_trainer(tmp_path / name, lottery(), model=model, max_steps=1, learning_rate=1e-3, **options)
        trainer.train()
        assert trainer.state.log_history[0]["sampling/ratio_deviation_max"] < 1e-4
        trained.append([value.detach().clone() for value in trainer.model.parameters()])
    assert type(trainer.model_wrapped).__name__ == "OptimizedModule"
    for one, other in zip(*trained, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_trls_trainer_takes_no_argument_that_is_unknown_here() -> None:
    """A new one of TRL's needs a decision."""
    theirs = set(GRPOTrainer.__init__.__code__.co_varnames[1 : GRPOTrainer.__init__.__code__.co_argcount])
    code = RolloutTrainer.__init__.__code__
    assert theirs - set(code.co_varnames[1 : code.co_argcount]) == set()

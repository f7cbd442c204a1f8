"""What TRL's own tests of ``GRPOTrainer`` ask, asked of `StarPOTrainer`: the same options, arguments and functions.

Left out is what does not exist here: pictures, tools, TRL's environments, continuous batching, Liger's loss, prompts
instead of start states. What TRL tests of losses, arguments, data sets of evaluations and vLLM is in
``test_loss_terms.py``, ``test_arguments.py``, ``test_trl_evaluation.py`` and ``test_vllm_training.py``.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM, TrainerState

from ragen_trl import StarPOTrainer
from tests.support.ragen_trl.trainers import TOKENIZER, logged, lottery, small_model, small_trainer
from tests.support.ragen_trl.trl_runs import RUNS

LORA: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}


def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that is not the same for all."""
    return [float(len(ids) % 3) for ids in completion_ids]


def run(folder: Path, env: Any = None, **options: Any) -> StarPOTrainer:
    """Train two updates that move the weights."""
    given = {"max_steps": 2, "learning_rate": 1e-2, "logging_steps": 1, "reward_funcs": [length], **options}
    trainer = small_trainer(folder, lottery(draws=3) if env is None else env, **given)
    trainer.train()
    return trainer


def moved(trainer: StarPOTrainer, before: dict[str, torch.Tensor]) -> list[str]:
    """The parameters that training changed."""
    now = dict(trainer.model.named_parameters())
    return [name for name, value in before.items() if not torch.equal(value, now[name])]


@pytest.mark.filterwarnings("ignore::ragen_trl.config.validation.OffPolicySamplingWarning")
@pytest.mark.parametrize("name", RUNS)
def test_trains_with_options_of_trl(tmp_path: Path, name: str) -> None:
    """test_train_*: each ends with a finite loss and other weights than before."""
    options = dict(RUNS[name])
    model: Any = small_model()
    if name == "reference":
        model.save_pretrained(tmp_path / "model")
        model = str(tmp_path / "model")
    elif name == "precision":  # the head of a model that shares it with the embedding cannot be cast
        config = Qwen2Config(**{**model.config.to_dict(), "tie_word_embeddings": False})
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    before = {key: value.detach().clone() for key, value in small_model().named_parameters()}
    trainer = run(tmp_path, model=model, **options)
    assert torch.isfinite(torch.tensor(trainer.state.log_history[-1]["train_loss"]))
    assert len(moved(trainer, before)) == len(before) if name != "precision" else True
    for key, value in options.items():
        shown = getattr(trainer.args, key)
        assert shown == value or key in ("report_to", "logging_strategy", "model_init_kwargs"), key
    CHECKS.get(name, lambda trainer, folder: None)(trainer, tmp_path)


def check_rollouts(trainer: StarPOTrainer, folder: Path) -> None:
    assert (trainer.state.global_step, trainer.args.groups_per_generation) == (4, 8)
    assert len(list((folder / "completions").glob("*.parquet"))) == 4


def check_evaluation(trainer: StarPOTrainer, folder: Path) -> None:
    """test_train_with_eval, …_with_num_generations_eval, …_eval_on_start."""
    assert [row["step"] for row in trainer.state.log_history if "eval_success" in row] == [0, 1, 2]
    assert len(list(folder.glob("checkpoint-*"))) <= 2 and trainer.state.best_metric is not None


def check_adaptive(trainer: StarPOTrainer, folder: Path) -> None:
    """The entropy of a tiny model, 6 nats, is below the target, so that the coefficient rises after each update."""
    assert logged(trainer, "entropy_coef")[-1] > 0.01 and "policy_loss" in trainer.state.log_history[0]


def check_reference(trainer: StarPOTrainer, folder: Path) -> None:
    """test_train_with_sync_ref_model: the reference has followed the policy."""
    start = dict(small_model().named_parameters())
    assert trainer.ref_model is not None
    assert any(not torch.equal(value, start[name]) for name, value in trainer.ref_model.named_parameters())


def check_precision(trainer: StarPOTrainer, folder: Path) -> None:
    """test_train_with_cast_lm_head_to_fp32."""
    assert trainer.model.lm_head.weight.dtype == torch.float32
    assert trainer.model.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16


CHECKS: dict[str, Any] = {
    "rollouts": check_rollouts,
    "evaluation": check_evaluation,
    "entropy": check_adaptive,
    "reference": check_reference,
    "precision": check_precision,
}


@pytest.mark.parametrize(("given", "scale"), [(False, "none"), (True, "group"), ("group", "group"), ("none", "none")])
def test_the_scale_is_known_by_each_of_its_names(tmp_path: Path, given: Any, scale: str) -> None:
    """test_train_scale_rewards; "batch" is among the runs, the others are trained with elsewhere."""
    assert small_trainer(tmp_path, lottery(), scale_rewards=given).scale_rewards == scale


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_the_reward_reflects_its_weights(tmp_path: Path, aggregation: str) -> None:
    """test_reward_metric_reflects_reward_weights."""
    one = lambda completions, **_: [1.0] * len(completions)  # noqa: E731
    options: dict[str, Any] = {"multi_objective_aggregation": aggregation, "reward_weights": [0.0, 0.7]}
    trainer = run(tmp_path, reward_funcs=[one], max_steps=1, **options)
    assert logged(trainer, "reward") == [pytest.approx(0.7)]


def test_rewards_of_none_do_not_count(tmp_path: Path) -> None:
    """test_train_multiple_reward_funcs_with_None_output."""
    none = lambda completions, **_: [None] * len(completions)  # noqa: E731
    some = lambda seed, **_: [1.0 if one % 2 else None for one in seed]  # noqa: E731
    trainer = run(tmp_path, reward_funcs=[length, none, some], max_steps=1)
    assert logged(trainer, "rewards/<lambda>_2/mean") == [1.0]
    assert logged(trainer, "rewards/<lambda>_1/mean") == [None]


def test_a_function_reads_columns_state_and_logs(tmp_path: Path) -> None:
    """test_train_reward_func_additional_column, …_accessing_trainer_state, …_with_log_extra, …_with_log_metric."""
    rows = [{"env": "ragen/Bandit-v0", "seed": 20_000 + place, "worth": place / 4} for place in range(4)]
    states: list[Any] = []

    def worth(worth: list[float], trainer_state: Any, log_extra: Any, log_metric: Any, **_: Any) -> list[float]:
        states.append(trainer_state)
        log_extra("worth", [str(one) for one in worth])
        log_metric("mean_worth", sum(worth) / len(worth))
        return worth

    trainer = small_trainer(
        tmp_path, None, train_dataset=Dataset.from_list(rows), reward_funcs=worth, max_steps=1, log_completions=True
    )
    trainer.train()
    row = trainer.state.log_history[0]
    assert row["mean_worth"] == row["rewards/worth/mean"] == 0.125
    assert isinstance(states[0], TrainerState)
    (table,) = (tmp_path / "completions").glob("*.parquet")
    assert set(Dataset.from_parquet(str(table), cache_dir=str(tmp_path / "cache"))["worth"]) == {"0.0", "0.25"}


def test_groups_may_be_larger_than_a_pass(tmp_path: Path) -> None:
    """test_train_num_generations_larger_than_batch_size."""
    options: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "num_generations": 6}
    assert run(tmp_path, max_steps=1, **options).args.groups_per_generation == 1


def test_rows_come_in_groups_and_stay_for_all_updates_on_them(tmp_path: Path) -> None:
    """test_prepare_input_called_with_correct_data."""
    seen: list[list[int]] = []

    class Spy(StarPOTrainer):
        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            seen.append([row["seed"] for row in inputs])
            return super().training_step(model, inputs, num_items_in_batch)

    options: dict[str, Any] = {"per_device_train_batch_size": 6, "steps_per_generation": 2, "num_iterations": 2}
    options |= {"shuffle_dataset": False}
    small_trainer(tmp_path, lottery(), trainer=Spy, max_steps=8, **options).train()
    first, second = ([seed for seed in range(begin, begin + 3) for _ in range(4)] for begin in (10_000, 10_003))
    assert [sorted(seeds) for seeds in seen] == [first] * 4 + [second] * 4


@pytest.mark.parametrize("kind", ["config", "config and checkpointing", "model", "model and reference"])
def test_trains_adapters_alone(tmp_path: Path, kind: str) -> None:
    """test_train_peft_config, …_peft_model, …_peft_with_gradient_checkpointing."""
    lora = LoraConfig(**LORA)
    options: dict[str, Any] = {"gradient_checkpointing": "checkpointing" in kind, "beta": 0.1 * ("reference" in kind)}
    options |= {"model": get_peft_model(small_model(), lora)} if "model" in kind else {"peft_config": lora}
    base = dict(small_model().named_parameters())
    trainer = run(tmp_path, **options)
    assert isinstance(trainer.model, PeftModel)
    for name, value in trainer.model.named_parameters():
        if "lora_" not in name:
            key = name.removeprefix("base_model.model.").replace(".base_layer", "")
            assert torch.equal(value, base[key]), name
    assert logged(trainer, "grad_norm")[0] > 0


def test_a_head_with_an_adapter_is_refused(tmp_path: Path) -> None:
    """test_liger_kernel_with_peft_lm_head_raises, of TRL's own head."""
    with pytest.raises(ValueError, match="lm_head"):
        adapter = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], ensure_weight_tying=True)
        small_trainer(tmp_path, peft_config=adapter)


def test_the_bonus_of_entropy_has_a_gradient(tmp_path: Path) -> None:
    """test_entropy_bonus_flows_gradients: without any advantage, the bonus alone moves the weights."""
    before = {key: value.detach().clone() for key, value in small_model().named_parameters()}
    options: dict[str, Any] = {"env": lottery(win=0.0), "reward_funcs": None, "max_steps": 1, "optim": "sgd"}
    assert moved(run(tmp_path, **options, entropy_coef=0.0), before) == []
    assert len(moved(run(tmp_path, **options, entropy_coef=0.5), before)) == len(before)


def test_workers_bring_the_same_rows(tmp_path: Path) -> None:
    """test_train_multiple_dataloader_workers."""
    one, two = (run(tmp_path / str(n), max_steps=1, dataloader_num_workers=n) for n in (0, 2))
    assert logged(one, "reward") == logged(two, "reward")


def entropy_mask(rows: list[list[float]], used: list[list[int]], threshold: float) -> list[list[bool]]:
    """TRL's method, on a trainer that has only what it reads."""
    bare = StarPOTrainer.__new__(StarPOTrainer)
    bare.accelerator = Accelerator(cpu=True)
    found = bare.get_high_entropy_mask(torch.tensor(rows), torch.tensor(used), threshold)
    assert isinstance(found, torch.Tensor)
    return [list(map(bool, row)) for row in found.tolist()]


@pytest.mark.parametrize(
    ("used", "threshold", "expected"),
    [
        ([[1, 1, 1], [1, 1, 0]], 0.75, [[False, False, False], [True, True, False]]),
        ([[1, 1, 1], [1, 1, 0]], 0.0, [[True, True, True], [True, True, False]]),
        ([[1, 1, 1], [1, 1, 0]], 1.0, [[False, False, False], [False, True, False]]),
        ([[0, 0, 0], [0, 0, 0]], 0.5, [[False] * 3] * 2),
        ([[1, 0, 0], [0, 0, 1]], 0.5, [[False, False, False], [False, False, True]]),
    ],
)
def test_the_mask_of_high_entropies(used: list[list[int]], threshold: float, expected: list[list[bool]]) -> None:
    """TestGetHighEntropyMask."""
    assert entropy_mask([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], used, threshold) == expected


def test_the_mask_of_what_is_off_policy() -> None:
    """test_get_off_policy_mask and …_padding: only a negative advantage with a large gap, over used tokens, is cut."""
    gaps = torch.tensor([[3.0, 3.0, 0.0], [0.2, 0.2, 500.0], [3.0, 3.0, -500.0]])
    used = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    advantages = torch.tensor([[2.0], [-2.0], [-2.0]])
    kept = StarPOTrainer.get_off_policy_mask(advantages, -gaps, torch.zeros(3, 3), used, 1.0)
    assert kept.tolist() == [[1.0], [1.0], [0.0]]


def test_a_tokenizer_is_needed_for_a_model_in_memory(tmp_path: Path) -> None:
    """test_init_minimal needs the hub; the tokenizer of a folder is found."""
    small_model().save_pretrained(tmp_path / "model")
    TOKENIZER.save_pretrained(tmp_path / "model")
    trainer = small_trainer(tmp_path / "run", model=str(tmp_path / "model"))
    assert trainer.tokenizer.get_vocab() == TOKENIZER.get_vocab()

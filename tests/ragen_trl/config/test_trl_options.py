"""Every option of TRL's ``GRPOConfig`` works, is refused with what to do instead, or is said to have no effect."""

import warnings
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOConfig, GRPOTrainer

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.config.trl_options import NO_EFFECT, REFUSED, TRAINED, WITH_VLLM
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.trainers import SMALL
from tests.support.ragen_trl.trl_runs import CONSTRUCTED, ELSEWHERE, NOT_HERE, PASSED_ON, RUNS

# A value that each refused option is given.
ASKED: dict[str, Any] = {
    "min_p": 0.1, "repetition_penalty": 1.1, "generation_kwargs": {"num_beams": 2}, "cache_implementation": "static",
    "disable_dropout": False, "ds3_gather_for_generation": False,
    "pad_to_multiple_of": 8, "mask_truncated_completions": True,
    "max_tool_calling_iterations": 3, "use_transformers_continuous_batching": True,
    "transformers_continuous_batching_config": {"a": 1}, "use_transformers_paged": True,
    "vllm_structured_outputs_regex": "a+", "neftune_noise_alpha": 5.0,
    "remove_unused_columns": True, "auto_find_batch_size": True,
    "parallelism_config": "tp", "use_adaptive_entropy": True, "top_entropy_quantile": 0.2,
    "off_policy_mask_threshold": 0.5,
}  # fmt: skip
THEIRS = {one.name: one for one in fields(GRPOConfig)}


def default(kind: type, name: str) -> Any:
    (one,) = [one for one in fields(kind) if one.name == name]  # type: ignore[arg-type]
    return one.default if one.default_factory is MISSING else one.default_factory()


def test_every_option_of_trl_is_declared_once() -> None:
    """A new one of TRL's needs a decision."""
    declared = [*TRAINED, *WITH_VLLM, *PASSED_ON, *REFUSED, *NO_EFFECT]
    assert sorted(declared) == sorted(THEIRS)


def test_every_argument_of_trl_is_declared() -> None:
    code = GRPOTrainer.__init__.__code__
    theirs = code.co_varnames[1 : code.co_argcount]
    ours = StarPOTrainer.__init__.__code__
    assert set(theirs) <= set(ours.co_varnames[1 : ours.co_argcount])


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_value_and_what_to_do_instead(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"^{name} is .*, which rollouts do not honour; leave ") as raised:
        StarPOConfig(output_dir=str(tmp_path), **{**SMALL, name: ASKED[name]})
    assert repr(ASKED[name]) in str(raised.value)
    assert str(raised.value).endswith(f"leave {REFUSED[name].only!r}: {REFUSED[name].instead}")
    assert REFUSED[name].only == default(StarPOConfig, name)
    assert set(ASKED) == set(REFUSED)


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_what_is_passed_on_makes_a_configuration(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = StarPOConfig(output_dir=str(tmp_path), **{**SMALL, **CONSTRUCTED[name]})
    changed = ("accelerator_config", "debug", "hub_strategy")  # of which Transformers makes objects
    given = {key: value for key, value in CONSTRUCTED[name].items() if key not in changed}
    assert {key: getattr(args, key) for key in given} == given
    torch.use_deterministic_algorithms(False)


def test_the_values_of_these_tests_cover_what_is_declared() -> None:
    """Each option has a value, and one that is not the default."""
    trained = {name for run in RUNS.values() for name in run}
    assert (trained & set(THEIRS)) | set(ELSEWHERE) == set(TRAINED)
    constructed = {name for values in CONSTRUCTED.values() for name in values}
    assert {*PASSED_ON, *WITH_VLLM} - constructed == set(NOT_HERE)
    for values in (*RUNS.values(), *CONSTRUCTED.values()):
        usual = {name for name, value in values.items() if value == SMALL.get(name, default(StarPOConfig, name))}
        assert usual <= {"bf16", "dataloader_pin_memory"}, values


def test_options_without_effect_are_accepted(tmp_path: Path) -> None:
    values = {"log_multimodal": False, "label_smoothing_factor": 0.1, "label_names": ["a"], "data_seed": 3}
    values |= {"prediction_loss_only": True, "train_sampling_strategy": "group_by_length", "do_train": True}
    assert set(values) <= set(NO_EFFECT)
    args = StarPOConfig(output_dir=str(tmp_path), **{**SMALL, **values})
    assert {name: getattr(args, name) for name in values} == values

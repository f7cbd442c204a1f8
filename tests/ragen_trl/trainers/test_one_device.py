"""A process trains on one device, also on a machine with several GPUs, which is made up here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl.trainer.utils
from transformers import Qwen2ForCausalLM

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.model_support import UnsupportedModelError
from tests.support.ragen_trl.trainers import SMALL, TOKENIZER, lottery, small_model


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Where models are asked to be, on a machine that TRL takes for one with GPUs."""
    seen: list[Any] = []
    load = Qwen2ForCausalLM.from_pretrained.__func__

    def from_pretrained(kind: Any, *args: Any, device_map: Any = "unset", **options: Any) -> Any:
        seen.append(device_map)
        return load(kind, *args, **options)

    monkeypatch.setattr(Qwen2ForCausalLM, "from_pretrained", classmethod(from_pretrained))
    gpu = SimpleNamespace(device=torch.device("cuda"))
    monkeypatch.setattr(trl.trainer.utils, "PartialState", lambda: gpu)
    return seen


@pytest.fixture
def saved(tmp_path: Path) -> str:
    small_model().save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def of_several_gpus(folder: Path, **changes: Any) -> StarPOConfig:
    args = StarPOConfig(output_dir=str(folder / "run"), **{**SMALL, **changes})
    args._n_gpu = 2  # what a process that nobody launched finds there
    return args


def test_policy_and_reference_are_loaded_for_one_device(tmp_path: Path, saved: str, placed: list[Any]) -> None:
    """Regression: TRL's ``device_map="auto"`` spread them over all GPUs, which the KV cache cannot follow."""
    args = of_several_gpus(tmp_path, beta=0.1, max_steps=1)
    trainer = StarPOTrainer(saved, lottery(), args, processing_class=TOKENIZER)
    assert placed == [None, None]
    assert args.n_gpu == 1  # or TRL refuses: with two it would train in copies
    assert args.train_batch_size == args.per_device_train_batch_size
    trainer.train()


def test_a_user_who_passes_no_arguments_of_loading_is_not_told_that_they_are_ignored(
    tmp_path: Path, saved: str, placed: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TRL loads the reference of a policy in memory by the arguments that it says it ignores."""
    args = of_several_gpus(tmp_path, beta=0.1)
    devices = iter([torch.device("cuda")])  # what the adapter asks for; the rest of the run is on the CPU
    monkeypatch.setattr(StarPOConfig, "device", property(lambda _: next(devices, torch.device("cpu"))))
    policy = Qwen2ForCausalLM.from_pretrained(saved)
    StarPOTrainer(policy, lottery(), args, processing_class=TOKENIZER)
    assert placed == ["unset", None]
    assert "will be ignored" not in caplog.text


def test_one_device_that_is_named_stays(tmp_path: Path, saved: str, placed: list[Any]) -> None:
    args = of_several_gpus(tmp_path, model_init_kwargs={"device_map": {"": "cpu"}})
    StarPOTrainer(saved, lottery(), args, processing_class=TOKENIZER)
    assert placed == [{"": "cpu"}]


def test_several_devices_are_refused_before_the_model_is_loaded(tmp_path: Path, saved: str, placed: list[Any]) -> None:
    args = of_several_gpus(tmp_path, model_init_kwargs={"device_map": "auto"})
    with pytest.raises(UnsupportedModelError, match="device_map='auto'.*leave device_map unset.*accelerate launch"):
        StarPOTrainer(saved, lottery(), args, processing_class=TOKENIZER)
    assert placed == []

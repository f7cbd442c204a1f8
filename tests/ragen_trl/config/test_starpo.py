"""Options of StarPO that follow the machine."""

import pytest
import torch

from ragen_trl import StarPOConfig


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator computes in bfloat16 itself")
def test_bfloat16_without_a_gpu_is_computed_on_the_cpu() -> None:
    args = StarPOConfig(output_dir="unused", bf16=True, report_to="none")
    assert args.use_cpu and args.bf16
    args = StarPOConfig(output_dir="unused", report_to="none")
    assert not args.use_cpu and not args.bf16

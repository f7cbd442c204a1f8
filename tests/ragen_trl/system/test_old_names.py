"""Import paths and names that version 0.1 showed still work, and say once what they are called now."""

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import ragen_trl
from ragen_trl.system import old_names
from tests.support.project import ROOT
from tests.support.ragen_trl.trainers import made_up, rollout_of

# What README, the pages of docs/ and `ragen_trl.__all__` of version 0.1 showed. Not `ragen_trl.student_reports`, which
# belonged to the benchmarks.
SHOWN = {
    "ragen_trl": ("Experience",),
    "ragen_trl.accumulation": ("add_window_totals",),
    "ragen_trl.batch": ("collate", "completion_columns"),
    "ragen_trl.collapse_signs": ("drop_step", "find_signs"),
    "ragen_trl.config": ("StarPOConfig", "StarPOSConfig"),
    "ragen_trl.evaluation": ("evaluate",),
    "ragen_trl.filtering": ("group_std",),
    "ragen_trl.gae": ("spread_over_turns",),
    "ragen_trl.imitation": ("WarmStartConfig", "warm_start"),
    "ragen_trl.intervals": ("rate_interval",),
    "ragen_trl.losses": ("aggregate", "clipped_surrogate"),
    "ragen_trl.memory_estimate": ("MemoryUse", "memory_lines", "peak_bytes", "shape_of"),
    "ragen_trl.observers": ("Observation",),
    "ragen_trl.pass_at_k": ("pass_at_k",),
    "ragen_trl.rollout": ("play",),
    "ragen_trl.tiny_model": ("build_tiny_model", "build_tiny_tokenizer"),
}
FROM_CHECKPOINTS = ("ragen_trl.astar_po_config", "AStarPOConfig")


def test_what_was_shown_can_be_imported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module, names in SHOWN.items():
            for name in names:
                assert getattr(import_module(module), name) is not None, f"{module}.{name}"


def test_an_old_path_gives_the_same_objects() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert import_module("ragen_trl.gae").token_gae is import_module("ragen_trl.algorithms.gae").token_gae
        assert ragen_trl.__getattr__("Experience") is ragen_trl.RolloutBatch
        signs = import_module("ragen_trl.collapse_signs")
        assert signs.find_signs is import_module("ragen_trl.monitoring.alerts").find_alerts


def test_an_old_path_and_an_old_name_warn_once() -> None:
    """Where they are used, so that Python shows it in a script; in a process that has imported nothing yet."""
    code = (
        "import warnings\n"
        "warnings.simplefilter('always')\n"
        "import ragen_trl.collapse_signs as signs\n"
        "import ragen_trl.collapse_signs\n"
        "signs.find_signs; signs.find_signs\n"
        "from ragen_trl import Experience\n"
        "from ragen_trl import Experience\n"
        "from ragen_trl.gae import *; token_gae\n"
        "from ragen_trl.system.old_names import FormerKeys, former_arguments, former_attribute\n"
        "class A:\n    new = 1\n    old = former_attribute('old', 'new')\n"
        "A().old; A().old\n"
        "FormerKeys({'now': 1}, {'then': 'now'})['then']\n"
        "assert former_arguments(before='after')(lambda after: after)(before=2) == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "is now" in line]
    assert [line.split("DeprecationWarning: ")[1] for line in said] == [
        "ragen_trl.collapse_signs is now ragen_trl.monitoring.alerts",
        "find_signs is now find_alerts",
        "Experience is now RolloutBatch",
        "ragen_trl.gae is now ragen_trl.algorithms.gae",
        "old is now new",
        "then is now now",
        "before is now after",
    ]
    assert all(line.startswith("<string>:") for line in said)


def test_a_checkpoints_arguments_name_an_old_path(tmp_path: Path) -> None:
    """``training_args.bin`` of an A*-PO run holds its class by module and name."""
    module, name = FROM_CHECKPOINTS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert getattr(import_module(module), name) is ragen_trl.AStarPOConfig


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ragen_trl\.nothing"):
        import_module("ragen_trl.nothing")


def test_former_attributes_of_a_rollout_are_answered() -> None:
    rollout = rollout_of([made_up((1, 2, 0.5)), made_up((1, 2, 0.0))], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert (rollout.rows, rollout.owners, rollout.outlines) == (
            rollout.local_indices,
            rollout.ranks,
            rollout.summaries,
        )


def test_former_keys_are_answered_and_others_are_not() -> None:
    inputs = old_names.FormerKeys({"step_tokens": 3}, {"window_tokens": "step_tokens"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert inputs["window_tokens"] == inputs["step_tokens"] == 3
        assert inputs.get("window_tokens") == 3
    assert "window_tokens" in inputs and inputs.get("window_rows", 7) == 7
    with pytest.raises(KeyError, match="window_rows"):
        inputs["window_rows"]

"""The callbacks of a training command: mistakes are reported before anything is played."""

import pytest
from transformers import TrainingArguments
from transformers.integrations import integration_utils

from ragen_trl.cli.callbacks import MONITORS, check_monitor, check_report_to
from ragen_trl.errors import OptionError


def test_the_monitor_is_off_or_does_what_it_can() -> None:
    args = TrainingArguments("unused", use_cpu=True, report_to="none")
    for wanted in MONITORS:
        check_monitor(wanted, args)
    with pytest.raises(OptionError, match="monitor is 'explode'; choose one of off, warn, stop, rollback"):
        check_monitor("explode", args)
    args.load_best_model_at_end = True
    with pytest.raises(OptionError, match="'rollback' names the best checkpoint"):
        check_monitor("rollback", args)
    args.save_strategy = "no"
    with pytest.raises(OptionError, match="'rollback' loads a checkpoint"):
        check_monitor("rollback", args)


def test_a_logger_has_to_be_known_and_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both were tracebacks of transformers, after the baselines and the warm start."""
    monkeypatch.setattr("ragen_trl.cli.callbacks.get_available_reporting_integrations", lambda: ["tensorboard"])
    for fine in (None, "none", "all", [], ["none"], "tensorboard", ["tensorboard"]):
        check_report_to(fine)
    with pytest.raises(OptionError, match="report_to is 'wandbb'; choose from none, .*wandb"):
        check_report_to(["tensorboard", "wandbb"])
    with pytest.raises(OptionError, match="'trackio', which is not installed; pip install trackio"):
        check_report_to("trackio")


def test_transformers_still_lists_its_loggers() -> None:
    known = set(integration_utils.INTEGRATION_TO_CALLBACK)
    assert {"tensorboard", "trackio", "wandb"} <= known
    assert set(integration_utils.get_available_reporting_integrations()) <= known

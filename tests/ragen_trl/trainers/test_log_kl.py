"""``log_kl``: the KL to the policy as it was, logged where there is no KL term; it changes nothing of the run."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import AStarPOConfig, StarPOTrainer
from ragen_trl.errors import OptionError
from tests.support.ragen_trl.equivalence import STEP, Alone, with_adapter
from tests.support.ragen_trl.trainers import logged, lottery, parameters, small_model, small_trainer

UPDATES: dict[str, Any] = {**STEP, "learning_rate": 0.3, "max_steps": 3}
MODELS = {"all weights": small_model, "LoRA": with_adapter}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("trainer", [StarPOTrainer, Alone])
def test_it_changes_no_bit_of_the_run(tmp_path: Path, model: str, trainer: Any) -> None:
    """In whole rows, and in a row for each turn."""
    ends = []
    for measures in (False, True):
        options = {**UPDATES, "model": MODELS[model](), "log_kl": measures}
        made = small_trainer(tmp_path, lottery(draws=3), trainer=trainer, **options)
        made.train()
        ends.append(parameters(made))
        assert len(logged(made, "kl")) == (3 if measures else 0)
    assert all(torch.equal(weights, ends[1][name]) for name, weights in ends[0].items())
    first, *later = logged(made, "kl")
    assert abs(first) < 1e-6 and min(later) > 1e-5


@pytest.mark.parametrize("trainer", [StarPOTrainer, Alone])
def test_it_is_the_kl_that_trls_term_logs(tmp_path: Path, trainer: Any) -> None:
    """A term so small that it moves nothing, with TRL's reference: a copy of the adapter as it was."""
    found = []
    for options in ({"beta": 1e-12}, {"log_kl": True}):
        made = small_trainer(tmp_path, lottery(draws=3), trainer=trainer, model=with_adapter(), **UPDATES, **options)
        made.train()
        found.append(logged(made, "kl"))
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-8)


def test_several_passes_over_a_filtered_rollout_have_one_reference(tmp_path: Path) -> None:
    """The reference scores what the filter keeps, once a rollout; the policy moves on between two passes."""
    options = {**UPDATES, "num_iterations": 2, "max_steps": 4, "filter_ratio": 0.5}
    made = small_trainer(tmp_path, lottery(draws=3), log_kl=True, **options)
    scored = []
    score = made.score_reference
    made.score_reference = lambda inputs, rows: scored.append(len(inputs["advantages"])) or score(inputs, rows)
    made.train()
    kl = logged(made, "kl")
    assert len(scored) == 2 and set(scored) == {made.args.generation_batch_size // 2}
    assert abs(kl[0]) < 1e-6 < 1e-5 < kl[1] and len(kl) == 4


def test_a_resumed_run_measures_from_where_it_began(tmp_path: Path) -> None:
    options = {**UPDATES, "log_kl": True, "save_strategy": "steps", "save_steps": 2}
    unbroken = small_trainer(tmp_path, lottery(draws=3), **options)
    unbroken.train()
    resumed = small_trainer(tmp_path, lottery(draws=3), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert logged(resumed, "kl")[-1] == logged(unbroken, "kl")[-1] > 1e-5


def test_the_figure_is_that_of_two_models(tmp_path: Path) -> None:
    """Means over sampled tokens of e^-d - 1 + d, computed with the two models and no trainer."""
    model = small_model()
    began = deepcopy(model)
    seen: list[dict[str, Any]] = []

    class Kept(StarPOTrainer):
        def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
            ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
            attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
            with torch.no_grad():
                columns = {name: logprobs(each, ids, attention) for name, each in (("now", model), ("began", began))}
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            seen.append({name: column[:, -mask.shape[1] :][mask.bool()] for name, column in columns.items()})
            return super().policy_loss(model, inputs)

    made = small_trainer(tmp_path, lottery(draws=3), trainer=Kept, model=model, log_kl=True, **UPDATES)
    made.train()
    each = len(seen) // 3
    for update, kl in enumerate(logged(made, "kl")):
        parts = seen[update * each : (update + 1) * each]
        differences = torch.cat([part["now"] - part["began"] for part in parts])
        assert kl == pytest.approx((torch.expm1(-differences) + differences).mean().item(), rel=1e-3, abs=1e-6)


def logprobs(model: Any, ids: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """(B, N - 1) of every token but the first."""
    places = (attention.cumsum(dim=1) - 1).clamp(min=0)
    hidden = model.model(input_ids=ids, attention_mask=attention, position_ids=places).last_hidden_state
    scores = model.lm_head(hidden[:, :-1]).log_softmax(dim=-1)
    return scores.gather(2, ids[:, 1:, None])[:, :, 0]


def test_a_kl_term_logs_it_anyway(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="log_kl is True and beta 0.001, whose term logs the KL anyway; leave log_kl"):
        small_trainer(tmp_path, log_kl=True, beta=0.001)


def test_a_star_po_always_logs_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="log_kl is True, which A\\*-PO does not read"):
        AStarPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, log_kl=True)

"""The hand-checked vectors' diagnostics, by the names that the vectors use."""

from collections.abc import Mapping
from typing import Any

import torch

from ragen_trl.monitoring.alerts import variance_gone
from ragen_trl.monitoring.mutual_information import prompt_dependence

Values = Mapping[str, Any]


def mutual_information(inputs: Values, expected: Values) -> Values:
    logprobs = torch.tensor(inputs["L_seq_logp"], dtype=torch.float64)
    found = prompt_dependence(logprobs, torch.tensor(inputs["lengths"]), torch.tensor(inputs["own_prompt"]))
    return {
        "MI_seq": found["mi_sequence"],
        "MI_per_token_paper_eq1": found["mi"],
        "retrieval_acc_fractional_ties": found["mi_retrieval"],
        "chance": found["mi_chance"],
        "upper_bound": found["mi_bound"],
        "H_cond_seq": found["mi_conditional_entropy"],
        "H_marg_seq": found["mi_marginal_entropy"],
    }


def collapse_detectors(inputs: Values, expected: Values) -> Values:
    values = inputs["in_group_std"]
    rule = {"start": inputs["base_n"], "window": inputs["window"], "share": inputs["frac"]}
    fires = [end for end in range(len(values)) if variance_gone(values[: end + 1], **rule)]
    return {"first_trigger_index": fires[0] if fires else None}

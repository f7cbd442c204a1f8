"""What our advantages, filters and masks make of the inputs of the vectors, by the names the vectors expect."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.filtering import dispersion, group_std, most_uncertain_groups, top_mass_groups
from ragen_trl.algorithms.gae import bi_level_gae, gae
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import double

Values = Mapping[str, Any]


def token_level(inputs: Values, expected: Values) -> Values:
    rewards, values, mask = (double([inputs[name]]) for name in ("rewards", "values", "mask"))
    options = (inputs["gamma"], inputs["lam"], double([inputs["bootstrap"]]))
    if bool(((rewards != 0) & (mask == 0)).any()):
        with pytest.raises(ValueError, match="is masked out"):
            gae(rewards, values, mask, *options)
    advantages, returns = gae(rewards * mask, values, mask, *options)
    return {"advantages": advantages[0], "returns": returns[0], "whitened": whiten(advantages, mask)[0]}


def turn_level(inputs: Values, expected: Values) -> Values:
    rewards, values = double([inputs["turn_rewards"]]), double([inputs["turn_values"]])
    bootstrap = double([inputs["bootstrap"]])
    advantages, returns = gae(rewards, values, torch.ones_like(rewards), inputs["gamma"], inputs["lam"], bootstrap)
    return {"turn_advantages": advantages[0], "turn_returns": returns[0]}


def bi_level(inputs: Values, expected: Values) -> Values:
    turn_ids = torch.tensor([inputs["turn_id"]])
    options = (inputs["gamma_turn"], inputs["gamma_token"], inputs["lam"])
    advantages, returns = bi_level_gae(double([inputs["turn_rewards"]]), double([inputs["values"]]), turn_ids, *options)
    ends = [max(t for t, turn in enumerate(inputs["turn_id"]) if turn == k) for k in range(max(inputs["turn_id"]) + 1)]
    whitened = whiten(advantages, turn_ids >= 0)
    return {
        "turn_advantages": advantages[0, ends],
        "advantages": advantages[0],
        "returns": returns[0],
        "whitened": whitened[0],
    }


def group_level(inputs: Values, expected: Values) -> Values:
    rewards = double(inputs["rewards"])
    size, returns = rewards.shape[-1], rewards.flatten()
    options: dict[str, dict[str, Any]] = {
        "verl_ddof1_eps1e6": {},
        "trl_ddof1_eps1e4": {"eps": 1e-4},
        "drgrpo_mean_only": {"scale": "none"},
        "rloo": {"baseline": "leave_one_out", "scale": "none"},
        "group_mean_batch_std": {"scale": "batch", "eps": 1e-4},
    }
    found = {name: group_advantages(returns, size, **option) for name, option in options.items()}
    found["asym_clip_m1_p3"] = found["verl_ddof1_eps1e6"].clamp(-1, 3)
    return {name: advantages.reshape(rewards.shape) for name, advantages in found.items()}


def filtering(inputs: Values, expected: Values) -> Values:
    if "rv" in inputs:
        return {"std_over_mean_ddof0": dispersion(double(inputs["rv"]))}
    if "rho" in inputs:
        scores, rho = double(inputs["scores"]), inputs["rho"]
        return {"kept_eps0": top_mass_groups(scores, rho, 0.0), "kept_eps_0p01": top_mass_groups(scores, rho, 0.01)}
    returns = [double(group) for group in inputs["groups"]]
    stds = torch.cat([group_std(group, len(group)) for group in returns])
    kept = {"kept": most_uncertain_groups(stds, inputs["ratio"])} if "ratio" in inputs else {}
    return {"std_ddof1": stds, **kept}


def gigpo(inputs: Values, expected: Values) -> Values:
    rows = inputs["trajectories"]
    most = max(map(len, rows))
    rewards = double([[reward for _, reward in row] + [0.0] * (most - len(row)) for row in rows])
    mask = double([[1.0] * len(row) + [0.0] * (most - len(row)) for row in rows])
    anchors = [[state for state, _ in row] for row in rows]
    scale = "group" if inputs["divide_by_std_ddof1"] else "none"

    def weighted(omega: float) -> torch.Tensor:
        return gigpo_advantages(rewards, mask, anchors, len(rows), inputs["gamma"], omega, scale)

    _, step_returns = gae(rewards, torch.zeros_like(rewards), mask, inputs["gamma"], 1.0)
    found = {
        "step_returns": step_returns,
        "A_step": weighted(1.0) - weighted(0.0),
        "A_total": weighted(inputs["omega"]),
    }
    cut = {name: [turns[: len(row)] for turns, row in zip(values, rows, strict=True)] for name, values in found.items()}
    return {**cut, "A_episode": weighted(0.0)[:, 0]}


def mt_grpo(inputs: Values, expected: Values) -> Values:
    rewards, outcomes = double(inputs["turn_rewards"]), double(inputs["outcome"])
    of_turn, with_outcome, total = (
        mt_grpo_advantages(rewards, torch.ones_like(rewards), outcomes, len(rewards), weight)
        for weight in (0.0, 1.0, inputs["lam"])
    )
    return {"A_turn": of_turn, "A_outcome": (with_outcome - of_turn)[:, 0], "A": total}


def masks(inputs: Values, expected: Values) -> Values:
    played, prompt = [], 0
    for role, length in inputs["segments"]:
        if role == "assistant":
            played.append(Turn((0,) * prompt, (1,) * length, (), observation="", reply="", reward=0.0))
        prompt = 0 if role == "assistant" else prompt + length
    trajectory = Trajectory(tuple(played), seed=0)
    mask, turn_ids = trajectory.action_mask, trajectory.turn_ids
    return {
        "tokens": "".join(role[0] * length for role, length in inputs["segments"]),
        "action_mask": mask,
        "turn_id": turn_ids,
        "logit_index_for_token": [t for t, bit in enumerate(mask[1:]) if bit],  # a token's logit stands before it
        "shifted_mask_len_T_minus_1": mask[1:],
        "last_token_of_turn": [max(t for t, turn in enumerate(turn_ids) if turn == k) for k in range(len(played))],
        "n_action": trajectory.num_reply_tokens,
    }

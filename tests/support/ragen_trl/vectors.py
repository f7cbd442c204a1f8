"""What our code makes of the inputs of the vectors, by the names the vectors expect: a function for each section."""

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from ragen_trl.algorithms.advantages import group_advantages, whiten
from ragen_trl.algorithms.filtering import group_std, most_uncertain_groups, top_mass_groups
from ragen_trl.algorithms.gae import bi_level_gae, gae
from ragen_trl.algorithms.losses import clipped_surrogate, kl_penalty, policy_loss, regression_loss
from ragen_trl.algorithms.soft_values import soft_value
from ragen_trl.algorithms.turn_advantages import gigpo_advantages, mt_grpo_advantages
from ragen_trl.monitoring.alerts import variance_gone
from ragen_trl.monitoring.mutual_information import prompt_dependence
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.trainers import double

Values = Mapping[str, Any]


# Bandits small enough to be enumerated: exact expectations, and the policy that A*-PO's regression fits


def under(probs: torch.Tensor, returns: torch.Tensor, beta: float) -> torch.Tensor:
    """Returns whose log-mean-exp over K equal parts is that of `returns` under the probabilities `probs`, (K,)."""
    return returns + beta * (len(probs) * probs).log()


def arm_losses(
    logits: torch.Tensor, pi0: torch.Tensor, rewards: torch.Tensor, value: torch.Tensor, beta: float
) -> torch.Tensor:
    """A*-PO's loss, on the paper's scale, of pulling each of K arms: trajectories of one token; (K,)."""
    logp = logits.log_softmax(dim=0)
    one = torch.ones(1, 1)
    return torch.stack(
        [
            regression_loss(new.reshape(1, 1), old.reshape(1, 1), one, (reward - value).reshape(1), beta, "paper")[0]
            for new, old, reward in zip(logp, pi0.log(), rewards, strict=True)
        ]
    )


def fitted_policy(
    pi0: torch.Tensor, rewards: torch.Tensor, value: torch.Tensor, beta: float, sampling: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The policy of least expected loss over arms drawn from `sampling`, (K,), and that loss, by Newton's method."""

    def expected_loss(logits: torch.Tensor) -> torch.Tensor:
        return (sampling * arm_losses(logits, pi0, rewards, value, beta)).sum()

    logits = pi0.log().requires_grad_()
    for _ in range(20):
        (slope,) = torch.autograd.grad(expected_loss(logits), logits)
        # A shift of all logits changes no policy, so the curvature is singular in that direction.
        curvature = torch.autograd.functional.hessian(expected_loss, logits)
        logits = (logits - torch.linalg.pinv(curvature, hermitian=True, rtol=1e-9) @ slope).detach().requires_grad_()
    return logits.detach().softmax(dim=0), expected_loss(logits).detach()


# Losses and soft values


def leaf(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, of, retain_graph=True)[0]


def soft_values(inputs: Values, expected: Values) -> Values:
    beta = inputs["beta"]
    if "k" in inputs:
        successes = [[1.0] * k + [0.0] * (inputs["N"] - k) for k in inputs["k"]]
        return {"value": soft_value(double(successes), beta)}
    if "env" in inputs:  # a sure arm and one that pays in one of four pulls, each pulled half of the time
        outcomes = double([0.15] * 4 + [1.0, 0.0, 0.0, 0.0])
        bellman, trajectories = soft_value(double([0.15, 0.25]), beta), soft_value(outcomes, beta)
        found = {"soft_bellman": bellman, "trajectory_logmeanexp": trajectories, "gap": trajectories - bellman}
        return {**found, "mean": outcomes.mean()}
    if set(inputs) == {"beta"}:
        return {p: estimator_of_successes(float(p), beta, values) for p, values in expected.items()}
    rewards = double(inputs["rewards"])
    if "pi_t" in inputs:
        return soft_values_of_another_policy(rewards, double(inputs["pi0"]), double(inputs["pi_t"]), beta)
    found = {name: soft_value(rewards, beta) for name in ("value", "base", "correct")}
    if "shift" in inputs:
        found["shifted"] = soft_value(rewards + inputs["shift"], beta)
        found["scaled_same_ratio"] = soft_value(inputs["scale"] * rewards, inputs["scale"] * beta)
    return found


def estimator_of_successes(p: float, beta: float, expected: Values) -> Values:
    """Mean and spread of V* over all samples of N episodes that succeed with probability p."""
    by_count = {}
    for count in map(int, expected["by_N"]):
        pmf = double([math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)])
        found = soft_value(double([[1.0] * k + [0.0] * (count - k) for k in range(count + 1)]), beta)
        mean = (pmf * found).sum()
        spread = (pmf * (found - mean).square()).sum().sqrt()
        by_count[str(count)] = {"mean": mean, "std": spread, "p_all_fail": pmf[0]}
    exact = soft_value(under(double([1 - p, p]), double([0.0, 1.0]), beta), beta)
    return {"V_true": exact, "by_N": by_count}


def soft_values_of_another_policy(rewards: torch.Tensor, pi0: torch.Tensor, pi_t: torch.Tensor, beta: float) -> Values:
    exact = soft_value(under(pi0, rewards, beta), beta)
    at_optimum = (rewards - exact) / beta  # log-ratio of the optimal policy
    return {
        "V_exact": exact,
        "V_from_pi_t_exact_expectation": soft_value(under(pi_t, rewards - beta * (pi_t / pi0).log(), beta), beta),
        "terms_r_minus_beta_logratio_at_pi_star": soft_value((rewards - beta * at_optimum)[:, None], beta),
    }


def regression(inputs: Values, expected: Values) -> Values:
    if "logp" in inputs:
        return regression_of_trajectories(inputs)
    pi0, rewards = double(inputs["pi0"]), double(inputs["rewards"])
    if "logits" in inputs:
        return regression_on_policy(leaf(inputs["logits"]), pi0, rewards, inputs["v_star"], inputs["beta2"])
    exact = soft_value(under(pi0, rewards, inputs["beta"]), inputs["beta"])
    sampling, found = double(inputs["sampling"]), {}
    for name in expected:  # "V_exact", "V_plus_0.3": how far the soft value is from the exact one
        offset = 0.0 if name == "V_exact" else float(name.removeprefix("V_plus_"))
        policy, loss = fitted_policy(pi0, rewards, exact + offset, inputs["beta"], sampling)
        found[name] = {"pi": policy, "loss": loss}
    return found


def regression_of_trajectories(inputs: Values) -> Values:
    logp = leaf(inputs["logp"])
    loss, log_ratio, residual = regression_loss(
        logp,
        double(inputs["ref_logp"]),
        double(inputs["action_mask"]),
        double(inputs["reward"]) - double(inputs["v_star"]),
        inputs["beta2"],
        "paper",
    )
    return {"log_ratio": log_ratio, "residual": residual, "loss": loss, "grad_logp": gradient(loss, logp)}


def regression_on_policy(
    logits: torch.Tensor, pi0: torch.Tensor, rewards: torch.Tensor, value: float, beta: float
) -> Values:
    loss = (logits.softmax(dim=0).detach() * arm_losses(logits, pi0, rewards, double(value), beta)).sum()
    pi = logits.softmax(dim=0)
    objective = (pi * (rewards - beta * (pi / pi0).log())).sum()
    return {
        "expected_loss": loss,
        "grad_logits": gradient(loss, logits),
        "minus_2beta_grad_of_KLreg_J": -2 * beta * gradient(objective, logits),
    }


def surrogate(inputs: Values, expected: Values) -> Values:
    ratio, advantage = double([[inputs["ratio"]]]), double([[inputs["advantage"]]])
    losses, slopes = {}, {}
    clips = {"sym_0p2": (0.2, 0.2), "clip_higher_0p2_0p28": (0.2, 0.28), "dual_clip_c3": (0.2, 0.28, 3.0)}
    for name, clip in clips.items():
        logp = ratio.log().requires_grad_()
        loss = clipped_surrogate(logp, torch.zeros_like(ratio), advantage, *clip).sum()
        losses[name], slopes[name] = loss, gradient(loss, logp) / ratio
    slope, slope_dual = slopes["clip_higher_0p2_0p28"], slopes["dual_clip_c3"]
    return {**losses, "dloss_dratio_clip_higher": slope, "dloss_dratio_dual": slope_dual}


def surrogate_of_trajectories(inputs: Values, expected: Values) -> Values:
    logp, old, mask = leaf(inputs["logp"]), double(inputs["old_logp"]), double(inputs["mask"])
    losses = clipped_surrogate(logp, old, double(inputs["adv"]), inputs["eps_low"], inputs["eps_high"])
    means = aggregates(losses, mask, expected)
    return {
        "ratio": (logp - old).exp(),
        "per_token_loss": losses * mask,
        **means,
        "grad_logp_token_mean": gradient(means["token_mean"], logp),
    }


def aggregates(losses: torch.Tensor, mask: torch.Tensor, expected: Values) -> dict[str, torch.Tensor]:
    """Each kind of loss of tokens whose ratio is 1, so a token's loss is its advantage times -1."""

    def reduced(kind: Any, longest: int | None = None) -> torch.Tensor:
        ones = torch.ones_like(losses)
        tokens, rows = mask.sum(), len(losses)
        return policy_loss(ones, ones, -losses, mask.bool(), ones[:, 0], tokens, rows, kind, longest=longest)[0]

    kinds = {"token_mean": "dapo", "seq_mean_token_mean": "grpo", "seq_mean_token_sum": "dr_grpo"}
    found = {mode: reduced(kind, longest=1) for mode, kind in kinds.items()}
    for name in expected:
        if length := re.fullmatch(r"dr_grpo_(?:const_)?L(\d+)", name):
            found[name] = reduced("dr_grpo", int(length[1]))
    return found


def aggregation(inputs: Values, expected: Values) -> Values:
    if "residuals" in inputs:
        residuals = double(inputs["residuals"])
        parts = [mean_square(part) for part in residuals.split(inputs["micro_batch"])]
        return {"full": mean_square(residuals), "accum_mean": torch.stack(parts).mean()}
    rows = inputs["per_token_loss"]
    longest = max(map(len, rows))
    padded = double([row + [99.0] * (longest - len(row)) for row in rows])
    return aggregates(padded, double([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in rows]), expected)


def mean_square(residuals: torch.Tensor) -> torch.Tensor:
    """A*-PO's loss at the reference, where the residuals are V* - R."""
    logp = torch.zeros_like(residuals)[:, None]
    return regression_loss(logp, logp, torch.ones_like(logp), -residuals, 1.0, "paper")[0]


def kl_estimators(inputs: Values, expected: Values) -> Values:
    if "pi" in inputs:
        pi, ref = double(inputs["pi"]), double(inputs["ref"])
        logits = pi.log().requires_grad_()
        estimates = {f"E_{k}": (pi * kl_penalty(pi.log(), ref.log(), k)).sum() for k in ("k1", "k2", "k3")}
        as_loss = (pi * kl_penalty(logits.log_softmax(dim=0), ref.log(), "k1")).sum()
        slope = gradient(as_loss, logits).abs().max()
        return {
            "kl": torch.nn.functional.kl_div(ref.log(), pi, reduction="sum"),
            **estimates,
            "E_grad_k1_as_loss": slope,
        }
    found = {}
    for estimator in ("k1", "k2", "k3"):
        logp = leaf(inputs["logp_minus_ref"])
        found[estimator] = kl_penalty(logp, torch.zeros_like(logp), estimator)
        found[f"d{estimator}_dlogp"] = gradient(found[estimator], logp)
    return found


# Diagnostics


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


# Advantages, filters and masks


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

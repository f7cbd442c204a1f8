"""The tables of a pretrained model's runs: success before and after, costs, memory, what is unfinished.

Runs that are not finished are named, and no figure of theirs is shown.
"""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from agents.games import TRAINING

from pages.differences import began, difference, found_in, greedily, over_products
from pages.markdown import commit, head, row, success, text
from ragen_trl.evaluation.intervals import rate_interval

_LENGTH = "collapse/thought_tokens"
_OF_THOUGHTS = {
    _LENGTH: "tokens",
    "collapse/thought_distinct_2": "distinct-2",
    "collapse/thought_names": "name an action",
    "collapse/thought_followed": "and do it",
    "collapse/identical_replies": "identical replies (with the answer)",
    "collapse/mi": "MI with the prompt, nats a token",
    "entropy": "entropy",
}
_UPDATES = 5
_FEWEST_BANDITS = 8  # whose names say something of names in general


def pretrained_tables(content: Mapping[str, Any]) -> str:
    """All tables of the page but the one of `games_table`."""
    games = [name for name in content["games"] if _runs(content, name)]
    lines = [*_success(content, games), *_pictures(content, games), *_training(content), ""]
    lines += [*greedily(content, _trained_name), *over_products(content, _trained_name)]
    lines += [*_faults(content, games), *_by_difficulty(content, games), *_by_arms(content)]
    lines += [*_thoughts(content), *_memory(content)]
    lines += [*_stopped(content), *_unfinished(content), ""]
    found = content["runs"].values()
    commits = _list(list(dict.fromkeys(commit(run["commit"]) for run in found)))
    counts = {found["model"]["n"] for run in found for kind in run["evaluations"].values() for found in kind.values()}
    played = f"n = {_list(sorted(counts))} held-out start states, the same for all runs of a game: [95 % interval]"
    foot = f"{content['model']}. " + f"Success on {played}. " * bool(counts) + f"Commits of the runs: {commits}."
    return text([*lines, foot])


def _list(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"


def _runs(content: Mapping[str, Any], game: str, stage: str | None = None) -> list[Mapping[str, Any]]:
    every = content["runs"].values()
    return [run for run in every if run["game"] == game and stage in (None, run["stage"])]


def _pictures(content: Mapping[str, Any], games: Sequence[str]) -> list[str]:
    drawn = [game for game in games if any(run.get("curve") for run in _runs(content, game))]
    name = content.get("script", "pretrained")
    return [f"![Learning curves: {game}](../../benchmarks/results/{name}_{game}.png)\n" for game in drawn]


def games_table(content: Mapping[str, Any]) -> str:
    """A row a game: random play, the model after its warm start and after training, and the oracle."""
    titles = ["game", "random play", "warm start", "greedy", "StarPO-S", "greedy", "A\\*-PO", "greedy", "oracle"]
    lines = head(titles)
    for game in content["games"]:
        runs = [run for run in _runs(content, game) if run["stage"] != "downloaded"]
        if not any(run["seed"] is not None for run in runs):
            continue
        name = _evaluations(content, game)[0]
        played = [run["stage"] for run in runs if found_in(run, "sampled", name)]
        stages = [stage for stage in played if stage.startswith("starpo_s")]
        chosen = max(dict.fromkeys(stages), key=stages.count, default="")  # of several settings that with most seeds
        first = next(found for run in runs if (found := found_in(run, "sampled", name)))
        starts = {run.get("began_with") for run in runs if run["stage"] == chosen}
        # Of a warm start that was made again the one that they began with.
        runs.sort(key=lambda run: run["created"] not in starts)
        cells = [
            _rates(runs, stage, kind, name)
            for stage, kind in (
                *(("warm_start", "sampled"), ("warm_start", "greedy")),
                *((chosen, "sampled"), (f"{chosen}_greedy", "greedy")),
                *(("astar_po", "sampled"), ("astar_po_greedy", "greedy")),
            )
        ]
        lines.append(row([game, success(first["random"]), *cells, success(first["oracle"])]))
    return text(lines)


def _rates(runs: Sequence[Mapping[str, Any]], stage: str, kind: str, name: str) -> str:
    """The rate of a stage with its interval, or those of several seeds without."""
    found = [each["model"] for run in runs if run["stage"] == stage and (each := found_in(run, kind, name))]
    found = found[:1] if stage == "warm_start" else found
    return success(found[0]) if len(found) == 1 else ", ".join(f"{each['success']:.2f}" for each in found)


def _score(found: Mapping[str, Any]) -> str:
    """The mean of an environment's own score; empty where it has none."""
    return "" if found.get("score") is None else f"{found['score']:.2f}"


def _success(content: Mapping[str, Any], games: Sequence[str]) -> list[str]:
    """A row a run, with what it is and its success in each evaluation, between the baselines.

    Games that are played and evaluated alike, which differ in how they are learnt, share a table.
    """
    lines: list[str] = []
    for alike in _alike(content, games):
        names = _evaluations(content, alike[0])
        runs = [run for game in alike for run in _runs(content, game)]
        runs = [run for run in runs if run["game"] == alike[0] or run["stage"] != "downloaded"]
        place = {run["name"]: at for at, run in enumerate(runs)}
        runs.sort(key=lambda run: (run["stage"] != "downloaded", place.get(_trained_name(run), len(runs))))
        first = [next(found for run in runs if (found := found_in(run, "sampled", name))) for name in names]
        scored = ["score"] * any(_score(found["model"]) for found in first)
        lines += head([alike[0], "what it is", *names, *scored])

        def shown(named: str, what: str, every: Sequence[Mapping[str, Any] | None], scored: list[str] = scored) -> str:
            cells = [success(found) if found else "" for found in every]
            return row([named, what, *cells, *(_score(every[0] or {}) for _ in scored)])

        lines.append(shown("random play", "", [found["random"] for found in first]))
        told: set[str] = set()
        for run in runs:
            for kind in run["evaluations"]:
                every = [found["model"] if (found := found_in(run, kind, name)) else None for name in names]
                greedy = kind == "greedy"
                named = _trained_name(run).removeprefix(f"{alike[0]}/")
                what = "the same model" if greedy and named in told else _what(content, run)
                told.add(named)
                lines.append(shown(f"`{named}`{', greedy' * greedy}", what, every))
        lines += [shown("oracle", "", [found["oracle"] for found in first]), ""]
    return lines or ["No run of a game is finished.", ""]


def _trained_name(run: Mapping[str, Any]) -> str:
    """The name of a run; of one that plays another run's model greedily that one's."""
    return str(run["name"]).replace("_greedy-seed", "-seed")


def _alike(content: Mapping[str, Any], games: Sequence[str]) -> list[list[str]]:
    """Games in groups of those with the same environment, limits and evaluations."""
    groups: dict[str, list[str]] = {}
    for game in games:
        about = content["games"][game]
        key = [about["env"], about["env_kwargs"], about["play"], _evaluations(content, game)]
        groups.setdefault(json.dumps(key), []).append(game)
    return list(groups.values())


def _what(content: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """What a run did, from its settings: what it began with, how much, at which rate."""
    start = next((each for each in content["runs"].values() if each["created"] == run.get("began_with")), None)
    steps = run["settings"]["steps"]
    asked = next((step["options"] for step in steps if step["command"] in ("warm-start", "train")), None)
    needed = run["settings"].get("needs")
    if asked is None and (start or needed is None):
        return f"`{start['name']}`, played here" if start else "as downloaded"
    if asked is None:  # another run's model, whose own result is not kept
        return _what(content, {"settings": needed})
    said = [f"{asked['demonstrations']} demonstrations"] if "demonstrations" in asked else _training_in_words(asked)
    said += ["LoRA"] * bool(asked.get("demo_lora_r"))
    if run.get("training", {}).get("bf16", asked.get("bf16")) is True:
        said.append("bfloat16")
    origin = f"`{_short(start)}`" if start else "a warm start whose result is not kept"
    return f"from {origin}: " * (start is not None or needed is not None) + ", ".join(said)


def _training_in_words(asked: Mapping[str, Any]) -> list[str]:
    """Updates, trajectories, rate, and what differs from other runs in filter and entropy."""
    if "preset" in asked:
        return [f"preset {asked['preset']}"]
    size = asked["num_generations"]
    of_an_update = asked["gradient_accumulation_steps"]
    of_a_rollout = asked.get("steps_per_generation", of_an_update)
    groups = asked["per_device_train_batch_size"] * of_a_rollout // size
    rate = f"rate {asked['learning_rate']:g}" + " falling to 0" * (asked.get("lr_scheduler_type") == "linear")
    each = f", {of_a_rollout // of_an_update} updates each" * (of_a_rollout > of_an_update)
    said = [f"{asked['max_steps']} updates", f"{groups} · {size} a rollout{each}", rate]
    if "filter_ratio" in asked:
        said.append("all groups" if asked["filter_ratio"] == 1 else f"{asked['filter_ratio']:g} of the groups")
    if asked.get("entropy_coef", 0) > TRAINING["entropy_coef"]:
        said.append(f"entropy bonus {asked['entropy_coef']:g}")
    return said


def _short(run: Mapping[str, Any]) -> str:
    """The name of a run without its game."""
    return str(run["name"].partition("/")[2])


def _evaluations(content: Mapping[str, Any], game: str) -> list[str]:
    return list(dict.fromkeys(name for run in _runs(content, game) for name in run["evaluations"].get("sampled", {})))


def _training(content: Mapping[str, Any]) -> list[str]:
    """What training took, a row a run."""
    columns = ("run", "began at", "at the end", "difference", "readable replies", "turns", "tokens an episode", "KL")
    lines = head([*columns, "warned of", "updates", "trajectories", "seconds an update", "minutes of training"])
    trained = [run for run in content["runs"].values() if run["evaluations"] and run.get("curve")]
    for run in trained:
        name, found = next(iter(run["evaluations"]["sampled"].items()))
        after, curve = found["model"], run["curve"]
        start = began(content, run, name)
        before: Mapping[str, Any] = {}
        cells = ["", success(after), ""]
        if start is not None:
            before = start["evaluations"]["sampled"][name]["model"]
            cells = [success(before), success(after), difference(start, run, name)]
        signs = run["training"].get("monitor", {}).get("signs", ())
        warned = ", ".join(f"`{sign['name']}` ({sign['step']})" for sign in signs)
        played = [_changed(before, after, "turns", 1), _changed(before, after, "reply_tokens", 0), _kl(run)]
        ends = [f"{after['format_valid']:.2f}", *played, warned, curve[-1]["step"], f"{curve[-1]['trajectories']:,}"]
        steps = [update["step_time"] for update in run.get("updates", ()) if "step_time" in update]
        typical = fmean if any("success" not in update for update in run.get("updates", ())) else median
        lasted = run["training"].get("seconds", {}).get("training", sum(steps))
        times = [f"{typical(steps):.0f}", f"{lasted / 60:.0f}"] if steps else ["", ""]
        lines.append(row([run["name"], *cells, *ends, *times]))
    note = (
        "A difference with an interval is that of the two models, paired by start state. Where episodes are not kept, "
        "the table says whether the intervals of both rates are apart. Turns and sampled tokens an episode: before → "
        f"after. KL: to the model that it began with, nats a token, mean of the last {_UPDATES} updates; empty where "
        "it was not logged (StarPO-S without `log_kl`). Seconds an update: the median, or the mean where a rollout "
        "has several. Minutes of training: rollouts, updates, and what A\\*-PO's reference plays before."
    )
    return [*lines, "", note] if trained else ["No training run is finished."]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], name: str, digits: int) -> str:
    """A measure of the model that training began with, if that is known, and of what came out."""
    return " → ".join(f"{found[name]:.{digits}f}" for found in (before, after) if name in found)


def _kl(run: Mapping[str, Any]) -> str:
    """What the last updates logged; empty without a reference."""
    found = [update["kl"] for update in run.get("updates", ()) if "kl" in update][-_UPDATES:]
    return f"{fmean(found):.3f}" if found else ""


def _faults(content: Mapping[str, Any], games: Sequence[str]) -> list[str]:
    """How episodes fail, where environments say it: a table a game, the share of episodes with each fault."""
    lines: list[str] = []
    for game in games:
        first = _evaluations(content, game)[0]
        found: dict[str, Mapping[str, float]] = {}
        for run in _runs(content, game):
            for kind, rows in run["evaluations"].items():
                greedy = ", greedy" * (kind == "greedy")
                for policy in ("random", "model") if not found else ("model",):
                    name = "random play" if policy == "random" else f"{_short(run)}{greedy}"
                    found[name] = rows[first][policy].get("faults", {})
        names = list(dict.fromkeys(fault for faults in found.values() for fault in faults))
        if names:
            lines += head([f"{game}: episodes with", *names])
            lines += [row([who, *(f"{faults.get(name, 0):.2f}" for name in names)]) for who, faults in found.items()]
            lines.append("")
    return lines


def _by_difficulty(content: Mapping[str, Any], games: Sequence[str]) -> list[str]:
    """Success by the difficulty of the start state (``ragen_envs.difficulty``), in tables as those of `_success`."""
    lines: list[str] = []
    for alike in _alike(content, games):
        runs = [run for game in alike for run in _runs(content, game) if run["stage"] != "downloaded"]
        names = {_short(run) if run["game"] == alike[0] else run["name"]: run.get("by_difficulty") for run in runs}
        found = {name: next(iter(each.values())) for name, each in names.items() if each}
        if found:
            counts = {hard: n for each in found.values() for hard, (_, n) in each.items()}
            lines += head([f"{alike[0]}: success by difficulty", *(f"{hard} (n = {n})" for hard, n in counts.items())])
            for name, each in found.items():
                lines.append(row([name, *(f"{each[hard][0]:.2f}" if hard in each else "" for hard in counts)]))
            lines.append("")
    return lines


def _by_arms(content: Mapping[str, Any]) -> list[str]:
    """Success over the bandits of a set as draws of names: the interval is over bandits, not over episodes."""
    rows = []
    for run in content["runs"].values():
        for name, played in run.get("by_arms", {}).items():
            if len(played) < _FEWEST_BANDITS:
                continue
            right, valid, count = ([int(each[at]) for each in played.values()] for at in range(3))
            better = sum(2 * one > of for one, of in zip(right, valid, strict=True))
            cells = [_over_bandits(right, count), _over_bandits(right, valid), f"{better} of {len(played)}"]
            rows.append(row([run["name"], name, *cells]))
    if not rows:
        return []
    columns = ["bandits as draws of names", "evaluated on", "right", "right of the replies that name an arm"]
    return [*head([*columns, "mostly right at"]), *rows, "", "Intervals are over bandits, not over episodes.", ""]


def _over_bandits(right: Sequence[int], count: Sequence[int]) -> str:
    """The share of right replies with an interval over bandits; those without a reply that counts are left out."""
    played = [(one, of) for one, of in zip(right, count, strict=True) if of]
    if not played:
        return "–"
    low, high = rate_interval([one for one, _ in played], [of for _, of in played])
    return f"{sum(right) / sum(count):.2f} [{low:.2f}, {high:.2f}]"


def _thoughts(content: Mapping[str, Any]) -> list[str]:
    """Measures of thoughts over the first and over the last updates of each run that has thoughts."""
    every = content["runs"].values()
    thinking = [run for run in every if any(_LENGTH in update for update in run.get("updates", ()))]
    if not thinking:
        return []
    lines = head(["thoughts, first to last updates", *_OF_THOUGHTS.values()])
    for run in thinking:
        lines.append(row([run["name"], *(_change(run["updates"], name) for name in _OF_THOUGHTS)]))
    note = f"Means over the first and the last {_UPDATES} updates; of MI the first and the last one."
    return [*lines, "", note, ""]


def _change(updates: Sequence[Mapping[str, float]], name: str) -> str:
    values = [update[name] for update in updates if name in update]
    count = _UPDATES if len(values) >= 2 * _UPDATES else 1
    return f"{fmean(values[:count]):.2f} → {fmean(values[-count:]):.2f}" if values else "–"


def _memory(content: Mapping[str, Any]) -> list[str]:
    """The peak of memory of LoRA and of all weights."""
    found = {run["stage"]: run for run in content["runs"].values() if "memory" in run}
    if not found:
        return []
    what = "two updates with checkpointing, one trajectory at a time"
    lines = head([what, "peak MiB", "of which libraries", "on the GPU"])
    for stage, run in found.items():
        memory = run["memory"]
        gpu = f"{memory['gpu_peak_mib']:,.0f}" if "gpu_peak_mib" in memory else ""
        sizes = [f"{memory['peak_mib']:,.0f}", f"{memory['libraries_mib']:,.0f}", gpu]
        lines.append(row([{"lora": "LoRA"}.get(stage, "all weights"), *sizes]))
    if {"lora", "all_weights"} <= found.keys():
        lora, full = (found[stage]["memory"] for stage in ("lora", "all_weights"))
        own = [each["peak_mib"] - each["libraries_mib"] for each in (lora, full)]
        whole = lora["peak_mib"] / full["peak_mib"]
        lines += ["", f"LoRA takes {whole:.2f} of what all weights take, {own[0] / own[1]:.2f} without the libraries."]
    return [*lines, ""]


def _stopped(content: Mapping[str, Any]) -> list[str]:
    """What runs have that made updates and were stopped before their evaluation."""
    rows = []
    for name, told in content.get("stopped", {}).items():
        ends = [success(end) if (end := told["ends"].get(which)) else "" for which in ("before", "trained")]
        first, last = (fmean(each) for each in (told["success_in_training"][:2], told["success_in_training"][-2:]))
        rows.append(row([name, told["updates"], *ends, f"{first:.2f} → {last:.2f}"]))
    counts = {end["n"] for told in content.get("stopped", {}).values() for end in told["ends"].values()}
    columns = ["stopped before its evaluation", "updates", "before", "after", "its first and last 2 rollouts"]
    note = f"Before and after: the first {_list(sorted(counts))} of the held-out start states."
    return [*head(columns), *rows, "", note, ""] if rows else []


def _unfinished(content: Mapping[str, Any]) -> list[str]:
    """The runs that have no result with the present settings."""
    names = content["unfinished"]
    if not names:
        return ["All runs are finished."]
    hours = sum(names.values()) / 60
    listed = ", ".join(f"`{name}`" for name in names)
    length = f"{hours:.{int(hours < 1)}f} hours on {content.get('on', 'two cores')}"
    return [f"Not finished, about {length}: {listed}."]

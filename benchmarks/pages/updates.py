"""The tables of training as such: what `make train` reaches, what a step takes, what an update costs."""

from typing import Any

from pages.markdown import commit, head, row, success, text

_MACHINES = {"cpu": "On the CPU", "gpu": "On a GPU"}
_COLUMNS = (
    *("trained", "credit", "checkpointing", "rows a pass", "micro-batches", "kept", "seconds: median (range)"),
    *("padding", "peak MiB", "of full"),
)


def train_table(content: dict[str, Any]) -> str:
    """One row a seed: success and its 95 % interval of every policy on the same held-out start states."""
    lines = head(["seed", "random", "warm start", "trained", "oracle", "trained, unseen states", "step", "whole run"])
    for run in content["runs"]:
        results, seconds, unseen = run["results"], run["seconds"], run["unseen"]["trained"]
        cells = [success(results[name]) for name in ("random", "before", "trained", "oracle")]
        times = [f"{seconds['step_median']:.2f} s", f"{seconds['total'] / 60:.1f} min"]
        lines.append(row([run["seed"], *cells, f"{success(unseen)} (n={unseen['n']})", *times]))
    first = content["runs"][0]
    machine = first["machine"]
    commits = ", ".join(commit(name) for name in dict.fromkeys(run["commit"] for run in content["runs"]))
    foot = (
        f"Success [95 % interval], n = {first['results']['trained']['n']} held-out start states, sampled at "
        f"temperature 1. Commit {commits}, {machine['cpus']} CPU cores, {machine['gpu'] or 'no GPU'}."
    )
    return text([*lines, "", foot])


def sharded_table(content: dict[str, Any]) -> str:
    """One row a case, one column for each engine with all weights and with LoRA: the distance from one process."""
    cells = {(cell["case"], cell["engine"], cell["weights"]): cell["deviation"] for cell in content["cells"]}
    columns = list(dict.fromkeys((engine, weights) for _, engine, weights in cells))
    lines = head(["", *(f"{engine}, {'LoRA' if weights == 'LoRA' else 'all weights'}" for engine, weights in columns)])
    for case in dict.fromkeys(case for case, _, _ in cells):
        found = [cells.get((case, *column), "") for column in columns]
        lines.append(row([case.replace("*", "\\*"), *(f"{one:.0e}" if one != "" else "" for one in found)]))
    foot = (
        f"The largest distance of a weight, of the policy or the critic, from that of one process after "
        f"{content['updates']} updates. {content['processes']} processes on a CPU, the tiny model in float32, "
        f"torch {content['versions']['torch']}, DeepSpeed {content['deepspeed']}. Commit {commit(content['commit'])}."
    )
    killed = content.get("killed")
    if killed:
        foot += (
            f"\n\nA run of {killed['updates']} updates ({killed['engine']}, LoRA, StarPO-S), killed "
            f"{killed['kills']} times: its weights are {killed['deviation']:g} from those of the unbroken run."
        )
    return text([*lines, "", foot])


def step_time_table(content: dict[str, Any]) -> str:
    """One row a group shape: seconds of a step and how much of it is play."""
    lines = head(["128 trajectories as", "seconds a step: median [quartiles]", "of which rollout", "steps"])
    for shape in content["shapes"]:
        step = shape["step"]
        times = f"{step['median']:.2f} [{step['low']:.2f}, {step['high']:.2f}]"
        groups = f"{shape['groups']} groups of {shape['group_size']}"
        lines.append(row([groups, times, f"{shape['rollout']['median']:.2f}", shape["steps"]]))
    return text(lines)


def ahead_table(content: dict[str, Any]) -> str:
    """One row a case: seconds of a step after its rollout, and beside the next one."""
    lines = head(
        ["sampler", "turns", "rollout", "update", "step: one after the other", "one step off", "ratio", "the larger"]
    )
    for found in content["cases"]:
        after = [f"{found['after'][name]:.2f}" for name in ("rollout", "update", "step")]
        ahead = [f"{found['ahead']['step']:.2f}", f"{found['ratio']:.2f}", f"{found['larger']:.2f}"]
        lines.append(row([found["sampler"], found["turns"], *after, *ahead]))
    foot = (
        f"Seconds, medians of {content['cases'][0]['steps']} steps each. Waits: {content['wait']:g} s a step of an "
        f"environment, {content['reply_wait']:g} s a turn of the other process, {content['update_wait']:g} s an "
        f"update. Commit {commit(content['commit'])}, {content['machine']['cpus']} CPU cores that other runs shared."
    )
    return text([*lines, "", foot])


def update_tables(content: dict[str, Any]) -> str:
    """One table for what was measured on the CPU and one for the GPU; "not run" where there is no result yet."""
    return "\n".join(_machine(title, content[name]) for name, title in _MACHINES.items())


def sharing_table(content: dict[str, Any]) -> str:
    """One row a case: seconds and memory with what rows share computed for each, and once."""
    lines = head(
        ["model", "what", "trained", "checkpointing", "rows", "rows a pass", "seconds: apart, shared", "ratio"]
        + ["peak MiB: apart, shared", "ratio"]
    )
    for found in content["rows"]:
        case, apart, shared = found["case"], found["apart"], found["shared"]
        cells = [
            case["model"] or "embedded",
            case["work"],
            "all weights" if case["rank"] is None else f"LoRA, r = {case['rank']}",
            "yes" if case["checkpointing"] else "no",
            *(case["rows"], case["batch_size"]),
            f"{apart['seconds']:.2f}, {shared['seconds']:.2f}",
            f"{found['seconds_ratio']:.2f}",
            f"{apart['peak_mib']:,.0f}, {shared['peak_mib']:,.0f}",
            f"{found['peak_mib_ratio']:.2f}",
        ]
        lines.append(row(cells))
    repetitions = content["rows"][0]["shared"]["repetitions"]
    return text([*lines, "", f"Medians of {repetitions} repetitions. Commit {commit(content['commit'])}."])


def _machine(title: str, measured: dict[str, Any] | None) -> str:
    """Rows of one machine; memory also as a share of full fine-tuning's with otherwise the same settings."""
    if measured is None:
        return f"**{title}**: not run.\n"
    workload, rows = measured["workload"], measured["rows"]
    caption = (
        f"**{title}**, {rows[0]['parameters'] / 1e6:,.0f} M parameters, {workload['trajectories']} trajectories of up "
        f"to {workload['turns']} turns of about {workload['tokens']} tokens, one update of a rollout:"
    )
    lines = [caption, "", *head(_COLUMNS)]
    full = {_other_settings(found): found["peak_mib"] for found in rows if found["rank"] is None}
    for found in rows:
        whole = full.get(_other_settings(found)) if found["rank"] else None
        cells = [
            "all weights" if found["rank"] is None else f"LoRA, r = {found['rank']}",
            found["form"].replace("*", "\\*"),
            "yes" if found["checkpointing"] else "no",
            found["batch_size"],
            "by length" if found["by_length"] else "as TRL's",
            f"{found['filter_ratio']:.0%}",
            f"{found['seconds']:.2f} ({found['fastest']:.2f} to {found['slowest']:.2f})",
            f"{found['padding']:.0%}",
            f"{found['peak_mib']:,.0f}",
            "" if whole is None else f"{found['peak_mib'] / whole:.0%}",
        ]
        lines.append(row(cells))
    return text([*lines, "", f"{rows[0]['updates']} updates a row. Commit {commit(measured['commit'])}."])


def _other_settings(found: dict[str, Any]) -> tuple[Any, ...]:
    """All settings except what is trained."""
    return tuple(found[name] for name in ("form", "checkpointing", "batch_size", "by_length", "filter_ratio"))

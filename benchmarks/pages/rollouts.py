"""The tables of rollouts: trajectories a second, what late turns cost, and what environments cost."""

import statistics
from typing import Any

from pages.markdown import commit, head, ratios, row, text, times


def throughput_tables(content: dict[str, Any]) -> str:
    """For the CPU and for the GPU; "not run" where there is no result yet."""
    cpu, gpu = content["cpu"], content["gpu"]
    parts = [
        "**On the CPU**: not run.\n" if cpu is None else _cpu_part(cpu),
        "**On a GPU**: not run.\n" if gpu is None else _gpu_part(gpu),
    ]
    pretrained = content.get("pretrained")
    return "\n".join([*parts, *([] if pretrained is None else [_pretrained_part(pretrained)])])


def memory_table(content: dict[str, Any]) -> str:
    """One row a case: what a process held at most, and what was estimated."""
    lines = head(["phase", "case", "held at most, MiB", "estimated, MiB", "estimated of held"])
    for found in content["rows"]:
        share = f"{found['estimate_mib'] / found['peak_mib']:.2f}"
        numbers = [f"{found['peak_mib']:.0f}", f"{found['estimate_mib']:.0f}", share]
        lines.append(row([found["phase"], _memory_case(found), *numbers]))
    foot = f"`{content['command']}`, commit {commit(content['commit'])}, torch {content['versions']['torch']}."
    return text([*lines, "", foot])


def _memory_case(found: dict[str, Any]) -> str:
    """What distinguishes a case, in words."""
    parts = [f"{found['rows']} trajectories" + ("" if found["phase"] == "rollout" else " a micro-batch")]
    parts += [f"{found['at_once']} at a time"] * bool(found["at_once"])
    parts += [f"LoRA, r = {found['rank']}"] * bool(found["rank"])
    parts += ["bfloat16 mixed precision"] * found["mixed"] + ["checkpointing"] * found["checkpointing"]
    parts += ["a critic"] * found["critic"]
    parts += ["one head of keys for four"] * (found["key_value_heads"] == 1)
    parts += [f"{found['words']:,} words"] * (found["words"] > 10_000)
    return ", ".join(parts)


def _cpu_part(measured: dict[str, Any]) -> str:
    """Rates of the games, ratios of the turns."""
    costs = measured["turn_cost"]
    short, long = next(iter(costs["rounds"].values()))
    added = f"{costs['tokens_added_a_turn']} tokens shown and {costs['tokens']} sampled a turn"
    names = {"ours": "ours", "generate": "`model.generate`"}
    rows = [
        row([names[name], times(ratios(by_turns[long], by_turns[short]))]) for name, by_turns in costs["rounds"].items()
    ]
    turns = [*head([added, f"{long} turns cost, in terms of {short}"]), *rows]
    return text(["**On the CPU**, the embedded model:", "", *_games(measured), "", *turns, "", _foot(measured)])


def _pretrained_part(measured: dict[str, Any]) -> str:
    """Tokens a second that are read and decoded, and the whole rollout, with and without shared beginnings."""
    what = f"{measured['trajectories']} trajectories in groups of {measured['group_size']}, {measured['turns']} turns"
    lines = head(["beginnings", "read: tokens a second", "decoded: tokens a second", "seconds"])
    for name, title in (
        ("shared", "read once"),
        ("apart", "read by each row"),
        ("bfloat16", "read once, in bfloat16"),
    ):
        rounds = measured["rounds"][name]
        read, decoded, seconds = (
            statistics.median(values)
            for values in (
                [found["shown"] / found["reading"] for found in rounds],
                [found["sampled"] / found["decoding"] for found in rounds],
                [found["seconds"] for found in rounds],
            )
        )
        lines.append(row([title, f"{read:.0f}", f"{decoded:.0f}", f"{seconds:.0f}"]))
    foot = f"{measured['tokens']} tokens sampled a turn, {len(rounds)} rounds. Commit {commit(measured['commit'])}."
    title = f"**A pretrained model on one thread**, `{measured['command']}`, {what}:"
    return text([title, "", *lines, "", foot])


def _gpu_part(measured: dict[str, Any]) -> str:
    """Rates, and how far they are from what memory allows."""
    title = f"**On {measured['machine']['gpu']}**, the shape of Qwen2.5-0.5B, bfloat16:"
    bound = f"Bound by memory: {measured['bound']['arithmetic']}."
    return text([title, "", *_games(measured), "", bound, "", _foot(measured)])


def _games(measured: dict[str, Any]) -> list[str]:
    """One row a game: trajectories a second of each way, and how many times as fast ours is."""
    lines = head(
        ["trajectories a second", "ours", "`model.generate` on the whole history", "TRL's loop", "environments"]
    )
    for env, game in measured["games"].items():
        rounds = game["rounds"]
        rates = {name: game["trajectories"] / statistics.median(seconds) for name, seconds in rounds.items()}
        what = f"`{env}`: {game['trajectories']} × {game['turns']} turns, {game['length']['ours']:.0f} tokens each"
        others = [
            f"{rates[name]:.1f} (ours {times(ratios(rounds[name], rounds['ours']))})" for name in ("generate", "trl")
        ]
        lines.append(row([what, f"{rates['ours']:.1f}", *others, f"{100 * game['env_share']:.1f} % of ours"]))
    return lines


def _foot(measured: dict[str, Any]) -> str:
    """How the numbers came about."""
    rounds = len(next(iter(measured["games"].values()))["rounds"]["ours"])
    return (
        f"{measured['tokens']} tokens sampled a turn. Medians of {rounds} rounds that took turns; ratios are medians "
        f"of the rounds' ratios, and their range. Commit {commit(measured['commit'])}."
    )


def stepping_table(content: dict[str, Any]) -> str:
    """What environments that wait cost a turn; then one row an environment that computes: its share of a rollout."""
    waiting = content["waiting"]
    turn = {name: measured["median"] for name, measured in waiting["seconds_a_turn"].items()}
    lines = head([f"{waiting['environments']} environments of {1e3 * waiting['wait']:.0f} ms", *turn])
    lines += [row(["seconds a turn", f"{turn['side by side']:.3f}", f"{turn['one by one']:.2f}"]), ""]
    lines += head(
        ["environments that compute", "rows", "tokens a row", "rollout", "their share: threads", "no threads"]
    )
    for found in content["computing"]:
        shares = [f"{100 * found['share'][name]['median']:.1f} %" for name in ("threads", "no threads")]
        rollout = f"{found['seconds']['threads']['median']:.2f} s"
        lines.append(row([f"`{found['env']}`", found["rows"], f"{found['tokens']:.0f}", rollout, *shares]))
    rounds = " and ".join(f"{len(found['rounds'])} ({name})" for name, found in waiting["seconds_a_turn"].items())
    return text([*lines, "", f"Medians of rounds: {rounds}. Commit {commit(content['commit'])}."])


def contexts_table(content: dict[str, Any]) -> str:
    """One row a case: what a rollout computes with every row by itself, and with equal contexts once."""
    lines = head(
        ["", "groups", "temperature", "nats a token", "different trajectories", "the same as apart"]
        + ["tokens computed: apart, shared", "seconds: apart, shared", "ratio"]
    )
    for found in content["rows"]:
        case = found["case"]
        every = case["groups"] * case["size"]
        cells = [
            f"`{case['env']}`",
            f"{case['groups']} × {case['size']}",
            f"{case['temperature']:g}",
            f"{found['nats_a_token']:.2f}",
            f"{found['different']} of {every}",
            f"{found['equal']} of {every}",
            f"{found['apart_tokens']:,}, {found['shared_tokens']:,}",
            f"{found['apart_seconds']:.1f}, {found['shared_seconds']:.1f}",
            f"{found['ratio']:.2f} ({min(found['ratios']):.2f} to {max(found['ratios']):.2f})",
        ]
        lines.append(row(cells))
    rest = f"{content['model']}. Medians of {content['rounds']} rounds, and their range. "
    return text([*lines, "", f"{rest}Commit {commit(content['commit'])}."])

"""The tables of claims and verdicts, of rankings at equal cost, and of aggregates, from ``results/claims.json``."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from findings.matched import AXES
from findings.verdicts import AGAINST_IN_PART, AGREES, DISAGREES, IN_PART, NOT_RUN, VERDICTS

from pages.markdown import commit, head, row, text

Claim = Mapping[str, Any]


def verdict_tables(content: Mapping[str, Any]) -> str:
    """Counts, a table of verdicts a paper, and what is asked where."""
    claims: Sequence[Claim] = content["claims"]
    counts = Counter(claim["verdict"] for claim in claims)
    said = [f"{counts[name]} {name.replace('agrees', 'agree')}" for name in VERDICTS]
    early = sum(is_early(claim) for claim in claims)
    verdicts = "1 verdict is" if early == 1 else f"{early} verdicts are"
    so_far = f" {verdicts} *so far*: places or seeds that may change them are not run yet." * bool(early)
    lines = [f"{len(claims)} claims: {', '.join(said)}.{so_far}"]
    lines += ["", "### The ones that matter most", "", *_verdicts([claim for claim in claims if claim["headline"]])]
    for paper in dict.fromkeys(claim["paper"] for claim in claims):
        of_paper = [claim for claim in claims if claim["paper"] == paper and not claim["headline"]]
        lines += ["", f"### {_escaped(paper)}", "", *_verdicts(of_paper)]
    lines += ["", "### Where each question is asked", "", *_asked(content["asked"])]
    return text([*lines, "", f"Commit {commit(content['commit'])}."])


def figure_tables(content: Mapping[str, Any]) -> str:
    """The figures of every place, signs before a drop, rankings and aggregates, each with its heading."""
    lines = ["## Every place", "", *_figures(content["claims"])]
    lines += ["", "## Signs before a drop", "", *_signs(content["signs"])]
    lines += ["", "## At equal cost", "", *_rankings(content["matched"])]
    lines += ["", "## All games together", "", *_aggregates(content["aggregates"])]
    return text([*lines, "", f"Commit {commit(content['commit'])}."])


def _verdicts(claims: Sequence[Claim]) -> list[str]:
    lines = head(["finding", "published in", "refuted if", "verdict", "differences", "where"])
    for claim in claims:
        verdict = f"**{claim['verdict']}**{_share(claim)}" + ", so far" * is_early(claim)
        cells = (f"{_linked(claim)}: {claim['says']}", claim["source"], claim["refuted"], verdict, _range(claim))
        lines.append(row([*map(_escaped, (*cells, _where(claim["places"])))]))
    return lines


def _share(claim: Claim) -> str:
    """Of a verdict in part: in how many of the places that were run, and in how many it is the other way."""
    counts = Counter(place["verdict"] for place in claim["places"] if place["verdict"] != NOT_RUN)
    if claim["verdict"] not in (IN_PART, AGAINST_IN_PART):
        return ""
    own = counts[AGREES if claim["verdict"] == IN_PART else DISAGREES]
    against = counts[DISAGREES] if claim["verdict"] == IN_PART else 0
    other_way = f", {against} disagree{'s' * (against == 1)}" if against else ""
    return f" ({own} of {counts.total()}{other_way})"


def _range(claim: Claim) -> str:
    """The smallest and the largest mean difference of all places, ``-0.17 to +0.05``; of ratios, ``× 0.80 to 2.7``."""
    means = sorted(place["difference"]["mean"] for place in claim["places"] if place["difference"])
    if not means:
        return "–"
    ends = list(dict.fromkeys((means[0], means[-1])))
    if claim["ratio"]:
        return f"× {' to '.join(f'{math.exp(end):.2g}' for end in ends)}"
    return " to ".join(dict.fromkeys(f"{round(end, 2) + 0.0:+.2f}" for end in ends))


def _asked(questions: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row a question, a column a game: its forms, each with the fewest and the most seeds of a variant."""
    games = sorted({game for each in questions for game in each["games"]})
    lines = head(["question", *games])
    for each in questions:
        forms = [", ".join(map(_form, sorted(each["games"].get(game, {}).items()))) for game in games]
        lines.append(row([f"[{each['question']}]({each['question']}.md)", *(cell or "–" for cell in forms)]))
    said = "The form, and how many seeds its variants have there. GRPO: all without a critic, such as GiGPO."
    return [*lines, "", said]


def _form(found: tuple[str, Sequence[int]]) -> str:
    """``PPO 5``, or ``GRPO 3 to 5``."""
    name, seeds = found
    return f"{name} {' to '.join(map(str, dict.fromkeys(seeds)))}"


def _linked(claim: Claim) -> str:
    """The name, as a link to the page of the question that asks it."""
    name = f"`{claim['name']}`"
    return f"[{name}]({claim['questions'][0]}.md)" if claim["questions"] else name


def is_early(claim: Claim) -> bool:
    """Whether there is a verdict, and places or seeds that may change it."""
    if claim["verdict"] == NOT_RUN:
        return False
    return any(place["verdict"] == NOT_RUN or place["lacks"] for place in claim["places"])


def _where(places: Sequence[Mapping[str, Any]]) -> str:
    """The places by verdict; of those not run yet, the number."""
    named: dict[str, list[str]] = {}
    for place in places:
        form = f" ({place['form']})" if place["form"] else ""
        named.setdefault(place["verdict"], []).append(f"{place['game']}{form}")
    later = len(named.pop(NOT_RUN, []))
    found = sorted(named.items(), key=lambda item: VERDICTS.index(item[0]))
    said = [f"{verdict}: {', '.join(names)}" for verdict, names in found]
    return "; ".join([*said, f"{NOT_RUN} in {later}"] if later else said) or "no question asks it yet"


def _figures(claims: Sequence[Claim]) -> list[str]:
    """A row a place that has been run; where the figure does not decide, why."""
    lines = head(["finding", "game", "form", "trained", "difference [95 %]", "least that counts", "seeds", "verdict"])
    for claim in claims:
        for place in claim["places"]:
            found = place["difference"]
            if place["verdict"] != NOT_RUN:
                least = f"× {place['effect']:g}" if claim["ratio"] else f"{place['effect']:g}"
                shown = "–" if found is None else _interval(claim, found)
                seeds = "–" if found is None else f"{found['n']}" + f" of {place['planned']}" * place["lacks"]
                verdict = f"{place['verdict']}: {place['why']}" if place["why"] else place["verdict"]
                cells = (place["game"], place["form"], _trained(place["trained"]), shown, least, seeds, verdict)
                lines.append(row([f"`{claim['name']}`", *cells]))
    return lines


def _trained(found: Mapping[str, Sequence[int]]) -> str:
    """``800 of 6,400``: updates and trajectories; where runs differ, all."""
    said = [" / ".join(f"{each:,}" for each in dict.fromkeys(found[name])) for name in ("step", "trajectories")]
    return " of ".join(said) if all(said) else "–"


def _interval(claim: Claim, found: Mapping[str, float]) -> str:
    """``+0.10 [-0.11, 0.31]``; ratios as ``× 1.63 [1.52, 1.75]``."""
    if claim["ratio"]:
        mean, low, high = (f"{math.exp(found[name]):.3g}" for name in ("mean", "low", "high"))
        return f"× {mean} [{low}, {high}]"
    mean, low, high = (round(found[name], 3) + 0.0 for name in ("mean", "low", "high"))  # + 0.0: no "-0.000"
    return f"{mean:+.3f} [{low:.3f}, {high:.3f}]"


def _signs(found: Mapping[str, Any]) -> list[str]:
    """Counts over all runs and by game, the step of every turn in those that dropped, and a picture a game."""
    columns = ["turned before the drop [95 %]", "updates before", "turned without a drop [95 %]"]
    lines = head(["sign", "turns at", *columns])
    for count in found["counts"]:
        leads = ", ".join(map(str, count["leads"])) or "–"
        lines.append(row([count["sign"], count["share"], _rate(count["before"]), leads, _rate(count["false"])]))
    first = found["counts"][0]["share"]
    lines += ["", f"The same at {first:g}, by game:", "", *head(["game", "sign", columns[0], columns[2]])]
    for game, counts in found["by_game"].items():
        lines += [row([game, count["sign"], _rate(count["before"]), _rate(count["false"])]) for count in counts]
    names = list(dict.fromkeys(count["sign"] for count in found["counts"]))
    fallen, at_once = len(found["dropped"]), sum(each["at_once"] for each in found["dropped"])
    said = (
        f"{found['runs']} runs with nine evaluations or more. {at_once} of the {fallen} that dropped did so "
        "at the first or second evaluation after the start (*at once*), before a sign can turn; they are not counted. "
        "Those that dropped, and the step of each turn at 0.85:"
    )
    lines += ["", said, "", *head(["question, game", "variant", "seed", "updates", "drop", *names])]
    for each in found["dropped"]:
        turns = [each["turns"].get(name, ["not logged"])[0] for name in names]
        cells = (f"{each['question']}, {each['task']}", _escaped(each["variant"]), each["seed"], each["steps"])
        drop = f"{each['drop']}, at once" if each["at_once"] else each["drop"]
        lines.append(row([*cells, drop, *("–" if step is None else step for step in turns)]))
    lines += ["", "![RAGEN's Figure 6, and the turns here](../benchmarks/results/claims_signs_published.png)"]
    for game in found["games"]:
        lines += ["", f"![Success and its signs: {game}](../benchmarks/results/claims_signs_{game}.png)"]
    return lines


def _rate(found: Mapping[str, float]) -> str:
    """``4 of 11 [0.15, 0.65]``."""
    if not found["of"]:
        return "–"
    return f"{found['count']} of {found['of']} [{found['low']:.2f}, {found['high']:.2f}]"


def _rankings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row a question and group: the ranking by each cost, those worse than the first in brackets."""
    lines = head(["question", "compared in", *(f"equal {name}" for name in AXES.values())])
    for found in rows:
        ranked = [[_ranking(each, name) for each in found[axis]] for axis, name in AXES.items()]
        other = "of other commits or seeds"
        cells = [f"; {other}: ".join(each) or f"cannot be told: runs {other}" for each in ranked]
        lines.append(row([f"`{found['question']}`", found["group"], *map(_escaped, cells)]))
    return lines


def _ranking(found: Mapping[str, Any], unit: str) -> str:
    named = [f"{each['label']} {each['success']:.2f}" for each in found["ranking"]]
    marked = [f"({name})" if each["worse"] else name for name, each in zip(named, found["ranking"], strict=True)]
    return f"at {found['budget']:,.0f} {unit}{_seeds(found)}: {'; '.join(marked)}"


def _seeds(found: Mapping[str, Any]) -> str:
    """The seeds of a ranking, if some of its variants lack others."""
    if not found["missing"]:
        return ""
    lacking: dict[str, list[str]] = {}
    for label, seeds in found["missing"].items():
        lacking.setdefault(", ".join(map(str, seeds)), []).append(label)
    said = "; ".join(f"without {seeds}: {', '.join(labels)}" for seeds, labels in lacking.items())
    return f" (seeds {', '.join(map(str, found['seeds']))}; {said})"


def _aggregates(questions: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = head(["question", "variant", "interquartile mean [95 %]", "runs"])
    for found in questions:
        for each in found["variants"]:
            figures = f"{each['iqm']:.3f} [{each['low']:.3f}, {each['high']:.3f}]"
            cells = (f"`{found['question']}`", _escaped(each["label"]), figures, sum(map(len, each["scores"])))
            lines.append(row(cells))
    games = "; ".join(f"`{found['question']}`: {', '.join(found['games'])}" for found in questions)
    said = f"Success at the end, 0 is random play, 1 the oracle. {games}."
    return [*lines, "", said, "", "![Performance profiles](../benchmarks/results/claims_profiles.png)"]


def _escaped(cell: str) -> str:
    r"""A*-PO as A\*-PO, so that no asterisk opens emphasis."""
    return cell.replace("A*-PO", "A\\*-PO")

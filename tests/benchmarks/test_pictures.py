"""Pictures of claims and of logged series: what is drawn where, and that series can be told apart."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import claims
import plot
import pytest
from findings import looks, measures, pictures, published, series_pictures, sign_pictures, signs
from findings.intervals import Interval
from findings.published import COMPARISONS, Comparison, Ours
from learning import plots
from matplotlib.figure import Figure

from ragen_trl.monitoring.alerts import drop_step
from tests.support.finished_runs import ending, falling, finals, question
from tests.support.project import ROOT
from tests.support.ragen_trl.reports import write_run

RESULTS = claims.read_results(ROOT / "benchmarks" / "results")
LONG = "a name of a series that says all that there is to say of it, and goes on until nobody listens any more"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn."""
    found: list[Figure] = []
    original = plots.figure

    @contextmanager
    def keep(*args: Any, **options: Any) -> Iterator[Figure]:
        with original(*args, **options) as figure:
            found.append(figure)
            yield figure

    monkeypatch.setattr(plots, "figure", keep)
    return found


def inside(figure: Figure) -> bool:
    """Whether legends, titles and panels lie within the picture."""
    parts = [*figure.legends, *figure.axes, *([figure._suptitle] if figure._suptitle else [])]
    boxes = [part.get_tightbbox(figure._get_renderer()) for part in parts]
    return all(
        box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1 for box in boxes
    )


def test_many_series_all_look_different() -> None:
    """Regression: of more than eight series the ninth looked like the first."""
    found = looks.looks([f"variant {number}" for number in range(40)])
    assert len(set(found.values())) == len({(each.colour, each.dashes) for each in found.values()}) == 40
    names = [f"{game} ({form})" for game, form in product(("bandit", "sokoban"), ("PPO", "GRPO", "PPO, 4 updates"))]
    by_game = looks.looks(names, by_game=True)
    assert len({each.marker for each in by_game.values()}) == len({each[:2] for each in by_game.values()}) == 6
    assert by_game["bandit (PPO)"].dashes == by_game["sokoban (PPO)"].dashes
    assert looks.looks(["sokoban"], by_game=True)["sokoban"].colour == by_game["sokoban (GRPO)"].colour


def test_names_are_read_as_game_and_form() -> None:
    assert looks.parts("sokoban (PPO), best") == ("sokoban", "PPO, best")
    assert looks.parts("sokoban, other symbols (PPO)") == ("sokoban", "other symbols (PPO)")
    assert looks.parts("bandit") == ("bandit", "")
    assert pictures.in_forms("StarPO-S, group") == "StarPO-S (GRPO)"
    assert pictures.in_forms("StarPO, GAE") == "StarPO (PPO)"
    assert pictures.in_forms("bi-level GAE") == "bi-level GAE"


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda each: each.picture)
def test_nothing_is_cut_off_when_all_runs_are_there(
    comparison: Comparison, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Regression: the right half of a legend was cut off, and error bars ran out of the top."""
    monkeypatch.setattr(pictures, "_value", lambda *_: Interval(0.9, 0.4, 1.3, 3))
    assert pictures.draw_comparison(comparison, RESULTS, tmp_path / "a.png")
    (figure,) = drawn
    assert inside(figure)
    series = len(comparison.published) + sum(len(comparison.games) if "{}" in name else 1 for name in comparison.here)
    assert len(figure.axes) > 2 or series <= pictures.MOST
    for axes in figure.axes:
        ends = [end for bars in axes.collections for path in bars.get_paths() for _, end in path.vertices]
        low, high = axes.get_ylim()
        if comparison.quantity == "success":
            assert all(low <= end <= high for end in ends) and high < 1.1


def test_long_names_stand_in_one_column_and_are_broken(drawn: list[Figure], tmp_path: Path) -> None:
    names = [f"{number} {LONG}" for number in range(3)]
    with plots.figure(tmp_path / "a.png", (6.0, 2.0 + looks.legend_height(names, 6.0)), looks.SETTINGS) as figure:
        figure.subplots()
        looks.draw_legend(figure, looks.looks(names))
    assert inside(drawn[0]) and figure.legends[0]._ncols == 1
    assert all("\n" in text.get_text() for text in figure.legends[0].get_texts())


def test_a_series_with_a_single_value_is_no_comparison() -> None:
    row = (Ours("game", "a"), Ours("game", "b"))
    comparison = Comparison("q", "Paper", "", ("a", "b"), {}, {"both": row, "one": (row[0], Ours("game", "gone"))})
    found = pictures.measured(comparison, {"q": question(a=ending(0.5, 0.6), b=ending(0.4, 0.5))})
    assert list(found) == ["both"]


def test_a_value_may_come_from_another_question() -> None:
    row = (Ours("game", "a"), Ours("game", "a", question="other"))
    comparison = Comparison("q", "Paper", "", ("a", "b"), {}, {"both": row})
    found = pictures.measured(comparison, {"q": question(a=ending(0.5)), "other": question(a=ending(0.8))})
    assert [value.mean for value in found["both"] if value is not None] == [0.5, 0.8]


def test_lengths_are_those_of_a_reply_in_tokens() -> None:
    ends = zip(ending(0.5, 0.5), (10.0, 40.0), strict=True)
    runs = [{**run, "final": finals(0.5, reply_tokens=tokens, turns=2.0)} for run, tokens in ends]
    content = question(a=runs)
    begun = content["tasks"]["game"]["prepared"]["results"]["held out"]["warm_start"]
    begun |= {"reply_tokens": 30.0, "turns": 3.0}
    row = (Ours("game", "warm_start", published.LENGTH), Ours("game", "a", published.LENGTH))
    found = pictures.measured(Comparison("q", "", "", ("start", "end"), {}, {"a": row}), {"q": content})["a"]
    assert [value.mean for value in found if value is not None] == pytest.approx([10.0, 10.0])  # of 5 and 20
    assert found[1] is not None and found[1].low > 0


def test_every_picture_has_a_name_of_its_own_and_stands_on_a_page() -> None:
    names = [comparison.picture for comparison in COMPARISONS]
    assert len(set(names)) == len(names)
    for comparison in COMPARISONS:
        page = (ROOT / "docs" / "experiments" / f"{comparison.question}.md").read_text(encoding="utf-8")
        assert f"(../../benchmarks/results/{comparison.picture})" in page
    assert "claims_signs_published.png" in (ROOT / "docs" / "warning_signs.md").read_text(encoding="utf-8")


def test_halves_have_one_scale_where_both_need_nearly_the_same() -> None:
    def scales(there: float, here: float) -> list[tuple[float, float]]:
        rows = [{"a": [Interval(0.1, 0.1, 0.1, 1), Interval(high, high, high, 1)]} for high in (there, here)]
        return pictures._scales(Comparison("q", "", "", ("a", "b"), {}, {}), *rows)

    one, two = scales(0.8, 1.0)
    assert one == two == pytest.approx((-0.05, 1.06))
    one, two = scales(0.25, 1.0)
    assert one == pytest.approx((-0.0125, 0.265)) and two == pytest.approx((-0.05, 1.06))


def test_a_sign_is_drawn_as_it_is_judged() -> None:
    """The mean from one evaluation to the next, on which `turn` finds its step."""
    values = {"steps": [1, 10, 11, 20], "values": {"entropy": [1.0, 3.0, 5.0, 7.0]}}
    run = falling([0.5, 0.5, 0.5], [1.0] * 3, series=[values])
    assert signs.between_evaluations(run, signs.series(run, signs.ENTROPY)) == [(10.0, 2.0), (20.0, 6.0)]
    for variant, sign in product(RESULTS["collapse"]["tasks"]["sokoban_200"]["variants"].values(), signs.SIGNS):
        for each in variant["runs"]:
            points = signs.between_evaluations(each, signs.series(each, sign))
            steps, means = [int(step) for step, _ in points], [mean for _, mean in points]
            turned = [drop_step(steps, means)] if sign.falls else []
            if sign.rises and min(means) > 0:
                turned.append(drop_step(steps, [1 / mean for mean in means]))
            found = min((step for step in turned if step is not None), default=None)
            assert signs.turn(each, sign) == found


def test_three_seeds_are_three_marks(drawn: list[Figure], tmp_path: Path) -> None:
    """Regression: marks of seeds that turn at one step covered each other."""
    success, spread = [0.8, 0.8, 0.8, 0.2, 0.1, 0.1], [1.0, 1.0, 0.9, 0.2, 0.2, 0.2]
    runs = [{**falling(success, spread), "seed": seed} for seed in (1, 2, 3)]
    sign_pictures.draw_signs("game", {"A": runs, "B": runs}, tmp_path / "a.png")
    (figure,) = drawn
    assert inside(figure) and len(figure.axes) == 4
    for panel in figure.axes:
        marks = [tuple(each.get_offsets()[0]) for each in panel.collections if len(each.get_offsets()) == 1]
        marks = [mark for mark in marks if mark != (0.0, 0.0)]
        assert len(marks) == len(set(marks)) == 3 and len({step for step, _ in marks}) == 1
        low, high = panel.get_ylim()
        top = max(max(line.get_ydata()) for line in panel.lines)
        assert (top - low) / (high - low) < min(height for _, height in marks)


def test_turns_are_in_rollouts_beside_those_of_the_paper(drawn: list[Figure], tmp_path: Path) -> None:
    # Means over three neighbours are below 0.85 of the highest one at the fifth of nine evaluations, and at the third.
    run = falling([0.8] * 5 + [0.2, 0.1, 0.1, 0.1], [1.0, 1.0, 0.9] + [0.2] * 6)
    content = question(ppo_four=[run])
    content["tasks"]["bandit_200"] = content["tasks"].pop("game")
    found = sign_pictures._turns({"collapse": content}, "bandit")
    assert found["RAGEN, Figure 6"] == {"std within groups": 70, "gradient norm": 170, "success drops": 120}
    assert found["PPO, seed 0"] == {"std within groups": 50.0, "gradient norm": None, "success drops": 100.0}
    sign_pictures.draw_turns({"collapse": content}, tmp_path / "a.png")
    assert inside(drawn[0])


def test_the_page_of_warning_signs_counts_the_turns_that_its_picture_has() -> None:
    rows = [row for game in (*published.FIGURE_6, "frozenlake") for row in sign_pictures._turns(RESULTS, game).items()]
    turns = [
        (found["std within groups"], found["success drops"]) for name, found in rows if not name.startswith("RAGEN")
    ]
    drops = [(turn, drop) for turn, drop in turns if drop is not None]
    before = sum(turn is not None and turn < drop for turn, drop in drops)
    falls = sum(turn is not None for turn, drop in turns if drop is None)
    numbers = {2: "two", 3: "three", 7: "seven", 8: "eight"}
    said = (
        f"it falls before {numbers.get(before, before)} of the {numbers.get(len(drops), len(drops))} drops of vanilla "
        f"StarPO, and in {falls} of the {len(turns) - len(drops)} runs without one"
    )
    assert said in " ".join((ROOT / "docs" / "warning_signs.md").read_text(encoding="utf-8").split())


def test_a_running_mean_is_over_points_around() -> None:
    points = [(0.0, 1.0), (1.0, 4.0), (2.0, 1.0), (3.0, 10.0)]
    assert series_pictures.running_mean(points, 3) == [(0.0, 2.5), (1.0, 2.0), (2.0, 5.0), (3.0, 5.5)]
    assert series_pictures.running_mean(points, 1) == points


def test_series_have_a_panel_a_task_and_measure(drawn: list[Figure], tmp_path: Path) -> None:
    runs = [falling([0.5, 0.7, 0.6], [2.0, 1.0, 3.0])] * 2
    families = {f"{task}: {name}": runs for task, name in product(("lake", "bandit"), "AB")}
    families["lake: alone"] = runs[:1]
    empty = series_pictures.draw_measures(["held_out", "kl"], families, tmp_path / "a.png", "q", "trajectories", 3)
    (figure,) = drawn
    assert empty == [] and inside(figure) and figure._suptitle.get_text() == "q; dark: running mean of 3 points"
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["lake", "bandit"] * 2
    assert {panel.get_xlabel() for panel in figure.axes} == {"sampled trajectories"}
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["A (2 seeds)", "B (2 seeds)", "alone (1 seed)"]
    light, _, dark = figure.axes[0].lines[:3]
    assert list(light.get_ydata()) == [0.5, 0.7, 0.6] and list(light.get_xdata()) == [0, 10, 20]
    assert list(dark.get_ydata()) == pytest.approx([0.6, 0.6, 0.65])


def test_the_mean_against_a_clock_is_at_the_mean_of_the_seeds(drawn: list[Figure], tmp_path: Path) -> None:
    runs = [falling([0.5, 0.7], [1.0] * 2) for _ in range(2)]
    runs[1]["curve"] = [{**row, "cpu_seconds": 3 * row["cpu_seconds"]} for row in runs[1]["curve"]]
    series_pictures.draw_measures(["held_out"], {"A": runs}, tmp_path / "a.png", against="cpu_seconds")
    assert list(drawn[0].axes[0].lines[-1].get_xdata()) == [0.0, 2.0]  # of 1 and 3 seconds


def test_gradients_are_multiples_of_those_with_the_least_spread(drawn: list[Figure], tmp_path: Path) -> None:
    def logging(**quarters: list[float]) -> dict[str, Any]:
        named = {f"signal/{name}_{place + 1}": [row[place]] for name, row in quarters.items() for place in range(4)}
        return {"series": [{"steps": [1], "values": named}]}

    runs = [logging(task=[2, 4, 6, 8], std=[0.0, 0.1, 0.2, 0.3], entropy=[1, 1, 1, 0.5]), {}]
    pictures.draw_gradients({"game": runs, "other": []}, tmp_path / "a.png")
    assert [list(line.get_ydata()) for line in drawn[0].axes[0].lines] == [[1, 2, 3, 4], [1, 1, 1, 0.5]]


def test_a_profile_reaches_a_quarter_below_random_play_at_most(drawn: list[Figure], tmp_path: Path) -> None:
    profiled = {"games": ["game"], "variants": [{"label": "A", "scores": [[-1.1, 0.5]]}]}
    pictures.draw_profiles([profiled], tmp_path / "a.png")
    (line,) = drawn[0].axes[0].lines
    shares = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert (min(shares), shares[-0.25], shares[0.495], shares[0.5]) == (-0.25, 0.5, 0.5, 0.0)


def test_more_families_than_can_be_told_apart_are_refused_with_their_task(tmp_path: Path) -> None:
    """Regression: 22 families in one panel, of which three looked the same each time."""
    runs = [falling([0.5, 0.7], [1.0] * 2)]
    families = {f"lake: {number}": runs for number in range(9)} | {"bandit: A": runs}
    with pytest.raises(series_pictures.CrowdedPanelError, match="told apart: lake has 9; name fewer"):
        series_pictures.draw_measures(["held_out"], families, tmp_path / "a.png")
    folder = {"my-run": [{"history": [{"step": 1, "entropy": 0.5}]}]}
    with pytest.raises(series_pictures.UnknownAxisError, match="my-run has no evaluations with trajectories"):
        series_pictures.draw_measures(["entropy"], folder, tmp_path / "a.png", against="trajectories")


def test_panels_share_a_scale_unless_it_makes_one_flat(drawn: list[Figure], tmp_path: Path) -> None:
    high, low, like = ([falling([0.5, 0.5], spread)] for spread in ([9.0, 20.0], [0.4, 0.5], [8.0, 12.0]))
    for others in (low, like):
        families = {"sokoban: A": high, "bandit: A": others}
        series_pictures.draw_measures(["in_group_std"], families, tmp_path / "a.png")
    assert [[panel.get_ylim()[1] > 5 for panel in figure.axes] for figure in drawn] == [[True, False], [True, True]]
    assert drawn[1].axes[0].get_ylim() == drawn[1].axes[1].get_ylim()


def test_any_logged_measure_is_drawn_and_an_unknown_one_is_answered_with_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = question(a=[falling([0.5, 0.5], [2.0, 1.0])])
    content["tasks"]["game"]["variants"]["a"]["runs"][0]["digest"] = "d"
    (tmp_path / "q.json").write_text(json.dumps(content))
    (tmp_path / "logged").mkdir()
    logs = {"d": {"series": [{"steps": [1, 2], "values": {"entropy": [0.5, 0.25]}}]}}
    (tmp_path / "logged" / "q.json").write_text(json.dumps(logs))
    assert measures.logged(plot.of_question(tmp_path / "q.json", None, None)["game: A"][0])["entropy"][1] == (2.0, 0.25)

    def drawn(*options: str) -> int:
        monkeypatch.setattr("sys.argv", ["plot.py", str(tmp_path / "q.json"), *options])
        return plot.main()

    target = tmp_path / "x.png"
    assert drawn("--measure", "entropy", "in_group_std", "--output", str(target)) == 0 and target.exists()
    families = plot.read_families([write_run(tmp_path / "lake-seed0")], None, None)
    assert list(families) == ["lake-seed0"]
    # Regression: of two folders or questions with equal names the first was lost.
    again = [tmp_path / "lake-seed0", write_run(tmp_path / "b" / "lake-seed0"), *[tmp_path / "q.json"] * 2]
    assert list(plot.read_families(again, None, None)) == [
        *("lake-seed0", f"lake-seed0 ({tmp_path / 'b' / 'lake-seed0'})", "game: A", f"game: A ({tmp_path / 'q.json'})")
    ]
    assert measures.logged(families["lake-seed0"][0])["entropy"]
    target.unlink()
    assert drawn("--measure", "entopy", "--output", str(target)) == 1 and not target.exists()
    assert "no run logged 'entopy'; they logged entropy, held_out, in_group_std, kl" in capsys.readouterr().err
    assert drawn("--measure", "entropy", "--task", "gone") == 1
    assert "has no such task or variant; it has game (a)" in capsys.readouterr().err
    content["tasks"]["game"]["variants"] |= {f"v{n}": {"label": f"V{n}", "runs": []} for n in range(8)}
    (tmp_path / "q.json").write_text(json.dumps(content))
    assert drawn("--measure", "entropy") == 1
    assert "q.json has more than 8 variants in a task; choose with --variants; it has game (a, v0, " in (
        capsys.readouterr().err
    )
    for name, said in (("b", "is a folder of run folders; name those: "), ("c", "does not exist")):
        with pytest.raises(plot.NoRunsError, match=said):
            plot.read_families([tmp_path / name], None, None)

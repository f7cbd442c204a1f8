"""The report on runs that differ, some of them only in their seed; and its alerts."""

from pathlib import Path

from ragen_trl.monitoring.alerts import find_alerts
from ragen_trl.reporting.figures import MARKS
from ragen_trl.reporting.report import read_run
from ragen_trl.reporting.run_folder import families
from tests.support.ragen_trl.reports import changed, page, seeds, success_only, words, write_run


def test_families_of_repetitions_are_compared(tmp_path: Path) -> None:
    history = success_only(20)
    first = seeds(tmp_path / "a", [(0.8, 0.76, 0.83), (0.6, 0.56, 0.64)], history=history)
    second = [write_run(tmp_path / "b", changed(seed=1, config={"learning_rate": 0.01}), history)]
    html = page([first[0], *second, first[1]], tmp_path)
    text = words(html)
    assert "learning_rate=0.001: success over 2 seeds (1, 2), 512 held-out start states each" in text
    assert "learning_rate=0.01: success on 512 held-out start states" in text
    assert "Runs that differ only in their seed are pooled, others not: they differ in learning_rate." in text
    assert "learning_rate=0.001: mean (min–max) over 2 seeds (1, 2)" in text
    assert "trained 0.70 (0.60–0.80)" in text
    headings = ("learning_rate=0.001, seed 1", "learning_rate=0.001, seed 2", "learning_rate=0.01")
    places = [text.index(f"{heading} policy") for heading in headings]
    assert places == sorted(places)
    assert "Band: from the lowest to the highest run, no confidence interval." in text


def test_families_that_differ_in_much_are_called_after_their_folders(tmp_path: Path) -> None:
    many = dict.fromkeys(("beta", "clip", "filter", "lambda"), 1)
    runs = [read_run(write_run(tmp_path / "a" / "x")), read_run(write_run(tmp_path / "b" / "x", changed(config=many)))]
    again = read_run(write_run(tmp_path / "c", changed(seed=9)))
    found = families([*runs, again])
    assert [family.label for family in found] == [str(tmp_path / "a" / "x"), str(tmp_path / "b" / "x")]
    assert [len(family.runs) for family in found] == [2, 1]
    assert [family.label for family in families([runs[0], again])] == [""]


def test_repetitions_without_baselines_say_so(tmp_path: Path) -> None:
    """An environment of a user may have no oracle and, with free text as actions, no random play."""
    missing = {"random": {"not_played": "no random play"}, "oracle": {"not_played": "no oracle"}}
    runs = [
        write_run(tmp_path / str(seed), changed(seed=seed, results=missing), success_only(3)) for seed in (1, 2)
    ]
    text = words(page(runs, tmp_path))
    assert "0.31 after the warm start, 0.80 after training, mean and range over runs. Training is" in text
    assert "is shown to raise success in 2 of 2 runs." in text and "random policy" not in text
    assert text.count("no random play") == text.count("no oracle") == 3  # of both, and of each


def test_alerts_that_fired_are_listed_and_marked(tmp_path: Path) -> None:
    history = [{"step": step, "filter/in_group_std": 1.0 if step <= 10 else 0.2} for step in range(1, 31)]
    run, calm = write_run(tmp_path / "run", history=history), write_run(tmp_path / "calm", history=history[:10])
    html = page([run, calm], tmp_path)
    (alert,) = find_alerts(history)
    text = words(html)
    assert f"alert kind fired what it says spread falls early run at {alert.step} {alert.rule.says}" in text
    assert MARKS["early"][0] in html[html.index("<svg") :]
    alone = page([tmp_path / "calm"], tmp_path)
    assert "No alert fired in what was logged." in words(alone)
    assert MARKS["early"][0] not in alone[alone.index("<svg") :]

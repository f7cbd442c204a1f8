"""The tables of an evaluation, cell by cell."""

from typing import Any

from ragen_trl.evaluation.tables import (
    difference_rows,
    fault_rows,
    header,
    markdown,
    overview,
    rows,
    task_type_rows,
    terminal,
)


def result(success: float, low: float, high: float, **values: Any) -> dict[str, Any]:
    numbers = {"mean_return": success, "return_stderr": 0.01, "format_valid": 1.0, "turns": 2.5, "reply_tokens": 30.0}
    rest = {"n": 128, "left_out": 0, "pass_at_k": {}, "normalised": None}
    return {"success": success, "success_low": low, "success_high": high, **numbers, **rest, **values}


def above(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "starts": 128}


PASSES = {k: {"value": v, "low": v - 0.1, "high": v + 0.1, "starts": 32} for k, v in (("1", 0.5), ("2", 0.75))}
LAKE = {
    "random": result(0.2, 0.1, 0.3, normalised=0.0),
    "runs/a|b": result(
        *(0.5, 0.4, 0.6), normalised=0.375, pass_at_k=PASSES, left_out=3, differences={"random": above(0.3)}
    ),
    "oracle": {"not_played": "no oracle policy: nobody wrote one, alas, and this reason is longer than any cell"},
}
ROOM = {
    "random": result(0.1, 0.0, 0.2),
    "runs/a|b": result(0.15, 0.05, 0.25, differences={"random": above(0.05)}),
    "oracle": result(1.0, 0.9, 1.0),
}
ENVIRONMENTS = {
    name: {"env": f"ragen/{name}", "env_kwargs": {"size": 4}, "options": {"max_turns": 3}, "results": results}
    for name, results in (("Lake", LAKE), ("Room", ROOM))
}


def test_the_cells() -> None:
    assert header(LAKE)[:3] == ["policy", "success [95 %]", "pass@2 [95 %]"]  # pass@1 is the success rate
    assert rows(LAKE)[1] == [
        *("runs/a|b", "0.500 [0.400, 0.600]", "0.750 [0.650, 0.850]", "0.500 ± 0.010", "0.375", "1.000", "2.50"),
        *("30.0", "128 (+3 failed)"),
    ]
    assert rows(LAKE)[0][2] == ""  # no pass@2 of the random policy
    assert rows(LAKE)[2][:3] == ["oracle", LAKE["oracle"]["not_played"], ""]
    assert {len(row) for row in rows(LAKE)} == {len(header(LAKE))}


def test_a_score_has_a_column_where_there_is_one() -> None:
    shop = {"random": result(0.0, 0.0, 0.1, score=0.25), "model": result(0.5, 0.4, 0.6), "oracle": {"not_played": "no"}}
    at = header(shop).index("score")
    assert header(shop)[at - 1 : at + 2] == ["success [95 %]", "score", "return ± s.e."]
    assert [row[at] for row in rows(shop)] == ["0.250", "", ""]
    assert {len(row) for row in rows(shop)} == {len(header(shop))} and "score" not in header(LAKE)


def test_faults_have_a_table_where_there_are_some() -> None:
    assert fault_rows(LAKE) == []
    shop = {
        "random": result(0.0, 0.0, 0.1, faults={"no purchase": 0.75, "wrong kind": 0.25}),
        "model": result(0.5, 0.4, 0.6, faults={"wrong size": 0.5}),
        "oracle": {"not_played": "no goal"},
    }
    assert fault_rows(shop) == [
        ["share with", "no purchase", "wrong kind", "wrong size"],
        ["random", "0.750", "0.250", "0.000"],
        ["model", "0.000", "0.000", "0.500"],
    ]
    environment = {"env": "ragen/ToyShop-v0", "env_kwargs": {}, "options": {}, "results": shop}
    summary = {"episodes": 4, "samples_per_start": 1, "command": "eval", "commit": "abc", "created": "now"}
    assert "| random | 0.750 | 0.250 | 0.000 |" in markdown({**summary, "environments": {"ToyShop": environment}})
    assert "share with  no purchase" in terminal({"ToyShop": environment})


def test_types_of_tasks_have_a_table_where_there_are_some() -> None:
    assert task_type_rows(LAKE) == []
    bounds = {"success_low": 0.0, "success_high": 0.9}
    heat, cool = {"n": 8, "success": 0.5, **bounds}, {"n": 4, "success": 0.25, **bounds}
    house = {
        "random": result(0.0, 0.0, 0.1, task_types={"heat": heat, "cool": cool}),
        "model": result(0.5, 0.4, 0.6, task_types={"heat": heat}),
        "oracle": {"not_played": "no goal"},
    }
    assert task_type_rows(house) == [
        ["success in", "cool", "heat"],
        ["random", "0.250 [0.000, 0.900] (n=4)", "0.500 [0.000, 0.900] (n=8)"],
        ["model", "–", "0.500 [0.000, 0.900] (n=8)"],
    ]
    environment = {"env": "ragen/TextWorld-v0", "env_kwargs": {}, "options": {}, "results": house}
    summary = {"episodes": 4, "samples_per_start": 1, "command": "eval", "commit": "abc", "created": "now"}
    assert "| model | – | 0.500 [" in markdown({**summary, "environments": {"House": environment}})
    assert "success in" in terminal({"House": environment})


def test_models_are_compared_with_random_play_and_the_first_model() -> None:
    first = result(0.5, 0.4, 0.6, differences={"random": above(0.3)})
    second = result(0.6, 0.5, 0.7, differences={"random": above(0.4), "first": above(0.1)})
    alone = {"random": LAKE["random"], "first": result(0.5, 0.4, 0.6, differences={})}  # nobody played what it did
    assert difference_rows({"random": LAKE["random"], "first": first, "second": second}) == [
        ["success above that of", "random", "first"],
        ["first", "+0.300 [+0.200, +0.400]", "–"],
        ["second", "+0.400 [+0.300, +0.500]", "+0.100 [+0.000, +0.200]"],
    ]
    assert difference_rows(alone) == []


def test_the_overview_has_a_column_an_environment() -> None:
    assert overview(ENVIRONMENTS) == [
        ["success [95 %]", "Lake", "Room"],
        ["random", "0.200 [0.100, 0.300]", "0.100 [0.000, 0.200]"],
        ["runs/a|b", "0.500 [0.400, 0.600]", "0.150 [0.050, 0.250]"],
        ["oracle", "–", "1.000 [0.900, 1.000]"],
    ]


def test_markdown_tables_are_whole() -> None:
    about = {"command": "python -m ragen_trl eval", "commit": "abc", "created": "today"}
    page = markdown({**about, "episodes": 32, "samples_per_start": 4, "environments": ENVIRONMENTS})
    tables = [block.splitlines() for block in page.split("\n\n") if block.startswith("|")]
    assert len(tables) == 5  # the overview, and two an environment
    for table in tables:
        assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert r"| runs/a\|b | 0.500 [0.400, 0.600] |" in page
    assert "`ragen/Lake` with {'size': 4}; max_turns 3." in page
    one = markdown({**about, "episodes": 32, "samples_per_start": 4, "environments": {"Lake": ENVIRONMENTS["Lake"]}})
    assert "every environment" not in one


def test_colour_changes_no_column_and_marks_what_lies_above_random() -> None:
    plain, coloured = terminal(ENVIRONMENTS), terminal(ENVIRONMENTS, colour=True)
    assert "\033" not in plain
    for code in ("\033[0m", "\033[1m", "\033[2m", "\033[32m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain
    green = [line for line in terminal(ENVIRONMENTS, colour=True).splitlines() if line.startswith("\033[32m")]
    assert [line.split()[0] for line in green] == ["\033[32mruns/a|b"]  # in the lake, not in the room
    lake = plain.split("\n\n")[1].splitlines()
    assert lake[2].index("0.200") == lake[3].index("0.500")  # a long reason pushes nothing aside

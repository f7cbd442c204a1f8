"""Counters, their sum over processes, and the text that Prometheus reads."""

import re

from webshop_server.server.metrics import Metrics, shared_table


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_requests_are_counted_by_status_and_time() -> None:
    metrics = Metrics()
    for status, seconds in ((200, 0.0005), (201, 0.001), (302, 0.03), (404, 0.2), (500, 5.0)):
        metrics.begin()
        metrics.end(status, seconds)
    metrics.begin()
    found = values(metrics.text(7))
    counts = [found[f'webshop_requests_total{{status="{status}"}}'] for status in ("2xx", "3xx", "4xx", "5xx")]
    assert counts == [2, 1, 1, 1]
    bounds = [found[f'webshop_request_seconds_bucket{{le="{bound}"}}'] for bound in ("0.001", "0.025", "0.05", "1.0")]
    assert bounds == [2, 2, 3, 4]
    assert found['webshop_request_seconds_bucket{le="+Inf"}'] == found["webshop_request_seconds_count"] == 5
    assert found["webshop_request_seconds_sum"] == 5.2315
    assert found["webshop_sessions"] == 7
    assert metrics.in_flight == 1


def test_processes_add_up() -> None:
    table = shared_table(2)
    first, second = Metrics(table), Metrics(table)
    second.use_row(1)
    first.count("steps")
    second.count("steps")
    second.count("purchases")
    for metrics in (first, second):
        found = values(metrics.text(0))
        assert (found["webshop_steps_total"], found["webshop_purchases_total"]) == (2, 1)
        assert found["webshop_sessions_created_total"] == 0


def test_the_text_has_a_type_for_each_name() -> None:
    text = Metrics().text(0)
    typed = re.findall(r"^# TYPE (\w+) (counter|gauge|histogram)$", text, re.MULTILINE)
    names = {name.split("{")[0] for name in values(text)}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} == {name for name, _ in typed}
    assert text.endswith("\n")

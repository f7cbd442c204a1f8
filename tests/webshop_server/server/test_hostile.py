"""Requests that nobody honest sends: each is answered, none by a fault of the server, none with anything unescaped."""

import io
import random
from collections import Counter
from urllib.parse import quote_from_bytes

from bs4 import BeautifulSoup
from flask import Flask
from werkzeug.test import EnvironBuilder, run_wsgi_app

from webshop_server.store.shop import open_shop

REQUESTS = 1000
MARKUP = (
    "<script>alert(7)</script>",
    "'\"><img src=x onerror=alert(7)>",
    "`${alert(7)}`",
    "</label></form><svg onload=alert(7)>",
    "{{7*7}}{% raw %}",
    "javascript:alert(7)",
)
ATTACKS = (
    *MARKUP,
    *("", " ", "\x00", "%00", "\r\nSet-Cookie: a=b", "..", "../../etc/passwd", "..%2f..%2fetc/passwd", "/", "//", "."),
    *("null", "None", "NaN", "-1", "0", "1e999", "9" * 5000, "1_0", "٣", "{}", "[]", "{", "[", "]", "'", '"', "\\"),
    *("__import__('os').system('true')", "[().__class__]", "{'a':" * 500, "[" * 3000, "{'a': {'b': 'c'}}", "{1: 2}"),
    *("{'a': '" + markup.replace("'", "\\'") + "'}" for markup in MARKUP),
    *("['" + markup.replace("'", "\\'") + "']" for markup in MARKUP),
    *("é" * 500, "\U0001f600" * 300, "\u202e", "a" * 3000, "fixed_", "fixed_-1", "fixed_999999999", "api", "metrics"),
    *("search[" + "x" * 5000 + "]", "click[" * 300 + "]" * 300, "filter[price<50]", "<r>", "<a> <script>", "<c>"),
)
SCRIPTS = (["/static/store.js"], ["/static/store.js", None])  # the latter is data for programs
BYTES = (b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\x80" * 100, b"\xf0\x9f")
METHODS = (*("GET", "POST") * 8, *("HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"))
ROUTES = (
    ("{name}",),
    ("search_results", "{name}", "{words}", "{page}"),
    ("item_page", "{name}", "{asin}", "{words}", "{page}", "{options}"),
    ("item_sub_page", "{name}", "{asin}", "{words}", "{page}", "{sub}", "{options}"),
    ("done", "{name}", "{asin}", "{options}"),
    ("picture", "{asin}.svg"),
    ("static", "{name}"),
    ("drawing", "{name}.svg"),
    ("{name}", "{words}", "{page}"),
)
LENGTHS = (*(None,) * 8, "-1", "x", "", "99999999999", "1")


def sent(
    app: Flask, method: str, path: bytes, query: str = "", body: bytes = b"", kind: str = "", length: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Sends bytes as a server would hand them over."""
    raw = {"PATH_INFO": path.decode("latin-1"), "CONTENT_TYPE": kind}
    raw["CONTENT_LENGTH"] = str(len(body)) if length is None else length
    builder = EnvironBuilder(query_string=query, method=method, input_stream=io.BytesIO(body), environ_overrides=raw)
    content, status, headers = run_wsgi_app(app, builder.get_environ())
    return int(status[:3]), dict(headers), b"".join(content)


def check(status: int, headers: dict[str, str], content: bytes, told: object) -> None:
    assert 200 <= status < 500, told
    assert "Set-Cookie" not in headers and not any("\n" in value or "\r" in value for value in headers.values()), told
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    if headers.get("Content-Type", "").startswith("text/html") and content:
        text = content.decode("utf-8")
        page = BeautifulSoup(text, "html.parser")
        assert [script.get("src") for script in page.find_all("script")] in ([], *SCRIPTS), told
        assert not page.find_all(["svg", "iframe", "object", "style"]), told
        for tag in page.find_all(True):
            assert not any(name.startswith("on") for name in tag.attrs), told
            assert not str(tag.get("href", "")).startswith("javascript"), told
    elif content:
        assert headers["Content-Type"].split(";")[0] in ("application/json", "image/svg+xml", "text/css", "text/plain")
        assert b"<script" not in content, told


def attack(rng: random.Random) -> bytes:
    return rng.choice(BYTES) if rng.random() < 0.1 else rng.choice(ATTACKS).encode()


def drawn_parts(rng: random.Random, good: dict[str, str]) -> list[bytes]:
    """A path with none, one or a few wrong parts: a path that is all wrong gets no further than 404."""
    route = rng.choice(ROUTES)
    parts = [part.format(**good).encode() for part in route]
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        parts[rng.randrange(len(parts) // 2, len(parts))] = attack(rng)
    return parts


def drawn_body(rng: random.Random) -> tuple[bytes, str]:
    kind = rng.choice(
        ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/x", "", "\xff")
    )
    if kind == "application/x-www-form-urlencoded":
        name = rng.choice(("search_query", "action", "action", "color", "price_max", rng.choice(ATTACKS)))
        return f"{name}={rng.choice(ATTACKS)}".encode(), kind
    return rng.choice((rng.choice(ATTACKS).encode(), rng.choice(BYTES), b"x" * 70_000)), kind


def test_hostile_requests_are_answered_and_nothing_comes_back_unescaped(app: Flask) -> None:
    rng = random.Random(233)
    client = app.test_client()
    asin = open_shop("toy").goal(0).asin
    counts: Counter[int] = Counter()
    for number in range(REQUESTS):
        if number % 50 == 0:
            client.get(f"/known{number}" + rng.choice(("", "?mode=html", "?mode=text")))
            good = {"name": f"known{number}", "words": "['shoe']", "page": "1", "asin": asin, "sub": "Features"}
            good |= {"options": "{}"}
        parts = drawn_parts(rng, good)
        fields = ("filter", "price_max", "color", "category", "mode", "goal", "seed")
        names = rng.choices(fields, k=rng.choice((0, 0, 0, 1, 3)))
        query = "&".join(f"{name}={quote_from_bytes(attack(rng))}" for name in names)
        body, kind = drawn_body(rng) if rng.random() < 0.5 else (b"", "")
        request = (rng.choice(METHODS), b"/" + b"/".join(parts), query, body, kind, rng.choice(LENGTHS))
        status, headers, content = sent(app, *request)
        check(status, headers, content, request)
        counts[status] += 1
    # The draw reaches what it should: pages that are served, and each kind of refusal.
    assert {200, 302, 400, 404, 405, 409, 413} <= counts.keys(), counts
    assert counts[400] > 50 and counts[200] > 100, counts
    assert sum(counts.values()) == REQUESTS

"""Every registered environment has its page, which says what the code says.

One whose package is not installed is skipped where it must be made; `make test-worlds` installs it and runs this too.
"""

import inspect
import re

import environment_pages
import gymnasium
import numpy as np
import pytest
from PIL import Image

from ragen_envs.cli.docstring import arguments, sections
from ragen_envs.cli.episode import frames
from ragen_envs.cli.lookup import creator, environment_ids, make_named
from ragen_envs.cli.page import draws_itself, page_name
from ragen_envs.pictures.film import LAST_PAUSE, PAUSE, SIDE
from tests.support.ragen_envs.registered import every_id

REMEDY = "run python benchmarks/environment_pages.py"
# In the order of a page; the first seven are those of the docstring.
SECTIONS = [
    *("Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End", "Information"),
    *("Arguments", "An Episode", "Baselines", "Version History", "Source"),
]
FURTHER = {"Speed", "More"}


def committed(env_id: str) -> str:
    """The page in the checkout."""
    page = environment_pages.FOLDER / f"{page_name(env_id)}.md"
    assert page.exists(), f"{env_id} has no page; {REMEDY}"
    return page.read_text(encoding="utf-8")


@every_id
def test_the_committed_page_is_what_the_code_says(env_id: str) -> None:
    assert not environment_pages.is_stale(env_id), f"the page of {env_id} is not what the code says; {REMEDY}"


@pytest.mark.parametrize("env_id", environment_ids())
def test_a_page_has_every_section_and_every_argument(env_id: str) -> None:
    page, made_by = committed(env_id), creator(gymnasium.spec(env_id))
    assert [title for title in re.findall(r"^## (.+)$", page, re.MULTILINE) if title not in FURTHER] == SECTIONS
    summary, said = sections(made_by)
    assert page.startswith(f"# {env_id}\n\n") and f"\n{summary}\n" in page
    assert all(f"\n## {title}\n\n{text}\n" in page for title, text in said.items() if title != "Arguments")
    found = arguments(made_by, gymnasium.spec(env_id).kwargs)
    assert [each.name for each in found] == list(inspect.signature(made_by).parameters)
    assert all(each.meaning and f"\n| `{each.name}` | " in page for each in found)
    assert "\nThe end\n" in page or "-- success" in page
    assert re.search(r"^\| .* \| random \| 0\.\d{3} \[", page, re.MULTILINE)
    assert re.search(r"^\| .* \| oracle \| [01]\.\d{3} \[", page, re.MULTILINE)
    assert "MIT" in said["Source"] or "Apache-2.0" in said["Source"]


@every_id
def test_the_picture_is_what_the_environment_draws(env_id: str) -> None:
    film = environment_pages.FOLDER / f"{page_name(env_id)}.gif"
    assert film.exists() == draws_itself(env_id) == (f"]({film.name})" in committed(env_id)), REMEDY
    if not film.exists():
        return
    assert film.stat().st_size <= 60_000
    env = make_named(env_id, {"render_mode": "rgb_array"})
    drawn = frames(env)
    env.close()
    shown = []
    with Image.open(film) as opened:
        for number in range(opened.n_frames):
            opened.seek(number)
            pause = opened.info["duration"] - (LAST_PAUSE - PAUSE) * (number == opened.n_frames - 1)
            shown += [np.asarray(opened.convert("RGB"), dtype=float)] * (pause // PAUSE)  # Pillow joins equal ones
    assert len(shown) == len(drawn) >= 2
    for number, (there, frame) in enumerate(zip(shown, drawn, strict=True)):
        wanted = Image.fromarray(frame)
        wanted.thumbnail((SIDE, SIDE))
        assert np.abs(there - np.asarray(wanted)).mean() < 4, f"picture {number} of {env_id} is another one; {REMEDY}"


def test_the_overview_names_every_page() -> None:
    text = (environment_pages.ROOT / environment_pages.OVERVIEW).read_text(encoding="utf-8")
    assert environment_pages.overview() in text, REMEDY
    pages = {path.stem for path in environment_pages.FOLDER.glob("*.md")}
    assert pages == {page_name(env_id) for env_id in environment_ids()}


def test_a_new_environment_wants_its_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = gymnasium.envs.registration.EnvSpec("ragen/Fresh-v3", entry_point="ragen_envs.bandit:Bandit")
    monkeypatch.setitem(gymnasium.registry, "ragen/Fresh-v3", fresh)
    monkeypatch.setattr(environment_pages, "environment_ids", lambda: ["ragen/Bandit-v0", "ragen/Fresh-v3"])
    monkeypatch.setattr("sys.argv", ["environment_pages.py", "--check"])
    assert environment_pages.main() == 1
    assert "docs/environments/Fresh-v3.md, docs/environments.md; run" in capsys.readouterr().err
    row = "| [`ragen/Fresh-v3`](environments/Fresh-v3.md) | Choose one of several arms, once. |"
    assert row in environment_pages.overview()

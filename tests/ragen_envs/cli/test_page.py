"""``python -m ragen_envs describe``: the page of any environment, as soon as it is registered."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image

import ragen_envs
from ragen_envs.cli.docstring import Argument, arguments, sections
from ragen_envs.cli.episode import seed_to_show
from ragen_envs.cli.main import main
from tests.support.project import ROOT
from tests.support.ragen_envs.commands import check_one_line

LAKE = "ragen/FrozenLake-v0"
CORNER = {"size": 2, "frozen_prob": 1.0, "is_slippery": False, "random_start": False}


class Countup(ragen_envs.TextEnv):
    """Say the next number.

    ## Description
    A number is shown. `3` follows on `2` | `1`.

    ## Rewards
    1 for the next number.
    """

    instruction = "Say the next number."
    actions = ("1", "2", "3")

    def __init__(self, first: int, step: int | None = 1, sign: str = "|", render_mode: str | None = None) -> None:
        """Sets the numbers.

        Args:
            first: The first number,
                which is shown.
            step: Ignored.
            sign: What stands between | two numbers.
            render_mode: "ansi", "rgb_array" or None.
        """
        super().__init__(render_mode=render_mode)
        self.first = first

    def _start(self, options: object) -> str:
        return f"Number: {self.first}"

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, bool]]:
        right = int(action) == self.first + 1
        return f"Number: {action}", float(right), True, {"success": right, "action_is_effective": True}

    def _picture(self) -> np.ndarray:
        return np.full((900, 300, 3), 200 if self._terminated else 20, dtype=np.uint8)


@pytest.fixture
def countup(monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a throw-away environment."""
    spec = gymnasium.envs.registration.EnvSpec("me/Countup-v2", entry_point=Countup, max_episode_steps=9)
    spec.kwargs = {"first": 2}
    monkeypatch.setitem(gymnasium.registry, "me/Countup-v2", spec)
    return "me/Countup-v2"


def described(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the command prints."""
    assert main(["describe", *options]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_registering_an_environment_makes_its_page(countup: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = described(capsys, countup)
    top, _, rest = page.partition("## Description")
    assert top == (
        "# me/Countup-v2\n\nSay the next number.\n\n| | |\n|---|---|\n"
        "| Action space | `Text`, 0 to 64 characters |\n| Observation space | `Text`, 0 to 1,024 characters |\n"
        '| Import | `gymnasium.make("me/Countup-v2")` |\n'
        "| Registered | `Countup` with `first=2`, truncated after 9 actions (`TimeLimit`) |\n"
        "| Render modes | `ansi`, `rgb_array` |\n| Options of `reset` | `outcome_seed` |\n| Oracle | no |\n"
        "| Thoughts that explain it | no |\n| Difficulty of a state | no |\n\n"
    )
    assert "\n| argument | default | |\n|---|---|---|\n| `first` | `2` | The first number, which is shown. |\n" in rest
    assert "| `step` | `1` | Ignored. |\n| `sign` | `'\\|'` | What stands between \\| two numbers. |\n" in rest
    assert "\nThe replies, after `>`, are those of random play.\n" in rest
    assert "State:\nNumber: 2\nActions left: 9\n\n> <think></think><answer>" in rest
    assert "`python -m ragen_envs baselines me/Countup-v2 --json FILE`" in rest
    titles = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["Description", "Rewards", "Arguments", "An Episode", "Baselines"]


def test_without_a_policy_there_is_the_first_message(
    countup: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Countup, "actions", None)
    monkeypatch.setattr(Countup, "_parse_action", lambda env, text: text)
    page = described(capsys, countup)
    assert "\nOnly the first message: no policy is registered (`@ragen_envs.best_action.register`).\n" in page
    assert "Number: 2\nActions left: 9\n````\n" in page


def test_the_oracle_plays_once_it_is_registered(
    countup: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known(Countup):
        """Say the next number, as an oracle does."""

    ragen_envs.best_action.register(Known, lambda env, left: str(env.first + 1))
    monkeypatch.setattr(gymnasium.registry[countup], "entry_point", Known)
    page = described(capsys, countup)
    assert "| Oracle | `ragen_envs.best_action` |" in page
    assert "<answer>3</answer>\n\nThe end\nReward: 1\n" in page and "-- success, return 1, 1 action in 1 turn" in page


def test_a_page_in_a_folder_has_a_moving_picture(
    countup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    shown = described(capsys, countup, "--out", str(folder))
    assert shown == f"written to {folder}/Countup-v2.md\nwritten to {folder}/Countup-v2.gif\n"
    assert "# me/Countup-v2\n\n![An episode](Countup-v2.gif)\n\nSay" in (folder / "Countup-v2.md").read_text()
    with Image.open(folder / "Countup-v2.gif") as film:
        assert (film.size, film.n_frames, film.info["loop"], film.info["duration"]) == ((133, 400), 2, 0, 500)
        assert film.convert("RGB").getpixel((5, 5)) == (20, 20, 20)
        film.seek(1)
        assert film.convert("RGB").getpixel((5, 5)) == (200, 200, 200) and film.info["duration"] == 2000


def test_where_the_package_that_draws_is_missing_the_page_has_no_picture(
    countup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: no page of CliffWalking could be written without pygame, nor one of ToyShop without resvg_py."""

    def fails(env: Countup) -> np.ndarray:
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(Countup, "_picture", fails)
    assert main(["describe", countup, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"written to {tmp_path}/Countup-v2.md\n"
    assert shown.err == "left out: the moving picture, because pygame is not installed\n"
    assert (tmp_path / "Countup-v2.md").read_text().startswith("# me/Countup-v2\n\nSay")
    assert not (tmp_path / "Countup-v2.gif").exists()


def test_rows_of_the_environment_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = ragen_envs.baselines.measure(LAKE, "oracle", 10, episodes=20, env_kwargs=CORNER).as_dict()
    other = {**row, "env": "ragen/Bandit-v0", "n": 4711}
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"rows": [{**row, "env": f"ragen_envs:{LAKE}"}, other]}))
    page = described(capsys, f"ragen_envs:{LAKE}", "--rows", str(file))
    given = "size=2, frozen_prob=1.0, is_slippery=False, random_start=False"
    assert f"| `{given}` | 10 | oracle | 1.000 [0.839, 1.000] | 1.000 | 20 |\n" in page  # Wilson: 20 / (20 + z²)
    assert "4711" not in page and "--json FILE" not in page
    assert f'`gymnasium.make("ragen_envs:{LAKE}")`' in page


def test_an_environment_of_another_library_has_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = described(capsys, "Blackjack-v1")
    assert "| Action space | `Discrete(2)` |" in page
    assert "| Observation space | `Tuple(Discrete(32), Discrete(11), Discrete(2))` |" in page
    assert "## Starting State\n\nThe starting state is initialised" in page
    assert "| `natural` | `False` |  |\n| `sab` | `True` |  |" in page and "## An Episode" not in page
    assert "baselines Blackjack-v1 --max_actions N --json FILE`" in page


def test_the_shown_episode_succeeds_and_is_not_the_shortest() -> None:
    lake = gymnasium.make(LAKE)
    seed = seed_to_show(lake, "oracle")
    row = ragen_envs.baselines.measure(LAKE, "oracle", episodes=1, first_seed=seed)
    assert row.success == 1.0 and row.mean_length >= 3


def test_arguments_may_be_described_in_the_docstring_of_a_function() -> None:
    def make(size: int = 3, *, name: str, **others: object) -> None:
        """Makes one.

        Args:
            size (int): How large: 3 or 4.
            name: Its name.
            **others: Ignored.

        Returns:
            Nothing.
        """

    assert arguments(make, {"size": 4}) == [
        Argument("size", "4", "How large: 3 or 4."),
        Argument("name", "", "Its name."),
    ]


def test_arguments_after_the_sections_are_shown_once() -> None:
    class Once(Countup):
        """Say a number.

        ## Rewards
        1 for the number.

        Args:
            first: The first number.

        ## Source
        This one.
        """

        __init__ = Countup.__init__

    assert sections(Once) == ("Say a number.", {"Rewards": "1 for the number.", "Source": "This one."})


def test_a_class_without_a_docstring_says_nothing_of_its_base() -> None:
    class Silent(Countup):
        pass

    assert sections(Silent) == ("", {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["ID"]),
        (["Frozenlake"], ["there is no environment 'Frozenlake'", f"did you mean {LAKE}?"]),
        (["no_such_module:me/Env-v0"], ["no_such_module"]),
        ([LAKE, "--rows", "nowhere.json"], ["nowhere.json has no baselines (FileNotFoundError", "--json FILE"]),
        ([LAKE, "--rows", "README.md"], ["README.md has no baselines (JSONDecodeError"]),
        ([LAKE, "--rows", "benchmarks/results/webshop_baselines.json"], ["has no baselines (KeyError: 'horizon')"]),
        ([LAKE, "--out", "README.md/pages"], ["--out README.md/pages cannot be written"]),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(ROOT)
    check_one_line(capsys, ["describe", *options], words)

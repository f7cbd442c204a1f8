"""Episodes of people, played back: a file in WebShop's form, written here, and a warm start that learns from it."""

import copy
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

from ragen_envs import AgentTurns, best_action
from ragen_envs.webshop import RecordedShop, WebShop
from ragen_envs.webshop.policies import scripted_shop_action
from ragen_envs.webshop.recorded import RecordingError, read_recording, requests_of
from tests.support.ragen_envs.shop_recording import recording


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return recording(tmp_path / "il_trajs.jsonl")


def test_an_episode_is_the_one_that_was_played_on_pages_as_they_are_today(path: Path) -> None:
    env, shop = RecordedShop(path), WebShop(catalog="toy", parity=True, observation_mode="text_rich")
    assert env.instruction == shop.instruction
    for goal in range(3):
        page, info = env.reset(seed=goal)
        assert page == shop.reset(options={"goal": goal})[0]
        over = False
        while not over:
            action = best_action(env, 9)
            assert action == scripted_shop_action(shop)
            page, reward, over, truncated, info = env.step(action)
            shown, *_ = shop.step(action)
            assert (reward, truncated, info["action_is_valid"]) == (0.0, False, True)
            assert page == ("The recording ends here." if over else shown)
        assert info["success"] and env.next_action == "click[buy now]"


def test_seeds_are_numbers_of_episodes_and_other_actions_change_nothing(path: Path) -> None:
    env = RecordedShop(path)
    pages = [env.reset(seed=seed)[0] for seed in (0, 1, 2, 1_000_000_001)]
    assert len(set(pages[:3])) == 3 and pages[3] == pages[1_000_000_001 % 3]
    page, _ = env.reset(seed=0)
    again, reward, over, _, info = env.step("click[buy now]")
    assert (again, reward, over, info["action_is_valid"]) == (page, 0.0, False, False)
    assert env.step(env.next_action.upper())[0] != page
    assert env.reset()[0] in pages


def test_a_copy_shares_the_recording(path: Path) -> None:
    """Regression: each planned reply copied all episodes, 31 ms of 1,571."""
    env = RecordedShop(path)
    env.reset(seed=0)
    assert copy.deepcopy(env).episodes is env.episodes


def test_it_names_the_environment_whose_pages_it_shows(path: Path) -> None:
    env, args = RecordedShop.learnt_for
    shop = gymnasium.make(env, catalog="toy", **args)
    assert RecordedShop(path).reset(seed=0)[0] == shop.reset(options={"goal": 0})[0]


def test_turns_read_as_in_the_store(path: Path) -> None:
    recorded = AgentTurns(RecordedShop(path), max_actions_per_turn=1)
    store = AgentTurns(WebShop(catalog="toy", parity=True, observation_mode="text_rich"), max_actions_per_turn=1)
    assert recorded.reset(seed=1)[0] == store.reset(options={"goal": 1})[0]
    reply = store.format_reply([best_action(recorded, 9)], "x")
    assert recorded.step(reply)[0] == store.step(reply)[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is no episode (JSONDecodeError"),
        ("[]", "line 2 is no episode (TypeError"),
        ('{"states": []}', "line 2 is no episode (KeyError: 'actions')"),
        ('{"states": ["a"], "actions": [1]}', "line 2: 'states' and 'actions' must be lists of texts"),
        ('{"states": ["a"], "actions": []}', "line 2 has 1 states and 0 actions; each action needs its page"),
        ('{"states": ["a"], "actions": [" "]}', "line 2: the action '' is neither search[words] nor click[label]"),
        ('{"states": ["a"], "actions": ["search blue"]}', "'search blue' is neither search[words] nor click[label]"),
        ('{"states": ["a"], "actions": ["click b0001"]}', "so that no store takes it; take the line out of the file"),
        ('{"states": ["a"], "actions": ["buy[b0001]"]}', "'buy[b0001]' is neither search[words] nor click[label]"),
        ('{"states": ["a"], "actions": ["search[red || blue]"]}', "line 2: the action 'search[red || blue]' has '||'"),
        ('{"states": ["a"], "actions": ["search[</answer>]"]}', "take the line out of the file"),
        ('{"states": ["a"], "actions": ["b", "c"]}', "line 2 has 1 states and 2 actions; each action needs its page"),
    ],
)
def test_a_line_in_another_form_is_named(path: Path, line: str, message: str) -> None:
    path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
    with pytest.raises(RecordingError, match=re.escape(message)):
        read_recording(path)


def test_an_empty_file_is_refused_and_a_last_page_may_be_there(path: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(RecordingError, match="has no episodes; give WebShop's il_trajs_finalized_images.jsonl"):
        RecordedShop(empty)
    first: dict[str, Any] = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps({**first, "states": [*first["states"], "Thank you"]}))
    assert read_recording(path)[0].pages[1:] == tuple(first["states"][1:])


def test_what_cannot_be_read_is_refused_with_what_to_do(path: Path, tmp_path: Path) -> None:
    """Regression: the published .zip ended in a UnicodeDecodeError without its name."""
    with zipfile.ZipFile(tmp_path / "r.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(path, path.name)
    with pytest.raises(RecordingError, match=r"r\.zip is no text in UTF-8; if it is a \.zip, unzip it"):
        RecordedShop(tmp_path / "r.zip")
    with pytest.raises(RecordingError, match=r" is a folder; give the \.jsonl file in it \(of a \.zip, unzip it"):
        RecordedShop(tmp_path)
    with pytest.raises(RecordingError, match=r"nowhere\.jsonl is not there; give WebShop's il_trajs"):
        RecordedShop(tmp_path / "nowhere.jsonl")


def test_the_line_of_the_docs_is_played(tmp_path: Path, root: Path) -> None:
    page = (root / "docs" / "webshop.md").read_text(encoding="utf-8")
    shown = re.search(r"```json\n(\{\"states\".*)\n```", page)
    assert shown
    (tmp_path / "own.jsonl").write_text(shown[1], encoding="utf-8")
    [episode] = read_recording(tmp_path / "own.jsonl")
    assert episode.bought and episode.request == "I need red shoes, and price lower than 40.00 dollars"


def test_padding_and_a_byte_order_mark_do_not_matter(path: Path) -> None:
    first: dict[str, Any] = json.loads(path.read_text().splitlines()[0])
    padded = {**first, "actions": [f"{action}  " for action in first["actions"]]}
    path.write_text("\ufeff" + json.dumps(padded), encoding="utf-8")
    env = RecordedShop(path)
    env.reset(seed=0)
    while not env.step(env.next_action)[2]:
        assert env.next_action in first["actions"]


def test_requests_of_a_split_are_left_out_whatever_their_price_bound(path: Path) -> None:
    goals = RecordedShop(path).episodes
    asked = requests_of(WebShop(catalog="toy", parity=True, split="all"))
    assert [goal.request for goal in goals] == asked[:3] and len(asked) == len(set(asked)) > 3
    dearer = re.sub(r"[\d.]+ dollars", "999.00 dollars", goals[1].request.upper(), flags=re.IGNORECASE)
    assert dearer != goals[1].request.upper()
    assert RecordedShop(path, leave_out=[dearer, "something else"]).episodes == (goals[0], goals[2])
    with pytest.raises(RecordingError, match="all of 3 episodes in .* are left out; leave out fewer"):
        RecordedShop(path, leave_out=asked)


def test_before_reset_there_is_no_next_action(path: Path) -> None:
    with pytest.raises(ResetNeeded, match="RecordedShop has no episode yet; call reset first"):
        RecordedShop(path).next_action  # noqa: B018

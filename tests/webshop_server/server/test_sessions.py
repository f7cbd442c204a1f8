"""Sessions in a file: kept, bounded in number and in time, changed once at a time, shared by processes."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from webshop_server.server.sessions import Sessions, UnknownSessionError, private_folder
from webshop_server.store.shop import Episode, Rules, open_shop


def more(one: Episode, by: int = 1) -> Episode:
    return Episode(one.goal + by)


def test_a_visit_is_what_it_was_after_each_action(file: Path) -> None:
    shop, sessions = open_shop("toy"), Sessions(file)
    episode = shop.start(5, Rules("text_rich", "tiered", show_actions=True, carries=True))
    actions = ("search[blue 😀 shoe]", "filter[price<900.5]", "filter[color=blue]", "click[next >]", "search[shoe]")
    asin = shop.store.results(shop.step(episode, "search[shoe]").state)[1]
    for action in (*actions, f"click[{asin}]", "click[features]", "rubbish", "buy[now]"):
        episode = shop.step(episode, action)
        sessions.put("a", episode)
        assert sessions.update("a") == episode
    assert episode.done


def test_sessions_are_kept_changed_and_replaced(file: Path) -> None:
    sessions = Sessions(file)
    sessions.put("a", Episode(1))
    sessions.put("b", Episode(2))
    assert sessions.update("a", lambda one: more(one, 10)) == sessions.update("a") == Episode(11)
    assert sessions.update("b") == Episode(2)
    sessions.put("a", Episode(5))
    assert sessions.update("a") == Episode(5)
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(UnknownSessionError):
        sessions.update("c", more)


def test_the_least_recently_used_make_room(file: Path) -> None:
    sessions = Sessions(file, most=2)
    for name in ("a", "b"):
        sessions.put(name, Episode(1))
    sessions.update("a")
    sessions.put("c", Episode(3))
    assert (sessions.update("a"), sessions.update("c")) == (Episode(1), Episode(3))
    with pytest.raises(UnknownSessionError):
        sessions.update("b")


def count_in_file(sessions: Sessions) -> None:
    def slow(one: Episode) -> Episode:
        time.sleep(0.002)
        return more(one)

    for _ in range(20):
        sessions.update("a", slow)


def test_processes_share_a_file_after_a_fork_and_no_slow_change_is_lost(file: Path) -> None:
    sessions = Sessions(file)
    sessions.put("a", Episode(0))
    processes = [multiprocessing.get_context("fork").Process(target=count_in_file, args=(sessions,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sessions.update("a") == Episode(40)


def test_the_folder_of_sessions_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = private_folder()
    assert folder == private_folder() and folder.stat().st_mode & 0o077 == 0
    os.chmod(folder, 0o777)
    with pytest.raises(OSError, match="is not this user's alone"):
        private_folder()

"""Answers on disk: what is asked again, what never is, and a process that is killed in the middle."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ragen_trl.policies.api.cache import ApiCache, ApiCacheError
from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.policy import ApiPolicy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.fake_envs import Quiz
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, Payload

KEY = "sk-very-secret-0123456789"


def played(server: OpenAIServer, path: Path, seed: int = 0, **sampling: Any) -> list[Trajectory]:
    """Two quizzes of two and three questions."""
    client = ApiClient(server.url, KEY, backoff=0.001, retries=0)
    with ApiPolicy("m", Sampling(**{"max_tokens": 50, **sampling}), client, cache=ApiCache(path)) as player:
        starts = [Start(row, None, seed + row) for row in range(2)]
        return play([Quiz(2, padding=3), Quiz(3, padding=13)], player, starts)


def counted() -> tuple[list[Payload], OpenAIServer]:
    """A server whose every answer is another one."""
    answered: list[Payload] = []

    def answer(payload: Payload) -> str:
        answered.append(payload)
        return f"answer {len(answered)}"

    return answered, OpenAIServer(answer, key=KEY)


def test_a_second_time_nothing_is_asked(tmp_path: Path) -> None:
    answered, server = counted()
    with server:
        first = played(server, tmp_path / "cache.sqlite")
        again = played(server, tmp_path / "cache.sqlite")
    assert first == again
    assert len(answered) == 5
    assert len({turn.reply for episode in first for turn in episode.turns}) == 5


def test_another_seed_or_sampling_or_server_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    answered, server = counted()
    with server:
        played(server, path)
        played(server, path, seed=7)
        assert len(answered) == 10
        played(server, path, temperature=0.5)
        assert len(answered) == 15
        played(server, path, max_tokens=49)
        assert len(answered) == 20
    others, other = counted()
    with other:
        played(other, path)
    assert len(others) == 5


def test_dice_that_are_not_sent_still_tell_episodes_apart(tmp_path: Path) -> None:
    """Two samples of one prompt are two samples, even at a server that takes no seed."""
    answered, server = counted()
    cache = ApiCache(tmp_path / "cache.sqlite")
    with server, ApiPolicy("m", Sampling(50), ApiClient(server.url, KEY), cache=cache, leave_out=["seed"]) as player:
        for _ in range(2):
            episodes = play([Quiz(1), Quiz(1)], player, [Start(0, None, 1), Start(0, None, 2)])
            assert {episode.turns[0].reply for episode in episodes} == {"answer 1", "answer 2"}
    assert len(answered) == 2


def test_a_failure_is_asked_again(tmp_path: Path) -> None:
    broken = [True]

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(500) if broken[0] and len(payload["messages"]) == 5 else None

    with OpenAIServer(fault=fault) as server:
        assert [episode.limit for episode in played(server, tmp_path / "cache.sqlite")] == ["", "error"]
        broken[0] = False
        assert [episode.success for episode in played(server, tmp_path / "cache.sqlite")] == [True, True]
    assert len(server.asked) == 5 + 1


def test_the_first_answer_stays(tmp_path: Path) -> None:
    """Two processes may have asked the same; both go on with one answer."""
    with ApiCache(tmp_path / "cache.sqlite") as one, ApiCache(tmp_path / "cache.sqlite") as two:
        assert one.get({"q": 1}) is None
        assert one.put({"q": 1}, "first") == "first"
        assert two.put({"q": 1}, "second") == "first"
        assert (two.get({"q": 1}), len(two)) == ("first", 1)
        assert one.get({"q": 2}) is None


def test_threads_share_a_cache(tmp_path: Path) -> None:
    with ApiCache(tmp_path / "cache.sqlite") as cache:
        threads = [threading.Thread(target=cache.put, args=({"q": n}, str(n))) for n in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [cache.get({"q": n}) for n in range(32)] == [str(n) for n in range(32)]


def test_the_key_is_not_in_the_file(tmp_path: Path) -> None:
    with OpenAIServer(key=KEY) as server:
        played(server, tmp_path / "cache.sqlite")
    files = list(tmp_path.iterdir())
    assert [path.name for path in files] == ["cache.sqlite"]  # the log is merged when it is closed
    assert KEY.encode() not in files[0].read_bytes()
    assert b"0xxx" in files[0].read_bytes()


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be taken for one" * 10)
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE answers (x)")
    ApiCache(tmp_path / "newer.sqlite").close()
    with sqlite3.connect(tmp_path / "newer.sqlite") as newer:
        newer.execute("PRAGMA user_version = 2")
    expected = {"text": "name another file", "other.sqlite": "another program", "newer.sqlite": "version 2"}
    for name, words in expected.items():
        with pytest.raises(ApiCacheError, match=words):
            ApiCache(tmp_path / name)


def test_an_answer_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    cache = ApiCache(tmp_path / "cache.sqlite")
    with OpenAIServer() as server, ApiPolicy("m", Sampling(50), ApiClient(server.url, KEY), cache=cache) as player:
        with sqlite3.connect(cache.path) as other:
            other.execute("DROP TABLE answers")
        with pytest.raises(ApiCacheError, match="cannot be used as a cache of answers"):
            play([Quiz(1)], player, [Start(0)])


def test_ctrl_c_keeps_the_answers_that_are_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in the queue are not asked, and nobody waits for the next attempt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(503) if len(payload["messages"][0]["content"]) == 4 else None

    def answer(payload: Payload) -> str:
        time.sleep(0.5)  # all rows are in the queue by now
        signal.pthread_kill(main_thread, signal.SIGINT)
        time.sleep(0.2)
        return "done"

    with OpenAIServer(answer, fault) as server:
        client = ApiClient(server.url, KEY, concurrency=2, backoff=30.0)
        cache = ApiCache(tmp_path / "cache.sqlite")
        with ApiPolicy("m", Sampling(50), client, cache=cache) as player:
            with pytest.raises(KeyboardInterrupt):
                play([Quiz(1, padding=3 + row) for row in range(4)], player, [Start(row) for row in range(4)])
            assert len(cache) == 1
    assert len(server.asked) == 2  # after the wait of 30 seconds there would be a third


def wait_until_stored(path: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.exists():
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as reader:
                try:
                    if reader.execute("SELECT count(*) FROM answers").fetchone()[0] >= count:
                        return
                except sqlite3.OperationalError:  # no table yet
                    pass
        time.sleep(0.02)
    raise AssertionError(f"{count} answers never came")


SCRIPT = """
import sys
from pathlib import Path
from ragen_trl.policies.api.cache import ApiCache
from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.policy import ApiPolicy
from ragen_trl.rollout.loop import Start, play
from ragen_trl.policies.sampling import Sampling
from tests.support.ragen_trl.fake_envs import Quiz
player = ApiPolicy("m", Sampling(50), ApiClient(concurrency=4), cache=ApiCache(sys.argv[1]))
episodes = play([Quiz(2, padding=3 + row) for row in range(12)], player, [Start(row, None, row) for row in range(12)])
print(sum(episode.success for episode in episodes), player.counts.as_dict())
"""


def test_a_killed_process_repeats_nothing_that_was_answered(tmp_path: Path, root: Path) -> None:
    """Of 24 requests 17 are answered, the others are held back; then the process is killed and started again."""
    path = tmp_path / "cache.sqlite"
    hold, lock, admitted = threading.Event(), threading.Lock(), [0]

    def answer(payload: Payload) -> str:
        with lock:
            admitted[0] += 1
            held = admitted[0] > 17
        if held:
            hold.wait(timeout=120)
        return "done"

    with OpenAIServer(answer, key=KEY) as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY, "PYTHONPATH": str(root)}
        command = [sys.executable, "-c", SCRIPT, str(path)]
        process = subprocess.Popen(command, env=env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_until_stored(path, 17)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        paid = list(server.answered)
        assert len(paid) == 17
        hold.set()
        asked = len(server.asked)
        done = subprocess.run(command, env=env, cwd=root, capture_output=True, text=True, timeout=120, check=True)
        repeated = [payload for payload in server.asked[asked:] if payload in paid]
        assert repeated == []
        assert len(server.asked) - asked == 24 - 17
    assert done.stdout.startswith("12 {'requests': 7, 'retries': 0, 'failures': 0, 'answers': 7,")
    assert "'stored_answers': 17" in done.stdout

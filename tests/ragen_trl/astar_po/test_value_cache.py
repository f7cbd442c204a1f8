"""V* samples on disk: what is kept, what is refused, and what a kill leaves."""

import copy
import json
import multiprocessing
import os
import signal
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragen_trl.astar_po.value_cache import (
    Sample,
    StoredSample,
    ValueCache,
    ValueCacheError,
    value_key,
)
from ragen_trl.config.astar_po import AStarPOConfig
from ragen_trl.config.play import MannerOptions, TaskOptions, option_names
from ragen_trl.errors import NotFiniteError
from ragen_trl.rollout.env_specs import EnvSpec
from tests.support.ragen_trl.astar_runs import stored_keys
from tests.support.ragen_trl.references import KEY

CHANGES: dict[str, Any] = {
    "env": "ragen/Sokoban-v0",
    "env_kwargs": {"size": 4, "is_slippery": False},
    "max_turns": 6,
    "max_actions_per_turn": 2,
    "max_actions": 11,
    "max_reply_length": 33,
    "max_completion_length": 400,
    "reward": "environment:1 format_penalty:0",
    "reference": "c" * 64,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 20,
    "system_prompt": "",
    "think": False,
    "reply_prefix": "",
    "chat_template": "d" * 64,
    "stop_at_answer": True,
}


def stored(seed: int, *returns: float, first: int = 0) -> list[StoredSample]:
    """Samples of one start, successful where the return is positive."""
    return [StoredSample(seed, first + i, Sample(value, value > 0)) for i, value in enumerate(returns)]


def test_every_field_of_the_key_changes_the_digest() -> None:
    assert CHANGES.keys() == json.loads(KEY.as_json()).keys()
    digests = {replace(KEY, **{name: value}).digest() for name, value in CHANGES.items()}
    assert len(digests | {KEY.digest()}) == len(CHANGES) + 1


def test_the_order_of_arguments_does_not_change_the_digest() -> None:
    assert replace(KEY, env_kwargs={"is_slippery": True, "size": 4}).digest() == KEY.digest()


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_a_key_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueCacheError, match="env_kwargs"):
        replace(KEY, env_kwargs={"map": value})


def test_samples_come_back_in_order_and_by_key(tmp_path: Path) -> None:
    with ValueCache(tmp_path / "new" / "values.sqlite") as cache:
        cache.add(KEY, stored(7, 0.1 + 0.2, -1.5))
        cache.add(KEY, [*stored(7, 1.0, first=2), *stored(3, 0.0)])
        cache.add(replace(KEY, think=False), stored(7, 9.0))
    with ValueCache(tmp_path / "new" / "values.sqlite") as cache:
        assert cache.read(KEY) == {
            3: [Sample(0.0, False)],
            7: [Sample(0.1 + 0.2, True), Sample(-1.5, False), Sample(1.0, True)],
        }
        assert cache.read(replace(KEY, think=False)) == {7: [Sample(9.0, True)]}
        assert cache.read(replace(KEY, top_k=1)) == {}
        assert [content["think"] for content in stored_keys(cache).values()] == [True, False]
        assert list(stored_keys(cache)) == [KEY.digest(), replace(KEY, think=False).digest()]


def test_numpy_numbers_come_back_as_numbers(tmp_path: Path) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache:
        sample: Any = Sample(np.float32(0.5), np.bool_(True))
        cache.add(KEY, [StoredSample(int(np.int64(2)), 0, sample)])
        assert cache.read(KEY) == {2: [Sample(0.5, True)]}
        assert type(cache.read(KEY)[2][0].episode_return) is float


def test_adding_a_batch_twice_changes_nothing(tmp_path: Path) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache:
        cache.add(KEY, stored(1, 0.0, 1.0))
        cache.add(KEY, stored(1, 0.0, 1.0, 2.0))
        assert cache.read(KEY) == {1: [Sample(0.0, False), Sample(1.0, True), Sample(2.0, True)]}


@pytest.mark.parametrize("other", [Sample(0.5, False), Sample(0.0, True)])
def test_another_value_for_a_stored_sample_is_an_error_and_stores_nothing(tmp_path: Path, other: Sample) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache:
        cache.add(KEY, stored(1, 0.0))
        with pytest.raises(ValueCacheError, match="sample 0 of start 1"):
            cache.add(KEY, [*stored(0, 1.0), StoredSample(1, 0, other)])
        assert cache.read(KEY) == {1: [Sample(0.0, False)]}


def test_a_gap_between_samples_is_refused(tmp_path: Path) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache, pytest.raises(ValueError, match="gap after 1"):
        cache.add(KEY, [*stored(1, 0.0), *stored(1, 0.0, first=2)])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_returns_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    with ValueCache(tmp_path / "values.sqlite") as cache:
        with pytest.raises(NotFiniteError, match="sample 1 of start 4"):
            cache.add(KEY, stored(4, 0.0, value))
        assert cache.read(KEY) == {}
        assert stored_keys(cache) == {}


def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database " * 100)
    with pytest.raises(ValueCacheError, match="notes.txt.*move this one away"):
        ValueCache(path)
    assert path.read_text() == "no database " * 100


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    with pytest.raises(ValueCacheError, match="another program"):
        ValueCache(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    connection.close()


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    ValueCache(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(ValueCacheError, match="version 2 .* reads version 1"):
        ValueCache(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueCacheError, match="name another file"):
        ValueCache(tmp_path)


def test_a_damaged_file_is_a_named_error_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    with ValueCache(path) as cache:
        cache.add(KEY, [sample for seed in range(500) for sample in stored(seed, 0.0, 1.0)])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with ValueCache(path) as cache, pytest.raises(ValueCacheError, match="damaged"):
        cache.read(KEY)


def in_a_fork(work: Any) -> multiprocessing.Process:
    """A process that does this work; forked, because a new one takes seconds to import torch."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def test_a_killed_process_leaves_whole_batches_and_everything_it_had_reported(tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    for attempt in range(3):
        reader, writer = multiprocessing.Pipe(duplex=False)

        def write(writer: Any = writer) -> None:
            cache = ValueCache(path)
            for seed in range(1_000_000):
                cache.add(KEY, [StoredSample(seed, index, Sample(seed + index / 8, True)) for index in range(8)])
                writer.send(seed)

        process = in_a_fork(write)
        reported = [reader.recv() for _ in range(40 + 17 * attempt)]
        process.kill()
        process.join()
        with ValueCache(path) as cache:
            found = cache.read(KEY)
        assert len(found) > reported[-1]
        assert found == {seed: [Sample(seed + i / 8, True) for i in range(8)] for seed in range(len(found))}


class Deadly(list[Sample]):
    """Kills its process in the middle of a batch."""

    def append(self, item: Sample) -> None:
        """The stored samples of a start grow by one."""
        super().append(item)
        if item.episode_return == 59_999.0:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_inside_a_transaction_leaves_what_was_there_before(tmp_path: Path) -> None:
    """A batch larger than SQLite's cache is partly in the file when the process dies: it has to be rolled back."""
    path = tmp_path / "values.sqlite"
    with ValueCache(path) as cache:
        cache.add(KEY, stored(-1, 1.0))

    def write() -> None:
        cache: Any = ValueCache(path)
        cache._connection.execute("PRAGMA cache_size = 10")
        read = cache._samples_of
        cache._samples_of = lambda number, seed: Deadly(read(number, seed))
        cache.add(KEY, [StoredSample(0, index, Sample(float(index), True)) for index in range(100_000)])

    process = in_a_fork(write)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "values.sqlite-journal").stat().st_size > 0
    assert path.stat().st_size > 500_000
    with ValueCache(path) as cache:
        assert cache.read(KEY) == {-1: [Sample(1.0, True)]}


def test_two_writers_and_a_reader_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    errors: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            with ValueCache(path) as cache:
                for batch in range(30):
                    cache.add(KEY, stored(100 * writer + batch, 0.0, 1.0))
                    cache.add(KEY, stored(999, *range(batch + 1)))  # both write the same here
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        try:
            with ValueCache(path) as cache:
                while len(cache.read(KEY)) < 61:
                    assert all(len(found) == 2 for seed, found in cache.read(KEY).items() if seed != 999)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in (0, 1)]
    threads.append(threading.Thread(target=read, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    with ValueCache(path) as cache:
        assert cache.read(KEY)[999] == [Sample(float(value), value > 0) for value in range(30)]
        assert len(cache.read(KEY)) == 61


def test_a_writer_that_waits_too_long_gets_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    with ValueCache(path) as first, ValueCache(path, timeout=0.05) as second:
        with first._transaction(), pytest.raises(ValueCacheError, match="locked.*another program holds it"):
            second.add(KEY, stored(0, 1.0))
        second.add(KEY, stored(0, 1.0))
        assert first.read(KEY) == {0: [Sample(1.0, True)]}


def test_every_option_of_play_is_part_of_the_key_and_old_keys_stay(tmp_path: Path) -> None:
    """A hand-kept list of options forgot two of them; a new option must tell runs apart and orphan no stored sample."""
    args = AStarPOConfig(output_dir=str(tmp_path), use_cpu=True)
    spec = EnvSpec("ragen/FrozenLake-v0", {"size": 4})

    def digest(**changes: Any) -> str:
        return value_key(replace_options(args, **changes), spec, 0, [("f", 1.0)], "<think>", "T", "R").digest()

    plain = digest()
    assert plain == "c08debf19b4bb10226a9800c58f1099573b9bdbdcebdcd3160401aab76048851"  # of version 0.1
    changed = {
        "max_turns": 9, "max_actions_per_turn": 9, "max_actions": 9, "format_penalty": -0.9, "window_turns": 2,
        "context": "actions_so_far", "stop_at_answer": True, "think": False, "max_reply_length": 9,
        "max_completion_length": 9, "system_prompt": "s", "cut_penalty": -0.9, "env_failure_penalty": -0.9,
        "chat_template_kwargs": {"enable_thinking": False}, "observation": "image", "image_size": 84,
    }  # fmt: skip
    # env_kwargs come with the environment, and the forced prefix as `reply_prefix`.
    options = {*option_names(TaskOptions), *option_names(MannerOptions)} - {"env_kwargs", "force_reply_prefix"}
    assert set(changed) == options
    digests = {digest(**{name: value}) for name, value in changed.items()}
    assert len(digests | {plain}) == len(changed) + 1


def replace_options(args: AStarPOConfig, **changes: Any) -> AStarPOConfig:
    """A copy with other values, unchecked: A*-PO refuses some of them today."""
    changed = copy.copy(args)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed

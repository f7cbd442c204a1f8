"""Episodes on disk: kept whole, found again, and never mixed with those of other settings."""

from pathlib import Path

from ragen_trl.evaluation.evaluator import Row
from ragen_trl.evaluation.folder import EpisodeFile, episodes_path


def stored(seed: int, sample: int = 0) -> Row:
    return {"seed": seed, "sample": sample, "limit": "turns", "return": 0.1 + 0.2, "faults": ["wrong price"]}


def file_of(folder: Path, policy: str, env: str, turns: int) -> EpisodeFile:
    return EpisodeFile(episodes_path(folder, policy, env, {"max_turns": turns}), policy, env)


def test_what_is_added_is_found_again_to_the_last_digit(tmp_path: Path) -> None:
    file = file_of(tmp_path, "a", "Lake", 3)
    file.add([stored(1), stored(0, 1)])
    file.add([stored(0)])
    rows = [{"policy": "a", "env": "Lake", **stored(*key)} for key in ((0, 0), (0, 1), (1, 0))]
    assert list(file_of(tmp_path, "a", "Lake", 3).rows.values()) == rows


def test_other_names_and_other_settings_have_files_of_their_own(tmp_path: Path) -> None:
    file_of(tmp_path, "a", "Lake", 3).add([stored(0)])
    for policy, env, turns in (("b", "Lake", 3), ("a", "Room", 3), ("a", "Lake", 4), ("a/", "Lake", 3)):
        assert file_of(tmp_path, policy, env, turns).rows == {}

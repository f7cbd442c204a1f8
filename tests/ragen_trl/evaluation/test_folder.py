"""Episodes on disk: kept whole, found again, and never mixed with those of other settings."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl.evaluation.evaluator import EpisodeRecord
from ragen_trl.evaluation.folder import EvalFolder, EvaluationExistsError, StoredEpisode

SETTINGS: dict[str, Any] = {"environments": {"Lake": {"max_turns": 3}}, "policies": {"a": {"model": "f00"}}}


def stored(seed: int, sample: int = 0, limit: str = "", error: str = "") -> StoredEpisode:
    measures = {"success": 1.0, "return": 0.1 + 0.2, "turns": 3.0}
    return StoredEpisode(sample, 0.25, EpisodeRecord(seed, limit, measures, error), "1.0")


def test_what_is_added_is_found_again_to_the_last_digit(tmp_path: Path) -> None:
    folder = EvalFolder(tmp_path, SETTINGS)
    folder.add("a", "Lake", [stored(1), stored(0, 1)])
    folder.add("a", "Lake", [stored(0)])
    again = EvalFolder(tmp_path, SETTINGS).finished("a", "Lake")
    assert again == {(0, 0): stored(0), (0, 1): stored(0, 1), (1, 0): stored(1)}
    assert EvalFolder(tmp_path, SETTINGS).finished("b", "Lake") == {}


def test_episodes_that_failed_without_the_policy_are_due_again(tmp_path: Path) -> None:
    folder = EvalFolder(tmp_path, SETTINGS)
    folder.add("a", "Lake", [stored(0), stored(1, limit="crash", error="boom"), stored(2, limit="turns")])
    assert list(folder.finished("a", "Lake")) == [(0, 0), (2, 0)]
    assert folder.played("a", "Lake")[1, 0].record.error == "boom"
    folder.add("a", "Lake", [stored(1)])
    assert len(EvalFolder(tmp_path, SETTINGS).finished("a", "Lake")) == 3


def test_other_settings_under_a_known_name_are_refused_and_new_names_join(tmp_path: Path) -> None:
    EvalFolder(tmp_path, SETTINGS).add("a", "Lake", [stored(0)])
    more = {"environments": {"Room": {"max_turns": 5}}, "policies": {"b": {"model": "ba4"}}}
    EvalFolder(tmp_path, more)
    with pytest.raises(EvaluationExistsError, match="a: model was 'f00', now 'ba4'.*--overwrite true"):
        EvalFolder(tmp_path, {"environments": {}, "policies": {"a": {"model": "ba4"}}})
    with pytest.raises(EvaluationExistsError, match="Room: max_turns was 5, now 6"):
        EvalFolder(tmp_path, {"environments": {"Room": {"max_turns": 6}}, "policies": {}})
    assert len(EvalFolder(tmp_path, SETTINGS).finished("a", "Lake")) == 1


@pytest.mark.parametrize("name", ["summary.json", "stages.json"])
def test_a_training_run_is_not_written_into(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    for overwrite in (False, True):
        with pytest.raises(EvaluationExistsError, match="something else; choose another --output_dir"):
            EvalFolder(tmp_path, SETTINGS, overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [name]

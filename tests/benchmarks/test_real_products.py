"""measuring/real_products.py: the public products are optional, unless their folder is named."""

from pathlib import Path

import pytest
import webshop_training
from agents import command
from measuring.real_products import PRODUCTS, asked_for


def test_products_that_are_not_there_are_left_out_unless_their_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there, empty = tmp_path / "there", tmp_path / "empty"
    there.mkdir()
    (there / PRODUCTS).touch()
    monkeypatch.setenv("RAGEN_WEBSHOP_DATA", str(empty))
    assert asked_for(None) is None
    assert asked_for(there) == there / PRODUCTS
    with pytest.raises(SystemExit) as ended:
        asked_for(empty)
    assert ended.value.code == 2 and capsys.readouterr().err == f"there is no {PRODUCTS} in {empty}\n"
    monkeypatch.setenv("RAGEN_WEBSHOP_DATA", str(there))
    assert asked_for(None) == there / PRODUCTS
    with pytest.raises(SystemExit):
        asked_for(empty)


def test_a_run_on_the_real_products_is_left_out_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: it began with the run that it needs, and then played the products of the present folder."""
    monkeypatch.setenv("RAGEN_WEBSHOP_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(command, "missing_model", lambda _: None)
    folder = tmp_path / "runs"
    assert webshop_training.main(["--only", "webshop_official/warm_start", "--folder", str(folder)]) == 2
    said = capsys.readouterr().err
    where = f"there is no webshop1k_products.jsonl in {tmp_path / 'nothing'}"
    assert f"left out: webshop_official/warm_start; {where}" in said
    assert not folder.exists()

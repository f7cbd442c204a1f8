"""What every mistake on the command line of ``python -m ragen_envs`` ends with."""

from collections.abc import Sequence

import pytest

from ragen_envs.cli.main import main


def check_one_line(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], words: Sequence[str]) -> None:
    """The command ends with status 2 and a line on stderr that has these words."""
    try:
        status = main(list(arguments))
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    error = capsys.readouterr().err
    assert status == 2
    assert error.startswith("error: ") and error.count("\n") == 1
    assert all(word in error for word in words), error

"""What every test shares: an offline, quiet process and the list of the project's own files."""

import os
import subprocess
from pathlib import Path

import pytest

# Set before any test imports a Hugging Face library, since these are read once, at import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def sources(root: Path) -> list[Path]:
    """The project's files, relative to `root`: what git tracks, and what it would (new files are checked as well)."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({Path(name) for name in listing.stdout.split("\0") if name and (root / name).is_file()})

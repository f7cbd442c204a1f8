"""What every test shares: an offline, quiet process and the list of the project's own files."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Set before any test imports a Hugging Face library, since these are read once, at import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Tests run side by side, in more processes than there are cores, so that more threads would only compete.
os.environ.setdefault("OMP_NUM_THREADS", "1")


LONGEST = ("test_docs.py", "test_examples.py", "test_fine_tuning.py", "test_main.py", "test_training_loss.py")

# A script of its own, which wants an extra.
collect_ignore = ["support/ragen_envs/mcp_server.py"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a fifth of the time a test waits for processes that it has started."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the files that take longest first, so none of them runs alone at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def many_trainings_are_quick() -> None:
    """All test files are imported now; if none of them trains, nothing is."""
    if "accelerate" in sys.modules:
        from tests.support.quick import libraries_are_settled

        libraries_are_settled()


@pytest.fixture
def python_handles_interrupts() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which makes its jobs ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the public 1000-product set; skips if it is missing."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / "webshop1k"
    folder = Path(os.environ.get("RAGEN_WEBSHOP_DATA", beside))
    if not (folder / "webshop1k_products.jsonl").exists():
        pytest.skip(f"the real WebShop data are not in {folder}; set RAGEN_WEBSHOP_DATA to their folder")
    return folder

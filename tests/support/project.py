"""Where the project's files are, for tests that read them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the checkout."""
VECTORS = ROOT / "tests" / "vectors" / "algorithms.json"
"""Numbers worked out elsewhere, to check the algorithms against."""

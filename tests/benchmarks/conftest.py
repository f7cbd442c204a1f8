"""What the tests of the benchmarks share: the scripts and their packages can be imported."""

import sys
from pathlib import Path

# At the end, so that a script hides no library: one of them is called `tables`.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

"""Which commit of the project's code made a number."""

import os
import subprocess
from pathlib import Path

# Results and pages that one benchmark writes are no changes of the code that the next one measures.
_NO_CODE = (":(top,exclude)benchmarks/results", ":(top,exclude)docs")


def commit_of(file: Path) -> str | None:
    """The commit of the checkout that tracks a file of the code, with ``+changes`` if its code has any.

    ``RAGEN_COMMIT`` goes before what git knows: a copy may lie in a checkout of another state, or have no history.

    Args:
        file: One that the code was loaded from.

    Returns:
        ``None`` where git does not track the file, as in an installed copy, and the variable is not set.
    """
    if named := os.environ.get("RAGEN_COMMIT"):
        return named
    git = ["git", "-C", str(file.parent)]
    try:
        # An installed copy may be inside the checkout of another project, whose commit would be misleading.
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], capture_output=True, check=True)
        status = [*git, "status", "--porcelain=v2", "--branch", "--", ":/", *_NO_CODE]
        lines = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    commit = next(line.split()[-1] for line in lines if line.startswith("# branch.oid"))
    return commit if all(line.startswith("#") for line in lines) else f"{commit}+changes"

"""Which commit of the project's code made a number."""

import os
import subprocess
from pathlib import Path


def commit_of(file: Path) -> str | None:
    """The commit of the checkout that tracks a file of the code, with ``+changes`` if its code has any; else None.

    ``RAGEN_COMMIT`` goes before what git knows: a copy may lie in a checkout of another state, or have no history.
    """
    if named := os.environ.get("RAGEN_COMMIT"):
        return named

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", file.parent, *words], capture_output=True, text=True, check=True).stdout

    try:
        # An installed copy may be inside the checkout of another project, whose commit would be misleading.
        git("ls-files", "--error-unmatch", file.name)
        # Results and pages that one benchmark writes are no changes of the code that the next one measures.
        changes = git("status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results", ":(top,exclude)docs")
        return git("rev-parse", "HEAD").strip() + ("+changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return None

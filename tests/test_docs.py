"""The documentation does what it says: its Python runs, its commands exist, its tables have a source.

The blocks of a page run in one process, in an empty folder, so that files left behind harm nothing. A block that needs
a download or a GPU is preceded by `<!-- not run: REASON -->` and only compiled.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])
SECONDS = 240

FENCE = re.compile(
    r"(?:^[ ]*<!--[ ]*not run:(?P<reason>[^\n]*?)-->[ ]*\n\s*)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
TABLE = re.compile(r"<!--\s*table:\s*(\S+)\s*-->")

# One namespace for the blocks of a page. Each is compiled under the page's name, at its own line, so that a traceback
# points into the page.
RUNNER = """
import json, sys
namespace = {"__name__": "__main__"}
for block in json.load(sys.stdin):
    code = compile(block["code"], block["page"], "exec")
    if block["runs"]:
        exec(code, namespace)
"""


class Block(NamedTuple):
    """A fenced block: its language, its code moved down to its line of the page, why it is not run (None: it is)."""

    language: str
    code: str
    reason: str | None


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order."""
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        lines = [line.removeprefix(indent) for line in match["code"].splitlines()]
        lines_above = text.count("\n", 0, match.start("code"))
        reason = None if match["reason"] is None else match["reason"].strip()
        found.append(Block(match["language"], "\n" * lines_above + "\n".join(lines) + "\n", reason))
    return found


def commands(text: str) -> list[list[str]]:
    """The words of each command in the shell blocks and inline code of a Markdown text."""
    lines = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    for block in blocks(text):
        if block.language in {"bash", "console", "sh", "shell"}:
            lines += block.code.replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        for part in re.split(r"&&|\|\||[;|]", line.strip().removeprefix("$ ")):
            try:
                found.append(shlex.split(part, comments=True))
            except ValueError:
                continue  # a lone quote: prose or code, no command
    return [words for words in found if words]


def make_targets(words: list[str]) -> set[str]:
    """The targets that a command gives to make, none if it is another command."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return {word for word in words[1:] if re.fullmatch(r"[a-z][\w-]*", word)} if words[:1] == ["make"] else set()


def subcommands(words: list[str], package: str) -> set[str]:
    """The subcommand of `python -m PACKAGE SUB` (or `accelerate launch -m PACKAGE SUB`), if there is one."""
    calls = zip(words, words[1:], words[2:], strict=False)
    return {
        sub for flag, module, sub in calls if (flag, module) == ("-m", package) and re.fullmatch(r"[a-z][\w-]*", sub)
    }


def test_blocks_are_found_with_their_line_and_reason() -> None:
    page = (
        "a\n```python\nx = 1\n```\n"
        "<!-- not run: needs a GPU -->\n\n  ```python\n  y\n  ```\n"
        "<!-- not run: -->\n```bash\nls\n```\n"
    )
    assert blocks(page) == [
        Block("python", "\n\nx = 1\n", None),
        Block("python", "\n" * 7 + "y\n", "needs a GPU"),
        Block("bash", "\n" * 11 + "ls\n", ""),
    ]


def test_commands_are_found_with_their_targets() -> None:
    page = (
        "`make` and `make lint`\n```console\n"
        "$ SEED=1 make train ENV=x ARGS='--a b' && python -m ragen_trl eval --n 3\n```\n"
    )
    assert [make_targets(words) for words in commands(page)] == [set(), {"lint"}, {"train"}, set()]
    assert [subcommands(words, "ragen_trl") for words in commands(page)] == [set(), set(), set(), {"eval"}]


def test_there_is_a_readme() -> None:
    assert Path("README.md") in PAGES


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    python = [block for block in blocks((ROOT / page).read_text(encoding="utf-8")) if block.language == "python"]
    assert "" not in {block.reason for block in python}, "say why in <!-- not run: REASON -->"
    task = [{"page": str(page), "code": block.code, "runs": block.reason is None} for block in python]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(task),
        cwd=tmp_path,
        # This checkout, whatever is installed.
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_make_targets_exist(page: Path) -> None:
    there = set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set().union(*map(make_targets, commands((ROOT / page).read_text(encoding="utf-8"))))
    assert named <= there


@pytest.mark.parametrize("package", ["ragen_envs", "ragen_trl"])
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_subcommands_exist(page: Path, package: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set().union(*(subcommands(words, package) for words in commands(text)))
    if named:
        command = [sys.executable, "-m", package, "--help"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        assert named <= set(re.findall(r"[a-z][\w-]*", done.stdout))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_tables_have_a_committed_source(page: Path, sources: list[Path]) -> None:
    named = TABLE.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [name for name in named if not re.fullmatch(r"benchmarks/results/[\w.-]+\.json", name)] == []
    assert [name for name in named if Path(name) not in sources] == []


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert re.search(r"^## \[?Unreleased\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_tables_say_what_the_results_say() -> None:
    command = [sys.executable, "benchmarks/tables.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr

"""The documentation does what it says: its code runs, its links, files and commands exist, its pages build.

The blocks of a page run in one process, one after the other in an empty folder. Python blocks run, unless a comment
before the block says otherwise:

    <!-- not run: REASON -->   it needs a download, a GPU or minutes: Python is compiled, and that is all
    <!-- needs: PACKAGE -->    Python is run where this package is installed, and compiled elsewhere
    <!-- file: NAME -->        it is a file that later blocks of the page use
    <!-- run -->               shell commands that are run, too; Python and pytest in them are those of the tests
"""

import importlib
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import gymnasium
import pytest
from sphinx.cmd.build import main as sphinx

from tests.support import prepared
from tests.support.project import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
LINKED = [*PAGES, Path("CHANGELOG.md"), Path("CONTRIBUTING.md"), Path("benchmarks/README.md")]
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in LINKED}
PACKAGES = ("ragen_envs", "ragen_trl", "webshop_server")
SHELLS = {"bash", "console", "sh", "shell"}
SECONDS = 240

FENCE = re.compile(
    r"(?:^[ ]*<!--[ ]*(?:not run:(?P<reason>[^\n]*?)|needs:[ ]*(?P<needs>\w+)[ ]*|file:[ ]*(?P<file>[\w.]+)[ ]*"
    r"|(?P<run>run)[ ]*)-->[ ]*\n\s*)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)")
# A file and a function in it; folders before it where a file's name is ambiguous.
POINTER = re.compile(r"`(?P<file>[\w/]+\.py): (?P<name>\w+)`")
# A file or a folder of the checkout, by its whole path.
PLACE = re.compile(r"`((?:ragen_envs|ragen_trl|webshop_server|benchmarks|examples|tests|docs)/[\w./-]*)(?:: \w+)?`")


def pages_of_games() -> set[str]:
    """The pages that the build writes."""
    import ragen_envs  # noqa: F401  registers them; a page that runs begins without

    return {f"environments/{name.removeprefix('ragen/')}" for name in gymnasium.registry if name.startswith("ragen/")}


class Block(NamedTuple):
    """A fenced block: language, code moved down to its line of the page, and what is done with it."""

    language: str
    code: str
    reason: str | None = None
    file: str | None = None
    run: bool = False
    needs: str | None = None

    @property
    def used(self) -> bool:
        """Whether the tests do something with it."""
        return self.language == "python" or self.file is not None or self.run

    @property
    def runs(self) -> bool:
        """Whether Python in it can be run here, and nothing says otherwise."""
        return self.reason is None and (self.needs is None or importlib.util.find_spec(self.needs) is not None)


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order."""
    found = []
    for match in FENCE.finditer(text):
        lines = [line.removeprefix(match["indent"]) for line in match["code"].splitlines()]
        code = "\n" * text.count("\n", 0, match.start("code")) + "\n".join(lines) + "\n"
        reason = None if match["reason"] is None else match["reason"].strip()
        found.append(Block(match["language"], code, reason, match["file"], match["run"] is not None, match["needs"]))
    return found


def commands(text: str) -> list[list[str]]:
    """The words of each command in the shell blocks and inline code of a Markdown text."""
    lines = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    for block in blocks(text):
        if block.language in SHELLS:
            lines += block.code.replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        for part in re.split(r"&&|\|\||[;|]", line.strip().removeprefix("$ ")):
            try:
                found.append(shlex.split(part, comments=True))
            except ValueError:
                continue  # a lone quote: prose or code, no command
    return [words for words in found if words]


def run_shell(code: str) -> None:
    """Runs shell commands, in this process where all are commands of this project: TRL is imported here already."""
    lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
    calls = [] if re.search(r"[|;&<>$`]", code) else [shlex.split(line, comments=True) for line in lines]
    if not calls or any(words[:2] != ["python", "-m"] or words[2] not in PACKAGES for words in calls):
        subprocess.run(["bash", "-euc", code], check=True, stdin=subprocess.DEVNULL)
        return
    for _, _, package, *arguments in calls:
        sys.argv[:] = [package, *arguments]
        try:
            runpy.run_module(package, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            assert not end.code, (package, arguments, end.code)


def run_page(page: str, used: list[Block]) -> None:
    """Runs the blocks of a page, which share a namespace; a traceback points to the line of the page."""
    assert not {name.partition(".")[0] for name in sys.modules} & {*PACKAGES}, "a page must import what it uses"
    namespace = {"__name__": "__main__"}
    for block in used:
        if block.file:
            Path(block.file).write_text(block.code.lstrip("\n"), encoding="utf-8")
        elif block.language != "python":
            run_shell(block.code)
        else:
            code = compile(block.code, page, "exec")
            if block.runs:
                exec(code, namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.used for block in blocks(TEXTS[page]))], ids=str)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    used = [block for block in blocks(TEXTS[page]) if block.used]
    status, said = prepared.run(run_page, str(page), used, folder=tmp_path, seconds=SECONDS)
    assert status == 0, said[-8000:]


def test_what_is_not_run_says_why() -> None:
    found = [(str(page), block) for page in PAGES for block in blocks(TEXTS[page])]
    assert [page for page, block in found if block.reason == ""] == []
    shell = [(page, block) for page, block in found if block.language in SHELLS and page != "README.md"]
    assert [(page, block.code.strip()) for page, block in shell if not block.run and not block.reason] == []


@pytest.mark.parametrize("page", LINKED, ids=str)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    written = pages_of_games()
    links = [link for link in LINK.findall(TEXTS[page]) if link.removesuffix(".md") not in written]
    links = [link for link in links if not (ROOT / page.parent / link).exists()]
    places = [place for place in PLACE.findall(TEXTS[page]) if not (ROOT / place).exists()]
    folders, wrong = (*PACKAGES, "benchmarks", "examples"), []
    for path, name in POINTER.findall(TEXTS[page]):
        files = [file for folder in folders for file in (ROOT / folder).rglob(Path(path).name)]
        code = [file.read_text(encoding="utf-8") for file in files if file.as_posix().endswith(f"/{path}")]
        if len(code) != 1 or not re.search(rf"^[ ]*(?:def|class) {name}\b|^{name}\b", code[0], re.MULTILINE):
            wrong.append(f"{path}: {name}")
    assert (links, places, wrong) == ([], [], [])


def test_the_commands_that_pages_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for package in ("ragen_envs", "ragen_trl"):
        words = [sys.executable, "-m", package, "--help"]
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
        targets |= {f"{package} {name}" for name in re.findall(r"[a-z][\w-]*", said)}
    named = set()
    for words in (words for page in PAGES for words in commands(TEXTS[page])):
        rest = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]
        if rest[:1] == ["make"]:
            named |= {word for word in rest[1:] if re.fullmatch(r"[a-z][\w-]*", word)}
        triples = zip(words, words[1:], words[2:], strict=False)
        own = [(package, name) for flag, package, name in triples if flag == "-m" and package in PACKAGES]
        named |= {f"{package} {name}" for package, name in own if re.fullmatch(r"[a-z][\w-]*", name)}
    assert named >= {"train", "test", "ragen_envs play", "ragen_trl eval"}
    assert named - targets == set()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as HTML; a warning is an error."""
    target = tmp_path_factory.mktemp("docs")
    words = ["-q", "-W", "-n", "--keep-going", "-d", target / "cache", ROOT / "docs", target / "html"]
    status, said = prepared.run(sphinx, list(map(str, words)), folder=ROOT, seconds=SECONDS)
    assert status == 0, said
    return target / "html"


def test_pages_build_and_can_be_reached_and_load_nothing_from_elsewhere(built: Path) -> None:
    front = (built / "index.html").read_text(encoding="utf-8")
    pages = {str(page.relative_to("docs").with_suffix("")) for page in PAGES if page.parts[0] == "docs"} - {"index"}
    pages |= pages_of_games()
    assert {page for page in pages if f'href="{page}.html"' not in front} == set()
    loads = r"<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//|url\((?:https?:)?//"
    files = [path for path in built.rglob("*") if path.suffix in {".html", ".css"}]
    assert [path.name for path in files if re.search(loads, path.read_text(encoding="utf-8"))] == []
    formulas = (built / "algorithms.html").read_text(encoding="utf-8")
    assert formulas.count("<math") > 50 and "<mfrac>" in formulas and "\\frac" not in formulas


@pytest.mark.parametrize("package", ["ragen_envs", "ragen_trl"])
def test_every_promised_name_is_documented(built: Path, package: str) -> None:
    page = (built / "api.html").read_text(encoding="utf-8")
    names = importlib.import_module(package).__all__
    assert [name for name in names if f'id="{package}.{name}"' not in page] == []

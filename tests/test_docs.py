"""The documentation does what it says: its code runs, its commands exist, its pages build, its tables have a source.

The blocks of a page run in one process, one after the other in an empty folder, so that the files they leave harm
nothing. Python blocks run, unless a comment before the block says otherwise:

    <!-- not run: REASON -->   it needs a download, a GPU or minutes: Python is compiled, and that is all
    <!-- needs: PACKAGE -->    Python is run where this package is installed, and compiled elsewhere
    <!-- file: NAME -->        it is a file that later blocks of the page use
    <!-- run -->               shell commands that are run, too; Python and pytest in them are those of the tests
"""

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sphinx.cmd.build import main as sphinx

from tests.support import prepared
from tests.support.project import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")])
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
PACKAGES = ("ragen_envs", "ragen_trl", "webshop_server")
SHELLS = {"bash", "console", "sh", "shell"}
SECONDS = 240

FENCE = re.compile(
    r"(?:^[ ]*<!--[ ]*(?:not run:(?P<reason>[^\n]*?)|needs:[ ]*(?P<needs>\w+)[ ]*|file:[ ]*(?P<file>[\w.]+)[ ]*"
    r"|(?P<run>run)[ ]*)-->[ ]*\n\s*)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
TABLE = re.compile(r"<!--\s*table:\s*([^\s#]+)(?:#\w+)?\s*-->")

# A file and a function in it, as the pages point to code; folders before it where a file's name is ambiguous.
POINTER = re.compile(r"`(?P<file>[\w/]+\.py): (?P<name>\w+)`")
# A file or a folder of the checkout, by its whole path.
PLACE = re.compile(r"`((?:ragen_envs|ragen_trl|webshop_server|benchmarks|examples|tests|docs)/[\w./-]*)(?:: \w+)?`")
CODE = (*PACKAGES, "benchmarks", "examples")


class Block(NamedTuple):
    """A fenced block: language, code moved down to its line of the page, and what is done with it.

    Attributes:
        language: As the fence says.
        code: The code after as many newlines as there are lines above it.
        reason: Why it is not run; ``None`` if nothing was said.
        file: The file that it is, if it is one.
        run: Whether it is said to be run.
        needs: The package without which it is not run, if there is one.
    """

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
        indent = match["indent"]
        lines = [line.removeprefix(indent) for line in match["code"].splitlines()]
        lines_above = text.count("\n", 0, match.start("code"))
        reason = None if match["reason"] is None else match["reason"].strip()
        code = "\n" * lines_above + "\n".join(lines) + "\n"
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
        "<!-- file: a_b.py -->\n```python\nz\n```\n"
        "<!-- run -->\n```bash\nls\n```\n"
        "<!-- needs: no_such_package -->\n```python\nw\n```\n"
    )
    assert blocks(page) == [
        Block("python", "\n\nx = 1\n", None),
        Block("python", "\n" * 7 + "y\n", "needs a GPU"),
        Block("bash", "\n" * 11 + "ls\n", ""),
        Block("python", "\n" * 15 + "z\n", file="a_b.py"),
        Block("bash", "\n" * 19 + "ls\n", run=True),
        Block("python", "\n" * 23 + "w\n", needs="no_such_package"),
    ]
    assert [block.runs for block in blocks(page)] == [True, False, False, True, True, False]


def test_commands_are_found_with_their_targets() -> None:
    page = (
        "`make` and `make lint`\n```console\n"
        "$ SEED=1 make train ENV=x ARGS='--a b' && python -m ragen_trl eval --n 3\n```\n"
    )
    assert [make_targets(words) for words in commands(page)] == [set(), {"lint"}, {"train"}, set()]
    assert [subcommands(words, "ragen_trl") for words in commands(page)] == [set(), set(), set(), {"eval"}]


def run_page(task: list[dict[str, Any]]) -> None:
    """Runs the blocks of a page, which share a namespace.

    Each is compiled under the page's name, at its own line, so that a traceback points into the page.
    """
    namespace = {"__name__": "__main__"}
    for block in task:
        if block["file"]:
            Path(block["file"]).write_text(block["code"].lstrip("\n"), encoding="utf-8")
        elif block["language"] != "python":
            subprocess.run(["bash", "-euc", block["code"]], check=True, stdin=subprocess.DEVNULL)
        else:
            code = compile(block["code"], block["page"], "exec")
            if block["runs"]:
                exec(code, namespace)


def test_there_is_a_readme() -> None:
    assert Path("README.md") in PAGES


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.used for block in blocks(TEXTS[page]))], ids=str)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    used = [block for block in blocks(TEXTS[page]) if block.used]
    assert "" not in {block.reason for block in used}, "say why in <!-- not run: REASON -->"
    task = [{**block._asdict(), "page": str(page), "runs": block.runs} for block in used]
    status, said = prepared.run(run_page, task, folder=tmp_path, seconds=SECONDS)
    assert status == 0, said[-8000:]


def test_a_page_begins_with_nothing_of_this_project(tmp_path: Path) -> None:
    """Otherwise a page that forgets an import would run here and nowhere else."""
    code = (
        "import sys\nprint(sorted({name.split('.')[0] for name in sys.modules} & {*'%s'.split()}))\n"
        "import ragen_trl\nprint(ragen_trl.__file__)\nimport tables\n"
    )
    block = {**Block("python", code % " ".join(PACKAGES))._asdict(), "page": "a page", "runs": True}
    status, said = prepared.run(run_page, [block], folder=tmp_path, seconds=SECONDS)
    assert status == 1 and said.startswith(f"[]\n{ROOT / 'ragen_trl' / '__init__.py'}\n")
    assert said.rstrip().endswith("No module named 'tables'")  # a script of benchmarks/


def test_shell_blocks_run_or_say_why_not() -> None:
    shell = [
        (str(page), block)
        for page in PAGES
        if page.parts[0] == "docs"
        for block in blocks(TEXTS[page])
        if block.language in SHELLS
    ]
    assert [(page, block.code.strip()) for page, block in shell if not block.run and not block.reason] == []


def unsaid_needs(text: str) -> list[str]:
    """Reasons that name time or a GPU where neither the text since the block before nor a heading does."""
    found, end, title = [], 0, text.partition("\n")[0]
    for match in FENCE.finditer(text):
        above = re.sub(r"<!--.*?-->", "", text[end : match.start()], flags=re.DOTALL)
        heading = re.findall(r"^#+ .*$", text[: match.start()], re.MULTILINE)[-1:]
        said, end = "\n".join([title, *heading, above, match["code"]]), match.end()
        found += [
            match["reason"].strip()
            for need in (r"\bGPUs?\b", r"\b(?:minutes?|hours?|days?)\b")
            if re.search(need, match["reason"] or "") and not re.search(need, said)
        ]
    return found


def test_time_and_gpus_are_said_to_readers_and_not_in_comments_alone() -> None:
    """Regression: a training of hours was announced in an HTML comment, which no page shows."""
    assert unsaid_needs("# A\n<!-- not run: it takes hours -->\n```bash\nls\n```\n") == ["it takes hours"]
    assert unsaid_needs("# A\nTwo hours:\n\n<!-- not run: it takes hours -->\n```bash\nls\n```\n") == []
    assert {(str(page), reason) for page in PAGES for reason in unsaid_needs(TEXTS[page])} == set()


def test_the_shop_is_looked_at_as_it_is_trained_in() -> None:
    """Regression: `play` allowed 15 actions where the demonstrations below it have 9."""
    limits = {}
    for words in commands(TEXTS[Path("docs/webshop_agent.md")]):
        for name in subcommands(words, "ragen_envs") | subcommands(words, "ragen_trl"):
            given = zip(words, words[1:], strict=False)
            limits.setdefault(name, {option: value for option, value in given if option.startswith("--max_a")})
    assert limits["play"] == limits["warm-start"] == {"--max_actions": "9", "--max_actions_per_turn": "1"}


def test_an_environment_without_a_row_on_the_front_page_has_its_table_linked_there() -> None:
    """Regression: the shops and text adventures were missing among the baselines without a word."""
    games, rows = TEXTS[Path("README.md")].split("<!-- table: benchmarks/results/baselines.json -->")
    shown, named = (set(re.findall(r"`(ragen/\w+-v0)`", part)) for part in (rows.partition("<!-- end")[0], games))
    assert shown and named - shown == {"ragen/WebShop-v0", "ragen/ToyShop-v0", "ragen/TextWorld-v0"}
    assert {"webshop_baselines", "text_worlds"} <= set(re.findall(r"docs/experiments/(\w+)\.md", games))


def files_ending_in(path: str) -> list[Path]:
    """The code files whose path ends with these folders and this name."""
    wanted = Path(path).parts
    found = [file for folder in CODE for file in (ROOT / folder).rglob(wanted[-1])]
    return [file for file in found if file.relative_to(ROOT).parts[-len(wanted) :] == wanted]


def test_the_code_that_a_page_points_to_is_there() -> None:
    pointers = [(str(page), *pointer) for page in PAGES for pointer in POINTER.findall(TEXTS[page])]
    wrong = []
    for page, file, name in pointers:
        places = files_ending_in(file)
        defined = rf"^[ ]*(?:def|class) {name}\b|^{name}\b"
        if len(places) > 1:
            wrong.append(f"{page}: {file} may be {', '.join(str(place.relative_to(ROOT)) for place in places)}")
        elif not any(re.search(defined, path.read_text(encoding="utf-8"), re.MULTILINE) for path in places):
            wrong.append(f"{page}: {file}: {name} is not there")
    assert pointers
    assert wrong == []


def test_the_files_that_a_page_names_are_there() -> None:
    named = {(str(page), place) for page in PAGES for place in PLACE.findall(TEXTS[page])}
    assert ("docs/architecture.md", "ragen_trl/trainers/trl/adapter.py") in named
    assert sorted((page, place) for page, place in named if not (ROOT / place).exists()) == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as HTML."""
    target = tmp_path_factory.mktemp("docs")
    words = ["-q", "-W", "-n", "--keep-going", "-d", target / "cache", ROOT / "docs", target / "html"]
    status, said = prepared.run(sphinx, list(map(str, words)), folder=ROOT, seconds=SECONDS)
    assert status == 0, said
    return target / "html"


def test_every_page_is_built_without_warnings_and_can_be_reached(built: Path) -> None:
    front = (built / "index.html").read_text(encoding="utf-8")
    pages = {str(page.relative_to("docs").with_suffix("")) for page in PAGES if page.parts[0] == "docs"} - {"index"}
    assert {page for page in pages if f'href="{page}.html"' not in front} == set()


def test_built_pages_load_nothing_from_elsewhere(built: Path) -> None:
    loaded = (
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//"
        r"|<link\b[^>]*\bhref=\"(?:https?:)?//|url\((?:https?:)?//"
    )
    files = [path for path in built.rglob("*") if path.suffix in {".html", ".css"}]
    assert [path.name for path in files if re.search(loaded, path.read_text(encoding="utf-8"))] == []


def test_formulas_are_mathml(built: Path) -> None:
    page = (built / "algorithms.html").read_text(encoding="utf-8")
    assert page.count("<math") > 50
    assert "<mfrac>" in page and "\\frac" not in page


@pytest.mark.parametrize("package", ["ragen_envs", "ragen_trl"])
def test_every_promised_name_is_documented(built: Path, package: str) -> None:
    page = (built / "api.html").read_text(encoding="utf-8")
    names = importlib.import_module(package).__all__
    assert [name for name in names if f'id="{package}.{name}"' not in page] == []


def test_make_targets_exist() -> None:
    there = set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {(str(page), name) for page in PAGES for words in commands(TEXTS[page]) for name in make_targets(words)}
    assert {name for _, name in named} >= {"train", "test"}
    assert {(page, name) for page, name in named if name not in there} == set()


@pytest.mark.parametrize(("package", "one"), [("ragen_envs", "play"), ("ragen_trl", "eval")])
def test_subcommands_exist(package: str, one: str) -> None:
    pairs = [(str(page), words) for page in PAGES for words in commands(TEXTS[page])]
    named = {(page, name) for page, words in pairs for name in subcommands(words, package)}
    assert one in {name for _, name in named}
    command = [sys.executable, "-m", package, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    there = set(re.findall(r"[a-z][\w-]*", done.stdout))
    assert {(page, name) for page, name in named if name not in there} == set()


def test_tables_have_a_committed_source(sources: list[Path]) -> None:
    named = {(str(page), name) for page in PAGES for name in TABLE.findall(TEXTS[page])}
    assert {name for _, name in named} >= {"benchmarks/results/train.json"}
    form = re.compile(r"benchmarks/results/[\w.-]+\.json|ragen_trl/config/trl_options\.py")
    assert {(page, name) for page, name in named if not form.fullmatch(name) or Path(name) not in sources} == set()


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert re.search(r"^## \[?Unreleased\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)

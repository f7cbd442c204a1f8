"""What does training take on a large GPU, and does it agree with the CPU? A campaign of parts, under 25 minutes in all.

    benchmarks/gpu.sh run                 # on the GPU: the parts in the order of their worth, at most 9.5 minutes
    benchmarks/gpu.sh run                 # again: what is finished is not repeated, the last part goes on
    benchmarks/gpu.sh --rehearse          # everything in miniature on the CPU, a minute or two, written to runs/ only

For a machine without a network, which takes a limited number of bytes at a time:

    benchmarks/gpu.sh collect             # where there is a network: bundles of at most 64 MiB, the checkout included
    benchmarks/gpu.sh install             # there, after each bundle; the last one completes the pretrained model

Every part is a process with a time limit of its own. It prints and saves its JSON when it ends, as ``done``,
``failed`` or ``unfinished``; a part that failed does not stop the others and is tried again by the next command.
``runs/gpu/gpu.json`` has all of them. From a GPU it belongs into ``benchmarks/results``; a rehearsal's does not.
RAGEN_COMMIT names the commit of a copy.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from campaign import carried
from campaign.parts import PARTS, Part, answer_of, command
from measuring.processes import ONE_THREAD

ROOT = Path(__file__).resolve().parent.parent
FOLDER, REHEARSED = Path("runs") / "gpu", Path("runs") / "gpu-rehearsal"
BUNDLES = Path(".gpu")
_PATIENCE = 40  # seconds for a part to write what it has, after its limit
_REHEARSED_SECONDS = 600  # of a part, which takes some on a machine that does nothing else
_QUIET = {"TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
_SAID = 6000  # characters of the end of a part's output that are kept


def main() -> int:
    """Collect, install, run or rehearse; 1 if a part failed, 2 if something is missing."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the part that runs is stopped, too
    try:
        if options.action == "collect":
            for bundle in carried.collect(BUNDLES, options.python, options.limit_mib << 20):
                size = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
                print(f"{bundle}: {size / 2**20:.1f} MiB")
            return 0
        if options.action == "install":
            print(f"model: {carried.install(BUNDLES, FOLDER) or 'not complete yet'}")
            return 0
    except carried.CarryError as error:
        return fail(str(error))
    if options.rehearse:
        shutil.rmtree(REHEARSED, ignore_errors=True)
        return campaign(options, REHEARSED, tiny_model(REHEARSED / "model"))
    if not has_gpu():
        return fail("there is no GPU here; `benchmarks/gpu.sh --rehearse` tries the code on the CPU")
    models = [
        path for path in (FOLDER / carried.MODEL, Path("models") / carried.MODEL) if (path / "config.json").exists()
    ]
    return campaign(options, FOLDER, models[0] if models else None)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["collect", "install", "run"], help="default: run")
    parser.add_argument("--rehearse", action="store_true", help="in miniature on the CPU")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], help="these parts, not all")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this command; parts that do not fit wait")
    parser.add_argument("--copy-to", type=Path, help="a folder that gets gpu.json as well, after every part")
    parser.add_argument("--python", default="3.12", help="collect: the other machine's (default: 3.12)")
    parser.add_argument("--limit-mib", type=int, default=64, help="collect: what travels at a time (default: 64)")
    return parser.parse_args()


def campaign(options: argparse.Namespace, folder: Path, model: Path | None) -> int:
    """Do the parts that are missing, as long as there is time; 1 if one failed."""
    deadline = time.monotonic() + 60 * options.minutes
    about = described(options)
    failed = []
    for part in PARTS:
        if part.name not in (options.only or [one.name for one in PARTS if one.rehearsed or not options.rehearse]):
            continue
        file, left = folder / f"{part.name}.json", deadline - time.monotonic() - _PATIENCE
        if state(file) == "done":
            print(f"{part.name}: done before")
        elif part.needs_model and model is None:
            print(f"{part.name}: waits for {carried.MODEL} (`make smollm2`, or `benchmarks/gpu.sh install`)")
        elif left < part.at_least and not options.rehearse:
            print(f"{part.name}: waits for the next command, {left:.0f} s are left")
        else:
            print(f"{part.name}: {part.asks}", flush=True)
            limit = _REHEARSED_SECONDS if options.rehearse else min(part.limit, left)
            found = do(part, folder, model, limit, options.rehearse)
            save(file, {**about, **found})
            print(f"{part.name}: {found['status']} after {found['seconds']:.0f} s", flush=True)
            failed += [part.name] * (found["status"] == "failed")
            for place in (folder, options.copy_to or folder):
                save(place / "gpu.json", {**about, "parts": finished(folder)})
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def do(part: Part, folder: Path, model: Path | None, limit: float, rehearses: bool) -> dict[str, Any]:
    """Run a part in a process group of its own; after its limit it is asked to stop, and then killed."""
    answer = (folder / "answers" / part.name).absolute()
    answer.parent.mkdir(parents=True, exist_ok=True)
    answer.unlink(missing_ok=True)
    words, log = command(part, answer, folder, model, rehearses), folder / f"{part.name}.log"
    surroundings = {**with_the_code(), **_QUIET}
    surroundings |= {"RAGEN_TEST_GPU": "cpu", **ONE_THREAD} if rehearses else {"RAGEN_TEST_GPU": "cuda"}
    began = time.monotonic()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell's background job; the part would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=surroundings,
            cwd=ROOT,
            process_group=0,
        )
        ended = waited(process, limit)
    result = answer_of(part, answer)
    good = ended and process.returncode in part.answers and result is not None
    status = "done" if good else "unfinished" if part.goes_on and not ended and result is not None else "failed"
    print(json.dumps(result, indent=1)[:_SAID] if good else tail(log), flush=True)
    return {
        "part": part.name,
        "status": status,
        "seconds": time.monotonic() - began,
        "exit_status": process.returncode if ended else None,
        "result": result,
        "error": None if good else tail(log),
    }


def with_the_code() -> dict[str, str]:
    """The environment variables of a process that imports this checkout, after what is installed elsewhere."""
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT), str(ROOT / "benchmarks")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def waited(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether a process ended within its limit; otherwise its group is stopped as by Ctrl-C, then killed."""
    for number, seconds in ((signal.SIGINT, limit), (signal.SIGKILL, _PATIENCE - 5)):
        try:
            process.wait(max(1.0, seconds))
            return number is signal.SIGINT
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number)
        except (KeyboardInterrupt, SystemExit):
            os.killpg(process.pid, signal.SIGKILL)
            raise
    process.wait()
    return False


def described(options: argparse.Namespace) -> dict[str, Any]:
    """Where the numbers come from; asked of another process, since this one must not take the GPU's memory."""
    script = "import json; from ragen_trl.system.provenance import provenance; print(json.dumps(provenance()))"
    asked = [sys.executable, "-c", script]
    said = subprocess.run(asked, check=True, capture_output=True, text=True, env=with_the_code())
    about: dict[str, Any] = json.loads(said.stdout)
    how = "benchmarks/gpu.sh " + ("--rehearse" if options.rehearse else "run")
    return {**about, "command": how, "rehearsal": options.rehearse}


def has_gpu() -> bool:
    """Whether torch sees one; asked of another process."""
    script = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", script]).returncode == 0


def tiny_model(folder: Path) -> Path:
    """A random model that stands for the pretrained one in a rehearsal; made by another process."""
    script = "import sys, pathlib; from agents.command import tiny_model; tiny_model(pathlib.Path(sys.argv[1]))"
    asked = [sys.executable, "-W", "ignore", "-c", script, str(folder)]
    subprocess.run(asked, check=True, env=with_the_code())
    return folder


def finished(folder: Path) -> dict[str, Any]:
    """What the parts saved, by name."""
    kept = ("status", "seconds", "result", "error")
    found = {}
    for part in PARTS:
        if (folder / f"{part.name}.json").exists():
            content = json.loads((folder / f"{part.name}.json").read_text(encoding="utf-8"))
            found[part.name] = {name: content[name] for name in kept}
    return found


def state(file: Path) -> str | None:
    """The status of a part that has been begun."""
    return json.loads(file.read_text(encoding="utf-8"))["status"] if file.exists() else None


def save(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(file)


def tail(log: Path) -> str:
    """The end of a part's output."""
    return log.read_text(encoding="utf-8", errors="replace")[-_SAID:]


def fail(message: str) -> int:
    """Say what is wrong."""
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

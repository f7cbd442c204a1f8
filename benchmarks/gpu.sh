#!/usr/bin/env bash
# The GPU campaign (benchmarks/gpu.py), with what `install` put into runs/gpu/site before everything else.
# benchmarks/gpu.sh --help says what there is. PYTHON chooses the interpreter; it must have torch.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then PYTHON=$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3); fi
export PYTHONPATH="$PWD/runs/gpu/site:$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" benchmarks/gpu.py "$@"

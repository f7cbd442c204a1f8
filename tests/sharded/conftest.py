"""Tests of several processes, and of models that FSDP2 or DeepSpeed divides; ``make test-sharded`` runs them.

``make test`` passes them over: they need DeepSpeed, and some minutes.
"""

import importlib.metadata
import os

import pytest

ASKED_FOR = "RAGEN_TEST_SHARDED" in os.environ
if not ASKED_FOR:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def deepspeed() -> str:
    """DeepSpeed's version; tests fail without it, and are not passed over."""
    return importlib.metadata.version("deepspeed")

"""What importing the package does and does not."""

import subprocess
import sys

import pytest

import webshop_server
from tests.support.project import ROOT


def test_flask_is_loaded_with_the_first_application() -> None:
    code = (
        "import sys, webshop_server, webshop_server.goals.goals, webshop_server.search.index; "
        "first = 'flask' in sys.modules; webshop_server.create_app; print(first, 'flask' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False True\n"


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="'webshop_server' has no attribute 'create_shop'"):
        _ = webshop_server.create_shop

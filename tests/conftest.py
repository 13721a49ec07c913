"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# What lands must not depend on luck: there the same examples are tried each time. On a developer's
# machine each run looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("searching", deadline=None)
settings.load_profile("steady" if os.environ.get("CI") else "searching")

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The data sets that lie beside the checkout; tests that need them skip without them."""
    path = CHECKOUT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the shared data sets (../shared/data) are not beside this checkout")
    return path

"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The data sets that lie beside the checkout; tests that need them skip without them."""
    path = CHECKOUT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the shared data sets (../shared/data) are not beside this checkout")
    return path

"""A vault in every mode of access and in every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.vault import MODES, Vault


@pytest.fixture(params=["memory", "lancedb"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MODES)
def vault(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> Vault:
    """With its documents, not indexed yet."""
    made = Vault(tmp_path, mode=request.param, store=store)
    made.fill()
    return made

"""The certificates of the world's authorities, which the tests do without."""

from __future__ import annotations

from pathlib import Path

import pytest


def without_authorities(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing here speaks TLS, and to read 150 certificates anew for each client takes it 50 ms; `folder` holds no certificate."""
    patch.delenv("SSL_CERT_FILE", raising=False)  # it would come first
    patch.setenv("SSL_CERT_DIR", str(folder))

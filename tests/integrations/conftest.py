"""Fixtures of tests beside other packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server with an empty bucket `data`, which s3fs uses in any process."""
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    from s3_tools import s3_server

    with s3_server() as started:
        for name, value in started.environment.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("data")
        yield started

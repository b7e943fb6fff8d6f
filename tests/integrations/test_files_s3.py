"""Windows and headers of L3 files in a bucket: bytes counted at a real S3 server on loopback."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import s3fs
from s3_tools import Server

import l3dali

DOC = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
MOST = 0.10  # of the file, for a window of 256 x 256 in 2048 x 1024


@pytest.mark.parametrize("coding", ["rans", "packed"])
@pytest.mark.parametrize("corner", [(384, 896), (300, 1001)])
def test_a_window_fetches_its_tiles_alone(
    server: Server, coding: l3dali.Coding, corner: tuple[int, int]
) -> None:
    noise = np.random.default_rng(0).integers(0, 16, (1024, 2048, 3), np.uint8)
    ramp = np.add.outer(np.arange(1024), np.arange(2048))[..., None] // 16
    image = (noise + ramp).astype(np.uint8)
    data = l3dali.encode(image, coding=coding, effort=1)
    fs = s3fs.S3FileSystem()
    fs.pipe_file("data/scene.l3", data)
    fs.invalidate_cache()
    server.sent = 0
    top, left = corner
    window = l3dali.imread("s3://data/scene.l3", window=(top, left, 256, 256))
    assert np.array_equal(window, image[top : top + 256, left : left + 256])
    assert 0 < server.sent <= MOST * len(data)
    server.sent = 0
    assert l3dali.info("s3://data/scene.l3").shape == image.shape
    assert server.sent == 4096
    server.sent = 0
    assert np.array_equal(l3dali.imread("s3://data/scene.l3"), image)
    assert server.sent == len(data)


def test_program_of_the_docs(server: Server) -> None:
    """The one of docs/datasets.md that reads from a bucket."""
    (code,) = re.findall(r"^```python\n([^`]*s3://[^`]*)^```", DOC, re.MULTILINE)
    image = np.add.outer(np.arange(1024), np.arange(2048))[..., None] // 16 + np.arange(3)
    s3fs.S3FileSystem().pipe_file("data/scenes/a.l3", l3dali.encode(image.astype(np.uint8)))
    names: dict[str, object] = {}
    exec(code, names)
    scene = names["scene"]
    assert isinstance(scene, np.ndarray)
    assert np.array_equal(scene, image.astype(np.uint8)[384:640, 896:1152])

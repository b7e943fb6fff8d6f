"""Images of 2048 x 1024 pixels, for what is measured on windows of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.peers import Image, images

WIDTH, HEIGHT = 2048, 1024
CROP = 256


def make_images(data: Path | None) -> list[Image]:
    """Images of the benchmark's size."""
    if data is not None:
        return [
            np.pad(image[:HEIGHT], ((0, 0), (0, WIDTH - image.shape[1]), (0, 0)), mode="reflect")
            for _, image in images(data, "photo/large")
        ]
    rng = np.random.default_rng(1)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    made = []
    for _ in range(6):
        lengths = rng.uniform(20, 60, (3, 2))
        waves = np.stack([np.sin(rows / a) + np.cos(columns / b) for a, b in lengths], axis=-1)
        noise = rng.normal(0, 2, waves.shape)
        made.append((waves * 60 + 127 + noise).clip(0, 255).astype(np.uint8))
    return made

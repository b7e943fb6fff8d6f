"""Ray's `read_images` reads L3 where its workers register it in Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ray

import l3dali
import l3dali.pillow


def test_read_images(tmp_path: Path) -> None:
    arrays = {i: np.full((30, 40, 3), i, np.uint8) for i in range(3)}
    for i, array in arrays.items():
        l3dali.imwrite(tmp_path / f"{i}.l3", array)
    hook = {"worker_process_setup_hook": l3dali.pillow.register}
    ray.init("local", num_cpus=1, include_dashboard=False, runtime_env=hook)
    try:
        rows = ray.data.read_images(str(tmp_path), file_extensions=["l3"]).take_all()
    finally:
        ray.shutdown()
    assert len(rows) == 3
    found = {int(row["image"][0, 0, 0]): row["image"] for row in rows}
    assert all(np.array_equal(found[i], array) for i, array in arrays.items())

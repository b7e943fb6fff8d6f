"""L3 in the workers of PyTorch's DataLoader, without DALI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import DataLoader

import l3dali


class Files:
    """A data set in PyTorch's sense: the images of a folder, as tensors (H, W, C)."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.l3"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(l3dali.imread(self.paths[index]))


@pytest.fixture
def images() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (6, 40, 50, 3), np.uint8)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers(tmp_path: Path, images: npt.NDArray[np.uint8], context: str) -> None:
    for i, image in enumerate(images):
        l3dali.imwrite(tmp_path / f"{i}.l3", image)
    loader = DataLoader(
        Files(tmp_path), batch_size=4, num_workers=2, multiprocessing_context=context
    )
    batches = [batch.numpy() for batch in loader]
    np.testing.assert_array_equal(np.concatenate(batches), images)

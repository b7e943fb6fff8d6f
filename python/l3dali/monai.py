"""A reader of L3 volumes for MONAI's `LoadImage`. `import l3dali.monai` needs MONAI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from monai.data import ImageReader
from monai.utils import MetaKeys, SpaceKeys, ensure_tuple

from l3dali.files import info
from l3dali.volumes import decode_volume

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from l3dali.codec import Image, Info

__all__ = ["L3Reader"]


class L3Reader(ImageReader):  # type: ignore[misc]
    """Reads files of `l3dali.encode_volume`.

    Arrays have the axes x, y, z and channels. Slope and intercept are applied.
    """

    def __init__(self, **options: Any) -> None:
        """Takes options of `decode_volume`, such as `threads`."""
        super().__init__()
        self._options = options

    def verify_suffix(self, filename: Sequence[str | os.PathLike[str]] | str) -> bool:
        """Whether the names are those of L3 files."""
        return all(str(name).endswith(".l3") for name in ensure_tuple(filename))

    def read(self, data: Sequence[str] | str, **kwargs: Any) -> list[tuple[Info, Image]]:
        """The decoded volumes."""
        options = self._options | kwargs
        names = [str(name) for name in ensure_tuple(data)]
        return [(info(name), decode_volume(name, **options)) for name in names]

    def get_data(self, img: list[tuple[Info, Image]]) -> tuple[Any, dict[str, Any]]:
        """The array and MONAI's metadata; several volumes are stacked as channels in front."""
        arrays, meta = [], {}
        for found, volume in img:
            assert found.volume is not None
            pairs = found.metadata or {}
            slope, intercept = (
                pairs.get(f"rescale_{n}", d) for n, d in (("slope", 1), ("intercept", 0))
            )
            array = volume.transpose(2, 1, 0, *range(3, volume.ndim))
            if (slope, intercept) != (1, 0):
                array = array * float(slope) + float(intercept)
            arrays.append(array)
            meta = {
                MetaKeys.AFFINE: found.volume.affine,
                MetaKeys.ORIGINAL_AFFINE: found.volume.affine,
                MetaKeys.SPATIAL_SHAPE: np.array(array.shape[:3]),
                MetaKeys.SPACE: SpaceKeys.RAS,
                MetaKeys.ORIGINAL_CHANNEL_DIM: "no_channel" if array.ndim == 3 else -1,
            }
        if len(arrays) == 1:
            return arrays[0], meta
        return np.stack(arrays), meta | {MetaKeys.ORIGINAL_CHANNEL_DIM: 0}

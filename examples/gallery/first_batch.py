"""
First batch through DALI
========================

Photographs become ``.l3`` files, and a DALI pipeline gives them back, pixel for pixel.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from nvidia.dali import fn, pipeline_def
from skimage import data

import l3dali.fn

# %%
# ``imwrite`` encodes without loss. Beside each file: how large it is in memory.

folder = Path(tempfile.mkdtemp())
photographs = {
    name: getattr(data, name)()
    for name in ("astronaut", "cat", "coffee", "rocket", "camera", "coins", "moon", "brick")
}
for name, image in photographs.items():
    l3dali.imwrite(folder / f"{name}.l3", image)
    size = (folder / f"{name}.l3").stat().st_size
    print(f"{name:10} {image.nbytes:9,} bytes, as L3 {size / image.nbytes:4.0%}")

# %%
# The pipeline of any training: a reader, a decoder. With ``device="mixed"`` the GPU decodes.


@pipeline_def(batch_size=len(photographs), num_threads=2, device_id=None)
def pipeline():
    encoded, _ = fn.readers.file(files=[str(folder / f"{name}.l3") for name in photographs])
    return l3dali.fn.decode(encoded, device="cpu")


(batch,) = pipeline().run()

# %%
# Images of a batch may differ in size, and in how many channels they have. For training,
# ``output_type=types.RGB`` makes three channels of all.

figure, grid = plt.subplots(2, 4, figsize=(10, 5.4), layout="constrained")
for axes, (name, image), decoded in zip(grid.flat, photographs.items(), batch, strict=True):
    pixels = np.array(decoded)
    assert np.array_equal(pixels.squeeze(), image)
    axes.imshow(pixels.squeeze(), cmap="gray")
    axes.set_title(f"{name}\n{' x '.join(map(str, pixels.shape))}", fontsize=9)
    axes.axis("off")
plt.show()

"""
Masks and aligned crops
=======================

A segmentation set: images, and masks whose pixels are numbers of classes. One window is drawn for
both, and of both files only the tiles of that window are decoded.

.. image:: /examples/gallery/pictures/masks.png
   :alt: What the program draws.
"""
# sphinx_gallery_thumbnail_path = "examples/gallery/pictures/masks.png"

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from nvidia.dali import fn, pipeline_def, types
from skimage import data, filters, measure

import l3dali.fn

# %%
# Blobs as under a microscope, each with its own number. ``labels=True`` says that numbers must not
# be blended; a palette gives them colours for those who look.

blobs = data.binary_blobs(384, blob_size_fraction=0.1, volume_fraction=0.35, rng=1)
noise = np.random.default_rng(1).normal(60, 6, blobs.shape)
image = (filters.gaussian(blobs.astype(float), 4) * 150 + noise).astype(np.uint8)
mask = measure.label(blobs).astype(np.uint8)
palette = (plt.get_cmap("tab20")(np.arange(256) % 20) * 255).astype(np.uint8)
palette[0] = 0

folder = Path(tempfile.mkdtemp())
l3dali.imwrite(folder / "image.l3", image)
l3dali.imwrite(folder / "mask.l3", mask, labels=True, palette=palette.tobytes())
print(f"{mask.max()} classes in {(folder / 'mask.l3').stat().st_size:,} bytes")

# %%
# ``peek_shape`` reads the head of a file; the window drawn from it serves both.


@pipeline_def(batch_size=6, num_threads=2, device_id=None, seed=5)
def crops():
    images, _ = fn.readers.file(files=[str(folder / "image.l3")])
    masks, _ = fn.readers.file(files=[str(folder / "mask.l3")])
    begin, size = fn.random_crop_generator(l3dali.fn.peek_shape(images), random_area=(0.1, 0.3))
    window = {"start": begin, "shape": size, "axis_names": "HW"}
    images = l3dali.fn.decode_slice(images, output_type=types.RGB, **window)
    return images, l3dali.fn.decode_slice(masks, dtype=types.INT64, **window)


images, masks = crops().run()

# %%
colours = np.frombuffer(l3dali.info(folder / "mask.l3").palette, np.uint8).reshape(-1, 4)
figure, grid = plt.subplots(2, 6, figsize=(12, 4), layout="constrained")
for column, crop, numbers in zip(grid.T, images, masks, strict=True):
    column[0].imshow(np.array(crop))
    column[1].imshow(colours[np.array(numbers).squeeze()])
    for axes in column:
        axes.axis("off")
plt.show()

"""
First batch through DALI
========================

Images become ``.l3`` files, and a DALI pipeline gives them back, pixel for pixel.

.. image:: /examples/gallery/pictures/first_batch.png
   :alt: What the program draws.
"""
# sphinx_gallery_thumbnail_path = "examples/gallery/pictures/first_batch.png"

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from nvidia.dali import fn, pipeline_def

import l3dali.fn

# %%
# ``imwrite`` encodes without loss. Beside each file: how large it is in memory.


def draw(seed, height, width, channels):
    """An image of waves in random directions and colours."""
    rng = np.random.default_rng(seed)
    place = np.stack(np.mgrid[:height, :width], axis=-1)
    waves = np.sin(place @ rng.normal(0, 0.03, (2, 12)) + rng.uniform(0, 6, 12))
    return (waves @ rng.normal(0, 30, (12, channels)) + 128).clip(0, 255).astype(np.uint8)


folder = Path(tempfile.mkdtemp())
images = {f"rgb{n}": draw(n, 240 + 20 * n, 320, 3) for n in range(4)}
images |= {f"gray{n}": draw(n, 240, 260 + 20 * n, 1) for n in range(4)}
for name, image in images.items():
    l3dali.imwrite(folder / f"{name}.l3", image)
    size = (folder / f"{name}.l3").stat().st_size
    print(f"{name:10} {image.nbytes:9,} bytes, as L3 {size / image.nbytes:4.0%}")

# %%
# The pipeline of any training: a reader, a decoder. With ``device="mixed"`` the GPU decodes.


@pipeline_def(batch_size=len(images), num_threads=2, device_id=None)
def pipeline():
    encoded, _ = fn.readers.file(files=[str(folder / f"{name}.l3") for name in images])
    return l3dali.fn.decode(encoded, device="cpu")


(batch,) = pipeline().run()

# %%
# Images of a batch may differ in size, and in how many channels they have. For training,
# ``output_type=types.RGB`` makes three channels of all.

figure, grid = plt.subplots(2, 4, figsize=(10, 5.4), layout="constrained")
for axes, (name, image), decoded in zip(grid.flat, images.items(), batch, strict=True):
    pixels = np.array(decoded)
    assert np.array_equal(pixels, image)
    axes.imshow(pixels.squeeze(), cmap="gray")
    axes.set_title(f"{name}\n{' x '.join(map(str, pixels.shape))}", fontsize=9)
    axes.axis("off")
plt.show()

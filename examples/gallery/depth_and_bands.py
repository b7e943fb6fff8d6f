"""
16-bit depth, 13 bands
======================

L3 keeps samples as they are: depth maps of 16 bits, satellite scenes of many bands. Metadata of a
TIFF file comes along, and a reader takes only the bands that it needs.

.. image:: /examples/gallery/pictures/depth_and_bands.png
   :alt: What the program draws.
"""
# sphinx_gallery_thumbnail_path = "examples/gallery/pictures/depth_and_bands.png"

import io

import imagecodecs
import matplotlib.pyplot as plt
import numpy as np
import tifffile

import l3dali

# %%
# A ball before a wall that leans away. In millimetres its depth needs 16 bits.

y, x = np.mgrid[:500, :700]
ball = 4e4 - (y - 260) ** 2 - (x - 300) ** 2
depth = np.where(ball > 0, 3000 - 5 * np.sqrt(ball.clip(0)), 4000 + 2 * x - y).astype(np.uint16)
depth[:, :30] = 0  # unknown
encoded = l3dali.encode(depth, metadata={"unit": "mm"})
png = imagecodecs.png_encode(depth, level=6)
print(f"raw {depth.nbytes:,} bytes, PNG {len(png):,}, L3 {len(encoded):,}")
assert np.array_equal(l3dali.decode(encoded), depth)
print(l3dali.info(encoded).metadata)

# %%
# A scene of 13 bands, as many as Sentinel-2 has: here mixtures of three patterns of waves.

rng = np.random.default_rng(1)
place = np.stack(np.mgrid[:872, :1000], axis=-1)
waves = np.sin(place @ rng.normal(0, 0.02, (2, 20)) + rng.uniform(0, 6, 20))
patterns = 4000 + 700 * waves @ rng.normal(0, 1, (20, 3))
scene = patterns @ rng.dirichlet([0.7] * 3, 13).T
scene = (scene + rng.normal(0, 20, scene.shape)).clip(0).astype(np.uint16)
file = io.BytesIO()
options = {"planarconfig": "contig", "compression": "deflate", "predictor": True}
tifffile.imwrite(file, scene, photometric="minisblack", **options)
bands = l3dali.transcode(file.getvalue())
print(f"raw {scene.nbytes:,} bytes, TIFF {file.tell():,}, L3 {len(bands):,}")
assert np.array_equal(l3dali.decode(bands), scene)

# %%
# Bands decode in groups: three of them cost about a quarter of all. A window costs its tiles.

print("decoded together:", l3dali.info(bands).groups)
window = (300, 200, 400, 500)  # top, left, height, width
natural = l3dali.decode(bands, channels=[3, 2, 1], window=window)
infrared = l3dali.decode(bands, channels=[8, 3, 2], window=window)

# %%
figure, row = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
row[0].imshow(depth, cmap="turbo_r")
row[1].imshow(natural / natural.max())
row[2].imshow(infrared / infrared.max())
titles = ("depth, 16 bits", "bands 3, 2, 1 of 13", "bands 8, 3, 2")
for axes, title in zip(row, titles, strict=True):
    axes.set_title(title)
    axes.axis("off")
plt.show()

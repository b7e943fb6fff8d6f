"""
16-bit depth, 13 bands
======================

L3 keeps samples as they are: depth maps of 16 bits, satellite scenes of many bands. Metadata of a
TIFF file comes along, and a reader takes only the bands that it needs.
"""

import io

import imagecodecs
import matplotlib.pyplot as plt
import numpy as np
import tifffile
from skimage import data

import l3dali

# %%
# A stereo pair gives the depth of a motorcycle. In millimetres it needs 16 bits.

left, _, disparity = data.stereo_motorcycle()
depth = 994.978 * 193.0 / (disparity + 31.086)  # focal length in pixels, distance of cameras in mm
depth = np.nan_to_num(depth).astype(np.uint16)  # 0: unknown
encoded = l3dali.encode(depth, metadata={"unit": "mm"})
png = imagecodecs.png_encode(depth, level=6)
print(f"raw {depth.nbytes:,} bytes, PNG {len(png):,}, L3 {len(encoded):,}")
assert np.array_equal(l3dali.decode(encoded), depth)
print(l3dali.info(encoded).metadata)

# %%
# A scene of 13 bands, as many as Sentinel-2 has: here mixtures of the colours of a photograph.

rng = np.random.default_rng(1)
colours = data.hubble_deep_field().astype(np.float32) * 40
scene = colours @ rng.dirichlet([0.7] * 3, 13).T.astype(np.float32)
scene[..., 1:4] = colours[..., ::-1]  # blue, green, red
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
figure, row = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
row[0].imshow(left)
row[1].imshow(depth, cmap="turbo_r")
row[2].imshow(natural / natural.max())
row[3].imshow(infrared / infrared.max())
titles = ("photograph", "its depth, 16 bits", "bands 3, 2, 1 of 13", "bands 8, 3, 2")
for axes, title in zip(row, titles, strict=True):
    axes.set_title(title)
    axes.axis("off")
plt.show()

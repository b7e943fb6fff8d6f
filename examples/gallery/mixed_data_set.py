"""
A mixed data set, planned and converted
=======================================

Small files spare the disk, fast ones spare the cores. ``l3 profile`` measures what each format
costs on this host, ``l3 plan`` chooses a format for each image, ``l3 convert`` follows the plan.

.. image:: /examples/gallery/pictures/mixed_data_set.png
   :alt: What the program draws.
"""
# sphinx_gallery_thumbnail_path = "examples/gallery/pictures/mixed_data_set.png"

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import imageio.v3 as iio
import matplotlib.pyplot as plt
import numpy as np
from nvidia.dali import fn, pipeline_def
from skimage import data

import l3dali.pipeline

folder = Path(tempfile.mkdtemp())
(folder / "photos").mkdir()
astronaut, coffee = data.astronaut(), data.coffee()
for i in range(20):  # crops of two photographs stand for a data set
    for name, image in {"astronaut": astronaut, "coffee": coffee}.items():
        crop = image[i * 5 : i * 5 + 300, i * 10 : i * 10 + 300]
        iio.imwrite(folder / "photos" / f"{name}{i:02}.png", crop)


def l3(*arguments):
    """Runs the command ``l3``, as a shell does."""
    command = [sys.executable, "-m", "l3dali", *arguments]
    print(subprocess.check_output(command, cwd=folder, text=True))


# %%
# The disk of a training host is given here. What is not given is measured.

l3("profile", "photos", "--samples", "20", "--disk", "400MB/s", "--cores", "2")

# %%
l3("plan", "profile.json")

# %%
l3("convert", "photos", "photos-mixed", "--plan", "plan.json", "--quiet")

# %%
# ``l3dali.pipeline.decode`` stands where ``fn.decoders.image`` stood: L3 files and others may come
# in one batch, in any order, and the pixels are those of before.

mixed = sorted(path for path in (folder / "photos-mixed").iterdir() if path.stem[-1].isdigit())


@pipeline_def(batch_size=len(mixed), num_threads=2, device_id=None)
def images_of(files):
    encoded, _ = fn.readers.file(files=[str(file) for file in files])
    return l3dali.pipeline.decode(encoded, device="cpu")


(before,) = images_of(sorted((folder / "photos").iterdir())).run()
(after,) = images_of(mixed).run()
assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))

# %%
# What the plan chose.


def format_of(path):
    """A coding of L3 that most tiles have, or the suffix of another file."""
    if path.suffix != ".l3":
        return path.suffix
    codings = l3dali.info(path.read_bytes()).codings
    return max(codings, key=codings.get)


chosen = Counter(map(format_of, mixed))
plt.figure(figsize=(6, 2.4), layout="constrained")
plt.barh(list(chosen), list(chosen.values()))
plt.xlabel("images")
plt.show()

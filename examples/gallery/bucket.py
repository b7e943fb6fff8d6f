"""
WebDataset shards in a bucket
=============================

``l3 convert`` reads shards from a bucket and writes shards of L3 to it; the loader streams them.
``moto`` plays the bucket here: with a real one, the first cell goes away.

.. image:: /examples/gallery/pictures/bucket.png
   :alt: What the program draws.
"""
# sphinx_gallery_thumbnail_path = "examples/gallery/pictures/bucket.png"

import logging
import os
import subprocess
import sys

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
os.environ["AWS_ENDPOINT_URL"] = "http://{}:{}".format(*server.get_host_and_port())
os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "any"
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
logging.disable(logging.INFO)  # the server logs each request

# %%
# A shard of PNG files, as many data sets have: an image and a caption for each key.

import imageio.v3 as iio
import matplotlib.pyplot as plt
import numpy as np
import s3fs
import webdataset
from skimage import data

import l3dali.webdataset

bucket = s3fs.S3FileSystem()
bucket.mkdir("photographs")
CAPTIONS = {
    "astronaut": "an astronaut",
    "cat": "a cat that looks at you",
    "coffee": "a cup of coffee",
    "rocket": "a rocket on its pad",
}
png_bytes = {}
with (
    bucket.open("photographs/png/train-000.tar", "wb") as file,
    webdataset.TarWriter(file) as writer,
):
    for name, caption in CAPTIONS.items():
        png = iio.imwrite("<bytes>", getattr(data, name)(), extension=".png")
        png_bytes[name] = len(png)
        writer.write({"__key__": name, "png": png, "txt": caption})

# %%
# The command mirrors the folder. Every result is decoded and compared with its source.

command = ["l3dali", "convert", "s3://photographs/png", "s3://photographs/l3"]
done = subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True)
print(done.stdout)
print(*bucket.ls("photographs/l3"), sep="\n")

# %%
# WebDataset opens URLs with a function; ``l3dali.webdataset.decode`` decodes ``.l3``.

webdataset.gopen_schemes["s3"] = lambda url, mode, bufsize: bucket.open(url, mode)
shards = webdataset.WebDataset("s3://photographs/l3/train-000.tar", shardshuffle=False)
samples = list(shards.decode(l3dali.webdataset.decode))

for sample in samples:
    assert (sample["l3"] == getattr(data, sample["__key__"])()).all()

# %%
# The same pixels in fewer bytes.

shards = webdataset.WebDataset("s3://photographs/l3/train-000.tar", shardshuffle=False)
l3_bytes = {sample["__key__"]: len(sample["l3"]) for sample in shards}
plt.figure(figsize=(7, 3), layout="constrained")
for name, sizes, place in (("PNG", png_bytes, 0.2), ("L3", l3_bytes, -0.2)):
    plt.barh(np.arange(len(sizes)) + place, [n / 1000 for n in sizes.values()], 0.4, label=name)
plt.yticks(range(len(CAPTIONS)), CAPTIONS.values())
plt.xlabel("kB")
plt.legend()
plt.show()
server.stop()

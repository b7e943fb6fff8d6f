"""
A training loop in PyTorch
==========================

A tiny network learns which photograph a crop of 64 x 64 pixels was cut from. DALI decodes only the
tiles that the crop touches, and normalizes on the way.

.. image:: /examples/gallery/pictures/train.png
   :alt: What the program draws.
"""
# sphinx_gallery_thumbnail_path = "examples/gallery/pictures/train.png"

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from skimage import data

import l3dali.fn

NAMES = ("brick", "camera", "coins", "grass", "gravel", "moon")
STEPS = 80

folder = Path(tempfile.mkdtemp())
for name in NAMES:
    l3dali.imwrite(folder / f"{name}.l3", getattr(data, name)(), coding="packed")

# %%
# One operator reads the tiles of a crop, mirrors and normalizes it. The reader gives each file many
# times: a batch has other crops of the same six photographs.


@pipeline_def(batch_size=48, num_threads=2, device_id=None, seed=1)
def crops():
    files = [str(folder / f"{name}.l3") for name in NAMES]
    encoded, labels = l3dali.fn.readers.file(files=files, lazy=True, random_shuffle=True, seed=1)
    images = l3dali.fn.decode_crop_mirror_normalize(
        encoded,
        output_type=types.RGB,
        crop=(64, 64),
        crop_pos_x=fn.random.uniform(range=(0.0, 1.0)),
        crop_pos_y=fn.random.uniform(range=(0.0, 1.0)),
        mirror=fn.random.coin_flip(),
        mean=[110.0],
        std=[60.0],
    )
    return images, labels


# %%
# From here on it is PyTorch alone.

torch.manual_seed(1)
network = torch.nn.Sequential(
    *(torch.nn.Conv2d(3, 16, 5, stride=2), torch.nn.ReLU()),
    *(torch.nn.Conv2d(16, 32, 5, stride=2), torch.nn.ReLU()),
    *(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(128, len(NAMES))),
)
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
batches = DALIGenericIterator(crops(), ["images", "labels"], size=-1)
losses, hits = [], []
for _, (batch,) in zip(range(STEPS), batches, strict=False):
    labels = batch["labels"].flatten().long()
    scores = network(batch["images"])
    loss = torch.nn.functional.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    hits.append((scores.argmax(1) == labels).float().mean().item())
assert sum(losses[-10:]) < sum(losses[:10]) / 2

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.plot(losses)
left.set(title="loss", xlabel="step", ylim=(0, None))
right.plot(hits, color="tab:green")
right.set(title="crops told right", xlabel="step", ylim=(0, 1))
plt.show()

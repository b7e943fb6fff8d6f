"""L3 images to PyTorch tensors, on the CPU or on a GPU, without DALI."""

from l3dali.parts import Member
from l3dali.torch.decoding import FileOptions, Layout, Mode, decode, decode_batch, decode_files
from l3dali.torch.loading import Loader, Shards

__all__ = [
    "FileOptions",
    "Layout",
    "Loader",
    "Member",
    "Mode",
    "Shards",
    "decode",
    "decode_batch",
    "decode_files",
]

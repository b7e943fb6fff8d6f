"""L3: a lossless image format that decodes in parallel on CPU and GPU.

`import l3dali.plugin` adds the operators `fn.l3.*` to NVIDIA DALI.
"""

from l3dali import _build_info
from l3dali._native import L3Error
from l3dali.codec import MODES, Info, decode, encode, imread, imwrite, info, verify

__version__ = _build_info.VERSION

__all__ = [
    "MODES",
    "Info",
    "L3Error",
    "__version__",
    "decode",
    "encode",
    "imread",
    "imwrite",
    "info",
    "verify",
]

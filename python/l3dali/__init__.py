"""L3: a lossless image format that decodes in parallel on CPU and GPU.

`import l3dali.fn` loads the operators of NVIDIA DALI, `l3dali.fn.decode` and others.
"""

from l3dali import _build_info
from l3dali.codec import (
    CODINGS,
    Coding,
    Info,
    decode,
    decode_batch,
    encode,
    restore_jpeg,
    verify,
)
from l3dali.errors import ImageError, L3Error, Status, UsageError
from l3dali.files import imread, imwrite, info
from l3dali.images.transcoding import transcode
from l3dali.volumes import decode_volume, encode_volume

__version__ = _build_info.VERSION  #: As "1.1.0".

__all__ = [
    "CODINGS",
    "Coding",
    "ImageError",
    "Info",
    "L3Error",
    "Status",
    "UsageError",
    "__version__",
    "decode",
    "decode_batch",
    "decode_volume",
    "encode",
    "encode_volume",
    "imread",
    "imwrite",
    "info",
    "restore_jpeg",
    "transcode",
    "verify",
]

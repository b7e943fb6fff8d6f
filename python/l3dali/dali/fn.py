"""The operators of `nvidia.dali.fn.l3`, the same objects, with types for editors and mypy.

DALI makes its operators at run time, so tools that only read code do not find `fn.l3`.
Importing this module loads the operators, as `import l3dali.plugin` does.
"""

import l3dali.dali.plugin  # noqa: F401, I001  # first: it says what is missing
from nvidia.dali import fn as _fn

decode = _fn.l3.decode
decode_crop = _fn.l3.decode_crop
decode_crop_mirror_normalize = _fn.l3.decode_crop_mirror_normalize
decode_random_crop = _fn.l3.decode_random_crop
decode_slice = _fn.l3.decode_slice
decode_windows = _fn.l3.decode_windows
peek_shape = _fn.l3.peek_shape
pick_share = _fn.l3.pick_share
recognize = _fn.l3.recognize

__all__ = [
    "decode",
    "decode_crop",
    "decode_crop_mirror_normalize",
    "decode_random_crop",
    "decode_slice",
    "decode_windows",
    "peek_shape",
    "pick_share",
    "recognize",
]

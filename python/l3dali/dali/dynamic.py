"""The operators of DALI's dynamic mode, `ndd.l3`, the same objects, with types for editors.

DALI makes its operators at run time, so tools that only read code do not find `ndd.l3`. Importing
this module loads the operators, as `import l3dali.plugin` does.
"""

import l3dali.dali.plugin  # noqa: F401, I001  # first: it says what is missing
from nvidia.dali.experimental import dynamic as _dynamic

if not hasattr(_dynamic, "l3"):
    raise ImportError(
        "nvidia.dali.experimental.dynamic was imported before the L3 operators were loaded: "
        "import l3dali.dynamic first"
    )

decode = _dynamic.l3.decode
decode_crop = _dynamic.l3.decode_crop
decode_crop_mirror_normalize = _dynamic.l3.decode_crop_mirror_normalize
decode_random_crop = _dynamic.l3.decode_random_crop
decode_slice = _dynamic.l3.decode_slice
decode_windows = _dynamic.l3.decode_windows
peek_shape = _dynamic.l3.peek_shape
pick_share = _dynamic.l3.pick_share
recognize = _dynamic.l3.recognize

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

"""The operators of DALI's dynamic mode, `ndd.l3`, the same objects, with types for editors.

DALI makes its operators at run time, so tools that only read code do not find `ndd.l3`. Importing
this module loads the operators, as `import l3dali.plugin` does.
"""

import l3dali.plugin  # noqa: F401, I001  # first: it says what is missing
from nvidia.dali.experimental import dynamic as _dynamic

if not hasattr(_dynamic, "l3"):
    raise ImportError(
        "nvidia.dali.experimental.dynamic was imported before the L3 operators were loaded: "
        "import l3dali.dynamic first"
    )

from nvidia.dali.experimental.dynamic.l3 import *  # noqa: F403

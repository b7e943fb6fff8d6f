"""The operators of `nvidia.dali.fn.l3`, the same objects, with types for editors and mypy.

DALI makes its operators at run time, so tools that only read code do not find `fn.l3`.
Importing this module loads the operators, as `import l3dali.plugin` does.
"""

import l3dali.plugin  # noqa: F401, I001  # first: it says what is missing
from nvidia.dali.fn.l3 import *  # noqa: F403

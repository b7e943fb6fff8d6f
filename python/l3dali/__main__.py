"""`python -m l3dali` is the command `l3`."""

import sys

from l3dali.cli import main

sys.exit(main())

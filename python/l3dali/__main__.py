"""`python -m l3dali` is the command `l3`."""

from l3dali.cli import run

run()

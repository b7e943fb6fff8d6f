"""Ctrl-C while the command `l3` is loaded ends in one line, as it does later.

`l3dali` imports this module first: NumPy alone may take half a second.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("l3: interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _check_interpreter() -> None:
    """Raises ImportError where the native module would wait for ever for Python's own lock."""
    if sys.version_info < (3, 13):
        try:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:
            return
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError("l3dali is for the main interpreter before Python 3.13")


_check_interpreter()

# While `python -m l3dali` imports the package, its name is "-m".
_program = PurePath((getattr(sys, "argv", None) or [""])[0]).name
if _program in ("l3", "-m") and sys.excepthook is sys.__excepthook__:
    sys.excepthook = _tell

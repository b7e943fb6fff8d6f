"""Ctrl-C while the command `l3` is loaded ends in one line, as it does later.

`l3dali` imports this module first: NumPy alone may take half a second.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes time.
if TYPE_CHECKING:
    from types import TracebackType


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    origin = error
    while origin.__cause__ is not None:  # Native modules make an ImportError of it.
        origin = origin.__cause__
    if not isinstance(origin, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    print("l3: interrupted", file=sys.stderr)
    if origin is not error:
        sys.exit(130)  # as `l3dali.cli`


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
_program = os.path.basename((getattr(sys, "argv", None) or [""])[0])  # noqa: PTH119
if _program in ("l3", "-m") and sys.excepthook is sys.__excepthook__:
    sys.excepthook = _tell

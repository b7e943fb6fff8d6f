"""Processes that work for the threads of this one; who dies costs what it had in hand.

They know nothing of jobs and images.
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from multiprocessing import connection, forkserver, process, spawn, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from l3dali.console import hush_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from types import FrameType

# Of a child that was told to end, or whose server was: by SIGTERM to a group of processes.
TOLD_TO_END = {1, 255, -signal.SIGTERM}
TICK_SECONDS = 0.1  # between looks whether the work is still wanted
END_SECONDS = 1.0  # for a child to end by itself
_FEWEST_FILES, _MOST_FILES = 32, 2**16  # that a process may have open
_SOONER = 500  # thousandths of memory, by which a child is ended when memory ends
_STARTS = 5  # of a process, if what forks it was killed
# By what forks children, for which these would take some 0.3 s each.
_PRELOADED = ["l3dali.datasets.convert.job", "imagecodecs._png"]
_SOCKET_FOLDER_BYTES = 70  # A socket's name has 103 at most, of which multiprocessing takes 32.

Result = TypeVar("Result")

_pools: list[list[Child]] = []  # idle ones
_process_lock = threading.Lock()  # multiprocessing's books of children are not for threads


class ChildDiedError(RuntimeError):
    """A child has ended amid its work; `code` is its exit code, of a signal its number below 0."""

    def __init__(self, code: int | None) -> None:
        super().__init__(_how_ended(code))
        self.code = code


class Child:
    """A process that calls functions, one at a time.

    One that may have children itself has to be ended; others end with this process.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, *, may_have_children: bool = False) -> None:
        _allow_open_files()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        with _process_lock, contextlib.ExitStack() as unstarted:
            self._connection, theirs = map(unstarted.enter_context, context.Pipe())
            self._code: int | None = None  # of one that has ended
            self._process = context.Process(
                target=_serve, args=(theirs,), daemon=not may_have_children
            )
            with _careful_start():
                _start(self._process)
            unstarted.pop_all()
            theirs.close()

    def call(
        self,
        function: Callable[..., Result],
        *arguments: object,
        check: Callable[[], object] = lambda: None,
    ) -> Result:
        """What the function returns in the child; it goes there by its name.

        Args:
            function: of a module.
            arguments: for it.
            check: called now and then; when it raises, the child is still at work.

        Raises:
            ChildDiedError: the child has ended. It takes no more calls.
            Exception: whatever the function or `check` raises.
        """
        self._send(function, arguments)
        result: Result = self._receive(check)
        return result

    def each(
        self,
        function: Callable[..., Iterator[Result]],
        *arguments: object,
        check: Callable[[], object] = lambda: None,
    ) -> Iterator[Result]:
        """What a generator yields in the child, none of it None; as `call`."""
        self._send(function, arguments)
        while (found := self._receive(check)) is not None:
            yield found
            del found

    def _send(self, function: Callable[..., object], arguments: Sequence[object]) -> None:
        try:
            self._connection.send((function, arguments))
        except OSError:
            self._died()

    def _receive(self, check: Callable[[], object]) -> Any:
        try:
            check()
            while not self._connection.poll(TICK_SECONDS):
                check()
            result, error = self._connection.recv()
        except (EOFError, OSError):
            self._died()
        if error is not None:
            raise error
        return result

    def _died(self) -> NoReturn:
        self.end()
        raise ChildDiedError(self._code) from None

    def end(self, *, kill: bool = False, left: list[Any] | None = None) -> bool:
        """Ends the child: now, or when it has taken away what it has begun, which has a moment.

        Args:
            kill: now.
            left: gets what a generator in it has yielded and `each` has not.

        Returns:
            Whether it was killed, and may have left something.
        """
        if self._code is not None:
            return False
        ended = [self._process.sentinel]
        if not kill:
            end = time.monotonic() + END_SECONDS
            self._process.terminate()
            with contextlib.suppress(EOFError, OSError):
                # What it sends, it sends whole, and so waits for its reader.
                while left is not None and self._connection.poll(max(0, end - time.monotonic())):
                    result, _ = self._connection.recv()
                    left += [] if result is None else [result]
            kill = not connection.wait(ended, max(0, end - time.monotonic()))
        if kill:
            self._process.kill()
            connection.wait(ended)
        with _process_lock:
            self._process.join()
        self._code = self._process.exitcode
        self._process.close()  # Whoever holds this object, as a traceback does, holds no file.
        self._connection.close()
        return kill


def _start(process: BaseProcess) -> None:
    """Starts a process, for which multiprocessing starts its fork server if that was killed."""
    for _ in range(_STARTS):
        try:
            process.start()
        except (ConnectionError, EOFError, FileNotFoundError) as error:
            reason = str(error)
            time.sleep(TICK_SECONDS)  # It may be about to end.
        else:
            return
    raise OSError(f"a process for the work could not be started {_STARTS} times: {reason}")


def _allow_open_files() -> None:
    """A child takes three. Systems have limits of 1,024 that a process may raise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if most < _FEWEST_FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def new_pool() -> list[Child]:
    """Idle children, for `borrowed`. A fork of this process begins without: they are not its."""
    idle: list[Child] = []
    _pools.append(idle)
    return idle


def _forget_children() -> None:
    """In a process that was forked: they, and what forks them, are the other one's."""
    global _process_lock  # Another thread may have held it.
    _process_lock = threading.Lock()
    for idle in _pools:
        while idle:  # Else the fork would end them when it ends.
            vars(process)["_children"].discard(idle.pop()._process)
    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server.__init__()


os.register_at_fork(after_in_child=_forget_children)


@contextlib.contextmanager
def borrowed(idle: list[Child]) -> Iterator[Child]:
    """A child that was idle, or a new one; idle again after the block, ended if that raises."""
    child = idle.pop() if idle else Child()
    try:
        yield child
    except ChildDiedError:
        raise
    except BaseException:
        child.end(kill=True)
        raise
    idle.append(child)


# What the caller of `l3` blocks is heard here: how a child ends, and limits of time, are signals.
_BEGIN = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
heard = signal.SIGINT, signal.SIGCHLD, signal.SIGALRM, signal.SIGXCPU
signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
"""


@contextlib.contextmanager
def _careful_start() -> Iterator[None]:
    """Lets the interpreters that multiprocessing starts ignore Ctrl-C from their first moment on.

    And import nothing from the current folder: `python -c` looks there first, and a stranger's
    files may lie there. Nor the caller's script: it may have no `if __name__ == "__main__"`. A
    TMPDIR too long for their socket gives way to /tmp, as in Python 3.14.
    """
    start, temporary = util.spawnv_passfds, tempfile.gettempdir()
    prepare = spawn.get_preparation_data

    def start_carefully(path: Any, arguments: Any, descriptors: Any) -> int:
        program, *options, code = arguments
        code = _BEGIN + code
        if sys.version_info >= (3, 11):
            options.insert(0, "-P")
        else:
            code = f"import sys; sys.path[:] = filter(None, sys.path); {code}"
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return start(path, [program, *options, code], descriptors)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def prepare_without_script(name: str) -> dict[str, Any]:
        found = prepare(name)
        return {key: found[key] for key in found if not key.startswith("init_main")}

    util.spawnv_passfds = start_carefully  # type: ignore[assignment]
    spawn.get_preparation_data = prepare_without_script
    if len(os.fsencode(temporary)) > _SOCKET_FOLDER_BYTES:
        tempfile.tempdir = "/tmp"
    try:
        yield
    finally:
        util.spawnv_passfds, tempfile.tempdir = start, temporary
        spawn.get_preparation_data = prepare


def _serve(to_parent: Connection) -> None:
    hush_libraries()
    _end_before_parent()
    # Ctrl-C reaches all processes of a terminal; the one that has the children ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        signal.signal(signal.SIGTERM, _end)
        while True:
            function, arguments = to_parent.recv()
            answer: tuple[Any, Exception | None]
            try:
                result = function(*arguments)
                if isinstance(result, Generator):
                    try:
                        for each in result:
                            _send_whole(to_parent, (each, None))
                            del each
                    except KeyboardInterrupt as error:  # It may have something in the end.
                        _send_whole(to_parent, (result.throw(error), None))
                        raise
                    result = None
                answer = result, None
            except Exception as error:
                answer = None, error
            result = None
            _send_whole(to_parent, answer)
            del answer
    except (EOFError, OSError, KeyboardInterrupt):  # Functions' own errors are answers.
        os._exit(1)  # Nobody waits for threads that are still at work.


def _send_whole(to_parent: Connection, answer: object) -> None:
    """Sends it before the process ends, if it is told to meanwhile."""
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    try:
        to_parent.send(answer)
    finally:
        signal.signal(signal.SIGTERM, before)
    if told and before is _end:
        _end(told[0], None)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # A second one would tear the end of the first.
    raise KeyboardInterrupt


def _end_before_parent() -> None:
    """Where memory ends, Linux ends the largest process: rather a child, than who has its rows."""
    score = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        score.write_text(str(min(int(score.read_text()) + _SOONER, 1000)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _how_ended(code: int | None) -> str:
    if code is not None and code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"ended by {names.get(-code, f'signal {-code}')}"  # real-time ones have no name
    return f"ended with {code}"

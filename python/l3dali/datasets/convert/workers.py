"""Worker processes. If one crashes, only the item that it was working on is lost.

They are forks of one server, which has imported what workers need: that takes 0.3 s. That of
multiprocessing does not do: its children import the caller's script again, daemonic processes may
have none, and a caller may have started it before, without these modules.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Generator
from multiprocessing import connection, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from l3dali import console
from l3dali.console import hush_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

TICK_SECONDS = 0.1  # between checks whether the work is still wanted
END_SECONDS = 1.0  # for a child to end by itself
_MOST_FILES = 2**16  # that a process may have open
_PRELOADED = ("l3dali.datasets.convert.job", "imagecodecs._png")
# `python -c` would import modules from the current folder first.
_BEGIN = """import sys
number, *sys.path[:] = sys.argv[1:]
from l3dali.datasets.convert.workers import serve_forks
serve_forks(int(number))
"""
Result = TypeVar("Result")
_idle: list[Child] = []
_server: socket.socket | None = None
_server_lock = threading.Lock()


class ChildDiedError(RuntimeError):
    """A child ended during its work. `code`: exit code, minus a signal's number, or None."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the worker process ended with {code}")
        self.code = code


class Child:
    """A process that calls functions, one at a time.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < min(hard, _MOST_FILES):  # A child takes two files here, another in the server.
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MOST_FILES), hard))
        self._connection, theirs = connection.Pipe()
        self._code: int | None = None  # once it has ended
        self._has_ended = False
        self._status, status = os.pipe()
        try:
            self._pid = _fork(theirs.fileno(), status)
        except BaseException:
            self._connection.close()
            os.close(self._status)
            raise
        finally:
            theirs.close()
            os.close(status)

    def call(
        self,
        function: Callable[..., Result],
        *arguments: object,
        check: Callable[[], object] = lambda: None,
    ) -> Result:
        """Calls a function of a module in the child and returns its result.

        `check` is called every `TICK_SECONDS`; if it raises, the child continues.

        Raises:
            ChildDiedError: the child has ended. It takes no more calls.
            Exception: from the function or `check`.
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
        """Yields the items of a generator in the child, except None; otherwise as `call`."""
        self._send(function, arguments)
        while (found := self._receive(check)) is not None:
            yield found
            del found

    def _send(self, function: Callable[..., object], arguments: Sequence[object]) -> None:
        try:
            self._connection.send((Path.cwd(), function, arguments))
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

    def end(self, *, kill: bool = False) -> bool:
        """Ends the child; it has `END_SECONDS` to remove unfinished results, unless `kill`.

        Returns:
            Whether it was killed, and may have left unfinished results.
        """
        if self._has_ended:
            return False
        if not kill:
            self._signal(signal.SIGTERM)
            kill = not connection.wait([self._status], END_SECONDS)
        if kill:
            self._signal(signal.SIGKILL)
        status = os.read(self._status, 16)  # empty if the server was killed
        self._code = int(status) if status else None
        self._has_ended = True
        os.close(self._status)
        self._connection.close()
        return kill

    def _signal(self, number: int) -> None:
        if not connection.wait([self._status], 0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


@contextlib.contextmanager
def borrowed(*, kill: bool = True) -> Iterator[Child]:
    """A child that was idle, or a new one; idle again after the block.

    If the block raises, the child ends; without `kill` it may remove unfinished results first.
    """
    child = None
    with contextlib.suppress(IndexError):
        child = _idle.pop()
    child = child or Child()
    try:
        yield child
    except BaseException:
        child.end(kill=kill)
        raise
    _idle.append(child)


def end_idle() -> None:
    """Ends the idle children."""
    while _idle:
        _idle.pop().end()


def _forget() -> None:
    """In a forked process: the server and its children belong to the parent."""
    global _server, _server_lock
    _server, _server_lock = None, threading.Lock()  # Another thread may have held it.
    _idle.clear()


os.register_at_fork(after_in_child=_forget)


def _fork(to_parent: int, status: int) -> int:
    """Makes the server fork a child with these files; returns its process id."""
    global _server
    with _server_lock:
        for _ in range(2):  # It may have been killed.
            server, _server = _server or _start_server(), None
            with contextlib.suppress(ConnectionError):
                socket.send_fds(server, [b"f"], [to_parent, status])
                if answer := server.recv(16):
                    _server = server
                    return int(answer)
            server.close()
    raise OSError("a worker process could not be started")


def _start_server() -> socket.socket:
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    command = [sys.executable, "-c", _BEGIN, str(number), *filter(None, sys.path)]
    # Ctrl-C reaches all processes of a terminal; the command ends its children.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        util.spawnv_passfds(os.fsencode(sys.executable), command, [number])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
    return ours


def serve_forks(number: int) -> None:
    """Forks a child for each message, and writes its exit code to the file that came with it.

    Ends with the process at the other end of the socket `number`.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGINT])
    for module in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    control = socket.socket(fileno=number)
    wakeup, notify = socket.socketpair()
    notify.setblocking(False)
    signal.set_wakeup_fd(notify.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    status_files: dict[int, int] = {}
    while True:
        ready = connection.wait([control, wakeup])
        if wakeup in ready:
            wakeup.recv(4096)
        while status_files:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            with contextlib.suppress(BrokenPipeError):
                os.write(status_files[pid], b"%d" % os.waitstatus_to_exitcode(status))
            os.close(status_files.pop(pid))
        if control not in ready:
            continue
        _, files, *_ = socket.recv_fds(control, 1, 2)
        if not files:
            os._exit(0)
        if pid := os.fork():
            control.send(b"%d" % pid)
            os.close(files[0])
            status_files[pid] = files[1]
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file in (control, wakeup, notify):
            file.close()
        for each in (files[1], *status_files.values()):
            os.close(each)
        try:
            _serve(Connection(files[0]))
        finally:
            os._exit(1)


def _serve(to_parent: Connection) -> None:
    hush_libraries()
    with Path(os.devnull).open("wb") as nothing:  # Libraries write there what they also raise.
        os.dup2(nothing.fileno(), 2)
    threading.Thread(target=_end_with_parent, args=(to_parent.fileno(),), daemon=True).start()
    try:
        signal.signal(signal.SIGTERM, _end)
        while True:
            folder, function, arguments = to_parent.recv()
            answer: tuple[Any, Exception | None]
            try:
                os.chdir(folder)  # of the caller now, where relative paths begin
                result = function(*arguments)
                if isinstance(result, Generator):
                    for each in result:
                        to_parent.send((each, None))
                        del each
                    result = None
                answer = result, None
            except Exception as error:
                answer = None, error
            result = None
            to_parent.send(answer)
            del answer
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except (EOFError, OSError, KeyboardInterrupt):  # Functions' own errors are answers.
        os._exit(1)  # without waiting for threads that are still at work


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # A second signal would interrupt the cleanup.
    raise KeyboardInterrupt


def _end_with_parent(number: int) -> None:
    poll = select.poll()
    poll.register(number, 0)  # for the end of the connection alone
    poll.poll()
    os._exit(1)


CPU_SECONDS = 10  # without progress, for each thread
WAIT_SECONDS = 600  # without progress
_STACK_BYTES = 2**24  # of a thread, with room
_CGROUPS = Path("/sys/fs/cgroup")
_cpu_seconds = 0  # of this process, while it has limits
_memory = 0
_first_bytes: int | None = None  # that it had before its first limit


@contextlib.contextmanager
def limited(memory: int, threads: int = 1) -> Iterator[None]:
    """Limits this process to `memory` more bytes; `report_progress` follows each item."""
    global _cpu_seconds, _memory
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)  # ends the process
    _memory = min(memory, cgroup_bytes())
    limit_memory(_memory, threads)
    _cpu_seconds = CPU_SECONDS * threads
    report_progress()
    try:
        yield
    finally:
        _cpu_seconds = 0
        set_clocks(0, 0)


def is_limited() -> bool:
    """Whether this process has limits."""
    return _cpu_seconds > 0


def report_progress() -> None:
    """Resets the clocks of a process with limits: an image, or a part of a file, is done."""
    if _cpu_seconds:
        set_clocks(_cpu_seconds, WAIT_SECONDS)


def why_ended(error: ChildDiedError) -> str:
    """Why a process with limits has ended, for people."""
    code = error.code
    if code == -signal.SIGPROF:
        return f"no progress for {CPU_SECONDS} s of CPU"
    if code == -signal.SIGALRM:
        return f"no progress for {WAIT_SECONDS // 60} minutes"
    if code in _CRASHES:
        return f"the reader crashed ({signal.Signals(-code).name})"
    if code is not None and code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"its process ended by {names.get(-code, f'signal {-code}')}"
    return f"its process ended with {code}"


_CRASHES = {
    -number
    for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
}


def reason_of(error: BaseException) -> str:
    """As `console.reason_of`, with the limit of memory."""
    if isinstance(error, MemoryError) and _memory:
        return f"needs more than {_memory / 2**30:.3g} GiB (--worker-memory)"
    return console.reason_of(error)


def set_clocks(cpu_seconds: int, seconds: int) -> None:
    """Makes signals end this process after so much CPU time, or so many seconds."""
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def limit_memory(size: int | None, threads: int = 1) -> None:
    """Limits this process to `size` more bytes than at first, and stacks; None: no limit."""
    global _first_bytes
    if sys.platform != "linux":
        return
    if _first_bytes is None:
        # The sixth field: private writable pages, stacks included.
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        _first_bytes = pages * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = hard
    if size is not None:
        soft = _first_bytes + size + threads * _STACK_BYTES
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@functools.cache
def cgroup_bytes() -> int:
    """The memory limit of the control group of this process, or of those around it."""
    limits = [2**62]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            name = {"": "memory.max", "memory": "memory.limit_in_bytes"}.get(kinds)
            group = _CGROUPS / kinds / path.lstrip("/")
            while name and group.is_relative_to(_CGROUPS):
                with contextlib.suppress(OSError, ValueError):  # "max"
                    limits.append(int((group / name).read_text(encoding="ascii")))
                group = group.parent
    return min(limits)

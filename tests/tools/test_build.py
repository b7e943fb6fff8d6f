"""What the build asks for, and what the plugin says when it does not fit."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from l3dali.driver import gpu_name

pytest.importorskip("scikit_build_core")
_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "source",
    [
        *("src/cuda/emulation/emulated_decoder.cc", "src/cpu/rans_x86.cc"),
        *("tests/native/testing.cc", "tests/fuzz/fuzz_decode.cc", "tests/fuzz/fuzz_parse.cc"),
    ],
)
def test_clang_takes_what_fuzzing_builds(source: str) -> None:
    """Two targets have all headers between them; the others are a line each."""
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("clang++ is not installed")
    flags = (
        "-std=c++17 -fsyntax-only -Wall -Wextra -Wshadow -Wpedantic -Wno-unknown-pragmas -Werror"
    )
    command = [clang, *flags.split(), "-Isrc", "-Iinclude", "-Itests", "-I.", source]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.chdir(_ROOT)
    monkeypatch.syspath_prepend(str(_ROOT / "build_backend"))
    for name in ("L3_DALI", "L3_CUDA", "L3_DALI_PACKAGE", "CUDACXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("L3_CUDA_ARCHS", "90")
    return importlib.import_module("l3_build_backend")


def _requirements(backend: ModuleType, settings: dict[str, str] | None = None) -> str:
    return " ".join(backend.get_requires_for_build_wheel(settings))


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("release", "is_usable"), [("12.4, V12.4.131", True), ("13.0, V13.0.88", True), ("11.8", False)]
)
def test_usable_nvcc_is_used(
    backend: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    release: str,
    is_usable: bool,
) -> None:
    script = tmp_path / "nvcc"
    script.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    requirements = _requirements(backend)
    assert "nvidia-dali-cuda120==" in requirements
    assert ("nvidia-cuda-nvcc==" in requirements) != is_usable


@pytest.mark.usefixtures("no_nvcc")
def test_missing_nvcc_is_fetched(backend: ModuleType) -> None:
    assert "nvidia-cuda-nvcc==" in _requirements(backend)


@pytest.mark.usefixtures("no_nvcc")
def test_without_a_gpu_there_is_no_cuda_engine(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("L3_CUDA_ARCHS")
    assert "nvidia-cuda-nvcc" not in _requirements(backend)
    assert backend._build_settings(None)["cmake.define.L3_CUDA"] == "OFF"
    assert "L3_CUDA_ARCHS=90" in capsys.readouterr().err


def test_a_gpu_brings_the_cuda_engine(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: H200'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("L3_CUDA_ARCHS")
    assert "nvidia-cuda-nvcc==" in _requirements(backend)


@pytest.mark.usefixtures("no_nvcc")
def test_without_cuda_only_headers_are_fetched(backend: ModuleType) -> None:
    requirements = _requirements(backend, {"cmake.define.L3_CUDA": "OFF"})
    assert "nvidia-cuda-runtime==" in requirements
    assert "nvidia-cuda-nvcc" not in requirements


@pytest.mark.usefixtures("no_nvcc")
def test_without_dali_nothing_of_nvidia_is_fetched(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("L3_DALI", "OFF")
    assert "nvidia" not in _requirements(backend)


@pytest.mark.usefixtures("no_nvcc")
def test_other_dali_package(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("L3_DALI_PACKAGE", "nvidia-dali-cuda130==2.3.0")
    requirements = _requirements(backend)
    assert "nvidia-dali-cuda130==2.3.0" in requirements
    assert "cuda120" not in requirements


@pytest.mark.parametrize("package", ["nvidia-dali-cuda120==2.1.1", "nvidia-dali-cuda130 == 1.53.0"])
def test_dali_that_is_too_old_ends_the_build_first(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setenv("L3_DALI_PACKAGE", package)
    with pytest.raises(SystemExit, match=r"DALI 2\.2 or newer, and L3_DALI_PACKAGE asks for"):
        _requirements(backend)
    monkeypatch.setenv("L3_DALI", "OFF")
    assert "dali" not in _requirements(backend)


def _cmake(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed")
    (folder / "script.cmake").write_text(f"cmake_minimum_required(VERSION 3.24)\n{script}")
    return subprocess.run(
        [cmake, "-P", folder / "script.cmake"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("version", "too_old"), [("2.1.1", True), ("2.2.0", False)])
def test_installed_dali_is_checked_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, too_old: bool
) -> None:
    dali = tmp_path / "nvidia" / "dali"
    dali.mkdir(parents=True)
    (dali.parent / "__init__.py").touch()
    (dali / "__init__.py").write_text(f"""
from types import SimpleNamespace
__version__ = {version!r}
sysconfig = SimpleNamespace(get_include_dir=lambda: "include", get_lib_dir=lambda: "lib")
""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = _cmake(
        tmp_path,
        f"""
set(Python_EXECUTABLE {sys.executable})
set(L3_MIN_DALI_VERSION 2.2)
include({_ROOT}/cmake/FindDali.cmake)
""",
    )
    said = " ".join(result.stderr.split())
    assert ("need DALI 2.2 or newer, found 2.1.1: install a newer one" in said) == too_old, said
    assert ("add_library command is not scriptable" in said) != too_old  # it went on


@pytest.mark.parametrize(
    ("nvidia_smi", "archs"),
    [
        (None, "75-real;80-real;90"),
        ("exit 9", "75-real;80-real;90"),
        ("echo 9.0", "90-real"),
        ("echo 8.6; echo 9.0; echo 8.6", "86-real;90-real"),
        ("echo 12.1", "75-real;80-real;90"),  # a GPU that the compiler may not know
        ("echo '[Not Supported]'", "75-real;80-real;90"),
    ],
)
def test_default_build_is_for_the_gpus_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvidia_smi: str | None, archs: str
) -> None:
    if nvidia_smi is not None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{nvidia_smi}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = _cmake(
        tmp_path,
        f"""
include({_ROOT}/cmake/DefaultCudaArchs.cmake)
l3_default_cuda_archs(archs "75-real;80-real;86-real;89-real;90;100-real;120")
message(STATUS "archs ${{archs}}")
""",
    )
    if nvidia_smi is None and gpu_name():
        pytest.skip("there is a GPU")
    assert result.stdout.strip() == f"-- archs {archs}", result.stderr


def test_library_is_a_part_of_another_project(tmp_path: Path) -> None:
    """Configured alone: CMake fails if a target with a namespace does not exist."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    (tmp_path / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.24)
project(other C CXX)
add_subdirectory({_ROOT} l3)
add_executable(program main.c)
target_link_libraries(program PRIVATE L3::l3)
add_executable(program_static main.c)
target_link_libraries(program_static PRIVATE L3::l3_static)
""")
    command: list[str | Path] = [cmake, "-S", tmp_path, "-B", tmp_path / "build"]
    command += ["-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.dali
def test_operators_do_not_show_the_machine_that_built_them() -> None:
    """DALI's errors show the names of source files."""
    plugin = importlib.import_module("l3dali.plugin")
    library = plugin.library_path()
    for path in library.parent.glob("libl3_*.so"):
        shown = re.findall(rb"/[ -~]*/(?:src|include)/[ -~]*\.(?:h|cc|cu)\b", path.read_bytes())
        assert shown == [], path.name
    assert b"src/op/decode_operator.h" in library.read_bytes()


def test_wheels_hold_what_the_project_names(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(_ROOT / "tools"))
    wheels = importlib.import_module("wheels")
    project = backend._pyproject()
    oldest = project["tool"]["l3dali"]["min-dali"]
    (pinned,) = project["project"]["optional-dependencies"]["dali"]
    assert wheels.DALIS[0].startswith(oldest)
    assert pinned.endswith(f"=={wheels.DALIS[-1]}")
    assert (
        f"DALI {', '.join(wheels.DALIS[:-1])} and {wheels.DALIS[-1]}"
        in (_ROOT / "docs" / "install.md").read_text()
    )
    assert project["project"]["requires-python"] == f">={wheels.PYTHONS[0]}"


def test_wheels_are_built_by_pythons_that_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(_ROOT / "tools"))
    wheels = importlib.import_module("wheels")

    def install(folder: Path, code: int) -> Path:
        folder.mkdir(parents=True)
        python = folder / "python3.12"
        python.write_text(f"#!/bin/sh\nexit {code}\n")
        python.chmod(0o755)
        return python

    install(tmp_path / "shims", 127)
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:/bin:/usr/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert wheels.find_python("3.12") is None
    install(tmp_path / "versions" / "3.12.0" / "bin", 1)
    real = install(tmp_path / "versions" / "3.12.1" / "bin", 0)
    assert wheels.find_python("3.12") == real


@pytest.mark.dali
@pytest.mark.parametrize(
    ("built_for", "installed", "remedy"),
    [
        ((), "2.4.0", "L3_DALI=OFF"),
        (("2.4.0",), None, "pip install nvidia-dali-cuda120==2.4.0"),
        (("2.4.0",), "2.3.0", "L3_DALI_PACKAGE=nvidia-dali-cuda120==2.3.0 pip install"),
        (
            ("2.4.0", "2.3.0"),
            "2.1.1",
            r"cuda120==2\.4\.0 \(the operators cannot be .* older than 2\.2\)",
        ),
    ],
)
def test_plugin_names_the_remedy(
    built_for: tuple[str, ...], installed: str | None, remedy: str
) -> None:
    plugin = importlib.import_module("l3dali.plugin")
    plugin.check_dali(("2.3.0", "2.4.0"), "2.3.0")
    with pytest.raises(ImportError, match=remedy):
        plugin.check_dali(built_for, installed)


@pytest.mark.dali
def test_plugin_takes_the_operators_of_the_installed_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = importlib.import_module("l3dali.plugin")
    monkeypatch.setattr(plugin._build_info, "DALI_VERSIONS", ("2.10.0", "2.4.0", "2.9.1"))
    for version in ("2.4.0", "2.9.1", "2.10.0"):
        monkeypatch.setattr(plugin, "installed_dali", lambda version=version: version)
        assert plugin.library_path().name == f"libl3_dali-{version}.so"
    monkeypatch.setattr(plugin, "installed_dali", lambda: "2.5.0")
    with pytest.raises(ImportError, match=r"built for DALI 2\.10\.0, .*==2\.10\.0, or rebuild"):
        plugin.library_path()


@pytest.mark.dali
@pytest.mark.parametrize(
    ("distributions", "package"),
    [
        ({"nvidia-dali-cuda130": "2.3.0", "numpy": "2.3.0"}, "nvidia-dali-cuda130"),
        ({"nvidia_dali_cuda120": "2.4.0", "nvidia-dali-cuda130": "2.3.0"}, "nvidia-dali-cuda130"),
        ({"nvidia-dali-nightly-cuda130": "2.3.0"}, "nvidia-dali-nightly-cuda130"),
        ({"nvidia-dali-tf-plugin-cuda120": "2.3.0"}, "nvidia-dali-cuda120"),
    ],
)
def test_remedy_names_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distributions: dict[str, str], package: str
) -> None:
    for name, version in distributions.items():
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    plugin = importlib.import_module("l3dali.plugin")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ImportError, match=f"{package}==2.4.0, or .*{package}==2.3.0 pip install"):
        plugin.check_dali(("2.4.0",), "2.3.0")


@pytest.mark.dali
def test_dynamic_mode_before_the_operators() -> None:
    code = "import nvidia.dali.experimental.dynamic, l3dali.plugin, l3dali.dynamic"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    warning, _, error = done.stderr.partition("Traceback")
    assert "import l3dali.plugin first" in warning
    assert "ImportError: nvidia.dali.experimental.dynamic was imported before" in error
    assert error.endswith(": import l3dali.dynamic first\n")

"""No file includes or imports one of a layer above its own (docs/dev/architecture.md)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)

# What engines know of src/output: plans, not requests.
PLANS = {
    f"src/output/{name}.h"
    for name in (
        "needed_payloads",
        "output_plan",
        "payload_ranges",
        "sample_join",
        "store_pixel",
        "window_job",
    )
}

# What each layer may include besides itself. Faces stand on top and may include all of them.
BELOW = {
    "include/l3": set(),
    "src/base": set(),
    "src/format": {"src/base"},
    "src/files": {"src/base", "src/format"},
    "src/core": {"src/base", "src/format"},
    "src/output": {"src/base", "src/format", "src/core"},
    "src/cpu": {"src/base", "src/format", "src/core"} | PLANS,
    "src/cuda/kernels": {"src/base", "src/format", "src/core"} | PLANS,
    "src/cuda/engine": {
        "src/base",
        "src/format",
        "src/core",
        "src/cuda/kernels",
        *PLANS,
    },
    "src/cuda/emulation": {
        "src/base",
        "src/format",
        "src/core",
        "src/cuda/kernels",
        "src/cuda/engine",
        *PLANS,
    },
    "encoder": {"src/base", "src/format", "src/core"},
}
FACES = {
    "src/capi",
    "src/l3_op.cu",
    "src/l3_readers.cc",
    "src/op",
    "src/op/stand_ins",
    "src/nvimgcodec",
    "src/python",
}
LIBRARIES = {  # header prefixes of libraries, and the only places that may name them
    "dali/": {"src/l3_op.cu", "src/l3_readers.cc", "src/op"},
    "nvimgcodec": {"src/nvimgcodec"},
    "pybind11/": {"src/python"},
    "cuda": {"src/cuda/kernels", "src/cuda/engine", "src/op"},
    "cooperative_groups": {"src/cuda/kernels"},
    "cub/": {"src/cuda/kernels"},
}

SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("include", "src", "encoder")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".h", ".cc", ".cu", ".cuh", ".inc"}
)


def includes(source: Path) -> list[str]:
    """The included names of a source, as written."""
    text = (ROOT / source).read_text()
    return [quoted or angled for quoted, angled in INCLUDE.findall(text)]


def own_file(source: Path, name: str) -> Path | None:
    """The file of this project that `name` means in `source`, if it is one."""
    for base in (Path("src"), Path("include"), Path(), source.parent):
        if (ROOT / base / name).is_file():
            return base / name
    return None


def layer(source: Path) -> str:
    """The layer that a source belongs to."""
    return source.as_posix() if source.as_posix() in FACES else source.parent.as_posix()


def test_sources_are_found() -> None:
    assert {layer(source) for source in SOURCES} >= BELOW.keys()


def test_includes_point_down() -> None:
    for source in SOURCES:
        allowed = BELOW.get(layer(source))
        assert allowed is not None or layer(source) in FACES, f"{source} belongs to no layer"
        for name in includes(source):
            included = own_file(source, name)
            if included is None or allowed is None or layer(included) == layer(source):
                continue
            allows = {layer(included), included.as_posix()} & allowed
            assert allows, f"{source} includes {name}"


def test_parts_of_the_encoder_do_not_know_its_face() -> None:
    own = {Path("encoder/encoder.h"), Path("encoder/encoder.cc")}
    parts = [source for source in SOURCES if layer(source) == "encoder" and source not in own]
    assert len(parts) > 20
    for source in parts:
        assert "encoder/encoder.h" not in includes(source), source


def test_libraries_stay_in_their_place() -> None:
    for source in SOURCES:
        for name in includes(source):
            for prefix, places in LIBRARIES.items():
                if name.startswith(prefix) and not own_file(source, name):
                    assert layer(source) in places, f"{source} includes {name}"


# Python. Each package imports those of floors below its own, so there is no circle among them.
PACKAGES = (
    {"_build_info", "_native", "_cuda", "console", "errors", "metadata", "signatures", "threads"},
    {"arguments", "atomic"},
    {"codec"},
    {"parts"},
    {"volumes"},
    {"images"},
    {"files"},
    {"l3dali"},  # __init__.py
    {"driver", "numcodecs", "pillow", "plugin", "torch"},
    {"dynamic", "fn", "imageio", "litdata", "monai", "pipeline", "streaming", "webdataset", "zarr"},
    {"datasets.convert"},
    {"datasets.liquid"},
    {"view"},
    {"cli"},
)
PYTHON_FACES = {"__main__"}  # No module imports it.
MODULES = sorted(path.relative_to(ROOT / "python") for path in (ROOT / "python").rglob("*.py"))


def imports(module: Path) -> set[str]:
    """The packages of this project that a module imports anywhere, for types alone too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / "python" / module).read_text())):
        if isinstance(node, ast.Import):
            found |= {package(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            name = node.module or ""
            inner = {package(f"{name}.{alias.name}") for alias in node.names}
            found |= inner if name in ("l3dali", "l3dali.datasets") else {package(name)}
    return found - {""}


def package(module: str) -> str:
    """The package of a dotted module or of a name in it; "" if it is of another project."""
    first, *names = module.split(".")
    if first != "l3dali":
        return ""
    name = ".".join(names[: 2 if names[:1] == ["datasets"] else 1])
    return name if name in PYTHON_FACES or any(name in floor for floor in PACKAGES) else first


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_point_down(module: Path) -> None:
    name = ".".join(module.with_suffix("").parts)
    own = package(name)
    empty = ("l3dali.__init__", "l3dali.datasets.__init__")
    assert own != "l3dali" or name in empty, f"{module} belongs to no package"
    floors = [number for number, floor in enumerate(PACKAGES) if own in floor]
    below = {each for floor in PACKAGES[: floors[0]] for each in floor} if floors else None
    for imported in imports(module) - {own}:
        assert imported not in PYTHON_FACES, f"{module} imports {imported}"
        assert below is None or imported in below, f"{module} imports {imported}"


# The modules of packages, from the ground up: none imports one of its own floor or of one above.
ROOMS = {
    "datasets.convert": (
        "images workers",
        "conversion storage",
        "manifest pool tar tfrecord zip_archive",
        "arrow",
        "parquet",
        "containers",
        "job sources",
        "engine work",
    ),
    "datasets.liquid": (
        "profile sample",
        "fit gpu hosts model",
        "host plan",
        "timing words",
        "measure",
    ),
    "images": (
        "geometry picture tiff_directories",
        "bmp dicom exr jpeg jpeg2000 netpbm nifti npy png webp",
        "jpegxl stacks tiff",
        "formats",
        "reading",
        "transcoding",
    ),
    "cli": (
        "inputs",
        "outputs",
        "parser summary",
        "loop planning profiling view",
        "convert info single_files verify",
    ),
}


def imports_within(name: str) -> dict[str, set[str]]:
    """The modules of a package, each with those of the package that it imports."""
    folder = ROOT / "python" / "l3dali" / name.replace(".", "/")
    own = f"l3dali.{name}".rstrip(".")
    found: dict[str, set[str]] = {path.stem: set() for path in folder.glob("[!_]*.py")}
    for module, imported in found.items():
        for node in ast.walk(ast.parse((folder / f"{module}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == own:
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").removeprefix(f"{own}."))
        imported.intersection_update(found)
    return found


@pytest.mark.parametrize(
    "name", ["", "datasets.convert", "datasets.liquid", "images", "view", "cli"]
)
def test_no_circle_within_a_package(name: str) -> None:
    modules = imports_within(name)
    while free := {each for each, found in modules.items() if not found & modules.keys()}:
        modules = {each: found for each, found in modules.items() if each not in free}
    assert not modules


@pytest.mark.parametrize("name", ROOMS)
def test_imports_within_a_package_point_down(name: str) -> None:
    floors = {room: number for number, rooms in enumerate(ROOMS[name]) for room in rooms.split()}
    modules = imports_within(name)
    assert floors.keys() == modules.keys()
    for module, imported in modules.items():
        for other in imported:
            assert floors[other] < floors[module], f"{module} imports {other}"


def test_types_of_headers_have_names_of_their_own() -> None:
    """Two of one name in namespace l3 share the code that compilers do not inline.

    The nvImageCodec extension ended where the encoder lacked memory: a class of the one destroyed
    a struct of the other.
    """
    places: dict[str, set[str]] = {}
    for source in SOURCES:
        if source.suffix not in (".h", ".cuh"):
            continue
        text = (ROOT / source).read_text()
        for name in re.findall(
            r"^(?:class|struct|union) (?:alignas\([^)]*\)+ )?(\w+)[^;{]*\{", text, re.MULTILINE
        ):
            places.setdefault(name, set()).add(str(source))
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}

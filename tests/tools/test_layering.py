"""The layers of docs/architecture.md: no file includes one from a layer above its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)

# What each layer may include besides itself. Faces stand on top and may include all of them.
BELOW = {
    "include/l3": set(),
    "src/base": set(),
    "src/format": {"src/base"},
    "src/core": {"src/base", "src/format"},
    "src/plan": {"src/base", "src/format", "src/core"},
    "src/cpu": {"src/base", "src/format", "src/core"},
    "src/cuda/kernels": {"src/base", "src/format", "src/core"},
    "src/cuda/engine": {"src/base", "src/format", "src/core", "src/cuda/kernels"},
    "src/cuda/emulation": {
        "src/base",
        "src/format",
        "src/core",
        "src/cuda/kernels",
        "src/cuda/engine",
    },
    "encoder": {"src/base", "src/format", "src/core"},
}
FACES = {"src/capi", "src/l3_op.cu", "src/op", "src/nvimgcodec", "src/python"}
LIBRARIES = {  # header prefixes of libraries, and the only places that may name them
    "dali/": {"src/l3_op.cu", "src/op"},
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


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_includes_point_down(source: Path) -> None:
    allowed = BELOW.get(layer(source))
    assert allowed is not None or layer(source) in FACES, f"{source} belongs to no layer"
    for name in includes(source):
        included = own_file(source, name)
        if included is None or allowed is None or layer(included) == layer(source):
            continue
        assert layer(included) in allowed, f"{source} includes {name}"


def test_parts_of_the_encoder_do_not_know_its_face() -> None:
    own = {Path("encoder/encoder.h"), Path("encoder/encoder.cc")}
    parts = [source for source in SOURCES if layer(source) == "encoder" and source not in own]
    assert len(parts) > 20
    for source in parts:
        assert "encoder/encoder.h" not in includes(source), source


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_libraries_stay_in_their_place(source: Path) -> None:
    for name in includes(source):
        if own_file(source, name):
            continue
        for prefix, places in LIBRARIES.items():
            if name.startswith(prefix):
                assert layer(source) in places, f"{source} includes {name}"

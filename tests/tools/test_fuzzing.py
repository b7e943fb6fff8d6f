"""The allocator of fuzz targets. `make sanitize` replays their corpora."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "fault",
    ["block[-1] = 1", "block[kBytes] = 1", "delete[] block; block[kBytes / 2] = 1"],
)
@pytest.mark.parametrize("alignment", ["", "(std::align_val_t{256}) "])
def test_large_blocks_are_watched(tmp_path: Path, fault: str, alignment: str) -> None:
    """A fuzz target keeps large blocks for the next image, and still sees what is out of them."""
    source = tmp_path / "main.cc"
    source.write_text(f"""
#include "fuzz/large_blocks.h"
int main(int count, char**) {{
  constexpr int kBytes = 100'003;
  for (int i = 0; i < 9; ++i) {{
    volatile char* kept = new {alignment}char[kBytes + i];
    kept[0] = kept[kBytes + i - 1] = 1;
    ::operator delete[](const_cast<char*>(kept));
  }}
  char* volatile block = new {alignment}char[kBytes];
  if (count > 1) {{ {fault}; }}
}}
""")
    root = Path(__file__).parents[2]
    command = [
        "g++",
        "-std=c++17",
        "-fsanitize=address",
        f"-I{root / 'tests'}",
        f"-I{root / 'src'}",
    ]
    subprocess.run([*command, str(source), "-o", str(tmp_path / "main")], check=True)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    for arguments, fails in (([], False), (["fault"], True)):
        done = subprocess.run(
            [str(tmp_path / "main"), *arguments], capture_output=True, text=True, env=environment
        )
        assert (done.returncode != 0) == fails, done.stderr
        assert ("use-after-poison" in done.stderr) == fails, done.stderr

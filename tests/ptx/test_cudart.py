"""The stand-in for libcudart: CUDA's own error codes, and what it alone notices."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry Fill(.param .u64 memory)
.maxntid 128, 1, 1
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [memory];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
.visible .entry Banks(.param .u64 memory)
{
    .shared .align 4 .b8 words[256];
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [memory];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 3;
    mov.u32 %r3, words;
    add.u32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    mul.wide.u32 %rd2, %r1, 32;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
.visible .entry Spin(.param .u64 memory)
{
loop:
    bra loop;
}
"""
# What each case leaves behind, and what it runs under. None: nothing, and the process ends well.
CASES: dict[str, tuple[str | None, dict[str, str]]] = {
    "bad_copies": (None, {}),
    "bad_handles": (None, {}),
    "bad_launches": (None, {}),
    "bad_pointers": (None, {}),
    "changed_in_flight": (
        "the host changed pinned memory while a copy from it was queued",
        {"L3_CUDART_STREAMS": "late"},
    ),
    "endless": ("does not end", {"L3_PTX_MAX_INSTRUCTIONS": "1000"}),
    "host_overrun": ("the host wrote around pinned memory", {}),
    "injected": (None, {"L3_CUDART_FAIL": "allocation 2"}),
    "injected_launch": (None, {"L3_CUDART_FAIL": "launch 1"}),
    "leak": ("device memory was never released, 77 bytes", {}),
    "misaligned": ("no multiple of 4", {}),
    "ordered": (None, {"L3_CUDART_STREAMS": "late"}),
    "out_of_bounds": ("out of bounds, 4 bytes at byte 64 of the 64 of an allocation", {}),
    "out_of_memory": (None, {}),
    "released_fill": ("device memory was released while work that nobody waited for", {}),
    "released_in_flight": ("pinned memory was released while work that nobody waited for", {}),
    "traffic": (None, {}),
    "unordered": ("by work of a stream that nothing orders before this", {}),
    "unwritten": ("a copy to the host of what nobody has written", {}),
    "use_after_free": ("in memory that was released", {}),
}


def program() -> Path:
    library = os.environ.get("L3_TESTING_LIBRARY", ROOT / "build/release/libl3_testing.so")
    path = Path(library).parent / "l3_cudart_test"
    if not path.exists():
        pytest.skip("this build has no headers of CUDA")
    return path


def run(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "kernels.ptx"
    file.write_text(PTX)
    return subprocess.run(
        [program(), *arguments],
        env=os.environ | environment | {"L3_PTX": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_case_is_known(tmp_path: Path) -> None:
    assert run(tmp_path).stdout.split() == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path) -> None:
    finding, environment = CASES[name]
    result = run(tmp_path, name, **environment)
    assert result.stdout == ""
    if finding is None:
        assert (result.returncode, result.stderr) == (0, "")
    else:
        assert finding in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.returncode == 4


@pytest.mark.parametrize("pace", ["at_once", "late", "random", "early 1", "early 2"])
def test_what_nothing_orders_is_seen_at_any_pace(pace: str, tmp_path: Path) -> None:
    result = run(tmp_path, "unordered", L3_CUDART_STREAMS=pace)
    assert "by work of a stream that nothing orders before this" in result.stderr
    result = run(tmp_path, "ordered", L3_CUDART_STREAMS=pace)
    assert (result.returncode, result.stderr) == (0, "")


def test_traffic_is_counted(tmp_path: Path) -> None:
    """Every other word: two lanes a bank. A sector a lane: 32 in 8 lines."""
    counts = tmp_path / "traffic.txt"
    result = run(tmp_path, "traffic", L3_PTX_TRAFFIC=str(counts))
    assert (result.returncode, result.stderr) == (0, "")
    lines = PTX.splitlines()
    shared, stored = (
        next(i for i, line in enumerate(lines, 1) if start in line and i > lines.index(banks))
        for banks in (".visible .entry Banks(.param .u64 memory)",)
        for start in ("st.shared", "st.global")
    )
    rows = counts.read_text().split("kernel ")
    (of_banks,) = (row.splitlines()[1:] for row in rows if row.startswith("Banks"))
    assert of_banks == [f"{shared} 2 0", f"{stored} 8 32"]


def test_options_that_mean_nothing(tmp_path: Path) -> None:
    for name in ("L3_CUDART_STREAMS", "L3_CUDART_FAIL", "L3_PTX_POLICY", "L3_PTX_CHECKS"):
        result = run(tmp_path, "out_of_memory", **{name: "nonsense"})
        assert result.returncode == 5
        assert "nonsense" in result.stderr

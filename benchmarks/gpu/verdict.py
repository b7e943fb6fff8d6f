"""What is asked of L3 on a GPU beside what was measured: targets, and each peer at its density.

Knows the rows that benchmarks wrote, not how they are shown.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

MODES = ("packed", "rans")
NORMALIZED = ", CHW float16"  # behind the codec's name
LARGE = (2048, 1024)
SMALL = (500, 375)
THREADS = 16  # of the pipelines' targets
# What is timed, its ending, size and batch; the number, and what it shall be for each mode.
# `percent` is of the rate of LARGE as stored, 32 images.
_KERNEL_TARGETS = (
    ("RGB8 2048x1024, batch 32", "", LARGE, 32, "pixel_gb_s", ">=", (1200, 320), "GB/s of pixels"),
    ("RGB8 2048x1024, one image", "", LARGE, 1, "median_us", "<", (150, 250), "us"),
    ("RGB8 500x375, batch 256",
     "", SMALL, 256, "percent", ">=", (60, 60), "% of the rate of 2048x1024"),
    ("normalized CHW float16, batch 32",
     NORMALIZED, LARGE, 32, "percent", ">=", (80, 80), "% of the rate as stored"),
)  # fmt: skip
_PIPELINE_TARGETS = (
    ("", "times_png", ">=", 25, "x PNG"),
    ("", "upload_percent", ">=", 80, "% of upload"),
    ("", "cpu_cores", "<=", 4, "CPU cores"),
    (", cached", "times_png", ">=", 60, "x PNG"),
    (", cached", "cpu_cores", "<", 0.2, "CPU cores"),
)
_COMPARE = {">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True)
class Target:
    """A number that L3 shall reach."""

    what: str
    sign: str
    wanted: float
    unit: str
    measured: float | None
    where: str  # it was measured

    @property
    def outcome(self) -> str:
        """In a word or two."""
        if self.measured is None:
            return "not measured"
        return "met" if _COMPARE[self.sign](self.measured, self.wanted) else "NOT MET"


@dataclass(frozen=True)
class Point:
    """How dense and how fast a codec is on some images, in some configuration."""

    codec: str
    where: str
    ratio: float  # bytes of pixels over encoded bytes
    gb_s: float  # of pixels


@dataclass(frozen=True)
class Verdict:
    """A peer, and the L3 row to hold against it."""

    peer: Point
    l3: Point
    outcome: str  # "ahead", "NOT ahead", or "NOT as dense": then no L3 row has the peer's density

    @property
    def times(self) -> float:
        """How many times as fast as the peer the L3 row is."""
        return self.l3.gb_s / self.peer.gb_s


def ratio(row: Row) -> float:
    """Bytes of pixels over encoded bytes."""
    return float(row["pixel_bytes"] / row["encoded_bytes"])


def image_name(row: Row) -> str:
    """The image that a row's file holds: files of one image differ behind the first dot."""
    return str(row["file"]).split(".")[0]


def kernel_targets(rows: list[Row]) -> list[Target]:
    """Of the kernels, data resident on the device. `rows` are those of l3_bench_kernels."""
    keys = ("codec", "width", "height", "channels", "sample_bits", "batch")
    by_key = {tuple(row[key] for key in keys): row for row in rows}
    targets = []
    for what, ending, size, batch, key, sign, wanted, unit in _KERNEL_TARGETS:
        for mode, limit in zip(MODES, wanted, strict=True):
            row = by_key.get((f"L3 {mode}{ending}", *size, 3, 8, batch), {})
            usual = by_key.get((f"L3 {mode}", *LARGE, 3, 8, 32))
            if row and usual:
                row = {**row, "percent": 100 * row["pixel_gb_s"] / usual["pixel_gb_s"]}
            where = image_name(row) if row else "-"
            about = f"kernel, {mode}, {what}"
            targets.append(Target(about, sign, limit, unit, row.get(key), where))
    return targets


def pipeline_numbers(row: Row, upload_gb_s: float | None) -> Row:
    """What follows from a row of pipeline.py; `upload_gb_s` is that of a copy to the device.

    A share of the upload is reported for formats whose files are uploaded as they are.
    """
    encoded = row["images_per_s"] * row["encoded_bytes"] / 1e9
    goes_up = row["format"].startswith(("L3", "raw")) and not row["format"].endswith("cached")
    cpu_s = row["cpu_s_per_1000"] / 1000
    return {
        **row,
        "ratio": ratio(row),
        "pixel_gb_s": row["images_per_s"] * row["pixel_bytes"] / 1e9,
        "encoded_gb_s": encoded,
        "upload_percent": 100 * encoded / upload_gb_s if upload_gb_s and goes_up else None,
        "cpu_cores": row["images_per_s"] * cpu_s,
        "cpu_s_per_pixel_gb": cpu_s / row["pixel_bytes"] * 1e9,
        "cpu_s_per_encoded_gb": cpu_s / row["encoded_bytes"] * 1e9,
    }


def at_most_threads(rows: list[Row]) -> list[Row]:
    """Of each set, the rows with the most threads."""
    most = {row["set"]: 0 for row in rows}
    for row in rows:
        most[row["set"]] = max(most[row["set"]], row["threads"])
    return [row for row in rows if row["threads"] == most[row["set"]]]


def pipeline_targets(numbers: list[Row]) -> list[Target]:
    """Of the pipelines, each format at the batch with which it is fastest. For every set."""
    targets = []
    for name in dict.fromkeys(row["set"] for row in numbers) or [None]:
        for mode in MODES:
            for ending, key, sign, wanted, unit in _PIPELINE_TARGETS:
                at = (name, f"L3 {mode}{ending}", THREADS)
                rows = [r for r in numbers if (r["set"], r["format"], r["threads"]) == at]
                row = max(rows, key=lambda r: float(r["images_per_s"]), default={})
                what = f"pipeline, {mode}{ending}, {THREADS} threads"
                where = f"{name}, batch {row['batch']}" if row else "-"
                targets.append(Target(what, sign, wanted, unit, row.get(key), where))
    return targets


def device_points(rows: list[Row]) -> list[Point]:
    """Of rows whose data are resident on the device."""
    return [
        Point(r["codec"], f"{image_name(r)}, batch {r['batch']}", ratio(r), r["pixel_gb_s"])
        for r in rows
    ]


def pipeline_points(numbers: list[Row]) -> tuple[list[Point], list[Point]]:
    """Peers, and L3 without its cache, at the most threads."""
    points = [
        Point(
            row["format"],
            f"{row['set']}{', ' + row['task'] if row['task'].startswith('crops') else ''}, "
            f"{row['threads']} threads, batch {row['batch']}",
            row["ratio"],
            row["pixel_gb_s"],
        )
        for row in at_most_threads(numbers)
        if not row["format"].endswith("cached")
    ]
    l3 = [point for point in points if point.codec.startswith("L3")]
    return [point for point in points if point not in l3], l3


def compare(peers: Iterable[Point], l3: list[Point]) -> list[Verdict]:
    """L3 is ahead of a peer if one of its rows is at least as dense, and faster."""
    verdicts = []
    for peer in peers:
        rivals = [point for point in l3 if point.where == peer.where]
        dense = [point for point in rivals if point.ratio >= peer.ratio]
        if dense:
            best = max(dense, key=lambda point: point.gb_s)
            outcome = "ahead" if best.gb_s > peer.gb_s else "NOT ahead"
            verdicts.append(Verdict(peer, best, outcome))
        elif rivals:
            densest = max(rivals, key=lambda point: point.ratio)
            verdicts.append(Verdict(peer, densest, "NOT as dense"))
    return verdicts

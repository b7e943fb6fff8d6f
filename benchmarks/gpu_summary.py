"""One page, one plot and one short table of what was measured on a GPU.

    python benchmarks/gpu_summary.py benchmarks/results/nvidia_h200

Reads what l3_bench_kernels, l3_bench_paper_layout, l3_bench_nvcomp and pipeline.py wrote
there, and writes kernels.md and kernels.png beside. The ceilings are the copies measured
in the same run: a decoder that is bound by memory reads its input and writes its pixels
once, at the rate of a device copy; one fed over PCIe gets its input at the rate of a
host-to-device copy.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from report import markdown_table, print_table

mpl.use("Agg")
import matplotlib.pyplot as plt

DEVICE_RESIDENT = ("kernels", "paper_layout", "nvcomp")
USUAL_BATCH = 32

Row = dict[str, Any]


@dataclass(frozen=True)
class Ceilings:
    """What the machine copies, bytes counted once; GB/s."""

    device_copy: float
    host_to_device: float

    def memory_bound(self, ratio: float) -> float:
        """GB/s of pixels, if input and output pass through device memory once."""
        return 2 * self.device_copy / (1 + 1 / ratio)

    def upload_bound(self, ratio: float) -> float:
        """GB/s of pixels, if the input passes over PCIe."""
        return self.host_to_device * ratio


def ratio(row: Row) -> float:
    """Bytes of pixels over encoded bytes."""
    return float(row["pixel_bytes"] / row["encoded_bytes"])


def image_name(row: Row) -> str:
    """The image that a row's file holds: files of one image differ behind the first dot."""
    return str(row["file"]).split(".")[0]


def read(folder: Path, name: str) -> dict[str, Any]:
    """What a benchmark wrote, or nothing if it did not run."""
    path = folder / f"{name}.json"
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return content


def device_table(rows: list[Row], ceilings: Ceilings) -> list[list[str]]:
    """Rows for people, an image and a batch together, the fastest first."""
    order = sorted(rows, key=lambda r: (image_name(r), r["batch"], -r["pixel_gb_s"]))
    return [
        [
            str(row["codec"]),
            image_name(row),
            f"{row['batch']}",
            f"{ratio(row):.2f}",
            f"{row['pixel_gb_s']:.1f}",
            f"{row['median_us']:.1f}",
            f"{100 * row['pixel_gb_s'] / ceilings.memory_bound(ratio(row)):.0f}",
        ]
        for row in order
    ]


DEVICE_HEAD = ["codec", "image", "batch", "ratio", "GB/s of pixels", "us", "% of memory bound"]


def usual(rows: list[Row]) -> list[Row]:
    """The rows of the image with most pixels, at the usual batch or the largest below it."""
    largest = image_name(max(rows, key=lambda r: r["pixel_bytes"] / r["batch"]))
    of_image = [row for row in rows if image_name(row) == largest]
    batches = {row["batch"] for row in of_image}
    batch = max((b for b in batches if b <= USUAL_BATCH), default=min(batches))
    return [row for row in of_image if row["batch"] == batch]


def pipeline_table(rows: list[Row], host_to_device: float | None) -> list[list[str]]:
    """The formats at their most threads."""
    table = []
    for row in rows:
        if row["threads"] < max(r["threads"] for r in rows if r["set"] == row["set"]):
            continue
        encoded = row["images_per_s"] * row["encoded_bytes"] / 1e9
        gpu_ms = row["gpu_ms_per_image"]
        table.append(
            [
                str(row["format"]),
                f"{row['threads']}",
                f"{row['images_per_s']:.0f}",
                f"{row['times_png']:.1f}",
                f"{encoded:.2f}",
                "-" if host_to_device is None else f"{100 * encoded / host_to_device:.0f}",
                f"{row['images_per_s'] * row['cpu_s_per_1000'] / 1000:.1f}",
                "-" if gpu_ms is None else f"{gpu_ms:.3f}",
            ]
        )
    return table


PIPELINE_HEAD = ["format", "threads", "images/s", "x PNG", "encoded GB/s"]
PIPELINE_HEAD += ["% of upload", "CPU cores", "GPU ms an image"]


def draw(rows: list[Row], ceilings: Ceilings, title: str, path: Path) -> None:
    """Throughput by codec; and against density, under what the copies allow."""
    figure, (bars, roof) = plt.subplots(1, 2, figsize=(13, 5.5))
    ratios = np.linspace(0.9, max(ratio(row) for row in rows) * 1.3, 100)
    for label, bound, style in (
        ("bound by device memory", ceilings.memory_bound, "-"),
        ("bound by the upload", ceilings.upload_bound, "--"),
    ):
        roof.plot(ratios, [bound(r) for r in ratios], style, color="tab:red", label=label)
    for row in sorted(rows, key=lambda r: r["pixel_gb_s"]):
        color = "tab:green" if row["codec"].startswith("L3") else "tab:gray"
        bars.barh(row["codec"], row["pixel_gb_s"], color=color)
        roof.scatter(ratio(row), row["pixel_gb_s"], color=color)
        roof.annotate(
            row["codec"].removeprefix("nvCOMP "),
            (ratio(row), row["pixel_gb_s"]),
            textcoords="offset points",
            xytext=(5, 3),
            fontsize=7,
        )
    bars.set_xlabel("GB/s of pixels")
    bars.set_title(title)
    roof.set(yscale="log", xlabel="compression ratio", ylabel="GB/s of pixels")
    roof.set_title("measured, and what the measured copies allow")
    roof.legend()
    for panel in (bars, roof):
        panel.grid(alpha=0.3, which="both")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def summarise(folder: Path) -> str:
    """Writes page and plot, prints the short tables; returns what is missing."""
    measured = {name: read(folder, name) for name in (*DEVICE_RESIDENT, "pipeline_mixed")}
    kernels = measured["kernels"]
    host_to_device = kernels.get("host_to_device_gb_s")
    if kernels["rows"]:
        ceilings = Ceilings(kernels["device_copy_gb_s"], kernels["host_to_device_gb_s"])
        rows = [row for name in DEVICE_RESIDENT for row in measured[name]["rows"]]
        host = json.loads((folder / "host.json").read_text())
        text = (
            f"# Decoding in GPU memory\n\n{host['gpu']}, driver {host['driver']}, {host['date']}. "
            f"Device copy {ceilings.device_copy:.0f} GB/s (bytes counted once), host-to-device "
            f"copy from pinned memory {ceilings.host_to_device:.1f} GB/s. Medians of launches, "
            f"caches filled with other data before each.\n\n"
        )
        table = markdown_table(DEVICE_HEAD, device_table(rows, ceilings))
        (folder / "kernels.md").write_text(text + table)
        chosen = usual(rows)
        title = f"{host['gpu']}, {image_name(chosen[0])}, batch {chosen[0]['batch']}"
        draw(chosen, ceilings, title, folder / "kernels.png")
        print_table(f"In GPU memory: {title}", DEVICE_HEAD, device_table(chosen, ceilings))
    if pipeline := measured["pipeline_mixed"]["rows"]:
        head = "Files to batches in GPU memory, through DALI"
        print_table(head, PIPELINE_HEAD, pipeline_table(pipeline, host_to_device))
    return ", ".join(name for name, content in measured.items() if not content["rows"])


def main() -> None:
    """Summarises the folder of the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    if missing := summarise(parser.parse_args().folder):
        print(f"not measured: {missing}")


if __name__ == "__main__":
    main()

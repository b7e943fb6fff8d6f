"""One page, one plot and one short table of what was measured on a GPU.

    python -m benchmarks.gpu.summary benchmarks/results/nvidia_h200

Reads what l3_bench_kernels, l3_bench_nvcomp, pipeline.py and training.py
wrote there, and writes kernels.md and kernels.png beside, and summary.md: each
target met or not, each peer behind or not. The ceilings are the copies measured in the
same run: a decoder that is bound by memory reads its input and writes its pixels
once, at the rate of a device copy; one fed over PCIe gets its input at the rate of a
host-to-device copy. Needs NumPy alone; without matplotlib there is no plot.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu.verdict import (
    NORMALIZED,
    Row,
    at_most_threads,
    compare,
    device_points,
    image_name,
    kernel_targets,
    pipeline_numbers,
    pipeline_points,
    pipeline_targets,
    ratio,
)
from benchmarks.report import cells, markdown_table, print_table

USUAL_BATCH = 32
TARGETS = {
    "target": "{what}",
    "on": "{where}",
    "wanted": "{sign} {wanted:g} {unit}",
    "measured": "{measured:.4g}",
    "": "{outcome}",
}
PEERS = {
    "peer": "{peer.codec}",
    "on": "{peer.where}",
    "ratio": "{peer.ratio:.2f}",
    "GB/s of pixels": "{peer.gb_s:.2f}",
    "L3": "{l3.codec}",
    "its ratio": "{l3.ratio:.2f}",
    "its GB/s": "{l3.gb_s:.2f}",
    "times the peer": "{times:.2f}",
    "L3 is": "{outcome}",
}
PIPELINES = {
    "format": "{format}",
    "threads": "{threads}",
    "batch": "{batch}",
    "images/s": "{images_per_s:.0f}",
    "x PNG": "{times_png:.1f}",
    "encoded GB/s": "{encoded_gb_s:.2f}",
    "% of upload": "{upload_percent:.0f}",
    "CPU cores": "{cpu_cores:.2f}",
    "CPU s / GB of pixels": "{cpu_s_per_pixel_gb:.3f}",
    "CPU s / encoded GB": "{cpu_s_per_encoded_gb:.3f}",
    "GPU ms an image": "{gpu_ms_per_image:.3f}",
}
DEVICE = {
    "codec": "{codec}",
    "image": "{image}",
    "batch": "{batch}",
    "ratio": "{ratio:.2f}",
    "GB/s of pixels": "{pixel_gb_s:.1f}",
    "us": "{median_us:.1f}",
    "% of memory bound": "{percent:.0f}",
}
THROUGH_DALI = "Files to batches in GPU memory, through DALI"
TRAINING = "Training end to end: images/s beside a peer's, where that feeds the paper's share"
GAIN_HEAD = ["model, peer", "% of ceiling", "paper", "at cores", "L3 rans", "L3 packed", "L3 jpeg"]


@dataclass(frozen=True)
class Ceilings:
    """What the machine copies, bytes counted once; GB/s."""

    device_copy: float
    host_to_device: float

    def memory_bound(self, ratio: float) -> float:
        """GB/s of pixels, if input and output pass through device memory once."""
        return 2 * self.device_copy / (1 + 1 / ratio)

    def upload_bound(self, ratio: float) -> float:
        """GB/s of pixels, if the input comes by PCIe."""
        return self.host_to_device * ratio


def read(folder: Path, name: str) -> dict[str, Any]:
    """What a benchmark wrote, or nothing if it did not run."""
    path = folder / f"{name}.json"
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": []}
    return content


def is_crop(row: Row) -> bool:
    """Whether a part of the image was decoded: its bytes are those of the whole."""
    return ", crop" in row["codec"]


def device_lines(rows: list[Row], ceilings: Ceilings) -> list[list[str]]:
    """Rows for people, an image and a batch together, the fastest first."""
    shown = []
    for row in sorted(rows, key=lambda r: (image_name(r), r["batch"], -r["pixel_gb_s"])):
        dense = None if is_crop(row) else ratio(row)
        percent = dense and 100 * row["pixel_gb_s"] / ceilings.memory_bound(dense)
        shown.append({**row, "image": image_name(row), "ratio": dense, "percent": percent})
    return cells(shown, DEVICE)


def usual(rows: list[Row]) -> list[Row]:
    """The rows of the image with most pixels, at the usual batch or the largest below it."""
    whole = [row for row in rows if not is_crop(row)]
    largest = image_name(max(whole, key=lambda r: r["pixel_bytes"] / r["batch"]))
    of_image = [row for row in whole if image_name(row) == largest]
    batches = {row["batch"] for row in of_image}
    batch = max((b for b in batches if b <= USUAL_BATCH), default=min(batches))
    return [row for row in of_image if row["batch"] == batch]


def draw(rows: list[Row], ceilings: Ceilings, title: str, path: Path) -> None:
    """Throughput by codec; and against density, under what the copies allow."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

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


def kernels_page(folder: Path, kernels: Row, peers: list[Row], host: dict[str, str]) -> None:
    """Writes kernels.md and kernels.png, and prints the usual batch."""
    ceilings = Ceilings(kernels["device_copy_gb_s"], kernels["host_to_device_gb_s"])
    rows = kernels["rows"] + peers
    text = (
        f"# Decoding in GPU memory\n\n{host['gpu']}, driver {host['driver']}, {host['date']}. "
        f"Device copy {ceilings.device_copy:.0f} GB/s (bytes counted once), host-to-device "
        f"copy from pinned memory {ceilings.host_to_device:.1f} GB/s. Medians of launches, "
        f"caches filled with other data before each.\n\n"
    )
    text += markdown_table(list(DEVICE), device_lines(rows, ceilings))
    (folder / "kernels.md").write_text(text)
    chosen = usual(rows)
    title = f"{image_name(chosen[0])}, batch {chosen[0]['batch']}"
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot of the kernels: Python lacks matplotlib")
    else:
        draw(chosen, ceilings, f"{host['gpu']}, {title}", folder / "kernels.png")
    print_table(f"In GPU memory: {title}", list(DEVICE), device_lines(chosen, ceilings))


def find_gaps(measured: dict[str, dict[str, Any]]) -> list[str]:
    """What the benchmarks say they have not measured, and those that measured nothing."""
    gaps = []
    for name, content in measured.items():
        gaps += [f"{name}: {f['what']}: {f['reason']}" for f in content.get("failed", [])]
        gaps += [f"{name}: {what}" for what in content.get("left_out", [])]
        if not content["rows"]:
            gaps.append(name)
    return gaps


def summarise(folder: Path) -> None:
    """Writes pages and plot, and prints the short tables: of the peers those ahead of L3."""
    measured = {
        name: read(folder, name)
        for name in ("kernels", "nvcomp", "nvcomp6", "pipeline_mixed", "training")
    }
    if not any(content["rows"] for content in measured.values()):
        print("nothing was measured")
        return
    host = json.loads((folder / "host.json").read_text())
    kernels = measured["kernels"]
    peers = measured["nvcomp"]["rows"] + measured["nvcomp6"]["rows"]
    upload = kernels.get("host_to_device_gb_s")
    every = [pipeline_numbers(row, upload) for row in measured["pipeline_mixed"]["rows"]]
    pipelines = [row for row in every if row["task"] == "whole images"]
    as_stored = [row for row in kernels["rows"] if NORMALIZED not in row["codec"]]
    verdicts = compare(device_points(peers), device_points(as_stored))
    verdicts += compare(*pipeline_points(every))
    ahead = [verdict for verdict in verdicts if verdict.outcome == "ahead"]
    targets = kernel_targets(kernels["rows"]) + pipeline_targets(pipelines)
    gains = measured["training"].get("gains", [])
    gaps = find_gaps(measured)

    if kernels["rows"]:
        kernels_page(folder, kernels, peers, host)
    about = f"{host['gpu']}, driver {host['driver']}, {host['date']}."
    target_lines = cells([{**vars(t), "outcome": t.outcome} for t in targets], TARGETS)
    verdict_lines = cells([{**vars(v), "times": v.times} for v in verdicts], PEERS)
    behind = [line for line in verdict_lines if line[-1] != "ahead"]
    in_short = f"L3 is ahead of {len(ahead)} of {len(verdicts)} rows of peers: as dense or denser,"
    in_short += " and faster."
    pipeline_lines = cells(at_most_threads(pipelines), PIPELINES)

    text = f"# L3 on a GPU\n\n{about}\n"
    text += f"\n## Targets\n\n{markdown_table(list(TARGETS), target_lines)}"
    text += f"\n## Peers\n\n{in_short}\n\n{markdown_table(list(PEERS), verdict_lines)}"
    text += f"\n## {THROUGH_DALI}\n\n{markdown_table(list(PIPELINES), pipeline_lines)}"
    if gains:
        text += f"\n## {TRAINING}\n\n{markdown_table(GAIN_HEAD, gains)}"
    if gaps:
        text += "\n## Not measured\n\n" + "".join(f"* {gap}\n" for gap in gaps)
    (folder / "summary.md").write_text(text)

    print_table(THROUGH_DALI, list(PIPELINES), pipeline_lines)
    print_table(TRAINING, GAIN_HEAD, gains)
    print_table(f"Targets: {about}", list(TARGETS), target_lines)
    print_table(in_short + (" Not of:" if behind else ""), list(PEERS), behind)
    for gap in gaps:
        print(f"not measured: {gap}")


def main() -> None:
    """Summarises the folder of the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    summarise(parser.parse_args().folder)


if __name__ == "__main__":
    main()

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
    Target,
    Verdict,
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
from benchmarks.report import markdown_table, print_table

DEVICE_RESIDENT = ("kernels", "nvcomp")
USUAL_BATCH = 32


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


def device_table(rows: list[Row], ceilings: Ceilings) -> list[list[str]]:
    """Rows for people, an image and a batch together, the fastest first."""
    order = sorted(rows, key=lambda r: (image_name(r), r["batch"], -r["pixel_gb_s"]))
    return [
        [
            str(row["codec"]),
            image_name(row),
            f"{row['batch']}",
            "-" if is_crop(row) else f"{ratio(row):.2f}",
            f"{row['pixel_gb_s']:.1f}",
            f"{row['median_us']:.1f}",
            "-"
            if is_crop(row)
            else f"{100 * row['pixel_gb_s'] / ceilings.memory_bound(ratio(row)):.0f}",
        ]
        for row in order
    ]


DEVICE_HEAD = ["codec", "image", "batch", "ratio", "GB/s of pixels", "us", "% of memory bound"]


def usual(rows: list[Row]) -> list[Row]:
    """The rows of the image with most pixels, at the usual batch or the largest below it."""
    whole = [row for row in rows if not is_crop(row)]
    largest = image_name(max(whole, key=lambda r: r["pixel_bytes"] / r["batch"]))
    of_image = [row for row in whole if image_name(row) == largest]
    batches = {row["batch"] for row in of_image}
    batch = max((b for b in batches if b <= USUAL_BATCH), default=min(batches))
    return [row for row in of_image if row["batch"] == batch]


def optional(number: float | None, digits: int) -> str:
    """A number, or a dash where there is none."""
    return "-" if number is None else f"{number:.{digits}f}"


def pipeline_table(numbers: list[Row]) -> list[list[str]]:
    """The formats at their most threads."""
    return [
        [
            str(row["format"]),
            f"{row['threads']}",
            f"{row['batch']}",
            f"{row['images_per_s']:.0f}",
            f"{row['times_png']:.1f}",
            f"{row['encoded_gb_s']:.2f}",
            optional(row["upload_percent"], 0),
            f"{row['cpu_cores']:.2f}",
            f"{row['cpu_s_per_pixel_gb']:.3f}",
            f"{row['cpu_s_per_encoded_gb']:.3f}",
            optional(row["gpu_ms_per_image"], 3),
        ]
        for row in at_most_threads(numbers)
    ]


PIPELINE_HEAD = ["format", "threads", "batch", "images/s", "x PNG", "encoded GB/s"]
PIPELINE_HEAD += ["% of upload", "CPU cores", "CPU s / GB of pixels", "CPU s / encoded GB"]
PIPELINE_HEAD += ["GPU ms an image"]


def target_table(targets: list[Target]) -> list[list[str]]:
    """A line for each target, met or not."""
    words = {True: "met", False: "NOT MET", None: "not measured"}
    return [
        [
            f"{t.what}",
            t.where or "-",
            f"{t.sign} {t.wanted:g} {t.unit}",
            "-" if t.measured is None else f"{t.measured:.4g}",
            words[t.met],
        ]
        for t in targets
    ]


TARGET_HEAD = ["target", "on", "wanted", "measured", ""]


def verdict_table(verdicts: list[Verdict]) -> list[list[str]]:
    """A line for each peer."""
    return [
        [
            v.peer.codec,
            v.peer.where,
            f"{v.peer.ratio:.2f}",
            f"{v.peer.gb_s:.2f}",
            v.l3.codec,
            f"{v.l3.ratio:.2f}",
            f"{v.l3.gb_s:.2f}",
            f"{v.times:.2f}",
            {"ahead": "ahead", "slower": "NOT ahead", "less dense": "NOT as dense"}[v.outcome],
        ]
        for v in verdicts
    ]


VERDICT_HEAD = ["peer", "on", "ratio", "GB/s of pixels", "L3", "ratio", "GB/s of pixels"]
VERDICT_HEAD += ["times the peer", "L3 is"]


def verdict_line(verdicts: list[Verdict]) -> str:
    """In one sentence."""
    ahead = sum(v.outcome == "ahead" for v in verdicts)
    return (
        f"L3 is ahead of {ahead} of {len(verdicts)} rows of peers: as dense or denser, and faster."
    )


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


def kernels_page(
    folder: Path, rows: list[Row], mixed: list[Row], ceilings: Ceilings, host: dict[str, str]
) -> None:
    """Writes kernels.md and kernels.png, and prints the usual batch."""
    text = (
        f"# Decoding in GPU memory\n\n{host['gpu']}, driver {host['driver']}, {host['date']}. "
        f"Device copy {ceilings.device_copy:.0f} GB/s (bytes counted once), host-to-device "
        f"copy from pinned memory {ceilings.host_to_device:.1f} GB/s. Medians of launches, "
        f"caches filled with other data before each.\n\n"
    )
    text += markdown_table(DEVICE_HEAD, device_table(rows, ceilings))
    if mixed:
        text += "\nAll images of L3, of both modes, in one launch, and in a launch each:\n\n"
        text += markdown_table(MIXED_HEAD, mixed_table(mixed))
    (folder / "kernels.md").write_text(text)
    chosen = usual(rows)
    title = f"{image_name(chosen[0])}, batch {chosen[0]['batch']}"
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot of the kernels: Python lacks matplotlib")
    else:
        draw(chosen, ceilings, f"{host['gpu']}, {title}", folder / "kernels.png")
    print_table(f"In GPU memory: {title}", DEVICE_HEAD, device_table(chosen, ceilings))
    if mixed:
        print_table("All images in one launch", MIXED_HEAD, mixed_table(mixed))


def mixed_table(mixed: list[Row]) -> list[list[str]]:
    """A line for each number of copies."""
    return [
        [
            f"{row['images']}",
            f"{row['copies']}",
            f"{row['median_us']:.1f}",
            f"{row['pixel_gb_s']:.1f}",
            f"{row['alone_us']:.1f}",
            f"{row['alone_gb_s']:.1f}",
        ]
        for row in mixed
    ]


MIXED_HEAD = ["images", "copies each", "us", "GB/s of pixels", "a launch each, us", "GB/s"]


@dataclass(frozen=True)
class Summary:
    """What the results come to."""

    host: dict[str, str]
    targets: list[Target]
    verdicts: list[Verdict]
    pipelines: list[Row]
    mixed: list[Row]
    gains: list[list[str]]  # of training end to end, as training.py writes them
    gaps: list[str]  # what was not measured

    def about(self) -> str:
        """The machine."""
        return f"{self.host['gpu']}, driver {self.host['driver']}, {self.host['date']}."

    def page(self) -> str:
        """All of it, the pipelines at their most threads."""
        text = f"# L3 on a GPU\n\n{self.about()}\n\n## Targets\n\n"
        text += markdown_table(TARGET_HEAD, target_table(self.targets))
        text += f"\n## Peers\n\n{verdict_line(self.verdicts)}\n\n"
        text += markdown_table(VERDICT_HEAD, verdict_table(self.verdicts))
        text += f"\n## {PIPELINES}\n\n"
        text += markdown_table(PIPELINE_HEAD, pipeline_table(self.pipelines))
        if self.gains:
            text += f"\n## {TRAINING}\n\n" + markdown_table(GAIN_HEAD, self.gains)
        if self.gaps:
            text += "\n## Not measured\n\n" + "".join(f"* {gap}\n" for gap in self.gaps)
        return text

    def show(self) -> None:
        """Prints it in short: of the peers those that L3 is not ahead of."""
        behind = [verdict for verdict in self.verdicts if verdict.outcome != "ahead"]
        print_table(PIPELINES, PIPELINE_HEAD, pipeline_table(self.pipelines))
        print_table(TRAINING, GAIN_HEAD, self.gains)
        print_table(f"Targets: {self.about()}", TARGET_HEAD, target_table(self.targets))
        line = verdict_line(self.verdicts) + (" Not of:" if behind else "")
        print_table(line, VERDICT_HEAD, verdict_table(behind))
        for gap in self.gaps:
            print(f"not measured: {gap}")


TRAINING = "Training end to end: images/s beside a peer's, where that feeds the paper's share"
GAIN_HEAD = ["model, peer", "% of ceiling", "paper", "at cores", "L3 rans", "L3 packed"]
PIPELINES = "Files to batches in GPU memory, through DALI"


def find_gaps(measured: dict[str, dict[str, Any]]) -> list[str]:
    """What the benchmarks say they have not measured, and those that measured nothing."""
    gaps = []
    for name, content in measured.items():
        gaps += [f"{name}: {f['what']}: {f['reason']}" for f in content.get("failed", [])]
        gaps += [f"{name}: {what}" for what in content.get("left_out", [])]
        if not content["rows"]:
            gaps.append(name)
    return gaps


def summarise(folder: Path) -> Summary | None:
    """Writes pages and plot, and prints the short tables; None if nothing was measured."""
    measured = {
        name: read(folder, name) for name in (*DEVICE_RESIDENT, "pipeline_mixed", "training")
    }
    if not any(content["rows"] for content in measured.values()):
        return None
    host = json.loads((folder / "host.json").read_text())
    kernels = measured["kernels"]
    peers = [row for name in DEVICE_RESIDENT[1:] for row in measured[name]["rows"]]
    upload = kernels.get("host_to_device_gb_s")
    whole_images = [
        row
        for row in measured["pipeline_mixed"]["rows"]
        if row.get("task", "whole images") == "whole images"
    ]
    pipelines = [pipeline_numbers(row, upload) for row in whole_images]
    as_stored = [row for row in kernels["rows"] if NORMALIZED not in row["codec"]]
    verdicts = compare(device_points(peers), device_points(as_stored))
    verdicts += compare(*pipeline_points(pipelines))
    summary = Summary(
        host=host,
        targets=kernel_targets(kernels["rows"]) + pipeline_targets(pipelines),
        verdicts=verdicts,
        pipelines=pipelines,
        mixed=kernels.get("mixed", []),
        gains=measured["training"].get("gains", []),
        gaps=find_gaps(measured),
    )
    (folder / "summary.md").write_text(summary.page())
    if kernels["rows"]:
        ceilings = Ceilings(kernels["device_copy_gb_s"], kernels["host_to_device_gb_s"])
        kernels_page(folder, kernels["rows"] + peers, summary.mixed, ceilings, host)
    summary.show()
    return summary


def main() -> None:
    """Summarises the folder of the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    if summarise(parser.parse_args().folder) is None:
        print("nothing was measured")


if __name__ == "__main__":
    main()

"""What the CUDA engine costs the host, and what its uploads can reach."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cpu.case import Result
from benchmarks.peers import images, l3_encoder
from benchmarks.report import table

import l3dali

PROGRAM = Path(__file__).parents[2] / "build" / "release" / "l3_staging_times"
CODINGS: tuple[l3dali.Coding, ...] = ("packed", "rans")
BATCHES = (8, 32, 128)
THREADS = (1, 8, 16)
# Bytes a second that arrive over the link. By coding: predicted bytes of pixels a second, and the
# seconds of a launch with few tiles (docs/notes/kernels-model.md).
LINKS = {
    "PCIe 4, A100": (25e9, {"packed": (645e9, 90e-6), "rans": (165e9, 440e-6)}),
    "PCIe 5, H100": (55e9, {"packed": (1090e9, 70e-6), "rans": (270e9, 340e-6)}),
}
COPIES_AT_MOST = 60e9  # bytes a second that all threads together stage: assumed
PART = 16 << 20  # kUsualUpload of batch_decoder.h
CHUNK = 8 << 20  # kChunkBytes of batch_decoder.cc


def staging(data: Path, rounds: int = 15, program: Path = PROGRAM) -> Result:
    """Planning and staging of batches for the CUDA engine, measured; uploads, predicted.

    The first photograph of photo/large, RGB8, each sample a copy of its own. `staged` files are
    copied to pinned memory; `pinned` ones lie there, as DALI's do. Measured: CPU seconds of one
    thread, the least of all rounds. **Predicted**: the share of a link's bandwidth that a batch
    reaches from the call until its pixels are there, and what takes longest. Planning is one
    thread's work, copies are as many times faster as there are threads, up to 60 GB/s; the link
    carries 25 or 55 GB/s. Decoding goes at the rates that docs/notes/kernels-model.md predicts,
    and that of the last part comes behind its upload. DALI and the reader are not counted.
    """
    _, image = next(iter(images(data, "photo/large")))
    measured: dict[str, dict[str, Any]] = {}
    predicted: dict[str, dict[str, str]] = {}
    with tempfile.NamedTemporaryFile() as file:
        for coding in CODINGS:
            Path(file.name).write_bytes(l3_encoder(coding)(image))
            for batch in BATCHES:
                for way in ("staged", "pinned"):
                    command = [program, way, str(batch), str(rounds), file.name]
                    run = subprocess.run(command, check=True, capture_output=True, text=True)
                    total, copied, plan, write = map(float, run.stdout.split())
                    name = f"{coding}, {way}, {batch}"
                    measured[name] = {
                        "mb": total / 1e6,
                        "copied_mb": copied / 1e6,
                        "plan_us": plan * 1e6,
                        "copy_gbs": copied / write / 1e9,
                    }
                    predicted[name] = {
                        f"{link}, {threads}": share(
                            link, coding, threads, total, copied, plan, write, batch * image.nbytes
                        )
                        for link in LINKS
                        for threads in THREADS
                    }
    columns = {"MB": "{mb:.1f}", "copied MB": "{copied_mb:.1f}", "plan µs": "{plan_us:.0f}"}
    text = table("batch", measured, columns | {"copies GB/s": "{copy_gbs:.1f}"})
    heads = {key: f"{{{key}}}" for key in next(iter(predicted.values()))}
    text += "\nPredicted share of the link's bandwidth, by threads, and what binds:\n\n"
    text += table("batch", predicted, heads)
    return Result(text, {"measured": measured, "predicted": predicted})


def share(
    link: str,
    coding: str,
    threads: int,
    total: float,
    copied: float,
    plan: float,
    write: float,
    pixel_bytes: float,
) -> str:
    """In percent, with what takes longest."""
    bandwidth, rates = LINKS[link]
    rate, launch = rates[coding]
    copies = min(threads * copied / write, COPIES_AT_MOST)
    parts = max(1, int(total / PART))
    flow = {"upload": total / bandwidth, "copies": copied / copies, "decoding": pixel_bytes / rate}
    alone = {
        "planning": plan,
        "first chunk": min(copied, CHUNK) / copies,
        "last part": max(launch, pixel_bytes / rate / parts),
    }
    seconds = max(flow.values()) + sum(alone.values())
    terms = {max(flow, key=lambda term: flow[term]): max(flow.values()), **alone}
    return f"{total / bandwidth / seconds:.0%} {max(terms, key=lambda term: terms[term])}"

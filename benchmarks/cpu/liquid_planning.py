"""Planning 1.3 million images: seconds and memory, from a profile and a listing of sizes.

    python -m benchmarks.cpu.liquid_planning

The profile is made up, of 200 images in three groups, and so is the listing: names as ImageNet has
them, sizes of a log-normal distribution. `l3 plan` runs in a process of its own, as users run it;
memory is the peak that Linux counts for it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarks.report import RESULTS, code_commit, markdown_table, write_results

from l3dali.datasets.liquid.fit import fit_groups
from l3dali.datasets.liquid.profile import Host, Profile, Sample

IMAGES = 1_300_000
SAMPLES = 200
# Format of the source, channels, bytes a pixel; share of the images.
GROUPS = (("png 3 uint8", 3, 1.9, 0.7), ("png 1 uint8", 1, 0.2, 0.2), ("jpeg 3 uint8", 3, 0.4, 0.1))


def make_profile(rng: np.random.Generator) -> Profile:
    """A profile of made-up images."""
    samples = []
    for number in range(SAMPLES):
        group, channels, per_pixel, _ = GROUPS[rng.choice(3, p=[share for *_, share in GROUPS])]
        pixels = int(rng.lognormal(12, 0.5))
        source = int(pixels * per_pixel * rng.lognormal(0, 0.2))
        small = source * (0.75 if "png" in group else 2.2)
        sizes = {
            "source": source,
            "rans": int(small),
            "packed": int(small * 1.25),
            "stored": pixels * channels,
        }
        slow = {"source": 25e-9, "rans": 7e-9, "packed": 9e-10, "stored": 4e-10}
        samples.append(
            Sample(
                name=f"{number}.{'jpg' if 'jpeg' in group else 'png'}",
                group=group,
                source_bytes=source,
                pixels=pixels,
                raw_bytes=pixels * channels,
                weight=IMAGES / SAMPLES,
                sizes=sizes,
                cpu_seconds={f"{n}@cpu": s * pixels * channels for n, s in slow.items()},
            )
        )
    host = Host(cores=8.0, disk=1e9, efficiency=0.9)
    return Profile(["set"], "0" * 64, IMAGES, host, fit_groups(samples), samples)


def write_listing(path: Path, images: int, rng: np.random.Generator) -> None:
    """Sizes and names, a line each."""
    sizes = rng.lognormal(12.2, 0.7, images).astype(np.int64) + 1
    with path.open("w") as file:
        for number, size in enumerate(sizes.tolist()):
            folder = f"n{number % 1000:08}"
            suffix = "jpg" if number % 10 == 0 else "png"
            file.write(f"{size} train/{folder}/{folder}_{number}.{suffix}\n")


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        profile, listing, plan = (Path(folder) / name for name in ("profile", "listing", "plan"))
        profile.write_text(make_profile(rng).to_json())
        write_listing(listing, arguments.images, rng)
        command = [sys.executable, "-m", "l3dali", "plan", str(profile), "-o", str(plan)]
        command += ["--overwrite", "--json", "--listing", str(listing)]
        load = os.getloadavg()[0]
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds.append(time.perf_counter() - start)
        plan_bytes = plan.stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss * 1024
    cpu_seconds = (used.ru_utime + used.ru_stime) / arguments.rounds
    found = json.loads(done.stdout)
    counted = sum(each["images"] for each in found["listing"].values())
    assert counted == arguments.images
    data = {
        "planner_commit": code_commit(("python/l3dali/liquid",)),
        "images": arguments.images,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": peak,
        "plan_bytes": plan_bytes,
        "formats": found["formats"],
        "listing": found["listing"],
        "load_before": load,
    }
    head = ["planning", "images", "seconds", "CPU seconds", "peak memory, GB", "plan, kB"]
    row = [
        "l3 plan --listing",
        str(arguments.images),
        f"{sorted(seconds)[len(seconds) // 2]:.1f}",
        f"{cpu_seconds:.1f}",
        f"{peak / 1e9:.2f}",
        f"{plan_bytes / 1e3:.1f}",
    ]
    text = (
        f"\nA made-up profile of {SAMPLES} images and a listing of {arguments.images} files. "
        f"Median of {len(seconds)} runs, from {min(seconds):.1f} to {max(seconds):.1f} s; reading "
        f"the listing is part of it. The machine's load before was {load:.1f}.\n\n"
    )
    text += markdown_table(head, [row])
    write_results("liquid_planning", "Planning 1.3 million images", text, data, arguments.out)


if __name__ == "__main__":
    main()

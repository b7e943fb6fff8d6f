"""Plans of large data sets: how long `l3 plan` takes, and `l3 convert` by another plan."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
from benchmarks.cpu.case import Result
from benchmarks.peers import PNG
from benchmarks.report import table

from l3dali.datasets.convert.storage import MANIFEST_NAME
from l3dali.datasets.convert.work import find_sources
from l3dali.datasets.liquid.dataset import fingerprint
from l3dali.datasets.liquid.fit import fit_groups
from l3dali.datasets.liquid.model import Group, Prices
from l3dali.datasets.liquid.plan import Plan, Predicted, Tie
from l3dali.datasets.liquid.profile import Host, Linear, Profile, Sample

CODE = ("python/l3dali/datasets", "python/l3dali/cli")
SAMPLES = 200
# Format of the source, channels, bytes a pixel; share of the images.
GROUPS = (("png 3 uint8", 3, 1.9, 0.7), ("png 1 uint8", 1, 0.2, 0.2), ("jpeg 3 uint8", 3, 0.4, 0.1))
IN_A_FOLDER = 1000
SIZE = 32
SHARES = (0.5, 0.55)  # of images that become packed, by each plan
GROUP = "png rgb 8"


def run(*arguments: object) -> tuple[float, str]:
    """Seconds that `l3` takes, from the start of its process to its end; what it prints."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "l3dali", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, done.stdout


def liquid_planning(images: int = 1_300_000, rounds: int = 3) -> Result:
    """Planning 1.3 million images: seconds and memory, from a profile and a listing of sizes.

    The profile is made up, of 200 images in three groups, and so is the listing: names as ImageNet
    has them, sizes of a log-normal distribution. `l3 plan` runs in a process of its own, as users
    run it; memory is the peak that Linux counts for it. Reading the listing is part of it.
    """
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        profile, listing, plan = (Path(folder) / name for name in ("profile", "listing", "plan"))
        profile.write_text(make_profile(rng, images).to_json())
        write_listing(listing, images, rng)
        command = ["plan", profile, "-o", plan, "--overwrite", "--json", "--listing", listing]
        runs = [run(*command) for _ in range(rounds)]
        plan_bytes = plan.stat().st_size
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = [took for took, _ in runs]
    said = json.loads(runs[-1][1])
    assert sum(each["images"] for each in said["listing"].values()) == images
    found = {
        "images": images,
        "seconds": seconds,
        "cpu_seconds": (used.ru_utime + used.ru_stime) / rounds,
        "peak_bytes": used.ru_maxrss * 1024,
        "plan_bytes": plan_bytes,
        "formats": said["formats"],
        "listing": said["listing"],
    }
    row = {**found, "median": np.median(seconds), "gb": used.ru_maxrss / 1e9 * 1024}
    columns = {"images": "{images}", "seconds": "{median:.1f}", "CPU seconds": "{cpu_seconds:.1f}"}
    columns |= {"peak memory, GB": "{gb:.2f}", "plan, kB": "{kb:.1f}"}
    text = table("planning", {"l3 plan --listing": {**row, "kb": plan_bytes / 1e3}}, columns)
    return Result(text, found, code=CODE)


def make_profile(rng: np.random.Generator, images: int) -> Profile:
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
                weight=images / SAMPLES,
                sizes=sizes,
                cpu_seconds={f"{n}@cpu": s * pixels * channels for n, s in slow.items()},
            )
        )
    host = Host(cores=8.0, disk=1e9, efficiency=0.9)
    return Profile(["set"], "0" * 64, images, host, fit_groups(samples), samples)


def write_listing(path: Path, images: int, rng: np.random.Generator) -> None:
    """Sizes and names, a line each."""
    sizes = rng.lognormal(12.2, 0.7, images).astype(np.int64) + 1
    with path.open("w") as file:
        for number, size in enumerate(sizes.tolist()):
            folder = f"n{number % 1000:08}"
            suffix = "jpg" if number % 10 == 0 else "png"
            file.write(f"{size} train/{folder}/{folder}_{number}.{suffix}\n")


def liquid_replanning(images: int = 100_000) -> Result:
    """Converting 100,000 images by a second plan: from the manifest, and by reading sources.

    The images are crops of 32x32, so that what does not depend on their size shows. Half of them
    stay as they are by the first plan, and one in twenty changes by the second. With a manifest
    that lacks what plans choose by, as earlier versions wrote it, all `sources are read`. Each
    command runs in a process of its own, and all of that counts.
    """
    measured: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="l3-replanning-") as folder:
        source, dest = Path(folder, "source"), Path(folder, "dest")
        write_images(source, images)
        plans = [Path(folder, f"{i}.json") for i in range(len(SHARES))]
        for path, share in zip(plans, SHARES, strict=True):
            path.write_text(make_plan(source, images, share).to_json())
        first, second = (["convert", source, dest, "--plan", plan] for plan in plans)
        for what, command in (
            ("the first conversion", first),
            ("the same again: nothing to do", first),
            ("another plan, dry run", [*second, "--dry-run"]),
            ("another plan", second),
            ("the first plan again", first),
            ("another plan, dry run, sources read", [*second, "--dry-run"]),
            ("another plan, sources read", second),
        ):
            if what == "another plan, dry run, sources read":
                forget_groups(dest / MANIFEST_NAME)
            seconds, said = run(*command)
            measured[what] = {"seconds": seconds, "us": seconds / images * 1e6}
            measured[what]["said"] = " ".join(said.split())
    columns = {"seconds": "{seconds:.1f}", "an image, us": "{us:.0f}"}
    rows = [{"what": what, **found} for what, found in measured.items()]
    text = table("`l3 convert --plan`", measured, columns)
    return Result(text, {"images": images, "measured": rows}, code=CODE)


def write_images(folder: Path, count: int) -> None:
    """Crops of a photograph, one after the other."""
    photo = skimage.data.astronaut()
    steps = range(0, photo.shape[0] - SIZE, SIZE)
    crops = [PNG.encode(photo[y : y + SIZE, x : x + SIZE]) for y in steps for x in steps]
    for i in range(count):
        path = folder / f"{i // IN_A_FOLDER:03}" / f"{i:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(crops[i % len(crops)])


def make_plan(folder: Path, count: int, share: float) -> Plan:
    """A plan by lot: `packed`, or as it is."""
    formats = ["packed", "source"]
    costs = Group(
        images=count,
        raw_bytes=3.0,
        sizes={name: Linear(base=100) for name in formats},
        cpu_seconds={f"{name}@cpu": Linear(base=1) for name in formats},
    )
    return Plan(
        sources=[str(folder)],
        fingerprint=fingerprint(find_sources([str(folder)])),
        images=count,
        formats=formats,
        candidates=formats,
        groups={GROUP: costs},
        prices=Prices(cpu_seconds=1.0),
        ties=[Tie(GROUP, formats, [share, 1 - share])],
        host=Host(cores=1),
        predicted=Predicted(1, 1, 1, dict.fromkeys(formats, 1.0), {}, {}, {}, 1, 1),
    )


def forget_groups(manifest: Path) -> None:
    """Makes the manifest one of an earlier version."""
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for row in rows:
        del row["group"], row["area"]
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))

"""Converting 100,000 images by a second plan: from the manifest, and by reading sources.

    python -m benchmarks.cpu.liquid_replanning

The images are crops of 32x32, so that what does not depend on their size shows. Half of them stay
as they are by the first plan, and one in twenty changes by the second. With a manifest that lacks
what plans choose by, as earlier versions wrote it, all sources are read. Each command runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import imagecodecs
import skimage.data
from benchmarks.report import RESULTS, code_commit, markdown_table, write_results

from l3dali.datasets.convert.storage import MANIFEST_NAME
from l3dali.datasets.convert.work import find_sources
from l3dali.datasets.liquid.dataset import fingerprint
from l3dali.datasets.liquid.model import Group, Prices
from l3dali.datasets.liquid.plan import Plan, Predicted, Tie
from l3dali.datasets.liquid.profile import Host, Linear

IMAGES = 100_000
IN_A_FOLDER = 1000
SIZE = 32
SHARES = (0.5, 0.55)  # of images that become packed, by each plan
GROUP = "png rgb 8"
CODE = ("python/l3dali/convert", "python/l3dali/liquid", "python/l3dali/cli/convert.py")


def write_images(folder: Path, count: int) -> None:
    """Crops of a photograph, one after the other."""
    photo = skimage.data.astronaut()
    steps = range(0, photo.shape[0] - SIZE, SIZE)
    crops = [
        bytes(imagecodecs.png_encode(photo[y : y + SIZE, x : x + SIZE], level=6))
        for y in steps
        for x in steps
    ]
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


def run(*arguments: object) -> tuple[float, str]:
    """Seconds that `l3 convert` takes, from the start of its process to its end; what it prints."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "l3dali", "convert", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - start, " ".join(done.stdout.split())


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="l3-replanning-") as folder:
        source, dest = Path(folder, "source"), Path(folder, "dest")
        write_images(source, arguments.images)
        plans = []
        for i, share in enumerate(SHARES):
            plans.append(Path(folder, f"{i}.json"))
            plans[-1].write_text(make_plan(source, arguments.images, share).to_json())
        first, second = ([source, dest, "--plan", plan] for plan in plans)

        def note(what: str, *command: object) -> None:
            seconds, said = run(*command)
            measured.append({"what": what, "seconds": seconds, "said": said})
            print(f"{what}: {seconds:.1f} s", flush=True)

        note("the first conversion", *first)
        note("the same again: nothing to do", *first)
        note("another plan, dry run", *second, "--dry-run")
        note("another plan", *second)
        note("the first plan again", *first)
        forget_groups(dest / MANIFEST_NAME)
        note("another plan, dry run, sources read", *second, "--dry-run")
        note("another plan, sources read", *second)
    data = {
        "converter_commit": code_commit(CODE),
        "images": arguments.images,
        "load_before": load,
        "measured": measured,
    }
    head = ["`l3 convert --plan`", "seconds", "an image, us"]
    rows = [
        [
            each["what"],
            f"{each['seconds']:.1f}",
            f"{each['seconds'] / arguments.images * 1e6:.0f}",
        ]
        for each in measured
    ]
    text = (
        f"\n{arguments.images} PNG files of {SIZE}x{SIZE} in folders of {IN_A_FOLDER}, in the page "
        f"cache; 5 % of them change their format with the plan. All of the process, from its start "
        f"to its end, on {len(os.sched_getaffinity(0))} cores; the machine's load before was "
        f"{load:.1f}. `sources read`: with a manifest that lacks what plans choose by.\n\n"
    )
    text += markdown_table(head, rows)
    write_results("liquid_replanning", "Another plan for 100,000 images", text, data, arguments.out)


if __name__ == "__main__":
    main()

"""Runs the examples of the gallery, and draws their pictures in examples/gallery/pictures.

python tools/draw_gallery.py
"""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "gallery"
DRAW = """
import runpy, sys
import matplotlib
matplotlib.use("Agg")
from PIL import Image
from matplotlib import pyplot

def show():
    pyplot.savefig(sys.argv[2], dpi=60)
    with Image.open(sys.argv[2]) as image:
        image.convert("RGB").save(sys.argv[2], optimize=True)

pyplot.show = show
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def draw(example: Path, picture: Path) -> None:
    """Runs an example in a process of its own, and writes its last figure as a small PNG file."""
    subprocess.run([sys.executable, "-c", DRAW, example, picture], check=True)


if __name__ == "__main__":
    for path in sorted(EXAMPLES.glob("*.py")):
        draw(path, path.parent / "pictures" / f"{path.stem}.png")

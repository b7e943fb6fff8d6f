"""The examples of the gallery run as programs, and draw the pictures that the site shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from draw_gallery import EXAMPLES, draw
from PIL import Image

PATHS = sorted(EXAMPLES.glob("*.py"))


def test_each_example_has_its_picture() -> None:
    pictures = sorted((EXAMPLES / "pictures").glob("*"))
    assert [path.name for path in pictures] == [f"{path.stem}.png" for path in PATHS]
    assert len(pictures) >= 5
    assert max(path.stat().st_size for path in pictures) < 200_000


@pytest.mark.parametrize("example", PATHS, ids=lambda path: path.stem)
def test_example(tmp_path: Path, example: Path) -> None:
    draw(example, tmp_path / "picture.png")
    with (
        Image.open(tmp_path / "picture.png") as drawn,
        Image.open(EXAMPLES / "pictures" / f"{example.stem}.png") as committed,
    ):
        assert drawn.size == committed.size

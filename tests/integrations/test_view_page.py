"""The page of `l3 view` in a real browser."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browser_tools import keep_screenshot, open_page, wait_for

import l3dali

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

SETTLED = "(drawNow(), asked === 0)"  # all tiles that are seen are there
STEPS = np.add.outer(np.arange(400), np.arange(600))
PHOTO = np.stack([STEPS % 256, STEPS // 2 % 256, 255 - STEPS % 256], 2).astype(np.uint8)
SCAN = (STEPS * 8 - 2000).astype(np.int16)
HOSTILE = "<img src=x onerror=document.title='owned'>.l3"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a viewer of a few images."""
    folder = tmp_path_factory.mktemp("images")
    l3dali.imwrite(folder / "a_photo.l3", PHOTO, metadata={"note": "<b>bold</b>"})
    l3dali.imwrite(folder / "b_scan.l3", SCAN)
    l3dali.imwrite(folder / "c_mask.l3", (STEPS // 100).astype(np.uint8), labels=True)
    l3dali.imwrite(folder / "d_large.l3", np.tile(PHOTO, (25, 12, 1)), coding="packed")
    damaged = bytearray((folder / "a_photo.l3").read_bytes())
    damaged[-600] ^= 1
    (folder / "e_damaged.l3").write_bytes(damaged)
    (folder / HOSTILE).write_bytes(damaged[:50])
    command = [sys.executable, "-m", "l3dali", "view", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        yield server.stderr.readline().split()[1]
        server.send_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def page(url: str) -> Iterator[Page]:
    """The page of the viewer."""
    with open_page() as page:
        page.goto(url)
        yield page


def _open(page: Page, url: str, number: int) -> None:
    """Shows an image and waits for its first tile."""
    page.goto(f"{url}#image/{number}")
    wait_for(page, f"image?.number === {number} && [...tiles.values()].some(t => t.samples)")
    wait_for(page, SETTLED)


def _color(page: Page, x: int, y: int) -> list[int]:
    """The colour on the canvas of a pixel of the image."""
    script = """([x, y]) => { drawNow(); return [...canvas.getContext("2d").getImageData(
      (x + 0.5 - view.x) * view.scale, (y + 0.5 - view.y) * view.scale, 1, 1).data].slice(0, 3);
    }"""
    found: list[int] = page.evaluate(script, [x, y])
    return found


def test_sheet(page: Page, url: str) -> None:
    page.goto(f"{url}#sheet/0")
    wait_for(page, "document.querySelectorAll('figure img').length === 3")
    wait_for(page, "document.querySelectorAll('figure.bad').length === 2")
    keep_screenshot(page, "sheet")
    assert page.locator("#place").inner_text() == "1 to 6 of 6"
    captions = page.locator("figcaption").all_inner_texts()
    assert captions[0] == HOSTILE
    assert page.title() == "l3 view"
    assert "7200 x 10000" in page.locator("figure").nth(4).inner_text()


def test_photo(page: Page, url: str) -> None:
    _open(page, url, 1)
    page.click("#one")
    wait_for(page, f"{SETTLED} && tiles.has('0/0/1')")
    keep_screenshot(page, "photo")
    for y, x in ((200, 300), (150, 280)):
        assert _color(page, x, y) == PHOTO[y, x].tolist()
    assert "<b>bold</b>" in page.locator("#facts").inner_text()


def test_values_under_the_cursor(page: Page, url: str) -> None:
    _open(page, url, 2)
    page.click("#one")
    box = page.locator("canvas").bounding_box()
    assert box is not None
    x, y = page.evaluate("[(100.5 - view.x) * view.scale, (50.5 - view.y) * view.scale]")
    page.mouse.move(box["x"] + x, box["y"] + y)
    wait_for(page, "document.getElementById('cursor').textContent.startsWith('x 100, y 50')")
    assert page.locator("#cursor").inner_text().split()[-1] == str(SCAN[50, 100])


def test_levels_of_signed_samples(page: Page, url: str) -> None:
    _open(page, url, 2)
    page.click("#one")
    wait_for(page, SETTLED)
    page.evaluate("setLevels(-2000, 6000)")
    keep_screenshot(page, "scan")
    y, x = 200, 300
    expected = 255 * (int(SCAN[y, x]) + 2000) / 8000
    assert _color(page, x, y) == [round(expected)] * 3
    page.select_option("#map", "heat")
    assert len(set(_color(page, x, y))) > 1
    keep_screenshot(page, "heat")


def test_masks_have_colors(page: Page, url: str) -> None:
    _open(page, url, 3)
    keep_screenshot(page, "mask")
    colors = {tuple(_color(page, x, 20)) for x in (30, 130, 230, 330)}
    assert len(colors) == 4
    assert (0, 0, 0) in colors


def test_bands_are_chosen(page: Page, url: str) -> None:
    _open(page, url, 1)
    page.fill("#bands", "2,1,0")
    page.press("#bands", "Enter")
    page.click("#one")
    wait_for(page, f"{SETTLED} && [...tiles.values()].some(t => t.samples)")
    assert _color(page, 300, 200) == PHOTO[200, 300, ::-1].tolist()
    page.fill("#bands", "7")
    page.press("#bands", "Enter")
    assert "0 to 2" in page.locator("#problem").inner_text()


def test_large_images_are_zoomed(page: Page, url: str) -> None:
    _open(page, url, 4)
    page.click("#fit")
    wait_for(page, f"{SETTLED} && [...tiles].some(([key, tile]) => key[0] >= '2' && tile.samples)")
    keep_screenshot(page, "large")
    page.click("#one")
    wait_for(page, f"{SETTLED} && [...tiles.keys()].some(key => key[0] === '0')")
    keep_screenshot(page, "large_1_to_1")
    assert page.evaluate("tiles.size") < 80
    y, x = 4950, 3650
    assert _color(page, x, y) == PHOTO[y % 400, x % 600].tolist()


def test_damaged_tiles_are_marked(page: Page, url: str) -> None:
    page.goto(f"{url}#image/5")
    wait_for(page, "image?.number === 5 && [...tiles.values()].some(t => t.error)")
    wait_for(page, SETTLED)
    page.click("#one")
    wait_for(page, SETTLED)
    keep_screenshot(page, "damaged")
    assert "tile" in page.locator("#problem").inner_text()
    assert page.evaluate("[...tiles.values()].some(tile => tile.samples)")


def test_keys(page: Page, url: str) -> None:
    _open(page, url, 1)
    page.keyboard.press("ArrowRight")
    wait_for(page, "image?.number === 2")
    page.keyboard.press("Escape")
    wait_for(page, "!document.getElementById('sheet').hidden")

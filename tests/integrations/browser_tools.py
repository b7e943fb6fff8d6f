"""Chromium without a screen, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

WAIT_SECONDS = 120  # on a machine that is busy


@contextmanager
def open_page() -> Iterator[Page]:
    """A page that must have no errors of JavaScript at its end."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here (apt-get install chromium): the pages are not tried")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.set_default_timeout(1000 * WAIT_SECONDS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        browser.close()
        assert errors == []


def wait_for(page: Page, condition: str) -> None:
    """Waits for what JavaScript says; the viewer's policy forbids Playwright's own way."""
    end = time.monotonic() + WAIT_SECONDS
    while not page.evaluate(f"() => Boolean({condition})"):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def keep_screenshot(page: Page, name: str) -> None:
    """Writes what is seen to the folder that `L3_SCREENSHOTS` names, if it does."""
    if folder := os.environ.get("L3_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder, f"{name}.png")))

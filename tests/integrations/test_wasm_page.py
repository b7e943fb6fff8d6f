"""The page of examples/wasm in a real browser."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest
from browser_tools import keep_screenshot, open_page, wait_for

import l3dali

FOLDER = Path(__file__).parents[2] / "build/wasm"
PHOTO = np.random.default_rng(1).integers(0, 256, (90, 120, 3), np.uint8)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and prints nothing."""

    def log_message(self, *_arguments: object) -> None:
        pass


def test_a_file_is_shown(tmp_path: Path) -> None:
    if not (FOLDER / "l3.wasm").exists():
        pytest.skip("no WebAssembly here (make wasm): its page is not tried")
    file, damaged = tmp_path / "a.l3", tmp_path / "b.l3"
    data = l3dali.encode(PHOTO)
    file.write_bytes(data)
    damaged.write_bytes(data[:-1])
    handler = functools.partial(Quiet, directory=str(FOLDER))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with open_page() as page:
            page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
            wait_for(page, "document.querySelector('input').onchange")
            page.set_input_files("input", file)
            wait_for(page, "document.getElementById('told').textContent.includes('120 x 90')")
            keep_screenshot(page, "wasm")
            canvas = "document.querySelector('canvas').getContext('2d')"
            shown = page.evaluate(f"[...{canvas}.getImageData(0, 0, 120, 90).data]")
            assert np.array_equal(np.reshape(shown, (90, 120, 4))[:, :, :3], PHOTO)
            page.set_input_files("input", damaged)
            wait_for(page, "document.getElementById('told').textContent.includes('kTruncated')")
        server.shutdown()

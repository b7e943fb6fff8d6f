"""The decoder where sizes have 32 bits: as WebAssembly, and on x86 under sanitizers."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import l3dali

ROOT = Path(__file__).parents[2]
OUTPUT_TOO_SMALL = 8


def _make(target: str) -> Path:
    """Builds a target of the Makefile, or finds that it is there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "-s", target], cwd=ROOT, env=environment, check=True)
    return ROOT / target


def _can_compile(*command: str) -> bool:
    """Whether a compiler is there with its libraries."""
    if shutil.which(command[0]) is None:
        return False
    program = b"#include <vector>\nint main() { return std::vector<int>(1)[0]; }"
    options = ["-x", "c++", "-", "-o", os.devnull]
    result = subprocess.run([*command, *options], input=program, capture_output=True, check=False)
    return result.returncode == 0


@pytest.fixture(scope="module")
def wasm() -> Path:
    if not _can_compile("clang++", "--target=wasm32-wasi", "-fno-exceptions"):
        pytest.skip("clang++ is not installed with lld and the C++ library of wasm32-wasi")
    if shutil.which("node") is None:
        pytest.skip("Node is not installed: nothing runs the WebAssembly decoder")
    return _make("build/wasm/l3.wasm")


@pytest.mark.slow
def test_webassembly_conforms(tmp_path: Path, wasm: Path) -> None:
    command = ["node", "tests/tools/wasm_conformance.mjs", str(wasm), "tests"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    right, _, files, _ = told.split()[-4:]
    assert right == files, told
    assert int(files) > 500
    assert wasm.stat().st_size < 150_000
    _run_javascript_of_the_page(wasm, tmp_path)


READ_FILES = """
import { readFileSync } from "node:fs";
globalThis.fetch = async (name) => new Response(readFileSync(name));
const bytes = readFileSync("a.l3");
"""


def _run_javascript_of_the_page(wasm: Path, folder: Path) -> None:
    (code,) = re.findall(r"```js\n(.*?)```", (ROOT / "docs/c.md").read_text(), re.DOTALL)
    for path in (wasm, wasm.with_name("l3.mjs")):
        shutil.copy(path, folder)
    l3dali.imwrite(folder / "a.l3", np.zeros((5, 7, 3), np.uint8))
    shown = "console.log(height, width, channels, samples.length);"
    (folder / "page.mjs").write_text(READ_FILES + code + shown)
    command = ["node", "page.mjs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout == "5 7 3 105\n", done.stderr
    (folder / "odd.mjs").write_text(GIVE_ODD_ARGUMENTS)
    command = ["node", "odd.mjs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


GIVE_ODD_ARGUMENTS = """
import { readFileSync } from "node:fs";
import { load } from "./l3.mjs";
const l3 = await load(readFileSync("l3.wasm"));
const bytes = readFileSync("a.l3");
const windows = [[-1, 0, 1, 1], [0, 0, 1.5, 1], [2 ** 32, 0, 1, 1], [0, 0], [0, 0, 1, 1, 9], 3];
const options = [...windows.map((window) => ({ window })), { type: 2 ** 32 + 1 }, { colors: "1" },
                 { maxPixels: -1 }, { maxPixels: 1.5 }];
for (const [file, given] of [[bytes.buffer, {}], [[...bytes], {}], [null, {}],
                             ...options.map((each) => [bytes, each])]) {
  try {
    l3.decode(file, given);
    console.log("taken", given);
  } catch (error) {
    if (error.constructor !== TypeError && error.constructor !== RangeError) console.log(error);
    if (!/Uint8Array|integer/.test(error.message)) console.log(error);
  }
}
"""


# malloc() gives addresses above 2 GiB; 2^33 bytes of output do not fit 32 bits.
USE_MUCH_MEMORY = """
import { readFileSync } from "node:fs";
import { load } from "./l3.mjs";
const l3 = await load(readFileSync("l3.wasm"));
const bytes = readFileSync("a.l3");
try {
  l3.decode(bytes, { type: 8, maxPixels: 2 ** 31 });
} catch (error) {
  console.log(error.message);
}
const { Instance } = WebAssembly;
WebAssembly.Instance = function (module) {
  const { exports } = new Instance(module);
  exports._initialize();
  for (let i = 0; i < 4; i++) exports.malloc(2 ** 29);
  return { exports: { ...exports, _initialize() {} } };
};
console.log(l3.decode(bytes, { window: [46335, 46335, 1, 1] }).samples[0]);
"""


@pytest.mark.slow
def test_webassembly_uses_much_memory(tmp_path: Path, wasm: Path) -> None:
    for path in (wasm, wasm.with_name("l3.mjs")):
        shutil.copy(path, tmp_path)
    (tmp_path / "a.l3").write_bytes(_largest_image())
    (tmp_path / "much.mjs").write_text(USE_MUCH_MEMORY)
    command = ["node", "much.mjs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = "kOutOfMemory: memory, or another resource of the machine, ran out\n7\n"
    assert done.stdout == told, done.stdout + done.stderr


@pytest.mark.slow
def test_32_bits_conform(tmp_path: Path) -> None:
    """tests/native/decode_main.cc of 32 bits under sanitizers."""
    include = "/usr/include/x86_64-linux-gnu"
    if not _can_compile("g++", "-m32", "-isystem", include, "-fsanitize=address,undefined"):
        pytest.skip("g++ -m32 is not installed with its libraries, as in g++-12-multilib")
    decoder = _make("build/i686/l3_decode_file")
    command = [sys.executable, "tools/conformance.py", str(_some_files(tmp_path))]
    command += ["--decoder", f"{decoder} {{input}} {{output}}", "--timeout", "600"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    _check_mutants(decoder, tmp_path)
    # Of 2^31 pixels sizes of outputs do not fit, and the last pixel is far away.
    file = tmp_path / "large.l3"
    file.write_bytes(_largest_image())
    assert l3dali.decode(file.read_bytes(), window=(46335, 46335, 1, 1)) == 7
    result = subprocess.run(
        [decoder, file, tmp_path / "x"], capture_output=True, text=True, check=False
    )
    assert result.returncode == OUTPUT_TOO_SMALL, result.stderr


def _some_files(folder: Path) -> Path:
    """An eighth of the conformance files: a sanitizer takes long to start."""
    manifest = json.loads((ROOT / "tests/conformance.json").read_text())
    manifest["files"] = manifest["files"][::8]
    for entry in manifest["files"]:
        (folder / entry["file"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / entry["file"], folder / entry["file"])
    (folder / "conformance.json").write_text(json.dumps(manifest))
    return folder


def _check_mutants(decoder: Path, folder: Path) -> None:
    """Golden files with a byte changed or cut short are treated as this process treats them."""
    file, output = folder / "mutant.l3", folder / "mutant"
    golden = sorted((ROOT / "tests/golden/v1").glob("*.l3"))
    numbers = random.Random(5)
    for _ in range(25):
        data = bytearray(numbers.choice(golden).read_bytes())
        at = numbers.randrange(len(data))
        if numbers.random() < 0.8:
            data[at] ^= 1 << numbers.randrange(8)
        else:
            del data[at:]
        file.write_bytes(data)
        done = subprocess.run([decoder, file, output], capture_output=True, text=True, check=False)
        found = done.returncode, b"" if done.returncode else output.read_bytes()
        try:
            expected = 0, l3dali.decode(data).tobytes()
        except l3dali.L3Error as error:
            expected = int(error.status), b""
        assert found == expected, done.stderr


def _largest_image() -> bytes:
    """The square of 46,336: a tile of one colour, again and again."""
    crc32c = pytest.importorskip("crc32c").crc32c
    tiles, side = 181, 256
    one = l3dali.encode(np.full((side, side), 7, np.uint8), coding="packed", tile=(side, side))
    payload = one[48:]
    header = bytearray(one[:28])
    struct.pack_into("<3I", header, 16, tiles * side, tiles * side, 0)
    index = np.arange(1, tiles**2 + 1, dtype="<u4") * (len(payload) // 16)
    parts = bytes(header), index.tobytes()
    head = b"".join(part + struct.pack("<I", crc32c(part)) for part in parts)
    return head + bytes(-len(head) % 16) + payload * tiles**2

"""Addresses and damaged files for the pages of `l3 view`.

    python tests/fuzz/fuzz_view.py requests --runs 2000 --seed 0
    python tests/fuzz/fuzz_view.py files --runs 2000

Whatever a page asks for, and whatever a file holds, the answer is an image, a number or an error,
in time and memory (`fuzz_readers.py`, whose driver this uses), and never bytes of what is no image.
`files` needs the library of the C++ mutator (`tests/engines/engines.py`).
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

FUZZ = Path(__file__).parent
sys.path[:0] = [str(FUZZ), *(str(FUZZ.parent / name) for name in ("cli", "engines", "format"))]

import fuzz_readers  # noqa: E402
from fuzz_readers import _mutate_bytes  # noqa: E402

if TYPE_CHECKING:
    from test_view import Client

STATUSES = (200, 202, 404, 405, 409, 422)
FOLDER = tempfile.TemporaryDirectory()  # removed by the parent


@functools.cache
def client() -> Client:
    """One for all cases of a process. It answers without threads, which cost more than answers."""
    import anyio.to_thread
    from test_view import Client

    async def call(answer: Callable[..., Any], *arguments: Any) -> Any:
        return answer(*arguments)

    anyio.to_thread.run_sync = call  # type: ignore[assignment]
    place = Path(FOLDER.name)
    made = place / str(os.getpid())
    made.mkdir()
    return Client(made, place / "named")


async def ask(requests: list[tuple[str, str]]) -> None:
    """Judges the answers to paths and queries."""
    from test_view import SECRET, TOKEN

    for path, query in requests:
        status, body = await client().answer(f"/{TOKEN}/{path}", query)
        assert status in STATUSES, (path, query, status)
        assert SECRET not in body, (path, query)
        assert b"root:" not in body, (path, query)
        assert status in (200, 202) or len(body) < 10_000, (path, query)


# Addresses.


def addresses() -> list[bytes]:
    """One a file, behind the token."""
    from test_view import make_folder

    make_folder(Path(FOLDER.name))
    lines = [f"{kind}/{image}" for kind in ("info", "thumbnail", "overview") for image in range(9)]
    lines += ["", "page.js", "page.css", "list", "list?start=2&count=5", "pixel/1/3/4?bands=0"]
    lines += [f"tile/{image}/0/0/1?bands=0,1,2" for image in range(9)]
    return [line.encode() for line in lines]


def change_addresses(data: bytes, rng: random.Random) -> bytes:
    """In words, which others take the place of, and in bytes."""
    from test_view import WORDS

    lines = data.decode().split("\n")
    at = rng.randrange(len(lines))
    line = lines[at]
    for _ in range(rng.randint(1, 4)):
        mark = rng.choice("/?&=,")
        words = line.split(mark)
        place = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                words.insert(place, rng.choice(WORDS))
            case 1:
                del words[place]
            case _:
                words[place] = rng.choice(WORDS)
        line = mark.join(words)
    lines[at] = line
    changed = "\n".join(lines).encode("utf-8", "surrogatepass")
    return _mutate_bytes(changed, rng) if rng.random() < 0.2 else changed


def check_addresses(data: bytes) -> None:
    """Asks for each line."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    asyncio.run(ask([line.partition("?")[::2] for line in lines]))


# Files.


def files() -> list[bytes]:
    """Small golden files, of all kinds."""
    named = Path(FOLDER.name, "named")
    named.mkdir()
    (named / "a.l3").touch()
    found = sorted((FUZZ.parent / "golden" / "v1").glob("*.l3"))
    return [data for path in found if len(data := path.read_bytes()) < 4000]


def change_file(data: bytes, rng: random.Random) -> bytes:
    """By the mutator that knows the format."""
    from engines import mutate_file

    return mutate_file(data, b"", rng.randrange(1, 2**32))


def check_file(data: bytes) -> None:
    """Looks at a file in one of the ways that a page has."""
    client()
    path = Path(FOLDER.name, "named", "a.l3")
    new = Path(FOLDER.name, f"{os.getpid()}.l3")
    new.write_bytes(data)
    new.replace(path)
    looks = ["info/0", "thumbnail/0", "tile/0/0/0/0", "tile/0/3/0/0", "pixel/0/0/0"]
    requests = [(look, bands) for look in looks for bands in ("", "bands=0")]
    requests.append(("tile/0/1/0/1", "bands=2,1,0"))
    asyncio.run(ask([requests[zlib.crc32(data) % len(requests)]]))


TARGETS = {
    "requests": (addresses, change_addresses, check_addresses),
    "files": (files, change_file, check_file),
}


if __name__ == "__main__":
    sys.exit(fuzz_readers.run_target(TARGETS, __doc__, ["l3dali.view.app"]))

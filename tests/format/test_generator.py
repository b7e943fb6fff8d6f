"""What the generator of tests/fuzz draws: every field of the format, and simple files first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import engines
import reference_decoder
from reference_decoder import CONSTANT, MATCH, PACKED, RANS, STORED

# Of so many files, three at least must have each feature.
SEEDS = 1000
FEATURES = [
    *[f"coding {coding}" for coding in (CONSTANT, STORED, PACKED, RANS, MATCH)],
    *[f"sample type {number}" for number in range(4)],
    *[f"{channels} channels" for channels in (1, 2, 3, 4, "5 to 8", "9 or more")],
    *[f"meaning {meaning}" for meaning in (0, 1)],
    *[f"tile {side} 2^{log2}" for side, least in [("width", 5), ("height", 3)]
      for log2 in [*range(least, 9), "9 or more"]],
    *[f"layout {layout}" for layout in range(4)],
    *[f"sets {sets}" for sets in range(4)],
    *[f"chunk {kind}" for kind in
      ("GRPS", "VTAB", "RANS", "MTCH", "icc", "exif", "plte", "xmp", "keyv")],
    "subtract green", "shift", "fewer used bits", "built-in model", "32 tables of a model",
    "a value table of 1", "a table of over 256", "numbers are values", "over 1000 colours",
    "match beside rans", "4 chunks", "32 lanes with a second row", "a value outside its table",
]  # fmt: skip


def features_of(data: bytes) -> Iterator[str]:
    """Those of a file, some more than once."""
    image = reference_decoder.parse(data)
    header, models = image.header, (image.rans_model, image.match_model)
    table, match = image.value_table, image.match_model
    c = header.channels
    yield f"{c if c <= 4 else '5 to 8' if c <= 8 else '9 or more'} channels"
    yield f"sample type {header.sample_type}"
    yield f"meaning {header.meaning}"
    for side, log2 in [("width", header.tile_width_log2), ("height", header.tile_height_log2)]:
        yield f"tile {side} 2^{log2 if log2 <= 8 else '9 or more'}"
    kinds = [kind.decode().strip() for kind, _ in image.chunks]
    yield from (f"chunk {kind}" for kind in kinds)
    codings = {payload[4] for payload in image.payloads}
    yield from (f"coding {coding}" for coding in codings)
    for i, payload in enumerate(image.payloads):
        n = len(image.groups[i % len(image.groups)])
        _, _, height, width = header.tile_area(i // len(image.groups))
        if payload[4] == PACKED:
            yield from (f"layout {payload[8 + 4 * channel]}" for channel in range(n))
        if payload[4] == RANS:
            yield from (f"sets {payload[8 + position]}" for position in range(n))
        if payload[4] >= RANS and reference_decoder.rans_lanes(width) == 32 < height:
            yield "32 lanes with a second row"
    tables = sum(len(model.frequency) for model in models if model is not None)
    colors = 0 if match is None or match.colors is None else len(match.colors)
    for feature, is_there in {
        "subtract green": any(payload[5] for payload in image.payloads),
        "shift": header.shift > 0,
        "fewer used bits": header.used_bits < header.sample_bits,
        "built-in model": "RANS" not in kinds and RANS in codings,
        "32 tables of a model": tables == 32,
        "a value table of 1": table is not None and len(table) == 1,
        "a table of over 256": table is not None and len(table) > 256,
        "numbers are values": match is not None and match.colors is None,
        "over 1000 colours": colors > 1000,
        "match beside rans": {RANS, MATCH} <= codings,
        "4 chunks": len(kinds) >= 4,
    }.items():
        if is_there:
            yield feature


def test_all_features_are_drawn() -> None:
    found: Counter[str] = Counter()
    for seed in range(SEEDS):
        made = engines.make_file(b"", seed + 1)
        found.update(set(features_of(made.data)))
        found["a value outside its table"] += made.outcome.status != "kOk"
    assert not [feature for feature in FEATURES if found[feature] < 3], found


def test_choices_that_end_make_the_rest_simple() -> None:
    """What hypothesis shrinks to: choices of 0 make one pixel, and fewer bytes a smaller file."""
    least = engines.make_file(b"", 0)
    assert engines.make_file(bytes(64), 0).data == least.data
    assert least.outcome.samples is not None
    assert least.outcome.samples.shape == (1, 1, 1)
    assert set(features_of(least.data)) >= {"1 channels", f"coding {CONSTANT}"}
    choices = random.Random(0).randbytes(4000)
    sizes = [len(engines.make_file(choices[:end], 0).data) for end in (0, 10, 4000)]
    assert sizes == sorted(sizes)

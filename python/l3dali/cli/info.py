"""The command `l3 info`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.inputs import find_l3_images
from l3dali.cli.parser import PLACES, new_command, path_or_url_argument
from l3dali.cli.summary import conclude
from l3dali.console import printable, ratio
from l3dali.datasets.convert.containers import FILES
from l3dali.datasets.convert.sources import Place

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands
    from l3dali.datasets.convert.images import Blob

_SHOWN_GROUPS = 12


def add_command(commands: Commands) -> None:
    """Adds `l3 info`."""
    new_command(
        commands,
        "info",
        _info,
        "Show the properties of L3 files.",
        """
        l3 info photo.l3
        l3 info train_l3/ --json | jq '.[] | select(.bit_depth == 16).path'
        l3 info shards-l3/a-000.tar
        """,
        PLACES,
        "--json   print a JSON list",
        paths={"type": path_or_url_argument},
    )


def _info(options: argparse.Namespace) -> int:
    inputs, found = find_l3_images(options)
    entries: list[str] = []
    failures = found.failures
    for name, each in inputs.items():
        is_file = not isinstance(each, Place) or each.kind == FILES

        def look(blob: Blob, name: str = name, is_file: bool = is_file) -> codec.Info:
            place = name if is_file else f"{name}: {blob.place}"
            info = codec.info(blob.data)
            if info.codings is None:
                end = len(blob.data)
                raise ValueError(f"the file ends after {end} of {info.encoded_bytes} bytes")
            if options.json:
                entries.append(json.dumps({"path": place} | _json_fields(info)))
            else:
                print(_info_text(place, info))
            return info

        failures += each.look(look)[1]
    if options.json:
        print("[\n" + ",\n".join(entries) + "\n]")
    return conclude(options, failures, found.lines(), {})


def _json_fields(info: codec.Info) -> dict[str, object]:
    fields = {**asdict(info), "shape": info.shape, "dtype": info.dtype.name}
    for name in ("icc", "exif", "palette", "xmp", "metadata_json"):
        fields[f"{name.removesuffix('_json')}_bytes"] = len(fields.pop(name) or b"")
    chunks = codec.chunks_of(info.other_chunks)
    fields["other_chunks"] = [{"type": kind, "bytes": size} for kind, size in chunks]
    volume = info.volume
    fields["volume"] = None if volume is None else volume.shape
    fields["metadata"] = None
    try:
        fields["metadata"] = info.metadata
    except ValueError as error:
        fields["metadata_error"] = str(error)
    return fields


def _metadata_text(info: codec.Info) -> list[str]:
    """A line for each key-value pair, cut where it is long."""
    try:
        pairs = dict(info.metadata or {})
    except ValueError as error:
        return [printable(f"  {error}")]
    lines = (f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in pairs.items())
    return [printable(line if len(line) <= 100 else f"{line[:97]}...") for line in lines]


def _info_text(path: str, info: codec.Info) -> str:
    kind = {"i": " signed", "f": " float"}.get(info.dtype.kind, "")
    bits = f"{info.bit_depth} bits{kind}, "
    if info.holding != "samples":
        bits += f"held by {info.holding}, "
    bits += (
        f"{info.value_count} distinct values, coded in {info.used_bits} bits"
        if info.value_count
        else f"{info.used_bits} used"
    )
    codings = ", ".join(f"{count} {name}" for name, count in (info.codings or {}).items() if count)
    kept = [f"{name} of {len(block)} bytes" for name, block in codec.kept_blocks(info).items()]
    others = codec.chunks_of(info.other_chunks)
    kept += [f"chunk {kind!r} of {size} bytes" for kind, size in others]
    bits_per_pixel = 8 * info.encoded_bytes / (info.width * info.height)
    tile = f"{info.tile_height} rows and {info.tile_width} columns"
    lines = [
        printable(path),
        f"  image  {info.width} x {info.height}, channels: {info.channels}, {bits}"
        + (", labels" if info.labels else ""),
        f"  tiles  {info.tile_count} of {tile}{codings and ': '}{codings}",
        f"  size   {info.encoded_bytes} bytes; raw {info.raw_bytes} bytes, ratio to "
        f"raw {ratio(info.encoded_bytes, info.raw_bytes)}, {bits_per_pixel:.2f} bits per pixel",
    ]
    if volume := info.volume:
        shape = " x ".join(map(str, volume.shape))
        lines.insert(1, f"  volume {shape} (z, y, x), one slice every {volume.rows} rows")
    if len(info.groups) > 1:
        some = "; ".join(" ".join(map(str, group)) for group in info.groups[:_SHOWN_GROUPS])
        dots = "; ..." * (len(info.groups) > _SHOWN_GROUPS)
        lines.insert(2, f"  groups {len(info.groups)} of channels: {some}{dots}")
    if (info.codings or {}).get("jpeg"):
        lines.append(
            "  jpeg   the JPEG file comes back byte for byte"
            if info.restores_jpeg
            else "  jpeg   only the picture comes back, not the bytes of the JPEG file"
        )
    if kept:
        lines.append(f"  kept   {', '.join(kept)}")
    return "\n".join(lines + _metadata_text(info))

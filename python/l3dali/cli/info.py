"""The command `l3 info`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.arguments import chunks_of
from l3dali.cli.arguments import new_file_command
from l3dali.cli.inputs import L3_SUFFIX, find_inputs, read_file
from l3dali.cli.loop import run
from l3dali.cli.report import Done, finish, json_list
from l3dali.console import printable, ratio
from l3dali.errors import UsageError
from l3dali.metadata import TIFF

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands

_SHOWN_GROUPS = 12
_MAX_NAMED = 20  # of the chunks of one file


def add_command(commands: Commands) -> None:
    """Adds `l3 info`."""
    command = new_file_command(
        commands,
        "info",
        _info,
        "Show what L3 files hold.",
        """
        l3 info photo.l3
        l3 info train_l3/ --json | jq '.[] | select(.bit_depth == 16).path'
        l3 info shards-l3 --totals                 sums over files and shards
        """,
        sets=True,
    )
    command.add_argument("--json", action="store_true", help="print a JSON list")
    command.add_argument(
        "--totals",
        action="store_true",
        help="print only sums of files, images, pixels, bytes",
    )


def _info(options: argparse.Namespace) -> int:
    from l3dali.cli import sets  # imports the libraries of data sets

    show = _json_entry if options.json else _info_text
    if options.totals and options.files_from is not None:
        raise UsageError("--totals cannot be combined with --files-from")
    if options.totals or sets.are_sets(options):
        return sets.info(options, show)
    found = find_inputs(options, {L3_SUFFIX})
    entries: list[str] = []

    def work(path: Path) -> Done:
        data = read_file(path, found.pipes)
        info = whole_info(data)
        shown = show(path, info)
        if options.json:
            entries.append(shown)
        else:
            print(shown)
        return Done(info.raw_bytes, len(data))

    report = run([file.path for file in found.files], work, one_by_one(options))
    if options.json:
        print(json_list(entries))
    return finish(report, found, options)


def one_by_one(options: argparse.Namespace) -> argparse.Namespace:
    """Options for `run` that keep the order and print nothing in between."""
    return argparse.Namespace(**(vars(options) | {"jobs": 1, "quiet": True}))


def whole_info(data: bytes | memoryview) -> codec.Info:
    """The info of a complete file."""
    info = codec.info(data)
    if info.codings is None:
        raise ValueError(f"the file ends after {len(data)} of {info.encoded_bytes} bytes")
    return info


def _json_entry(path: Path | str, info: codec.Info) -> str:
    return json.dumps({"path": str(path)} | _json_fields(info))


def _json_fields(info: codec.Info) -> dict[str, object]:
    fields = {**asdict(info), "shape": info.shape, "dtype": info.dtype.name}
    for name in ("icc", "exif", "palette", "xmp", "metadata_json"):
        fields[f"{name.removesuffix('_json')}_bytes"] = len(fields.pop(name) or b"")
    fields["other_chunks"], fields["more_chunks"] = _other_chunks(info)
    try:
        fields["metadata"] = info.metadata
    except ValueError as error:
        fields["metadata"] = None
        fields["metadata_error"] = str(error)
    return fields


def _other_chunks(info: codec.Info) -> tuple[list[dict[str, object]], int]:
    """The first chunks of other types, and how many more there are."""
    chunks = chunks_of(info.other_chunks)
    named: list[dict[str, object]] = [
        {"type": kind.decode(), "bytes": len(data)} for kind, data in islice(chunks, _MAX_NAMED)
    ]
    return named, sum(1 for _ in chunks)


def _metadata_text(info: codec.Info) -> list[str]:
    """A line for each key-value pair, cut where it is long."""
    try:
        pairs = dict(info.metadata or {})
    except ValueError as error:
        return [printable(f"  {error}")]
    if isinstance(pairs.get(TIFF), dict):
        named = {f"TIFF tag {code}": entry for code, entry in pairs.pop(TIFF).items()}
        pairs |= {
            name: entry.get("value", entry) if isinstance(entry, dict) else entry
            for name, entry in named.items()
        }
    lines = (f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in pairs.items())
    return [printable(line if len(line) <= 100 else f"{line[:97]}...") for line in lines]


def _info_text(path: Path | str, info: codec.Info) -> str:
    signed = " signed" if info.dtype.kind == "i" else ""
    bits = f"{info.bit_depth} bits{signed}, "
    bits += (
        f"{info.value_count} distinct values, coded in {info.used_bits} bits"
        if info.value_count
        else f"{info.used_bits} used"
    )
    codings = ", ".join(f"{count} {name}" for name, count in (info.codings or {}).items() if count)
    chunks = {
        "ICC": info.icc,
        "EXIF": info.exif,
        "palette": info.palette,
        "XMP": info.xmp,
        "metadata": info.metadata_json,
    }
    kept = [f"{name} of {len(data)} bytes" for name, data in chunks.items() if data is not None]
    others, more = _other_chunks(info)
    kept += [f"chunk {each['type']!r} of {each['bytes']} bytes" for each in others]
    if more:
        kept.append(f"{more} more chunks")
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
    if len(info.groups) > 1:
        lines.insert(2, f"  groups {len(info.groups)} of channels: {_groups_text(info.groups)}")
    if kept:
        lines.append(f"  kept   {', '.join(kept)}")
    return "\n".join(lines + _metadata_text(info))


def _groups_text(groups: tuple[tuple[int, ...], ...]) -> str:
    """The first groups, and dots if there are more."""
    some = "; ".join(" ".join(map(str, group)) for group in groups[:_SHOWN_GROUPS])
    return some if len(groups) <= _SHOWN_GROUPS else f"{some}; ..."

"""What a run came to: sums, a table for the terminal, a page with bars."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from l3dali import __version__
from l3dali.console import megabytes, print_table, printable, ratio, speed
from l3dali.datasets.convert.images import SOURCE
from l3dali.datasets.convert.manifest import DONE, FAILED, Row
from l3dali.datasets.convert.pipeline import FormatTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

_LISTED_FAILURES = 1000  # on the page; the manifest has all of them


@dataclass
class Summary:
    """Sums over the rows of a data set.

    Attributes:
        converted: rows of this run.
        kept: rows that were done before.
        formats: sums over the images of all rows.
        copied: files without images, or their bytes in shards' stead.
        stored: images by the format that they are stored in.
        failures: images and files that failed: where, and why.
        dropped: images that were left out.
        seconds: of this run.
        raw_bytes: pixels of this run.
    """

    converted: int = 0
    kept: int = 0
    formats: dict[str, FormatTotals] = field(default_factory=dict)
    copied: int = 0
    stored: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    raw_bytes: int = 0

    @property
    def all_formats(self) -> FormatTotals:
        """The sum over all images."""
        total = FormatTotals()
        for one in self.formats.values():
            _add(total, one)
        return total


def summarize(new: Iterable[Row], kept: Iterable[Row], seconds: float) -> Summary:
    """Sums over the rows of a run, and those that were done before."""
    summary = Summary(seconds=seconds)
    for rows, is_new in ((new, True), (kept, False)):
        for row in rows:
            if row.status != FAILED:
                if is_new:
                    summary.converted += 1
                    summary.raw_bytes += sum(one.raw_bytes for one in row.formats.values())
                else:
                    summary.kept += 1
                summary.copied += row.status == DONE and row.kind == "other"
                for name, count in row.stored.items():
                    summary.stored[name] = summary.stored.get(name, 0) + count
                for name, one in row.formats.items():
                    _add(summary.formats.setdefault(name, FormatTotals()), one)
            if row.reason:
                summary.failures.append((row.source, row.reason))
            else:
                summary.failures += [
                    (place if place == row.source else f"{row.source}: {place}", reason)
                    for place, reason in row.failures
                ]
    return summary


def _add(total: FormatTotals, one: FormatTotals) -> None:
    total.images += one.images
    total.source_bytes += one.source_bytes
    total.result_bytes += one.result_bytes
    total.raw_bytes += one.raw_bytes
    total.expanded += one.expanded


def print_summary(summary: Summary, file: TextIO) -> None:
    """Prints a line for each format of images, and their sum."""
    rows = [_cells(name, one) for name, one in sorted(summary.formats.items())]
    if len(rows) != 1:
        rows.append(_cells("all", summary.all_formats))
    print_table(_HEADERS, *rows, file=file)
    done = summary.converted + summary.kept
    parts = [f"{done} shards and files done, {summary.converted} of them in this run"]
    if len(summary.stored) > 1 or SOURCE in summary.stored:
        parts.append(f"images by format: {stored_text(summary.stored)}")
    if summary.copied:
        parts.append(f"{summary.copied} copied as they are")
    if summary.raw_bytes:
        pixels = speed(summary.raw_bytes, summary.seconds)
        parts.append(f"{summary.seconds:.1f} s, {pixels} MB of pixels a second")
    print("; ".join(parts), file=file)


def to_json(summary: Summary, links: int, code: int) -> dict[str, Any]:
    """What `--json-summary` writes, in the words of the other commands.

    Args:
        summary: the sums.
        links: links to folders, which were not followed.
        code: the exit code.
    """
    total = summary.all_formats
    return {
        "version": __version__,
        "exit_code": code,
        "done": summary.converted,
        "kept": summary.kept,
        "failed": len(summary.failures),
        "links_not_followed": links,
        "images": total.images,
        "raw_bytes": total.raw_bytes,
        "read_bytes": total.source_bytes,
        "written_bytes": total.result_bytes,
        "seconds": round(summary.seconds, 3),
        "palettes_expanded": total.expanded,
        "formats": {name: asdict(one) for name, one in sorted(summary.formats.items())},
        "failures": [{"path": place, "reason": reason} for place, reason in summary.failures],
    }


def stored_text(stored: Mapping[str, int]) -> str:
    """How many images are stored in each format, most first."""
    ordered = sorted(stored.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {name}" for name, count in ordered)


_HEADERS = ("source", "images", "pixels", "before", "after", "before / after")


def _cells(name: str, one: FormatTotals) -> list[str]:
    return [
        name,
        str(one.images),
        megabytes(one.raw_bytes),
        megabytes(one.source_bytes),
        megabytes(one.result_bytes),
        ratio(one.source_bytes, one.result_bytes),
    ]


def make_page(summary: Summary, title: str, to: str) -> str:
    """A page with the table, bars of the sizes, the speed and the failures."""
    rows = [_cells(name, one) for name, one in sorted(summary.formats.items())]
    rows.append(_cells("all", summary.all_formats))
    head = "".join(f"<th>{html.escape(header)}</th>" for header in _HEADERS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    failures = "".join(
        f"<li>{html.escape(printable(place))}: {html.escape(printable(reason))}</li>\n"
        for place, reason in summary.failures[:_LISTED_FAILURES]
    )
    more = len(summary.failures) - _LISTED_FAILURES
    pixels = speed(summary.raw_bytes, summary.seconds)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{html.escape(printable(title))}</title>
<style>
body {{ font-family: sans-serif; margin: 2em; max-width: 60em; }}
td, th {{ text-align: right; padding: 0.2em 0.8em; }}
td:first-child, th:first-child {{ text-align: left; }}
</style>
</head>
<body>
<h1>{html.escape(printable(title))}</h1>
<p>{summary.converted} shards and files converted in this run, {summary.kept} before;
{summary.copied} of all copied as they are; {len(summary.failures)} failures.
This run took {summary.seconds:.1f} s: {pixels} MB of pixels a second.</p>
{_bars(summary.formats, to)}
<table>
<tr>{head}</tr>
{body}</table>
{f"<h2>Failures</h2><ul>{failures}</ul>" if failures else ""}
{f"<p>and {more} more, in the manifest</p>" if more > 0 else ""}
</body>
</html>
"""


_WIDTH, _BAR, _GAP, _LABELS = 640, 18, 14, 90


def _bars(formats: Mapping[str, FormatTotals], to: str) -> str:
    """Bytes before and after, by format, as bars."""
    if not formats:
        return ""
    largest = max(max(one.source_bytes, one.result_bytes) for one in formats.values())
    lines = []
    y = 0
    for name, one in sorted(formats.items()):
        for label, size, color in (
            (name, one.source_bytes, "#999"),
            (to.upper(), one.result_bytes, "#47a"),
        ):
            width = max(1, round((_WIDTH - 2 * _LABELS) * size / max(1, largest)))
            text = y + _BAR - 5
            lines.append(
                f'<text x="0" y="{text}">{html.escape(label)}</text>'
                f'<rect x="{_LABELS}" y="{y}" width="{width}" height="{_BAR}" fill="{color}"/>'
                f'<text x="{_LABELS + width + 6}" y="{text}">{megabytes(size)}</text>'
            )
            y += _BAR + 2
        y += _GAP
    return (
        f'<svg width="{_WIDTH}" height="{y}" font-size="13" role="img" '
        f'aria-label="bytes before and after">\n' + "\n".join(lines) + "\n</svg>"
    )

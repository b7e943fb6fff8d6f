"""The summary of a run: sums over rows of the manifest, in words and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from l3dali.console import Failure, counted, megabytes, ratio, speed
from l3dali.datasets.convert.choosing import SOURCE
from l3dali.datasets.convert.manifest import DONE, DROPPED, FAILED, Row
from l3dali.datasets.convert.pipeline import FormatTotals, sum_totals
from l3dali.datasets.convert.reader import OTHER, SHARDS, WEBDATASET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HEADERS = ("format", "images", "pixels", "source", "result", "ratio")


@dataclass
class Summary:
    """Sums over the rows of a data set."""

    converted: int = 0  # rows of this run
    kept: int = 0  # rows that were done before
    shards: int = 0  # of both, those of shards
    failed: Counter[str] = field(default_factory=Counter)  # images by `keep` or `drop`
    formats: dict[str, FormatTotals] = field(default_factory=dict)  # by format of the source
    copied: int = 0  # files without images, or their bytes in shards' stead
    others: Counter[str] = field(default_factory=Counter)  # the suffixes of these
    imageless: list[str] = field(default_factory=list)  # shards without images
    unindexed: int = 0  # WebDataset shards without an index for DALI
    labels: Counter[str] = field(default_factory=Counter)  # images by the `--labels` that name them
    label_kinds: Counter[str] = field(default_factory=Counter)  # label maps by kind
    remarks: Counter[str] = field(default_factory=Counter)  # images by `Picture.remarks`
    stored: Counter[str] = field(default_factory=Counter)  # images by format
    failures: list[Failure] = field(default_factory=list)  # images and files that failed
    seconds: float = 0.0  # of this run
    raw_bytes: int = 0  # pixels of this run

    @property
    def total(self) -> FormatTotals:
        """The sum over all images."""
        return sum_totals(self.formats.values())

    @property
    def done_text(self) -> str:
        """The number of shards and files that are done, in words."""
        return count_text(self.shards, self.converted + self.kept - self.shards)

    def table(self) -> list[list[str]]:
        """Cells below `HEADERS`: a row for each format of the sources, and their sum."""
        named = sorted(self.formats.items())
        if len(named) != 1:
            named.append(("all", self.total))
        return [
            [
                name,
                str(one.images),
                megabytes(one.raw_bytes) if one.raw_bytes else "-",  # Not all are decoded.
                megabytes(one.source_bytes),
                megabytes(one.result_bytes),
                ratio(one.result_bytes, one.source_bytes),
            ]
            for name, one in named
        ]

    def __str__(self) -> str:
        """One line for people."""
        parts = [f"{self.done_text} done, {self.converted} of them in this run"]
        if len(self.stored) > 1 or SOURCE in self.stored:
            parts.append(f"images by format: {stored_text(self.stored)}")
        if self.label_kinds:
            parts.append(f"--labels marked {stored_text(self.label_kinds)}")
        if self.copied:
            parts.append(f"{self.copied} copied unchanged")
        for handling, count in sorted(self.failed.items()):
            action = "copied to DEST unconverted" if handling == "keep" else "left out"
            parts.append(f"{count} failed, {action} (--on-error {handling})")
        if self.raw_bytes:
            pixels = speed(self.raw_bytes, self.seconds)
            parts.append(f"{self.seconds:.1f} s, {pixels} MB of pixels a second")
        return "; ".join(parts)

    def fields(self) -> dict[str, Any]:
        """The fields of `--json-summary`, named as in the other commands."""
        total = self.total
        return {
            "done": self.converted,
            "kept": self.kept,
            "images": total.images,
            "raw_bytes": total.raw_bytes,
            "read_bytes": total.source_bytes,
            "written_bytes": total.result_bytes,
            "seconds": round(self.seconds, 3),
            "palettes_expanded": total.expanded,
            "formats": {name: asdict(one) for name, one in sorted(self.formats.items())},
        }


def summarize(new: Iterable[Row], kept: Iterable[Row], seconds: float) -> Summary:
    """Sums over the rows of a run, and over rows of earlier runs."""
    summary = Summary(seconds=seconds)
    for rows, is_new in ((new, True), (kept, False)):
        for row in rows:
            if row.reason:
                summary.failures.append(Failure(row.source, row.reason))
            else:
                summary.failures += [
                    Failure(row.source if row.kind == "image" else f"{row.source}: {place}", reason)
                    for place, reason in row.failures
                ]
            summary.labels.update(row.labels)
            if row.status == FAILED:
                continue
            if row.kind == "image" and row.failures:
                summary.failed["drop" if row.status == DROPPED else "keep"] += 1
            else:
                summary.converted += is_new
                summary.kept += not is_new
                summary.shards += row.kind in SHARDS
            if is_new:
                summary.raw_bytes += sum_totals(row.formats.values()).raw_bytes
            if row.status == DONE and row.kind == OTHER:
                summary.copied += 1
                summary.others[PurePosixPath(row.source).suffix.lower()] += 1
            if row.kind in SHARDS and not row.stored and not row.failures:
                summary.imageless.append(row.source)
            is_tar = row.kind == WEBDATASET and row.status == DONE
            summary.unindexed += is_tar and row.index is None
            summary.stored.update(row.stored)
            summary.label_kinds.update(row.label_kinds)
            summary.remarks.update(row.remarks)
            for name, one in row.formats.items():
                summary.formats.setdefault(name, FormatTotals()).add(one)
    return summary


def count_text(shards: int, files: int) -> str:
    """The numbers of shards and files that are not 0."""
    several = ((shards, "shard"), (files, "file"))
    texts = [counted(count, name) for count, name in several if count]
    return " and ".join(texts) or "0 files"


def stored_text(stored: Mapping[str, int]) -> str:
    """The number of images in each format, largest first."""
    ordered = sorted(stored.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)

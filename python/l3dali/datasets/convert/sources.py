"""Finds the files that the arguments of a command name."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.console import Failure, without_password
from l3dali.datasets.convert.reader import is_shard_name
from l3dali.datasets.convert.storage import Stored, is_remote, open_folder, split_url
from l3dali.errors import UsageError, needs
from l3dali.signatures import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable

_WITH_QUERY = re.compile(r"https?://[^?#]*[?#]")
_LOOKUPS = 32  # at a time, of files in buckets


@dataclass
class Sources:
    """The files and folders that the arguments of a command name."""

    folders: dict[str, dict[str, Stored]] = field(default_factory=dict)  # by folder and name
    failures: list[Failure] = field(default_factory=list)  # what cannot be listed
    links: list[tuple[str, str]] = field(default_factory=list)  # links to folders
    linked: list[str] = field(default_factory=list)  # targets of links to files, which are followed
    whole: set[str] = field(default_factory=set)  # the folders that were named themselves

    @property
    def are_whole(self) -> bool:
        """Whether folders were named, and no files one by one."""
        return self.whole >= self.folders.keys()

    def root_of(self, url: str) -> tuple[str, str]:
        """The folder that names of sources start at, and their prefix there.

        If several folders were named, the prefix is the folder's own name, as in `l3 encode`.

        Raises:
            UsageError: there are several, and this one has no name, as the root of a bucket.
        """
        if len(self.whole) < 2 or url not in self.whole:
            return url, ""
        path = url.removeprefix("file://")
        if not is_remote(url):  # a link that is named keeps its name
            path = os.path.realpath(path) if ".." in path.split("/") else os.path.abspath(path)  # noqa: PTH100
        parent, name = split_url(path.rstrip("/"))
        if not name or parent.endswith(":/"):
            raise UsageError(f"{url} has no name for a folder of results; convert it alone")
        return parent, f"{name}/"


def find_sources(arguments: Iterable[str]) -> Sources:
    """Finds the files of folders, and files named one by one or by braces (`a-{000..146}.tar`).

    Raises:
        UsageError: an argument names nothing.
    """
    sources = Sources()
    for argument in arguments:
        if _WITH_QUERY.search(argument):
            raise UsageError(f"{argument}: URLs with ? or # are not supported; download the file")
        names = _expanded(argument)
        pool = ThreadPoolExecutor(_LOOKUPS if len(names) > 1 else 1)
        try:
            found = list(pool.map(_find_file if len(names) == 1 else _find_one_of_many, names))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a server may never answer
        for name, file in zip(names, found, strict=True):
            if isinstance(file, Failure):
                sources.failures.append(file)
            elif file is not None:
                sources.folders.setdefault(split_url(name)[0], {})[file.name] = file
                if (link := Path(name.removeprefix("file://"))).is_symlink():
                    sources.linked.append(os.path.realpath(link))
            else:
                _add_folder(sources, name, is_one=len(names) == 1)
    return sources


def _add_folder(sources: Sources, name: str, *, is_one: bool) -> None:
    listing = open_folder(name).list_files()
    if not listing.files and not listing.failures and not _is_folder(name):
        if not is_one:
            sources.failures.append(Failure(without_password(name), "no such file"))
            if not is_shard_name(name) and Path(name).suffix.lower() not in IMAGE_SUFFIXES:
                sources.folders.setdefault(name, {})  # Other names must not change.
                sources.whole.add(name)
            return
        advice = "; the shell expands *: leave out the quotes" if "*" in name else ""
        if name.startswith(("http://", "https://")):
            advice = "; folders on web servers cannot be listed: name their files"
        raise UsageError(f"{name}: no such file or folder{advice}")
    name = name.rstrip("/") or name
    sources.folders.setdefault(name, {}).update(listing.files)
    if name not in sources.whole:  # else it was named twice
        sources.whole.add(name)
        sources.failures += [Failure(*each) for each in listing.failures]
        sources.links += [(name, link) for link in listing.links]
        sources.linked += listing.linked


def _expanded(argument: str) -> list[str]:
    # Path.exists raises where the braces are longer than a name may be.
    if "{" not in argument or (not is_remote(argument) and os.path.exists(argument)):  # noqa: PTH110
        return [argument]
    try:
        from braceexpand import braceexpand
    except ImportError:
        raise needs("braceexpand", argument) from None
    try:
        return list(braceexpand(argument))
    except ValueError as error:
        raise UsageError(f"{argument}: {error}") from None


def _find_file(url: str) -> Stored | None:
    folder, name = split_url(url)
    if not name or folder.endswith(":/") or _is_folder(url):
        return None
    return open_folder(folder).stat(name)


def _find_one_of_many(url: str) -> Stored | Failure | None:
    try:
        return _find_file(url)
    except (OSError, UsageError) as error:
        reason = getattr(error, "strerror", None) or without_password(str(error))
        return Failure(without_password(url), reason)


def _is_folder(url: str) -> bool:
    return not is_remote(url) and Path(url.removeprefix("file://")).is_dir()


def place_of(url: str) -> str:
    return open_folder(url).real_place()

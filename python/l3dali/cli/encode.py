"""The command `l3 encode`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali.cli.parser import (
    CODING,
    FILES,
    IMAGES,
    JOBS,
    OUTPUT,
    REPORT,
    image_options,
    new_command,
)
from l3dali.cli.single_files import make_files
from l3dali.datasets.convert.images import Options

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 encode`."""
    new_command(
        commands,
        "encode",
        _encode,
        "Encode image files. For folders and shards: l3 convert.",
        """
        l3 encode photo.png                        photo.l3 beside it
        l3 encode *.png -o l3/ --verify            each result compared
        l3 encode photo.png -o small.l3 --max-side 256
        find . -name '*.png' -print0 | l3 encode --files-from - -o l3/
        curl -s https://example.org/a.png | l3 encode - -o a.l3
        """,
        *(FILES, OUTPUT, JOBS, REPORT, CODING),
        """
        --verify   decode and compare before writing
        --labels   mark all images as label maps, with --palette index; --no-labels lets --max-side
                   shrink images that look like label maps
        """,
        IMAGES,
        labels={"action": argparse.BooleanOptionalAction},
    )


def _encode(options: argparse.Namespace) -> int:
    how = Options(
        coding=options.coding,
        effort=options.effort,
        labels=("*",) if options.labels else (),
        verify=options.verify,
        keep_text=options.preserve,
        refuse_labels=options.labels is None,
        on_error="fail",
        all_images=True,
        keep_suffix=False,
        **image_options(options),
    )
    return make_files(options, how, lambda _: ".l3")

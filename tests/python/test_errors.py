"""L3Error keeps its status on every way that errors travel."""

from __future__ import annotations

import pickle
import re
import traceback
from pathlib import Path

import numpy as np
import pytest

import l3dali
import l3dali.errors
from l3dali import Status

ENCODED = l3dali.encode(np.arange(2000, dtype=np.uint16).reshape(40, 50))
DAMAGED = ENCODED[:-20] + bytes([ENCODED[-20] ^ 1]) + ENCODED[-19:]


def raised(data: bytes = DAMAGED) -> l3dali.L3Error:
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.decode(data)
    return caught.value


REASONS = [status for status in Status if status is not Status.OK]


def test_it_is_a_value_error_with_a_status() -> None:
    error = raised()
    assert isinstance(error, ValueError)
    assert isinstance(error, l3dali.L3Error)
    assert error.status is Status.CHECKSUM_MISMATCH
    assert str(error) == "tile 0 of 1: a checksum differs: the data is damaged"
    assert type(error) is vars(l3dali.errors)["ChecksumMismatchError"]
    assert f"{l3dali.L3Error.__module__}.{l3dali.L3Error.__qualname__}" == "l3dali.L3Error"


def test_numbers_are_those_of_the_format() -> None:
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| `k(\w+)` \|", text, re.MULTILINE)
    assert [(status.value, status.name.title().replace("_", "")) for status in Status] == [
        (int(number), name) for number, name in rows
    ]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("status", REASONS)
def test_pickle(status: Status, protocol: int) -> None:
    error = l3dali.L3Error("odd", status, 5)
    error.__dict__["sample"] = 7
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert (str(again), again.status, again.args) == ("odd", status, ("odd",))
    assert again.__dict__ == error.__dict__ == {"index": 5, "sample": 7}


def as_torch_does(error: Exception) -> Exception:
    """What `torch._utils.ExceptionWrapper` makes of an error of a worker: text, and its type."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = f"Caught {type(error).__name__} in DataLoader worker process 0.\nOriginal {text}"
    assert getattr(type(error), "message", None) is None  # else it would pass `message=`
    return type(error)(message)


@pytest.mark.parametrize("status", REASONS)
def test_made_anew_from_its_text(status: Status) -> None:
    try:
        raise l3dali.L3Error("in a tile, not TRUNCATED or (kCorruptHeader)", status)
    except l3dali.L3Error as error:
        again = as_torch_does(error)
    assert isinstance(again, l3dali.L3Error)
    assert again.status is status
    assert again.index is None


def test_a_message_without_a_status() -> None:
    assert l3dali.L3Error("no reason").status is Status.INVALID_ARGUMENT
    assert l3dali.L3Error().status is Status.INVALID_ARGUMENT


def test_imread_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "da\nmaged.l3"
    path.write_bytes(DAMAGED)
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.imread(path)
    assert caught.value.status is Status.CHECKSUM_MISMATCH
    assert str(caught.value).startswith(str(path).replace("\n", r"\n") + ": tile 0 of 1: ")
    with (
        path.open("rb") as file,
        pytest.raises(l3dali.L3Error, match=r"maged\.l3: tile 0") as caught,
    ):
        l3dali.imread(file)
    assert caught.value.status is Status.CHECKSUM_MISMATCH

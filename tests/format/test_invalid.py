"""Streams that break a rule get the Status that format.md names; damage never goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import reference_decoder
from engines import decode_with_all
from reference_decoder import STATUS_NAMES
from stream_builder import repair

TESTS = Path(__file__).parents[1]
INVALID = sorted((TESTS / "invalid").glob("*.l3"))
DAMAGED = [
    *("v1/chunks", "v1/value_table_2_of_16_bits", "v1/size_31x7", "v1/rans_size_4x4"),
    *("v1/rans_one_token", "v2/jpeg_gray_8x8"),
]


def test_every_status_of_a_stream_has_a_file() -> None:
    assert {path.name.split("__")[0] for path in INVALID} == set(STATUS_NAMES[1:8])


def test_the_name_is_the_assertion() -> None:
    for path in INVALID:
        assert decode_with_all(path.read_bytes()).status == path.name.split("__")[0], path.name


def truncations(data: bytes) -> Iterator[bytes]:
    """Every shorter file."""
    for end in range(len(data)):
        yield data[:end]


def bit_flips_before_payloads(data: bytes) -> Iterator[bytes]:
    """Every bit of header, chunks, index, CRCs and padding, flipped."""
    payload_bytes = sum(len(payload) for payload in reference_decoder.parse(data).payloads)
    for bit in range(8 * (len(data) - payload_bytes)):
        yield _xor(data, bit // 8, 1 << bit % 8)


def byte_flips(data: bytes) -> Iterator[bytes]:
    """Every third byte, inverted."""
    for place in range(0, len(data), 3):
        yield _xor(data, place, 0xFF)


def repaired_byte_flips(data: bytes) -> Iterator[bytes]:
    """Every third byte changed, much or little in turn, with checksums that hide it."""
    for place in range(0, len(data), 3):
        yield repair(_xor(data, place, 1 if place % 2 else 0xFF))


def _xor(data: bytes, place: int, mask: int) -> bytes:
    return data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]


Damage = Callable[[bytes], Iterator[bytes]]


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("damage", [truncations, bit_flips_before_payloads, byte_flips])
def test_damage_is_noticed(damage: Damage, name: str) -> None:
    for data in damage((TESTS / f"golden/{name}.l3").read_bytes()):
        assert decode_with_all(data).status != "kOk"


@pytest.mark.parametrize("name", DAMAGED)
def test_engines_agree_where_checksums_hide_damage(name: str) -> None:
    for data in repaired_byte_flips((TESTS / f"golden/{name}.l3").read_bytes()):
        decode_with_all(data)

"""The rules of docs/format.md, and which files of tests/golden and tests/invalid show each.

`rules_of` cuts the document into rules: every clause of a validity rule (**V**), and every other
paragraph, row of a table, item of a list and formula of its sections 2 to 6. `RULES` says which
files show a rule, or why none does. A change of the document changes this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

_SECTION = re.compile(r"^#{2,3} (?:(\d+(?:\.\d+)?)\.? |Appendix ([AB]))", re.MULTILINE)
# Not 4.5, what restores a JPEG file: no decoder of pixels reads it.
_NORMATIVE = re.compile(r"(?!4\.5)[2-6](\.\d)?|[AB]")
_HEADING = re.compile(r"^#.*\n", re.MULTILINE)
_ITEM = re.compile(r"^ {0,3}(?:\d+\.|\*) ", re.MULTILINE)
_VALIDITY = re.compile(r"\*\*V\*\* `(k\w+)`: ")
_ASIDE = re.compile(r" ?\([^()]*;[^()]*\)")
_BARE = re.compile(r"\d+\.")


@dataclass(frozen=True)
class Rule:
    """A rule as docs/format.md words it.

    Attributes:
        section: its number.
        status: what a stream that breaks it gets; "" for a rule that is none of validity.
        text: on one line.
    """

    section: str
    status: str
    text: str

    def __str__(self) -> str:
        return f"{self.section}: {self.status + ': ' if self.status else ''}{self.text}"


def rules_of(document: str) -> list[Rule]:
    """All rules, in the order of the document."""
    parts = _SECTION.split(document)
    rules = []
    for number, letter, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        section = number or letter
        if _NORMATIVE.fullmatch(section):
            _, _, body = text.partition("\n")
            for block in _HEADING.sub("\n", body).split("\n\n"):
                rules += [rule for part in _parts(block) for rule in _clauses(section, part)]
    return rules


def shown_by(name: str) -> list[str]:
    """The rules that a file of this name shows: their sections, and parts of their texts."""
    return [
        f"{section}: {part}"
        for section, parts in FILES.items()
        for part, files in parts.items()
        if isinstance(files, str) and any(fnmatchcase(name, each) for each in files.split())
    ]


def _parts(block: str) -> list[str]:
    """The rows of a table, the items of a list, or a whole paragraph."""
    if block.strip().startswith("|"):
        return block.strip().splitlines()[2:]
    starts = [match.start() for match in _ITEM.finditer(block)]
    places = [0, *starts, len(block)]
    return [block[begin:end] for begin, end in pairwise(places)]


def _clauses(section: str, text: str) -> list[Rule]:
    first, *rest = _VALIDITY.split(" ".join(text.split()))
    first = first.strip()
    rules = [Rule(section, "", first)] if first and not _BARE.fullmatch(first) else []
    for status, clauses in zip(rest[::2], rest[1::2], strict=True):
        rules += [
            Rule(section, status, clause.strip().rstrip("."))
            for clause in _ASIDE.sub("", clauses).split("; ")
        ]
    return rules


@dataclass(frozen=True)
class NoFile:
    """Why no file shows a rule."""

    reason: str


INTERFACES = NoFile("is said by interfaces, of no stream")
LEADS = NoFile("leads over to the rules behind it")
PEOPLE = NoFile("is for people and writers; no decoder checks it")
EXPLAINS = NoFile("follows from other rules")

# By section: a part of a rule's text that no other rule there has, and patterns of the names of
# files that show it. A rule of validity needs an invalid file of its status.
FILES: dict[str, dict[str, str | NoFile]] = {
    "2": {
        "| header | 32 |": "stored kTruncated__ends_in_header",
        "| chunks | `chunks_bytes` |": "chunks kTruncated__ends_in_chunks",
        "| tile index |": "size_33x9 kTruncated__ends_in_index",
        "| index CRC | 4 |": "stored kTruncated__ends_in_index_crc",
        "| zero padding": "stored kTruncated__*_padding*",
        "| tile payloads |": "stored kTruncated__*_payloads kTruncated__index_beyond_file",
        "the file ends before one of": "kTruncated__ends_in_* kTruncated__ends_before_payloads",
        "a padding byte is not zero": "kCorruptHeader__padding_not_zero",
        "bytes follow the last payload": "kCorruptHeader__bytes_after_last_payload",
        "`kOk`": "stored",
        "`kTruncated`": "kTruncated__empty_file",
        "`kBadMagic`": "kBadMagic__text_mode_transfer",
        "`kUnsupportedVersion`": "kUnsupportedVersion__3",
        "`kUnsupportedFeature`": "kUnsupportedFeature__required_chunk",
        "`kCorruptHeader`": "kCorruptHeader__channels_0",
        "`kCorruptTile`": "kCorruptTile__layout_4",
        "`kChecksumMismatch`": "kChecksumMismatch__tile",
        "`kOutputTooSmall`": INTERFACES,
        "`kInvalidArgument`": INTERFACES,
        "These numbers are final": PEOPLE,
    },
    "3": {
        "| signature |": "stored kBadMagic__*",
        "`version` | 1;": "stored jpeg_* kUnsupportedVersion__*",
        "`channels` |": "stored channels_* groups_4096_channels kCorruptHeader__channels_*",
        "`sample_type` | 0 u8": (
            "bits_* int8_* int16_* kCorruptHeader__sample_type_* kCorruptHeader__of_a_file_*"
        ),
        "`used_bits` |": "bits_* rans_bits_* kCorruptHeader__used_bits_*",
        "`shift` | 0 to": "bits_3_of_8_* bits_1_of_16_* kCorruptHeader__shift_too_large",
        "| `tile_log2` |": "tile_* kCorruptHeader__tile_width_* kCorruptHeader__tile_height_*",
        "`meaning` | 0 colour": "stored labels_palette kCorruptHeader__meaning_2",
        "| 16 | u32 | `width` |": "size_* kCorruptHeader__width_0",
        "| 20 | u32 | `height` |": (
            "size_* kCorruptHeader__height_0 kCorruptHeader__pixels_above_2_to_the_31"
        ),
        "`chunks_bytes` |": "chunks kCorruptHeader__chunks_bytes_*",
        "`header_crc` | CRC-32C": "stored kChecksumMismatch__header_crc",
        "`sample_bits` is 8 where": "bits_* int8_* int16_*",
        "CRC-32C is the Castagnoli": "stored kChecksumMismatch__header_crc",
        "Channels mean": "channels_* groups labels_palette",
        "The stages, in order": LEADS,
        "fewer than 8 bytes": "kTruncated__empty_file kTruncated__ends_in_signature",
        "a byte of the signature differs": "kBadMagic__*",
        "fewer than 32 bytes": "kTruncated__ends_in_header",
        "`version` is neither 1": "kUnsupportedVersion__*",
        "`header_crc` differs": (
            "kChecksumMismatch__header_crc kChecksumMismatch__before_header_fields"
        ),
        "a field outside its valid values": (
            "kCorruptHeader__channels_* kCorruptHeader__sample_type_* kCorruptHeader__used_bits_* "
            "kCorruptHeader__shift_* kCorruptHeader__tile_* kCorruptHeader__meaning_2 "
            "kCorruptHeader__width_0 kCorruptHeader__height_0 kCorruptHeader__pixels_* "
            "kCorruptHeader__chunks_bytes_*"
        ),
    },
    "4": {
        "The chunk area is a run": "chunks",
        "`type`: four characters": "chunks kCorruptHeader__chunk_type_*",
        "`length` in bytes, without padding": "chunks kCorruptHeader__chunk_length_2_to_the_32",
        "data, then zero bytes up to": "chunks kCorruptHeader__chunk_padding_not_zero",
        "as its first character is **required**": "chunks kUnsupportedFeature__required_chunk",
        "| `GRPS` |": "groups",
        "| `VTAB` |": "value_table_*",
        "| `RANS` |": "rans_32_tables",
        "| `MTCH` |": "match_1_colours match_20_tables_beside_built_in",
        "| `icc ` |": "chunks",
        "| `exif` |": "chunks",
        "| `plte` |": "labels_palette",
        "| `xmp ` |": "chunks_metadata",
        "| `keyv` |": "chunks_metadata",
        "data of optional chunks is not validated": "chunks chunks_metadata_damaged",
        "The chunks and the index are checked": LEADS,
        "1. Where `channels` is over 4": "groups_4096_channels groups_of_one",
        "`chunks_bytes` under 10": (
            "kCorruptHeader__groups_missing kCorruptHeader__groups_of_no_bytes"
        ),
        "fewer than 42 bytes": "kTruncated__groups_end_before_their_number",
        "the first chunk's type is not": "kCorruptHeader__groups_behind_a_chunk",
        "its `group_count`": "kCorruptHeader__groups_count_1 kCorruptHeader__groups_count_6",
        "ends before the index CRC does": (
            "kTruncated__ends_in_chunks kTruncated__ends_in_index kTruncated__ends_in_index_crc "
            "kTruncated__claims_2_to_the_31_pixels kTruncated__groups_need_a_longer_index "
            "kTruncated__groups_of_4096_channels_of_2_to_the_31_pixels"
        ),
        "the index CRC, a CRC-32C over": (
            "kChecksumMismatch__index_crc kChecksumMismatch__before_chunks "
            "kChecksumMismatch__groups_before_they_are_judged"
        ),
        "4. Each chunk in turn": "kUnsupportedFeature__before_later_chunks_and_index",
        "reaches past the chunk area": (
            "kCorruptHeader__chunk_header_passes_area kCorruptHeader__chunk_data_passes_area "
            "kCorruptHeader__chunk_length_2_to_the_32"
        ),
        "not an ASCII letter, digit or space": "kCorruptHeader__chunk_type_*",
        "a padding byte that is not zero": "kCorruptHeader__chunk_padding_not_zero",
        "a chunk of the table above that occurs twice": (
            "kCorruptHeader__chunk_*_twice kCorruptHeader__*s_twice kCorruptHeader__jpeg_twice "
            "kCorruptHeader__smpl_twice "
            "kCorruptHeader__first_bad_chunk_decides"
        ),
        "an unknown required chunk": "kUnsupportedFeature__required_chunk",
        "a `GRPS`, `SMPL`, `VTAB`, `RANS`, `MTCH` or `JPEG` that breaks": (
            "kCorruptHeader__groups_of_4_channels kCorruptHeader__groups_channel_* "
            "kCorruptHeader__value_table_* kCorruptHeader__rans_* kCorruptHeader__match_*"
        ),
        "the models of rans and match tiles have more": (
            "kCorruptHeader__match_33_tables_* match_31_tables_beside_one"
        ),
        "6. In a file of version 2": LEADS,
        "no `JPEG` chunk": "kCorruptHeader__version_2_without_jpeg",
        "a `JPEG` chunk beside a `SMPL`": "kCorruptHeader__jpeg_beside_*",
        "| `SMPL` | yes |": "f32_* kUnsupportedFeature__smpl_in_version_1",
        "a `JPEG` chunk beside floats": "kCorruptHeader__jpeg_of_f16",
        "no `SMPL` chunk with": "kCorruptHeader__f32_without_smpl",
        "7. In a file of version 2": LEADS,
        "| `JPEG` | yes |": "jpeg_* kUnsupportedFeature__jpeg_in_version_1",
        "| `jrst` | no |": "jpeg_rest_and_exif kCorruptHeader__jrst_twice",
        "In a file of version 1 `SMPL`": (
            "version_1_with_two_jrst kUnsupportedFeature__jpeg_in_version_1"
        ),
        "8. The index (section 5)": "kUnsupportedFeature__before_later_chunks_and_index",
        "is coded in **channel groups**": "groups groups_mixed_model groups_of_one channels_4",
        "a `GRPS` in an image of up to": "kCorruptHeader__groups_of_4_channels",
        "`length` under 2": "kCorruptHeader__groups_of_one_byte",
        "`n` under 1 or over 4": "kCorruptHeader__groups_group_of_*",
        "a number that is not below": "kCorruptHeader__groups_channel_5 *_groups_channel_65535",
        "not in exactly one group": (
            "kCorruptHeader__groups_channel_missing kCorruptHeader__groups_channel_repeated*"
        ),
        "does not end exactly with the last group": (
            "kCorruptHeader__groups_end_* kCorruptHeader__groups_count_less_than_there_are"
        ),
        "Wherever sections 5 to 6 say": (
            "groups groups_16_bits groups_mixed_model groups_value_table "
            "kCorruptTile__group_has_fewer_channels"
        ),
        "The **value table** lists": "value_table_* rans_value_table_*",
        "`length` under 4": "kCorruptHeader__value_table_length_3",
        "`count` under 1 or over": "kCorruptHeader__value_table_count_*",
        "`used_bits` differs from": "kCorruptHeader__value_table_used_bits_*",
        "`shift` is not 0": "kCorruptHeader__value_table_with_shift",
        "the gaps do not end exactly": ("kCorruptHeader__value_table_gaps_* value_table_long_gaps"),
        "a gap has more than 3 bytes": "kCorruptHeader__value_table_gap_of_4_bytes",
        "a number reaches `2^sample_bits`": (
            "kCorruptHeader__value_table_value_* "
            "kCorruptHeader__value_table_gap_of_2_to_the_21_minus_1"
        ),
        "From values `v` in": LEADS,
        "So without a table `used_bits` is": "int8_* int16_*",
        "sample = table[v]": "value_table_* bits_*",
        "`v >= count`": "kCorruptTile__*_outside_value_table",
        "The **model** of rans tiles": "rans_32_tables encoder_effort_9",
        "1. u8 `table_count`": "rans_32_tables rans_gradient_weight_*",
        "2. For each position: u8 `set_begin[1]`": (
            "rans_set_begin_0_and_64 groups_mixed_model all_features"
        ),
        "3. For each table: u8 `n`": "rans_zero_frequencies rans_one_token",
        "`table_count` under 1": "kCorruptHeader__rans_table_count_*",
        "`gradient_weight` over 63": "kCorruptHeader__rans_gradient_weight_64",
        "`set_begin[1]` over": (
            "kCorruptHeader__rans_set_begin_* kCorruptHeader__rans_third_position"
        ),
        "a run that names a table": (
            "kCorruptHeader__rans_table_of_run_* kCorruptHeader__rans_run_passes_level_63"
        ),
        "`n` over 24": "kCorruptHeader__rans_25_* kCorruptHeader__rans_41_frequencies",
        "a frequency of more than 2 bytes": "kCorruptHeader__rans_frequency_of_3_bytes",
        "do not add up to 1024": (
            "kCorruptHeader__rans_frequencies_add_up_* kCorruptHeader__rans_second_table"
        ),
        "does not end exactly with the last table": "kCorruptHeader__rans_ends_*",
        "In an image without a `RANS` chunk": "*_built_in",
    },
    "4.1": {
        "The data of `keyv` is": "chunks_metadata",
        "| `spacing` |": "chunks_metadata",
        "| `spacing_unit` |": PEOPLE,
        "| `rescale_slope`": PEOPLE,
        "| `unit` |": "chunks_metadata",
        "| `no_data` |": PEOPLE,
        "| `volume` |": PEOPLE,
        "| `nifti` |": PEOPLE,
        "In `volume` the names": PEOPLE,
        "| `band_names` |": PEOPLE,
        "| `tiff` |": "chunks_metadata",
        "In `tiff` a tag's name": "chunks_metadata",
        '{"spacing":': PEOPLE,
    },
    "4.2": {
        "The data of `MTCH`": LEADS,
        "1. u8 `table_count`": "match_31_tables_beside_one",
        "2. Runs of contexts": "match_31_tables_beside_one",
        "3. `table_count` tables": "match_31_tables_beside_one",
        "4. u16 `color_count`": "match_*_colours",
        "The gaps give the **keys**": (
            "match_15_colours match_16_colours match_17_colours match_33_colours"
        ),
        "| 1 | gray |": "match_1_channels_*",
        "| 2 | gray, alpha |": "match_2_channels_*",
        "| 3 | blue": "match_3_channels_*",
        "| 4 | blue": "match_4_channels_*",
        "with differences modulo": "match_3_channels_* match_values_of_*",
        "`channels` over 4": "kCorruptHeader__match_in_channel_groups",
        "`table_count` under 1": "kCorruptHeader__match_table_count_*",
        "over 56": "kCorruptHeader__match_colours_of_60_bits",
        "a run that names a table": (
            "kCorruptHeader__match_table_of_run_* kCorruptHeader__match_run_passes_context_63"
        ),
        "a table with `n` over 40": (
            "kCorruptHeader__match_41_frequencies kCorruptHeader__match_frequencies_add_up_*"
        ),
        "`color_count` over 65532": (
            "kCorruptHeader__match_65533_colours kCorruptHeader__match_values_of_3_channels"
        ),
        "a gap of more than 8 bytes": "kCorruptHeader__match_gap_of_9_bytes",
        "a key that reaches": "kCorruptHeader__match_key_256*",
        "does not end exactly with the last gap": "kCorruptHeader__match_ends_*",
    },
    "4.3": {
        "With a `JPEG` chunk, all": LEADS,
        "1. u8 `color`": "jpeg_gray_* jpeg_4* jpeg_rgb_*",
        "2. u8 `sampling`": "jpeg_444_* jpeg_422_* jpeg_440_* jpeg_420_*",
        "3. For each component a u8": "jpeg_three_quantizers jpeg_one_quantizers jpeg_4*",
        "4. The model (section 4.4)": "jpeg_own_model_* jpeg_4*",
        "**Zigzag order**": LEADS,
        "0 1 8 16 9 2": "jpeg_three_quantizers",
        "`channels` is not the": "kCorruptHeader__jpeg_of_1_* kCorruptHeader__jpeg_gray_of_*",
        "`sample_type` or `shift`": (
            "kCorruptHeader__jpeg_of_i8 kCorruptHeader__jpeg_of_7_* kCorruptHeader__jpeg_with_*"
        ),
        "`tile_height_log2` over 8": "kCorruptHeader__jpeg_tiles_512_*",
        "`tile_height_log2` of 3": "kCorruptHeader__jpeg_half_rows_in_tiles_of_8",
        "`color` over 2": "kCorruptHeader__jpeg_color_3",
        "`sampling` over 3": (
            "kCorruptHeader__jpeg_sampling_4 kCorruptHeader__jpeg_gray_s* "
            "kCorruptHeader__jpeg_rgb_*"
        ),
        "the number of a table over": "kCorruptHeader__jpeg_quantizers_*",
        "a quantizer that is 0": "kCorruptHeader__jpeg_quantizer_*",
        "the data ends too early": "kCorruptHeader__jpeg_ends_after_*",
    },
    "4.4": {
        "The model has up to 32": LEADS,
        "* of coefficients": LEADS,
        "* of last numbers": LEADS,
        "* of DC": LEADS,
        "A gray image has only": "jpeg_own_model_gray",
        "1. 5 bits": "jpeg_own_model_*",
        "2. A row of 16": "jpeg_own_model_*",
        "3. A row of 17": "jpeg_own_model_*",
        "4. A row of 12": "jpeg_own_model_*",
        "5. The frequencies": LEADS,
        "In a row, places": "jpeg_own_model_*",
        "The frequencies of a table": "jpeg_own_model_* jpeg_quantizers_of_16_bits",
        "| step | 0": "jpeg_own_model_*",
        "Lengths of 0 and 1": "jpeg_own_model_*",
        "the bits end within": "kCorruptHeader__jpeg_model_ends_early *_jpeg_model_and_a_byte",
        "a unary number over 31": "kCorruptHeader__jpeg_model_unary_32",
        "more places are as above": "kCorruptHeader__jpeg_model_17_places_as_above",
        "a unary number over 3 ": "kCorruptHeader__jpeg_model_way_4",
        "a number of a table that": "kCorruptHeader__jpeg_model_table_*",
        "`n` over 40": "kCorruptHeader__jpeg_model_41_frequencies",
        "a length under 0": "kCorruptHeader__jpeg_model_length_*",
        "a largest frequency": "kCorruptHeader__jpeg_model_largest_frequency_0",
    },
    "4.6": {
        "In version 2 the header's `sample_type`": LEADS,
        "| 4 | u32": "u32_*",
        "| 5 | i32": "i32_*",
        "| 6 | f16": "f16_*",
        "| 7 | f32": "f32_*",
        "Samples are any bits of their type": "f32_ranks_8_* f16_any_bits_stored",
        "| 0 | 6 |": "f16_*",
        "| 1 | 4, 5, 7 |": "f32_ranks_8_* i32_ranks_8",
        "| 2 | 4, 5, 7 |": "f32_ranks_16_* u32_ranks_16_of_3",
        "| 3 | 4, 5, 7 |": "f32_halves_* u32_halves_*",
        "a kind and a holding that are not": "kCorruptHeader__sample_type_*_*",
        "`tile_height_log2` over 8 with a holding": "kCorruptHeader__held_tiles_512_*",
        "Wherever sections 4 to 6 say how": (
            "f32_halves_* u32_halves_* u32_ranks_9_channels f16_value_table "
            "kCorruptHeader__ranks_8_of_9_bits kCorruptHeader__halves_of_*"
        ),
        "The data of `SMPL` is with holding 3": LEADS,
        "sample = ((65536": "u32_halves_31_zero_bits i32_halves_wrap f32_halves_*",
        "`length` is not 5": "kCorruptHeader__smpl_of_*_bytes kCorruptHeader__smpl_32_zero_bits",
        "a `SMPL` with holding 0": "kCorruptHeader__smpl_with_f16",
        "With holdings 1 and 2 the data": (
            "u32_table_sum_wraps u32_table_256x256 f32_ranks_beyond_table f32_ranks_*"
        ),
        "the file breaks a rule": "kCorruptHeader__smpl_table_empty kCorruptHeader__smpl_table_cut",
        "its `version` is not": (
            "kCorruptHeader__smpl_table_of_version_2 kCorruptHeader__smpl_table_of_u8 "
            "kCorruptHeader__smpl_table_of_i16 kCorruptHeader__smpl_table_of_3_channels"
        ),
        "`tile_height_log2` over 8 in the table": "kCorruptHeader__smpl_table_tiles_512_wide",
        "a `MTCH` chunk": "kCorruptHeader__smpl_table_with_mtch",
        "more than 256 pixels": "kCorruptHeader__smpl_table_of_257 kCorruptHeader__*_of_65792",
        "The tiles of that file are validated": LEADS,
        "one breaks a rule, whatever": "kCorruptHeader__smpl_table_tile_*",
    },
    "5": {
        "Tiles are `2^tile_width_log2`": "tile_* size_* rans_tile_256x256",
        "Each tile has a payload for each": "constant size_33x9 groups groups_of_one",
        "is shorter than 16 bytes": (
            "kCorruptHeader__index_* kCorruptHeader__groups_index_falls_within_a_tile "
            "kTruncated__index_payload_below_2_to_the_31_bytes"
        ),
        "whatever its tiles are cut to, a payload is not as long": (
            "kCorruptHeader__large_tile* groups_large_tiles_stored "
            "kCorruptHeader__groups_large_tile_as_long_as_all_channels"
        ),
        "Everything up to here": (
            "kCorruptTile__first_bad_tile_decides kChecksumMismatch__first_bad_tile_decides"
        ),
        "| `check` (below) |": "stored kChecksumMismatch__tile",
        "| `coding`: 0 constant": "constant stored layout_delta rans_sets_1 all_features",
        "| `transform`: 0 none": "stored subtract_green_3",
        "| u16 | zero |": "stored kCorruptTile__reserved_not_zero",
        "| body, then zero bytes": "size_1x1 kCorruptTile__stored_byte_after_body",
        "The check covers all bytes": "stored kChecksumMismatch__tile",
        "mix(x) =": "stored",
        "is the bijection": EXPLAINS,
        "exceeds 8 every tile must be stored": "tile_*_stored kCorruptTile__large*",
        "`check` differs": "kChecksumMismatch__*tile kChecksumMismatch__before_coding",
        "`coding` above 4": "kUnsupportedFeature__coding_5 kUnsupportedFeature__jpeg_coding_6",
        "`transform` above 1": "kUnsupportedFeature__transform_2 kUnsupportedFeature__jpeg_*_2",
        "a `coding` other than jpeg": "kCorruptTile__jpeg_*_tile",
        "the u16 at 6 is not 0": ("kCorruptTile__*reserved_* kUnsupportedFeature__before_reserved"),
        "`transform` 1 with fewer": "kCorruptTile__subtract_green_* kCorruptTile__jpeg_transform_1",
        "a coding other than stored": "kCorruptTile__large*",
        "the body does not end within": "kCorruptTile__*_body_ends_early",
        "a byte after the body is not": "kCorruptTile__*_byte_after_body",
    },
    "5.1": {
        "The body is 4 u16": "constant all_features kCorruptTile__constant_body_ends_early",
        "a value that reaches": "kCorruptTile__constant_above_used_bits*",
        "one for a missing channel": "kCorruptTile__constant_missing_channel",
    },
    "5.2": {
        "The body is the values": "stored bits_*_stored kCorruptTile__stored_passes_payload",
        "a value that reaches": "kCorruptTile__stored_above_used_bits*",
    },
    "5.3": {
        "every row has `G =": "size_*",
        "1. For each channel, 4 bytes": "layout_* all_features",
        "`layout` above 3": (
            "kCorruptTile__layout_* kCorruptTile__start_width_* kCorruptTile__base_above_* "
            "kCorruptTile__last_channel"
        ),
        "2. For each channel whose layout": "predictor_* layout_constant",
        "a predictor above 7": "kCorruptTile__predictor_above_7*",
        "3. For each channel whose layout": LEADS,
        "* absolute: `h` times": "layout_absolute*",
        "* delta: `h` times": "layout_delta*",
        "* sparse: `ceil_div(h, 8)`": "layout_sparse*",
        "4. Row by row from the top": "layout_* channels_*",
        "a part reaches past the payload": (
            "kCorruptTile__channel_headers_* kCorruptTile__predictors_* "
            "kCorruptTile__absolute_*_pass_payload kCorruptTile__delta_*_pass_payload "
            "kCorruptTile__sparse_*_pass_payload"
        ),
        "**Widths.**": "layout_absolute_extreme_codes layout_delta_clamped layout_*_wide",
        "**Residuals of a row, absolute and delta.**": "layout_absolute layout_delta size_33x9",
        "**Residuals of a row, sparse.**": "layout_sparse_speckled",
        "1. `ceil_div(G, 8)` bytes": "layout_sparse_extreme_codes",
        "2. `ceil_div(m, 2)` bytes": "layout_sparse_wide",
        "3. `m` bytes": "layout_sparse_loose_masks",
        "4. For each of the groups in turn": "layout_sparse_speckled",
        "Unused bits of a last byte are 0; they are not": "layout_sparse_loose_masks",
        "**Prediction.**": "predictor_*",
        "N = P[x]": "size_* predictor_*",
        "the prediction of predictor `p`": LEADS,
        "| 0 | `W` |": "predictor_0",
        "| 1 | `N` |": "predictor_1",
        "| 2 | `(NW": "predictor_2",
        "| 3 | `W +": "predictor_3",
        "| 4 | `W +": "predictor_4",
        "| 5 | `(N": "predictor_5",
        "| 6 | `(NW": "predictor_6",
        "| 7 | `W": "predictor_7",
        "`W` enters none of them": EXPLAINS,
        "r = (z >> 1)": "predictor_0 bits_16_of_16_*",
        "A channel of constant layout": "layout_constant",
    },
    "5.4": {
        "Every sample is predicted": LEADS,
        "**Order of coding.**": "rans_?_channels_*",
        "Let the tile have": "rans_size_*",
        "**Body.**": LEADS,
        "1. u8 `sets[p]`": "rans_sets_*",
        "2. u16 `base[p]`": "rans_one_token rans_sets_*",
        "3. For each position": "rans_sets_* rans_extreme_coefficients",
        "4. For each of the first": "rans_size_*",
        "5. Words, u16 each": "rans_noise_16_bits rans_one_token",
        "`sets[p]` over 3": "kCorruptTile__rans_sets_4 kCorruptTile__rans_third_sets_4",
        "`base[p]` that reaches": (
            "kCorruptTile__rans_base_above_used_bits kCorruptTile__rans_third_base_above_used_bits"
        ),
        "one of them for a missing": "kCorruptTile__rans_*_of_missing_position",
        "a state under `2^16`": "kCorruptTile__rans_*_state_1",
        "parts 1 to 4, or a word": "kCorruptTile__rans_*_pass_payload",
        "a state other than `2^16`": (
            "kCorruptTile__rans_*_end_state kCorruptTile__rans_end_state_2_to_the_31"
        ),
        "**Neighbours.**": "rans_size_*",
        "V(x, y) = V(w-1, y)": "rans_size_* rans_sets_3",
        "For a pixel `(x, y)`": LEADS,
        "W = V(x-1, y) N =": "rans_sets_3",
        "**Energy and level.**": "rans_32_tables rans_noise_16_bits",
        "e = 3 * S": "rans_32_tables",
        "The activity `a`": LEADS,
        "first e + gradient_weight": "rans_gradient_weight_* rans_3_channels_*",
        "where `m[0]` and": "rans_3_channels_* rans_noise_16_bits",
        "**Tokens.**": "rans_zero_frequencies rans_one_token",
        "slot = s & 1023": "rans_1_channels_*",
        "Then, where `used_bits` is over 8": "rans_bits_9_of_16 rans_bits_8_of_16",
        "token under 16": "rans_noise_16_bits rans_residuals_beyond_used_bits",
        "where `raw` takes": "rans_noise_16_bits rans_bits_12_of_16",
        "**Prediction.**": "rans_sets_0",
        "G(w, n, nw)": "rans_sets_0",
        "`C0`, `W0`": "rans_sets_0 rans_sets_3",
        "clamp((32 + sum": "rans_extreme_coefficients",
        "with the coefficients of set": "rans_sets_* rans_set_begin_0_and_64",
        "| first |": "rans_1_channels_* rans_2_channels_*",
        "| second |": "rans_3_channels_*",
        "| third |": "rans_3_channels_*",
        "The value is `(prediction": "rans_residuals_beyond_used_bits",
    },
    "5.5": {
        "Every pixel is coded as a whole": LEADS,
        "Lanes and steps, the words": "match_size_*",
        "**Body.**": LEADS,
        "1. u16 `base[0]`": "match_size_*",
        "2. `ceil_div(S, 256)` u16": (
            "match_size_* match_steps_* match_last_pixel match_tile_256x256"
        ),
        "3. For each of the first": "match_size_*",
        "4. Words, u16 each": "match_2000_colours",
        "In a skipped step": "match_size_* match_last_pixel",
        "has no `MTCH` chunk": "kCorruptTile__match_without_chunk",
        "`base[0]` is no number": (
            "kCorruptTile__match_base_above_used_bits kCorruptTile__match_base_without_colour"
        ),
        "reach past the payload": "kCorruptTile__match_*_pass_payload",
        "a state under": "kCorruptTile__match_*state_1*",
        "other than `2^16` at the end": "kCorruptTile__match_*end_state*",
        "**Context.**": "match_size_*",
        "1 if W = N": "match_size_* match_31_tables_beside_one",
        "It has the table": LEADS,
        "| number | W | N |": "match_size_*",
        "Numbers of colours are those below": (
            "match_values_of_*_bits kCorruptTile__match_number_* "
            "kCorruptTile__match_value_64_of_6_bits"
        ),
        "`z - 4` is no number": (
            "kCorruptTile__match_number_* kCorruptTile__match_value_64_of_6_bits"
        ),
        "The pixel's values are those": (
            "match_*_colours match_shift match_signed_* match_value_table_*"
        ),
    },
    "5.6": {
        "The tile has the quantized": "jpeg_4*",
        "Component 0 is class 0": "jpeg_444_20x28 jpeg_gray_33x17",
        "**Body.**": LEADS,
        "1. u32 `sign_count`": "jpeg_4* jpeg_dc_alone",
        "2. The predictors of": "jpeg_gray_33x17 jpeg_tiles_*",
        "3. The signs, 1 bit": "jpeg_4*",
        "4. For each lane, a u32": "jpeg_gray_8x8 jpeg_420_64x48 jpeg_own_model_gray",
        "5. Words, u16 each": "jpeg_4*",
        "**Reading.**": "jpeg_largest_numbers jpeg_own_model_*",
        "reach past the payload": "kCorruptTile__jpeg_*_pass_payload",
        "a state under": "kCorruptTile__jpeg_state_under_2_16",
        "other than `2^16` at the end": "kCorruptTile__jpeg_end_state_2_16_plus_1",
        "a predictor above 7": "kCorruptTile__jpeg_predictor_8",
        "a token of a last number over": "kCorruptTile__jpeg_last_token_25",
        "more signs are taken": "kCorruptTile__jpeg_signs_too_*",
        "DC over 4095": "kCorruptTile__jpeg_dc_4096 kCorruptTile__jpeg_dc_minus_4096",
        "a coefficient, DC among them": "kCorruptTile__jpeg_*product_over_8191",
        "**Last numbers and DC.**": "jpeg_gray_33x17 jpeg_dc_alone",
        "Let `E[x]` be": LEADS,
        "up = (2 * E[x]": "jpeg_gray_tall_8x300 jpeg_own_model_*",
        "and `other` that": "jpeg_420_64x48 jpeg_422_31x33 jpeg_440_33x31",
        "| 0 | 16 |": "jpeg_gray_33x17",
        "| 1 | `other >> 3`": "jpeg_4*",
        "| 2 | `other >> 2`": "jpeg_4*",
        "DC is predicted as in": "jpeg_tiles_* jpeg_largest_numbers",
        "(2 * M[x]": "jpeg_tiles_* jpeg_largest_numbers",
        "`DC` and `M` are": EXPLAINS,
        "**Other coefficients.**": "jpeg_420_64x48 jpeg_own_model_*",
        "With `m(v, u)` the": LEADS,
        "s = 2 * (m(v": "jpeg_4*",
        "The level is 15": "jpeg_4*",
        "| level | 0": "jpeg_largest_numbers jpeg_own_model_*",
        "The context is that of class": "jpeg_own_model_*",
    },
    "5.7": {
        "The pixels of jpeg tiles are": LEADS,
        "**Samples of a block.**": "jpeg_gray_8x8 jpeg_saturated_samples",
        "p = 8192": "jpeg_gray_8x8 jpeg_saturated_samples jpeg_largest_numbers",
        "`n` gives the nearest": "jpeg_saturated_samples jpeg_largest_numbers",
        "**Chroma of a pixel.**": LEADS,
        "`cw` is 1 or 2 |": "jpeg_420_3x5 jpeg_420_4x4 jpeg_422_4x6",
        "| half the columns, all rows |": "jpeg_422_31x33 jpeg_tiles_422_*",
        "| all columns, half": "jpeg_440_* jpeg_tiles_440_*",
        "| half of both": "jpeg_420_5x3 jpeg_420_17x9 jpeg_tiles_420_*",
        "So a pixel may need": EXPLAINS,
        "**Colour.**": "jpeg_gray_* jpeg_rgb_24x23",
        "red = Y": "jpeg_4*",
    },
    "6": {
        "`transform` 1 (subtract green)": "subtract_green_*",
        "plane 0 =": "subtract_green_*",
        "so that `red =": "subtract_green_*",
    },
    "B": {
        "The model of images whose": LEADS,
        "1F 47": "jpeg_4* jpeg_gray_33x17",
    },
    "A": {
        "The models of images without": "*_built_in",
        "0C 06": "rans_*_8_bits_built_in",
        "Where it is over 8": LEADS,
        "0A 06": "rans_*_16_bits_built_in",
    },
}

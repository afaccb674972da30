"""The check of a produce request's record set, by its first bytes."""

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.validation import check_produce_request

GOOD = build_batch([SimpleRecord(value=b"v", timestamp_ms=1)])


def with_length(length: int) -> bytes:
    return GOOD[:8] + length.to_bytes(4, "big", signed=True) + GOOD[12:]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD[:30], ErrorCode.INVALID_RECORD),
        (GOOD[:-2], ErrorCode.INVALID_RECORD),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (with_length(-5), ErrorCode.CORRUPT_MESSAGE),
        (with_length(2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (with_length(13), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_malformed_record_sets_are_refused_with_kafkas_codes(
    records: bytes | None, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        check_produce_request(records, 9)
    assert caught.value.code is code


def test_one_whole_batch_is_fine() -> None:
    check_produce_request(GOOD, 9)

"""Error codes from the wire."""

import pytest

from spindle.common.errors import ApiError, ErrorCode


@pytest.mark.parametrize("number", [134, 32767, -2])
def test_a_code_that_is_newer_than_the_table_is_an_unknown_error(number: int) -> None:
    assert ErrorCode(number) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_message_of_an_error_fits_the_string_of_an_answer() -> None:
    error = ApiError(ErrorCode.INVALID_REQUEST, "\U0001f600" * 30_000)
    assert error.message is not None
    assert len(error.message.encode()) == 32_000

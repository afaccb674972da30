"""Error codes from the wire."""

import pytest

from spindle.common.errors import ErrorCode


@pytest.mark.parametrize("number", [137, 32767, -2])
def test_a_code_that_is_newer_than_the_table_is_an_unknown_error(number: int) -> None:
    assert ErrorCode(number) is ErrorCode.UNKNOWN_SERVER_ERROR

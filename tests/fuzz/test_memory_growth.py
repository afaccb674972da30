"""Memory that a node needs for a moment is no finding; memory that it keeps is one."""

import pytest

from verification.fuzz.run import MemoryGrowth
from verification.fuzz.wire import Finding

MIB = 1024 * 1024


def test_a_short_peak_is_allowed_up_to_its_limit() -> None:
    growth = MemoryGrowth()
    for size_mib in [550] * 19 + [100] + [550] * 19:
        growth.check(size_mib * MIB)
    with pytest.raises(Finding, match="grew by 601 MiB"):
        growth.check(601 * MIB)


def test_memory_that_is_kept_is_found() -> None:
    growth = MemoryGrowth()
    for _ in range(19):
        growth.check(410 * MIB)
    with pytest.raises(Finding, match="of 20 samples is 410 MiB"):
        growth.check(420 * MIB)

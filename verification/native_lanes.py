"""Native lanes in the nodes of the fuzzer and of the rehearsal."""

import os


def lane_properties() -> dict[str, str]:
    """Return the key that switches lanes on, if SPINDLE_TEST_LANE=1 is in the environment."""
    if not os.environ.get("SPINDLE_TEST_LANE"):
        return {}
    return {"spindle.native.lane.enable": "true"}

"""The lag of a stream from the progress of a query."""

import json

from spindle.pipeline.streaming import OffsetsBehind, offsets_behind_latest


def progress(end: object, latest: object) -> dict[str, str]:
    return {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}


def test_the_lag_is_the_way_from_the_end_of_the_batch_to_the_end_of_the_log() -> None:
    end = {"a": {"0": 5, "1": 10}, "@cluster=c": {}}
    latest = {"a": {"0": 9, "1": 10, "2": 5}}
    assert offsets_behind_latest(progress(end, latest)) == OffsetsBehind(0, 5, 3.0, 9)


def test_a_progress_without_offsets_has_no_lag() -> None:
    assert offsets_behind_latest(progress({"a": {"0": 5}}, None)) is None
    assert offsets_behind_latest({"endOffset": None, "latestOffset": None}) is None
    assert offsets_behind_latest(progress({}, {})) is None

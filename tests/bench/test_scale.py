"""The measurements of scale, small: the metadata that they make, their page, and a real run."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale import controllers, page, plans
from benchmarks.scale.__main__ import in_new_process
from benchmarks.scale.image import SNAPSHOT_ID, Size, make_image, write_image
from benchmarks.scale.latencies import BOUNDS_MS, Answer, Latencies, between
from benchmarks.scale.parts import measure
from spindle.metadata_log.snapshots import read_snapshot_values
from spindle.publication.loader import MetadataLoader

SMALL = Size(250, brokers=10, directories_each=2)


def test_the_metadata_is_loaded_from_its_snapshot_as_it_was_made(tmp_path: Path) -> None:
    image = make_image(SMALL)
    image.check()
    assert image.topics.partition_count() == 250
    assert len(image.cluster.brokers) == 10
    size_bytes = write_image(image, tmp_path)
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    assert len(data) == size_bytes
    loader = MetadataLoader()
    loader.load_snapshot(SNAPSHOT_ID, read_snapshot_values(data, file.name))
    assert loader.image.topics == image.topics
    assert sorted(loader.image.cluster.brokers) == sorted(image.cluster.brokers)


def test_latencies_are_counted_by_their_bounds() -> None:
    answers = [Answer(number, waited, 0) for number, waited in enumerate((0.5, 1.0, 1.5, 2000.0))]
    latencies = Latencies.of([*answers, Answer(9.0, 3.0, 41)])
    assert latencies.counts[:3] == (2, 1, 1)
    assert latencies.counts[-1] == 1
    assert len(latencies.counts) == len(BOUNDS_MS) + 1
    assert (latencies.p50_ms, latencies.max_ms) == (1.5, 2000.0)
    assert latencies.error_codes == {41: 1}
    assert Latencies.of([]).max_ms == 0
    # The last of them was due before the time, and waited until then.
    assert between(answers, 4.5, 9.0) == [answers[3]]


def test_plans_are_measured() -> None:
    figures = plans.measure(300, 6, 3)
    assert figures["balance, moves"] > 0
    assert figures["balance, spread in points"] <= 5
    assert figures["decommission of a broker, moves"] > 0


def document() -> dict[str, Any]:
    latencies = {"at rest: heartbeats": list(Latencies.of([Answer(0, 3.0, 0)]))}
    figures = {"resident, MiB": 64.0, "loaded, s": 1.25}
    return {
        "brokers": 10,
        "directories": 2,
        "machine": "A machine.",
        "rows": [
            {
                "partitions": partitions,
                "one controller": {"figures": figures, "latencies": latencies},
                "plans": {"balance, CPU-s": partitions / 1e5},
            }
            for partitions in (1_000, 10_000)
        ],
    }


def test_the_page_has_a_row_for_each_cost_and_the_picture_a_line(tmp_path: Path) -> None:
    page.write(document(), tmp_path)
    text = (tmp_path / "SCALE.md").read_text()
    assert "| partitions | 1,000 | 10,000 |" in text
    assert "| load: start of a controller to the first change, s | 1.2 | 1.2 |" in text
    assert "| at rest: heartbeats | 3.0 | 3.0 | 3.0 |" in text
    picture = (tmp_path / "scale.svg").read_text()
    assert picture.count("<polyline") == len(page.PLOTTED)
    assert 'points="60.0' in picture


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 3])
def test_controllers_are_measured(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "REST_S", 0.5)
    monkeypatch.setattr(controllers, "SESSION_S", 0.5)
    measured = controllers.measure(SMALL, count)
    assert measured.figures["loaded, s"] > 0
    assert measured.figures["snapshot written, s"] > 0
    assert measured.figures["change after kill -9, s"] > 0
    assert measured.latencies["at rest: changes"].error_codes == {}


@pytest.mark.full
def test_metadata_requests_are_measured_in_a_process_of_their_own() -> None:
    figures = in_new_process(measure, "broker", SMALL)
    assert figures["metadata of all topics, ms"] > 0

"""A follower's segment is damaged; the command that the audit names repairs it under traffic."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cluster_harness import (
    COMBINED,
    bootstrap_of,
    cluster_homes,
    create_replicated_topic,
    in_sync,
    running_cluster,
)
from test_directories_online_under_traffic import PARTITIONS, TOPIC, Writer, read_all
from waiting import until

from spindle.audit.findings import FindingKind
from spindle.audit.run import run_audit
from spindle.cli.main import spindle

MARK = b"damaged!"


def damage(segment: Path) -> None:
    """Overwrite bytes in the first batch of a segment, behind its header."""
    with segment.open("r+b") as file:
        file.seek(61)
        file.write(MARK)


def commanded(command: str, bootstrap: str) -> Any:
    """Run a command of the audit; return its JSON document."""
    arguments = shlex.split(command)[1:]
    invocation = CliRunner().invoke(
        spindle, [*arguments, "--bootstrap-server", bootstrap, "--json"]
    )
    assert invocation.exit_code == 0, invocation.output
    return json.loads(invocation.stdout)


@pytest.mark.full
async def test_the_command_that_an_audit_names_repairs_a_follower_under_traffic(
    tmp_path: Path,
) -> None:
    homes = cluster_homes(tmp_path, [COMBINED] * 3)
    paths = [path for home in homes for path in home.directories]

    async with running_cluster(homes) as nodes:
        first = nodes[0]
        assert first.broker is not None
        await create_replicated_topic(first, TOPIC, PARTITIONS)
        bootstrap = bootstrap_of(*nodes)
        writer = Writer(bootstrap)
        try:
            await until(lambda: len(writer.acknowledged) > 2_000)
            victim = next(p for p in first.broker.replicas if p.leader is None)
            name = str(victim.topic_partition)
            segment = Path(victim.log.path) / f"{0:020}.log"
            damage(segment)
            report = await asyncio.to_thread(run_audit, paths)
            (finding,) = {f for f in report.findings if f.kind is FindingKind.BATCH_CHECKSUM}
            assert finding.path == str(segment)
            named = re.search(r"`(spindle disks rebuild [^`]+)`", finding.sentence)
            assert named is not None
            assert named[1] == f"spindle disks rebuild 1 {name}"
            done = await asyncio.to_thread(commanded, named[1], bootstrap)
            assert [replica["state"] for replica in done["replicas"]] == ["done"]
            await until(lambda: in_sync(first))
            await writer.more()
        finally:
            await writer.stop()
        assert MARK not in segment.read_bytes()
        report = await asyncio.to_thread(run_audit, paths)
        assert report.findings == ()
        assert not writer.refused
        counts = dict.fromkeys(range(PARTITIONS), 0)
        for partition, _, _ in writer.acknowledged:
            counts[partition] += 1
        read = await asyncio.to_thread(read_all, bootstrap, counts)
        for partition, offset, number in writer.acknowledged:
            assert read[partition][offset] == (offset, number)

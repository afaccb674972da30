"""`spindle up --secure`: its property files and those of its users."""

import stat
from pathlib import Path

import pytest

from spindle.cli.up.start_summary import ready_event, suggested_commands
from spindle.client.blocking.settings import client_settings
from spindle.common.security_protocol import SecurityProtocol
from spindle.config.properties import parse_properties
from spindle.local.cluster_spec import ClusterSpec
from spindle.local.node_folder import make_cluster

pytest.importorskip("cryptography", reason="certificates are made with cryptography")


def test_users_log_in_over_tls_with_passwords_that_no_other_user_of_the_machine_reads(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cluster"
    nodes = make_cluster(ClusterSpec(nodes=2, dirs=1, is_secure=True), folder, [9091, 9092, 9093])
    passwords = set()
    for user in ("admin", "app"):
        properties = parse_properties((folder / f"{user}.properties").read_text())
        assert properties["bootstrap.servers"] == "127.0.0.1:9091,127.0.0.1:9092"
        assert client_settings(properties).security is not None
        passwords.add(properties["sasl.jaas.config"].split("password=")[1])
    assert len(passwords) == 2
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in written} == {0}
    protocols = {node.config.listeners[0].security_protocol for node in nodes}
    assert protocols == {SecurityProtocol.SASL_SSL}
    lines = [
        line for block in suggested_commands(nodes, {}, str(folder), "spindle") for line in block
    ]
    assert f"admin={folder}/admin.properties" in lines
    assert 'spindle status --command-config "$admin"' in lines
    assert f'settings = json.load(open("{folder}/app.json"))' in lines
    assert str(folder / "app.properties") in ready_event(nodes, {}, str(folder), is_kept=True)

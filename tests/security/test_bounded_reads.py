"""Files of security: what is not a regular file, or too large, is refused by name and at once."""

import os
import socket
from pathlib import Path

import pytest
from certificates import certified

from spindle.common.errors import ConfigError
from spindle.security.bounded_read import read_small_file
from spindle.security.stores import store_stamp
from spindle.security.tls_context import client_context
from spindle.security.tls_settings import tls_settings

MIB = 1024 * 1024


def test_a_store_that_is_a_fifo_is_refused_by_name_and_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "ca.pem"
    os.mkfifo(fifo)
    settings = tls_settings({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(fifo)})
    with pytest.raises(ConfigError, match=rf"{fifo} cannot be read .*: It is not a regular file"):
        client_context(settings)


def test_a_store_has_at_most_a_mebibyte(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    text = certified("any").authority_pem.encode()
    settings = tls_settings({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(file)})
    file.write_bytes(text.ljust(MIB))
    client_context(settings)
    file.write_bytes(text.ljust(MIB + 1))
    with pytest.raises(ConfigError, match="It is larger than 1 MiB"):
        client_context(settings)


def test_a_device_a_directory_and_a_socket_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path in ("/dev/zero", str(tmp_path), str(tmp_path / "socket")):
            with pytest.raises(OSError, match=r"regular file|Is a directory|No such device"):
                read_small_file(path)


def test_the_stamp_of_a_store_differs_after_a_change_of_its_mode(tmp_path: Path) -> None:
    store = tmp_path / "own.pem"
    store.write_text("unreadable at first")
    store.chmod(0)
    before = store_stamp(str(store))
    store.chmod(0o600)
    assert store_stamp(str(store)) != before

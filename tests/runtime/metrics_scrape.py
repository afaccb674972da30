"""Read the metrics pages of a node."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from spindle.runtime.node import Node

Labels = tuple[tuple[str, str], ...]


async def get(port: int, request: bytes) -> tuple[int, bytes, bytes]:
    """Status, head and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


def asking(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def scrape(node: Node, path: str = "/metrics") -> dict[tuple[str, Labels], float]:
    assert node.metrics_server is not None
    status, head, body = await get(node.metrics_server.port, asking(path))
    assert status == 200
    assert b"version=0.0.4" in head
    samples = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.documentation, family.name
        for sample in family.samples:
            samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return samples

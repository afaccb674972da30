"""A schema registry of a test: answers over HTTP from a dict, with a password if it has one."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from spindle.pipeline.schemas import RegistrySettings


class TestRegistry(ThreadingHTTPServer):
    """Answers by path; `requests` are the paths that were asked for."""

    __test__ = False
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Any] = {}
        self.requests: list[str] = []
        self.login: str | None = None

    @property
    def settings(self) -> RegistrySettings:
        user, _, password = (self.login or "").partition(":")
        url = f"http://127.0.0.1:{self.server_port}"
        return RegistrySettings(url, user or None, password or None, 5_000)

    def register(self, schema_id: int, text: str, kind: str = "AVRO") -> None:
        answer = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        self.answers[f"/schemas/ids/{schema_id}"] = answer


class _Handler(BaseHTTPRequestHandler):
    server: TestRegistry

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        login = self.server.login
        if login is not None:
            wanted = f"Basic {base64.b64encode(login.encode()).decode()}"
            if self.headers["Authorization"] != wanted:
                self._answer(401, b"{}")
                return
        answer = self.server.answers.get(self.path)
        if isinstance(answer, int):
            self._answer(answer, b"{}")
        elif answer is None:
            self._answer(404, b'{"error_code": 40403}')
        else:
            self._answer(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep the output of the tests clean."""


@contextmanager
def running_registry() -> Iterator[TestRegistry]:
    """Run a registry on a free port."""
    registry = TestRegistry()
    thread = Thread(target=registry.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()

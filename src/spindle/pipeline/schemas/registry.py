"""A client for schema registries that speak Confluent's HTTP interface.

Only the two questions of a reader: the schema with an id, and the newest schema of a subject. A
schema never changes, so a process asks for an id once.
"""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from spindle.common.text import error_text

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_NOT_FOUND: Final = 404


class RegistryError(Exception):
    """The registry cannot be reached, refuses, or gives an answer that cannot be used."""


class SchemaNotFound(RegistryError):
    """The registry does not have this schema id or subject."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a registry is. `timeout_ms` limits each wait for the connection and for data."""

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"schema registry {self.url!r}: want http://host:port or https://...")
        if parts.username is not None:
            raise ValueError("schema registry: give user and password by their own options")


class RegisteredSchema(NamedTuple):
    """The type of a schema (`AVRO`, `JSON` or `PROTOBUF`) and its text."""

    kind: str
    text: str


@lru_cache(maxsize=4096)
def schema_by_id(settings: RegistrySettings, schema_id: int) -> RegisteredSchema:
    """Return the schema with an id.

    Raises:
        SchemaNotFound: the registry does not have it.
        RegistryError: no usable answer; nothing is known about the schema.
    """
    return _registered(_get(settings, f"/schemas/ids/{schema_id}"), f"schema id {schema_id}")


def newest_schema(settings: RegistrySettings, subject: str) -> RegisteredSchema:
    """Return the newest schema of a subject.

    Raises:
        SchemaNotFound: the registry does not have the subject.
        RegistryError: no usable answer.
    """
    path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"
    return _registered(_get(settings, path), f"subject {subject!r}")


def _registered(answer: Any, name: str) -> RegisteredSchema:
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise RegistryError(f"the registry's answer for {name} has no schema")
    if answer.get("references"):
        raise RegistryError(f"{name} refers to other schemas, which is not supported")
    return RegisteredSchema(str(answer.get("schemaType", "AVRO")).upper(), answer["schema"])


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: they would carry the password to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(settings: RegistrySettings, path: str) -> Any:
    url = settings.url.rstrip("/") + path
    request = urllib.request.Request(url, headers={"Accept": _MEDIA_TYPE})
    if settings.user is not None:
        login = f"{settings.user}:{settings.password or ''}".encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(login).decode()}")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=settings.timeout_ms / 1000) as response:
            body = response.read(_MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            kind = SchemaNotFound if error.code == _NOT_FOUND else RegistryError
            raise kind(f"{url}: HTTP status {error.code}") from None
    except OSError as error:
        raise RegistryError(f"{url}: {error_text(error)}") from None
    if len(body) > _MAX_ANSWER_BYTES:
        raise RegistryError(f"{url}: the answer has more than {_MAX_ANSWER_BYTES} bytes")
    try:
        return json.loads(body)
    except ValueError:
        raise RegistryError(f"{url}: the answer is not JSON") from None

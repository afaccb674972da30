"""Texts that must stand neither in the log of a node nor in its answers, in any usual form."""

from base64 import b64encode, urlsafe_b64encode
from typing import Final

from verification.fuzz.wire import Finding

_CONTEXT_BYTES: Final = 200


class SecretTexts:
    """The secrets of a run. A finding names a secret; its text is not shown."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def add(self, name: str, secret: str | bytes) -> None:
        """Look for a secret from now on: as it is, and in hex and base64."""
        raw = secret.encode() if isinstance(secret, str) else secret
        forms = (raw, raw.hex().encode(), b64encode(raw), urlsafe_b64encode(raw).rstrip(b"="))
        self._names.update(dict.fromkeys(forms, name))

    def check_text(self, where: str, text: bytes) -> None:
        """Check a text that was made outside.

        Raises:
            Finding: it contains a secret.
        """
        for secret, name in self._names.items():
            at = text.find(secret)
            if at >= 0:
                before = text[max(0, at - _CONTEXT_BYTES) : at]
                after = text[at + len(secret) : at + len(secret) + _CONTEXT_BYTES]
                raise Finding(f"{where} contains {name}, between {before!r} and {after!r}")

"""ACLs, SCRAM credentials and delegation tokens in the image (KIP-801, KIP-900, KIP-48)."""

from collections.abc import Mapping
from typing import NamedTuple

from spindle.common.errors import ProtocolViolation
from spindle.common.uuids import Uuid, uuid_text
from spindle.metadata.immutable import immutable
from spindle.metadata.map_editor import MapEditor
from spindle.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from spindle.security.scram import ScramCredential


class AccessControlEntry(NamedTuple):
    """One ACL; the numbers are those of the protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramUser(NamedTuple):
    """A user's credential is kept per mechanism (1 SHA-256, 2 SHA-512)."""

    name: str
    mechanism: int


class DelegationToken(NamedTuple):
    """A token's facts; its HMAC follows from the id and the cluster's secret."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int

    @property
    def expires_at_ms(self) -> int:
        """The end of the token, if it is not renewed before."""
        return min(self.max_timestamp_ms, self.expiration_timestamp_ms)

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token has expired, by the wall clock."""
        return self.expires_at_ms < now_ms

    def is_of(self, principal: str) -> bool:
        """Return whether the principal owns the token or may renew it."""
        return principal == self.owner or principal in self.renewers


@immutable
class SecurityImage:
    """The ACLs and credentials in the image."""

    acls: Mapping[Uuid, AccessControlEntry]
    scram: Mapping[ScramUser, ScramCredential]
    delegation_tokens: Mapping[str, DelegationToken]


EMPTY_SECURITY = SecurityImage(acls={}, scram={}, delegation_tokens={})


class SecurityDelta:
    """Changes of ACLs, credentials and tokens."""

    def __init__(self, base: SecurityImage) -> None:
        self.base = base
        self._acls = MapEditor(base.acls)
        self._scram = MapEditor(base.scram)
        self._tokens = MapEditor(base.delegation_tokens)
        self.changed_acls: dict[Uuid, AccessControlEntry | None] = {}
        """The ACLs that were added and, as None, those that were removed, in this order."""

    def clear(self) -> None:
        """Forget everything, as at the start of a snapshot."""
        self.changed_acls = dict.fromkeys(self.base.acls)
        self._acls.clear()
        self._scram.clear()
        self._tokens.clear()

    def replay_acl(self, record: AccessControlEntryRecord) -> None:
        entry = AccessControlEntry(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        self._acls.set(bytes(record.id), entry)
        self.changed_acls[bytes(record.id)] = entry

    def replay_remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._acls.remove(bytes(record.id)) is None:
            raise ProtocolViolation(f"RemoveAccessControlEntryRecord: no {uuid_text(record.id)}")
        self.changed_acls[bytes(record.id)] = None

    def replay_scram(self, record: UserScramCredentialRecord) -> None:
        self._scram.set(
            ScramUser(record.name, record.mechanism),
            ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations),
        )

    def replay_remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self._scram.remove(ScramUser(record.name, record.mechanism))

    def replay_token(self, record: DelegationTokenRecord) -> None:
        self._tokens.set(
            record.token_id,
            DelegationToken(
                record.owner,
                record.requester,
                tuple(record.renewers),
                record.issue_timestamp,
                record.max_timestamp,
                record.expiration_timestamp,
            ),
        )

    def replay_remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._tokens.remove(record.token_id)

    def apply(self) -> SecurityImage:
        return SecurityImage(self._acls.result(), self._scram.result(), self._tokens.result())

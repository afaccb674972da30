"""AlterUserScramCredentials (KIP-554, KIP-900)."""

import hashlib
import hmac
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.decision import Decision, OperationContext, repeated
from spindle.metadata.features import SCRAM_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.metadata.security import ScramUser
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from spindle.protocol.messages.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from spindle.security.scram import MAX_STORED_ITERATIONS, MIN_ITERATIONS, ScramMechanism

_DIGESTS: Final = {mechanism.value: mechanism.hash_name for mechanism in ScramMechanism}

_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def alter_user_scram_credentials(
    given: OperationContext, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Set and remove credentials; each user has one result and at most one change per mechanism.

    Raises:
        ApiError: UNSUPPORTED_VERSION before metadata.version 3.5-IV2.
    """
    if given.image.metadata_version < SCRAM_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current metadata.version does not support SCRAM credentials.",
        )
    changes: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    duplicates = repeated(ScramUser(change.name, change.mechanism) for change in changes)
    failures: dict[str, ApiError] = {}
    records: dict[str, list[Message]] = {}
    for change in changes:
        try:
            if ScramUser(change.name, change.mechanism) in duplicates:
                raise ApiError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            records.setdefault(change.name, []).append(_record(given.image, change))
        except ApiError as error:
            failures.setdefault(change.name, error)
    results: list[_Result] = []
    accepted: list[Message] = []
    for name in dict.fromkeys(change.name for change in changes):
        failure = failures.get(name)
        if failure is None:
            accepted += records[name]
            results.append(_Result(user=name, error_message=None))
        else:
            results.append(
                _Result(user=name, error_code=failure.code, error_message=failure.message)
            )
    return Decision(AlterUserScramCredentialsResponse(results=results), accepted, is_atomic=True)


def _record(image: MetadataImage, change: _Deletion | _Upsertion) -> Message:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    digest = _DIGESTS.get(change.mechanism)
    if digest is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, _Deletion):
        if ScramUser(change.name, change.mechanism) not in image.security.scram:
            raise ApiError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if not MIN_ITERATIONS <= change.iterations <= MAX_STORED_ITERATIONS:
        much = "few" if change.iterations < MIN_ITERATIONS else "many"
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Too {much} iterations: {change.iterations}, allowed are {MIN_ITERATIONS} to "
            f"{MAX_STORED_ITERATIONS}",
        )
    client_key = hmac.digest(change.salted_password, b"Client Key", digest)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(change.salted_password, b"Server Key", digest),
        iterations=change.iterations,
    )

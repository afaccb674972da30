"""SCRAM credentials of users (KIP-554). Only a salted hash of a password leaves this process."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from spindle.client.admin.refusals import optional_error, raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError
from spindle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from spindle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from spindle.security.scram import ScramMechanism, salted_password


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to set."""

    mechanism: ScramMechanism
    iterations: int
    password: str = field(repr=False)
    salt: bytes


@dataclass(frozen=True, slots=True)
class DescribedScramUser:
    """The credentials of a user (mechanism name and iterations), or the refusal."""

    name: str
    credentials: tuple[tuple[str, int], ...]
    error: ApiError | None


def describe_users(client: WireClient, names: Sequence[str]) -> list[DescribedScramUser]:
    """Return the users with credentials among these; an empty sequence means all.

    Raises:
        ApiError: the broker refused.
        ClientError: no broker could be asked.
    """
    request = DescribeUserScramCredentialsRequest(
        users=[DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    )
    answer = client.retrying(lambda: client.ask(request, DescribeUserScramCredentialsResponse))
    raise_refusal(answer.error_code, answer.error_message)
    return [
        DescribedScramUser(
            result.user,
            tuple((_mechanism_text(c.mechanism), c.iterations) for c in result.credential_infos),
            optional_error(result.error_code, result.error_message),
        )
        for result in answer.results
    ]


def _mechanism_text(number: int) -> str:
    try:
        return ScramMechanism(number).text
    except ValueError:
        return "UNKNOWN"


def alter_user(
    client: WireClient,
    user: str,
    additions: Sequence[NewCredential],
    deletions: Sequence[ScramMechanism],
) -> None:
    """Set and remove credentials of one user.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    request = AlterUserScramCredentialsRequest(
        deletions=[
            AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=deletion)
            for deletion in deletions
        ],
        upsertions=[
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=addition.mechanism,
                iterations=addition.iterations,
                salt=addition.salt,
                salted_password=salted_password(
                    addition.mechanism, addition.password, addition.salt, addition.iterations
                ),
            )
            for addition in additions
        ],
    )
    answer = client.retrying(lambda: client.ask(request, AlterUserScramCredentialsResponse))
    for result in answer.results:
        raise_refusal(result.error_code, result.error_message)

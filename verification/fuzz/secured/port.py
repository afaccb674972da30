"""The secured port of a node: connections with TLS, and logins on them."""

import ssl
from dataclasses import dataclass
from typing import Final

from spindle.client.errors import SaslFailed
from spindle.client.security.login import sasl_login
from spindle.protocol.message import Message
from verification.fuzz.secured.users import FuzzUsers
from verification.fuzz.wire import Finding, RawConnection

WITHOUT_END: Final = "SCRAM-SHA-256"
"""A mechanism whose sessions do not end."""


@dataclass(frozen=True, slots=True)
class SecuredPort:
    """Where the node serves its clients, and who they are."""

    host: str
    port: int
    tls: ssl.SSLContext
    users: FuzzUsers

    async def connect(self) -> RawConnection:
        """Open a connection with TLS, without a login.

        Raises:
            Finding: the node accepts no connection.
        """
        return await RawConnection.connect(self.host, self.port, self.tls)

    async def logged_in(self, user: str, mechanism: str = WITHOUT_END) -> RawConnection:
        """Open a connection and log in.

        Raises:
            Finding: the node accepts no connection, or refuses a sound login.
        """
        client = await self.connect()
        course = sasl_login(mechanism, self.users.exchange(user, mechanism))
        try:
            request = next(course)
            while True:
                answer: Message = await client.ask(request.message)
                request = course.send(answer)
        except StopIteration:
            return client
        except SaslFailed as error:
            client.close()
            raise Finding(f"{user} cannot log in by {mechanism}: {error}") from None

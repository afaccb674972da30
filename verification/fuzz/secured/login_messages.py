"""Messages of the SASL mechanisms from a client that breaks the rules.

Attackers know one password, the stranger's. They name other users with wrong passwords, which must
not stand in a log either.
"""

from base64 import b64encode
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from spindle.security.mechanism_names import OAUTHBEARER, PLAIN
from spindle.security.scram import (
    SCRAM_MECHANISMS,
    ScramError,
    ScramMechanism,
    answer_challenge,
    client_final,
    client_first,
    client_first_bare,
)
from verification.fuzz.cases import mutate
from verification.fuzz.secured.bearer_tokens import TokenIssuer, unsigned_token
from verification.fuzz.secured.users import ADMIN, CANARY, STRANGER, FuzzUsers

WRONG_PASSWORD: Final = "mistyped-8d2f61"
_STRANGE_USERS: Final = (
    "",
    "nobody",
    "User:admin",
    "admin\0",
    "Admin",
    " admin",
    "admin,n=stranger",
    "stranger,n=admin",
    "x" * 40_000,
    "é\U0001f600",
    "CN=spindle-node",
    "ANONYMOUS",
    "%s {} \r\n2026 ERROR",
)
_FIELDS: Final = (
    "n,,",
    "y,,",
    "p=tls-unique,,",
    "n,a=admin,",
    "n,a=stranger,",
    "m=1,",
    "n=admin,",
    "n==3D=2C,",
    "r=,",
    "r=fuzz,",
    ",tokenauth=true",
    ",tokenauth=TRUE,tokenauth=false",
    ",i=2147483647",
    ",i=-1",
    ",x=" + "y" * 9_000,
    ",s=AAAA",
    ",p=AAAA",
    ",v=AAAA",
    ",e=other-error",
    "\0",
    ",",
    ",,,,,,",
)
"""Parts of SCRAM messages in a place where they do not belong."""
_NOT_UTF8: Final = b"\xff\xfe\xc0\x80"


@dataclass(slots=True)
class _ScramCourse:
    """A running login by SCRAM."""

    mechanism: ScramMechanism
    password: str
    bare: str
    challenge: bytes = b""


class LoginMessages:
    """The messages of one connection. They follow the server's, unless chance decides otherwise.

    On some connections all messages of the first login are sound, so that the damage comes later.

    Attributes:
        is_sound: the messages are those of a sound login of the stranger.
    """

    def __init__(self, random: Random, users: FuzzUsers) -> None:
        self._random = random
        self.is_sound = random.random() < 0.4
        self._users = users
        self._course: _ScramCourse | None = None
        self._foreign_issuer: TokenIssuer | None = None
        self._sent = [b""]
        self._received = b""

    def received(self, message: bytes) -> None:
        """Note a message of the server."""
        self._received = message
        if self._course is not None:
            self._course.challenge = message

    def next(self, mechanism: str) -> bytes:
        """Return the next message of a login, mostly by this mechanism."""
        random = self._random
        if self.is_sound:
            return self._message(mechanism)
        if random.random() < 0.08:
            mechanism = random.choice((PLAIN, OAUTHBEARER, *SCRAM_MECHANISMS))
        pick = random.random()
        if pick < 0.06:
            message = random.choice((*self._sent, self._received))
        elif pick < 0.1:
            message = random.randbytes(random.choice((0, 1, 40, 5_000, 500_000)))
        else:
            message = self._message(mechanism)
            if random.random() < 0.15:
                message = mutate(random, bytes(8) + self._without_passwords(message))[8:]
            elif random.random() < 0.05:
                at = random.randrange(len(message) + 1)
                message = message[:at] + _NOT_UTF8 + message[at:]
        self._sent = [*self._sent[-5:], message]
        return message

    def _without_passwords(self, message: bytes) -> bytes:
        """Return a message whose damage may make a password to a user name, which is logged."""
        for password in (self._users.passwords[STRANGER].text, WRONG_PASSWORD):
            message = message.replace(password.encode(), b"a-password")
        return message

    def _message(self, mechanism: str) -> bytes:
        if mechanism == PLAIN:
            return self._plain()
        if mechanism == OAUTHBEARER:
            return self._bearer()
        scram = SCRAM_MECHANISMS.get(mechanism, ScramMechanism.SCRAM_SHA_256)
        course = self._course
        if course is None or not course.challenge:
            return self._scram_first(scram)
        if not self.is_sound and self._random.random() < 0.1:
            return self._scram_first(scram)
        self._course = None if self._random.random() < 0.7 else course
        return self._scram_final(course)

    def _login(self) -> tuple[str, str]:
        """Return a user and a password: mostly the stranger's own."""
        random = self._random
        if self.is_sound or random.random() < 0.4:
            return STRANGER, self._users.passwords[STRANGER].text
        own = self._users.passwords[STRANGER].text
        user = random.choice((ADMIN, ADMIN, CANARY, STRANGER, random.choice(_STRANGE_USERS)))
        if user == STRANGER:
            return user, WRONG_PASSWORD
        return user, random.choice((WRONG_PASSWORD, own, "", f"{own}\0"))

    def _plain(self) -> bytes:
        user, password = self._login()
        random = self._random
        as_user = "" if self.is_sound else random.choice(("", "", "", user, ADMIN))
        parts = [as_user, user, password]
        pick = 1.0 if self.is_sound else random.random()
        if pick < 0.05:
            parts = parts[: random.randrange(3)]
        elif pick < 0.1:
            parts += [random.choice((ADMIN, "", WRONG_PASSWORD))]
        return "\0".join(parts).encode()

    def _bearer(self) -> bytes:
        random = self._random
        claims: dict[str, Any] = {"sub": ADMIN, "iat": 1_600_000_000, "exp": 2**40}
        if self.is_sound:
            return f"n,,\x01auth=Bearer {self._users.issuer.token(STRANGER)}\x01\x01".encode()
        pick = random.randrange(9)
        if pick < 4:
            token = self._users.issuer.token(STRANGER)
        elif pick == 4:
            token = unsigned_token(ADMIN)
        elif pick == 5:
            self._foreign_issuer = self._foreign_issuer or TokenIssuer()
            token = self._foreign_issuer.signed(claims)
        elif pick == 6:
            # Only the signature of the provider's key is sound: the algorithm is another one.
            token = self._users.issuer.signed(
                {**claims, "sub": STRANGER}, random.choice(("none", "HS256", "RS256", "x"))
            )
        elif pick == 7:
            token = self._users.issuer.signed({"sub": STRANGER, "exp": 1, "iat": 0})
        else:
            own = self._users.issuer.token(STRANGER).split(".")
            token = f"{own[0]}.{unsigned_token(ADMIN).split('.')[1]}.{own[2]}"
        header = random.choice(("n,,", "n,,", "n,,", f"n,a={ADMIN},", "y,,", "n,a=,"))
        pairs = random.choice(
            ("", "", "a=b\x01", "auth=x\x01", "x=\x01", "y=" + "z" * 9_000 + "\x01")
        )
        return f"{header}\x01auth=Bearer {token}\x01{pairs}\x01".encode()

    def _scram_first(self, mechanism: ScramMechanism) -> bytes:
        random = self._random
        user, password = self._login()
        tokens = list(self._users.delegation_tokens.items())
        if is_token := bool(tokens) and random.random() < 0.15:
            user, secret = random.choice(tokens)
            password = secret.text
        nonces = ("a", "", "n" * 60_000, "é")
        is_sound = self.is_sound or random.random() < 0.5
        nonce = f"{random.getrandbits(90):x}" if is_sound else random.choice(nonces)
        bare = client_first_bare(user, nonce, is_token=is_token)
        self._course = _ScramCourse(mechanism, password, bare)
        return self._changed(client_first(bare))

    def _scram_final(self, course: _ScramCourse) -> bytes:
        mechanism, password, bare = course.mechanism, course.password, course.bare
        nonce = bare.partition(",r=")[2].partition(",")[0]
        try:
            answer = answer_challenge(mechanism, password, bare, nonce, course.challenge)
        except ScramError:
            return b"c=biws,r=fuzz,p=AAAA"
        without_proof, proof = answer.without_proof, answer.proof
        pick = 1.0 if self.is_sound else self._random.random()
        if pick < 0.1:
            proof = self._random.choice((b"", proof[:-1], proof * 2, bytes(len(proof))))
        elif pick < 0.15:
            other = b64encode(self._random.choice((b"y,,", b"n,a=admin,", b""))).decode()
            without_proof = f"c={other},{without_proof.partition(',')[2]}"
        return self._changed(client_final(without_proof, proof))

    def _changed(self, message: bytes) -> bytes:
        """Return a SCRAM message, sometimes with a field that does not belong there."""
        random = self._random
        if self.is_sound or random.random() < 0.75:
            return message
        parts = message.split(b",")
        at = random.randrange(len(parts))
        field = random.choice(_FIELDS).encode()
        if random.random() < 0.5:
            parts[at] = field
        else:
            parts.insert(at, field)
        return b",".join(parts)

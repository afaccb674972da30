"""The SASL mechanisms by name, and the login module of each in `sasl.jaas.config`."""

from collections.abc import Mapping
from typing import Final

from spindle.security.scram import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
_MODULES: Final = "org.apache.kafka.common.security."
LOGIN_MODULES: Final[Mapping[str, str]] = {
    PLAIN: f"{_MODULES}plain.PlainLoginModule",
    OAUTHBEARER: f"{_MODULES}oauthbearer.OAuthBearerLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, f"{_MODULES}scram.ScramLoginModule"),
}
"""The Java class of the login module by mechanism, the same for clients and servers."""

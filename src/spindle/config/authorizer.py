"""The settings of the authorizer (KIP-801).

`super.users` and `allow.everyone.if.no.acl.found` belong to the authorizer's class, so no key table
has them.
"""

from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.config.node_values import NodeValues

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_KEYS: Final = (SUPER_USERS, ALLOW_EVERYONE)


class AuthorizerSettings(NamedTuple):
    """The decisions of the authorizer where no ACL matches.

    Attributes:
        super_users: principals that may do everything.
        allow_everyone: whether a resource without any ACL is open to all.
    """

    super_users: frozenset[str]
    allow_everyone: bool


def authorizer_settings(config: NodeValues) -> AuthorizerSettings | None:
    """Return the settings of the authorizer, None if no authorizer is configured.

    Raises:
        ConfigError: another class than Kafka's StandardAuthorizer is named, or a value is wrong.
    """
    name = config.text("authorizer.class.name").strip()
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(
            f"authorizer.class.name={name}: Java classes cannot be loaded; the only authorizer of "
            f"Spindle is {STANDARD_AUTHORIZER}, and without the key every request is allowed"
        )
    return AuthorizerSettings(
        _super_users(config.static.get(SUPER_USERS, "")),
        _flag(config.static.get(ALLOW_EVERYONE, "false")),
    )


def early_start_listeners(config: NodeValues) -> frozenset[str]:
    """Return the listeners that open before the ACLs are loaded, by default the controllers'.

    Raises:
        ConfigError: a listener is named that the node does not have.
    """
    if "early.start.listeners" not in config.static:
        return frozenset(config.controller_listener_names)
    names = config.names("early.start.listeners")
    known = [endpoint.listener for endpoint in config.listeners]
    known += config.controller_listener_names
    for name in names:
        if name.upper() not in known:
            raise ConfigError(
                f"early.start.listeners={','.join(names)}: {name} is neither in listeners nor in "
                f"controller.listener.names; known are {', '.join(dict.fromkeys(known))}"
            )
    return frozenset(name.upper() for name in names)


def _super_users(text: str) -> frozenset[str]:
    users = [user.strip() for user in text.split(";")]
    for user in users:
        kind, colon, name = user.partition(":")
        if user and not (kind and colon and name):
            raise ConfigError(
                f"{SUPER_USERS}={text}: {user} is not a principal; write User:NAME and separate "
                "principals by semicolons"
            )
    return frozenset(filter(None, users))


def _flag(text: str) -> bool:
    flag = text.strip().lower()
    if flag not in ("true", "false"):
        raise ConfigError(f"{ALLOW_EVERYONE}={text}: it must be true or false")
    return flag == "true"

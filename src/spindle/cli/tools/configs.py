"""`kafka-configs`: show and change configurations, quotas and SCRAM credentials."""

import re
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_either, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.config_entities import (
    CLIENTS,
    ENTITY_FLAGS,
    IPS,
    USERS,
    Entities,
    check_entities,
    entities_of,
)
from spindle.cli.tools.config_principals import alter_principal, describe_principals
from spindle.cli.tools.config_resources import alter_resource, describe_resources
from spindle.cli.tools.failures import ToolFailed, WrongOptions, executing
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)

_KEY: Final = re.compile(r"[a-zA-Z0-9._-]*")
# A comma or an equals sign outside of square brackets.
_OUTSIDE: Final = r"(?=[^\]]*(?:\[|$))"

DECLARATION: Final = Declaration(
    "Show and change configurations of topics, brokers, groups and client metrics, and quotas.",
    [
        BOOTSTRAP_SERVER,
        BOOTSTRAP_CONTROLLER,
        COMMAND_CONFIG,
        JSON,
        Option("alter", "Change the configuration of an entity."),
        Option("describe", "Show the configuration of entities."),
        Option("all", "Show defaults and static values, too."),
        Option(
            "entity-type",
            "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups; "
            "users and clients may stand together.",
            "type",
        ),
        Option("entity-name", "Name of the entity.", "name"),
        Option("entity-default", "The default of clients, users, brokers or ips."),
        Option("add-config", "Settings: k1=v1,k2=[v1,v2],k3=v3.", "settings"),
        Option("add-config-file", "Property file of settings.", "file"),
        Option("delete-config", "Keys to remove.", "k1,k2", separator=","),
        Option("force", "Has no effect: there are no questions."),
        *(Option(flag, f"Short for an entity of {kind}.", "name") for flag, kind in ENTITY_FLAGS),
        Option("client-defaults", "The default of all clients."),
        Option("user-defaults", "The default of all users."),
        Option("broker-defaults", "The default of all brokers."),
        Option("ip-defaults", "The default of all addresses."),
    ],
    examples=(
        "spindle kafka configs --describe --topic orders",
        "spindle kafka configs --alter --topic orders --add-config retention.ms=86400000",
    ),
)


def _run(options: Options) -> None:
    with executing():
        options.exactly_one(
            "Command must include exactly one action: --describe, --alter", "alter", "describe"
        )
        options.forbid("describe", "add-config", "delete-config")
        entities = entities_of(options)
        check_entities(options, entities)
        _check_changes(options)
        _act(options, entities)


def _check_changes(options: Options) -> None:
    if not options.has("alter"):
        return
    if options.has("add-config") and options.has("add-config-file"):
        raise WrongOptions("Only one of --add-config or --add-config-file must be specified")
    if not any(map(options.has, ("add-config", "add-config-file", "delete-config"))):
        raise WrongOptions(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )


def _act(options: Options, entities: Entities) -> None:
    by_principal = entities.types[0] in (USERS, CLIENTS, IPS)
    with connect_either(options) as client:
        if options.has("describe"):
            if by_principal:
                describe_principals(client, entities, as_json=options.has("json"))
            else:
                describe_resources(
                    client,
                    entities.types[0],
                    entities.first_name,
                    describe_all=options.has("all"),
                    as_json=options.has("json"),
                )
            return
        if len(entities.types) != len(entities.names):
            raise WrongOptions("An entity name must be specified for every entity type")
        additions = _additions(options)
        deletions = [key.strip() for key in options.all("delete-config")]
        if by_principal:
            alter_principal(client, entities, additions, deletions)
        else:
            alter_resource(client, entities.types[0], entities.names[0], additions, deletions)
        _say_done(entities)


def _say_done(entities: Entities) -> None:
    kind, name = entities.types[0], entities.names[0]
    if name:
        click.echo(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        click.echo(f"Completed updating default config for {kind} in the cluster.")


def _additions(options: Options) -> dict[str, str]:
    additions = properties_of(options.one("add-config-file"))
    text = options.one("add-config")
    if text is not None:
        additions |= parse_settings(text)
    for key in additions:
        if _KEY.fullmatch(key) is None:
            raise ToolFailed(f"Invalid character found for config key: {key}")
    return additions


def parse_settings(text: str) -> dict[str, str]:
    """Return the settings of `k1=v1,k2=[v1,v2]`; brackets keep a list together and are dropped.

    Raises:
        ToolFailed: a part is not of the form key=value.
    """
    pairs = [re.split(rf"\s*={_OUTSIDE}\s*", part) for part in re.split(rf",{_OUTSIDE}", text)]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolFailed(
            "Invalid entity config: all configs to be added must be in the "
            'format "key=val" or  "key=[val1,val2]" to group values which contain commas.',
            plainly=f"{text!r}: settings have the form key=value,key=[value,value]",
        )
    return {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in pairs}


configs = ToolCommand("configs", DECLARATION, _run)

"""Finds the configuration keys that the sources read, in the syntax trees of `src/spindle`.

A key is read where code asks for its value by name, not where only its name appears. Tables,
checks between keys and validation of requests do not count, because a key that is only checked
changes nothing.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import spindle
from spindle.config.topic_config import TopicConfig

_ROOT: Final = Path(spindle.__file__).parent
_OTHER_PROGRAMS: Final = (
    "cli/tools",
    "client",
    "pipeline",
    "protocol/messages",
    "security",
    "testing",
)
"""Folders whose configuration is that of clients and tools, and generated code."""
_READING_CONFIG_FILES: Final = (
    "authorizer.py",
    "node_values.py",
    "oauthbearer_settings.py",
    "sasl_settings.py",
    "topic_config.py",
)
"""Files of `config` that turn values into something that other packages use."""
_TLS_SETTINGS: Final = "security/tls_settings.py"
"""It reads the keys of TLS from the texts of a listener, whose dynamic values are among them."""
_LOGIN_SETTINGS: Final = ("client/security/token_settings.py", "runtime/peers/connections.py")
"""They read, at the start, the keys by which a node logs in to other nodes."""
_ACCESSORS: Final = frozenset(
    (
        "decimal",
        "flag",
        "get",
        "integer",
        "names",
        "optional_integer",
        "optional_text",
        "own_text",
        "text",
    )
)
_TOPIC_FIELDS: Final = frozenset(TopicConfig.__slots__)


class Readers(NamedTuple):
    """The names of keys that are read.

    Attributes:
        broker: broker keys.
        dynamic: broker keys whose dynamic value is read, not only that of the property file.
        topic: topic keys.
    """

    broker: frozenset[str]
    dynamic: frozenset[str]
    topic: frozenset[str]


def find_readers() -> Readers:
    """Return the keys that are read anywhere in `src/spindle`."""
    trees = [ast.parse(path.read_text()) for path in _sources()]
    constants = {name: text for tree in trees for name, text in _constants(tree)}
    dynamic = _tls_keys()
    broker = dynamic | _login_keys()
    topic: set[str] = set()
    for tree in trees:
        for node in _without_log_config(tree):
            if isinstance(node, ast.Attribute) and node.attr in _TOPIC_FIELDS:
                topic.add(node.attr.replace("_", "."))
            elif isinstance(node, ast.Call) and node.args and _name(node.func) in _ACCESSORS:
                key = _text(node.args[0], constants)
                broker.add(key)
                if _is_dynamic(node.func):
                    dynamic.add(key)
    return Readers(frozenset(broker), frozenset(dynamic), frozenset(topic))


def _tls_keys() -> set[str]:
    """Return the texts in the functions and calls of the module that reads the keys of TLS."""
    tree = ast.parse((_ROOT / _TLS_SETTINGS).read_text())
    scopes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Call)]
    nodes = (node for scope in scopes for node in ast.walk(scope))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _login_keys() -> set[str]:
    """Return the texts in the modules that read the keys of logins to other nodes."""
    nodes = (n for name in _LOGIN_SETTINGS for n in ast.walk(ast.parse((_ROOT / name).read_text())))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _sources() -> Iterator[Path]:
    for path in sorted(_ROOT.rglob("*.py")):
        place = path.relative_to(_ROOT).as_posix()
        is_config = place.startswith("config/") and path.name not in _READING_CONFIG_FILES
        # Constants that name keys stand in the tables, so those are parsed, too.
        if place.startswith(_OTHER_PROGRAMS) or (is_config and "broker_keys/" not in place):
            continue
        yield path


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.target.id, node.value.value


def _without_log_config(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but the arguments of `LogConfig(...)`, which only copies values."""
    if isinstance(tree, ast.Call) and _name(tree.func) == "LogConfig":
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _without_log_config(child)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_dynamic(function: ast.expr) -> bool:
    """Return whether the value is from a `BrokerValues` or from the metadata image."""
    if not isinstance(function, ast.Attribute):
        return False
    receiver = function.value
    return function.attr == "get" or (isinstance(receiver, ast.Name) and receiver.id == "values")


def _text(argument: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return constants.get(argument.id, "") if isinstance(argument, ast.Name) else ""

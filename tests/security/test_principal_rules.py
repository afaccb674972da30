"""User names from distinguished names, by Kafka's rules."""

import pytest

from spindle.common.errors import ConfigError
from spindle.security.principal_rules import PrincipalRules

NAME = "CN=kafka-1,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "kafka-1"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", "KAFKA-1"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", "kafka-1@serviceusers"),
        (r"RULE:^cn=(.*?),ou=ServiceUsers.*$/$1/L,DEFAULT", NAME),
        (r" RULE:^CN=(.*?),.*$/$1/ , DEFAULT ", "kafka-1"),
        (r"RULE:CN=([^,]*)/$1/,RULE:.*CN=([^,]*),.*/second $1/", "second kafka-1"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1 $3 $12/", "kafka-1 $3 kafka-12"),
        (r"RULE:^CN=(.*?),OU=.*$/\$1 costs/", "$1 costs"),
        (r"RULE:^CN=(.*?)-[0-9]+,.*$/$1\/x/", "kafka/x"),
        (r"RULE:^CN=(?<host>.*?),OU=.*$/$1/", "kafka-1"),
        (r"RULE:^CN=(.*?),OU=Other,.*$/$1/", None),
        ("", None),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, user: str | None) -> None:
    assert PrincipalRules(rules).user_of(NAME) == user


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:CN=(.*)", "RULE:CN=(.*)/$1", "RULE:CN=(.*)/$1/X", "DEFAULT;DEFAULT"],
)
def test_a_malformed_rule_is_refused_with_the_key(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules: cannot parse"):
        PrincipalRules(rules)


def test_a_malformed_pattern_is_refused_with_the_pattern() -> None:
    with pytest.raises(ConfigError, match=r"the pattern 'CN=\(' is malformed"):
        PrincipalRules("RULE:CN=(/$1/")

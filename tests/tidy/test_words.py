"""Names are Kafka's words or the field's: private words that were replaced stay away."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from source_tree import CODE_FOLDERS, PACKAGE_FOLDERS, functions, nodes, sources

MODULES = frozenset(
    [
        "ahead",
        "answer_parts",
        "answer_rest",
        "busy_replicas",
        "changed_directories",
        "closing_state",
        "conductor",
        "copied_stretches",
        "cordon_keeper",
        "counted",
        "direct_answers",
        "error_answers",
        "evening",
        "every_broker",
        "extra",
        "fetch_answers",
        "fill_guard",
        "filling_targets",
        "follower_work",
        "greeting",
        "hang_watch",
        "harm",
        "held_metadata",
        "http_exchange",
        "invented_credentials",
        "java_order",
        "key_sets",
        "life",
        "log_join",
        "login_log",
        "looking_ahead",
        "measured_files",
        "moves_under_way",
        "new_epochs",
        "not_yet",
        "odd_files",
        "offsets_of_logs",
        "outlook_text",
        "own_threads",
        "pacing",
        "part_documents",
        "part_folder",
        "pending_answers",
        "persistent_map",
        "placing",
        "plain_errors",
        "plan_under_way",
        "planting",
        "players",
        "producer_notes",
        "producer_turns",
        "quiet_failure",
        "refusal_log",
        "registration_rows",
        "resuming",
        "right_replica",
        "rooms",
        "second_looks",
        "seldom",
        "small_files",
        "socket_loan",
        "socket_waits",
        "space_ahead",
        "stock",
        "strangers",
        "stranger",
        "stretch",
        "survey",
        "survivors",
        "taking_out",
        "transaction_notes",
        "unsent_answers",
        "word",
    ]
)
"""Names of modules, each replaced by the name of its subject."""

NAMES = frozenset(
    [
        "break_off",
        "go_on",
        "goes_on",
        "let_go",
        "readmit",
        "READMIT",
        "RETIRE",
        "Retired",
        "mend",
        "mend_all",
        "lose_power",
        "lose_power_after",
        "lose_disk",
        "_let_die",
        "_quicken",
        "PROTECT",
        "AnswerRest",
        "Chances",
        "CopiedStretches",
        "CordonKeeper",
        "Deed",
        "Deeds",
        "FillGuard",
        "Growth",
        "HangWatch",
        "Hosting",
        "Impostor",
        "KnownCoordinators",
        "LastAppend",
        "LentSocket",
        "LetterSettings",
        "LoginCourse",
        "MovesUnderWay",
        "NewEpochs",
        "NoSocket",
        "OffsetLost",
        "PlanAhead",
        "Portion",
        "ProducerTurns",
        "QuietFailure",
        "RestOfAnswer",
        "RestSender",
        "Rooms",
        "Seldom",
        "Sending",
        "Sendings",
        "SentAnswer",
        "SocketLoan",
        "SocketRoom",
        "SocketWaits",
        "SpaceAhead",
        "Standstill",
        "Stock",
        "Strangers",
        "Stretch",
        "TakingOut",
        "UnsentAnswer",
        "UnsentAnswers",
        "Wishes",
        "Word",
        "_begin_anew",
        "awaited_topic",
        "begin_anew",
        "charge_nobody",
        "even_out",
        "first_names",
        "glance",
        "is_marker_of_nothing",
        "just_appended",
        "lean_worker",
        "let_others",
        "look_at_all",
        "mark_unsettled",
        "one_to_die",
        "outlive_nodes",
        "rest_of_answer",
        "rough_s",
        "sendings",
        "shake_hands",
        "sight_s",
        "soon_ms",
        "stretch",
        "stretches",
        "STRETCH_OFFSETS",
        "take_stock",
        "take_up_stored_role",
        "things_to_try",
        "unrest",
        "until_canary_may",
        "went_on",
        "why_not_ready",
    ]
)
"""Names of classes, functions and attributes, each replaced by the standard term."""

SUPERLATIVE = re.compile(
    r"^_?(?:MOST|LONGEST|FEWEST|LEAST|SHORTEST|LARGEST|SMALLEST)(?:_[A-Z0-9_]+)?$"
)
"""A constant that is a bound is called MAX or MIN."""

RIDDLE = re.compile(r"^test_(?:what|whatever|who|whoever|whose|which_of)_")


@cache
def stored_names(path: Path) -> set[str]:
    """Return the names that a file defines or assigns, in any scope."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def local_names(path: Path) -> set[str]:
    """Return the variables that a file assigns; the fields of its classes are left out."""
    fields = {
        id(target)
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign | ast.Assign)
        for target in ast.walk(statement)
    }
    return {
        node.id
        for node in nodes(path)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields
    }


def test_no_module_has_a_private_name() -> None:
    assert not [str(path) for path in sources(*PACKAGE_FOLDERS) if path.stem in MODULES]


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_no_definition_has_a_private_name(folder: str) -> None:
    private = {
        str(path): names for path in sources(folder) if (names := stored_names(path) & NAMES)
    }
    assert not private


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_a_variable_is_called_by_its_noun(folder: str) -> None:
    """`each` and `found` say nothing about the value."""
    vague = {
        str(path): names
        for path in sources(folder)
        if (names := local_names(path) & {"each", "found"})
    }
    assert not vague


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_a_bound_is_called_max_or_min(folder: str) -> None:
    superlatives = {
        str(path): names
        for path in sources(folder)
        if (names := sorted(filter(SUPERLATIVE.match, stored_names(path))))
    }
    assert not superlatives


def test_a_test_is_named_by_its_behaviour() -> None:
    riddles = [
        f"{path}: {function.name}"
        for path in sources("tests")
        for function in functions(path)
        if RIDDLE.match(function.name)
    ]
    assert not riddles

"""Operations on the disks of a running cluster, for programs: drain, balance, heal, plan, history.

They do what the commands of the same names do, block until they are done, return typed results and
call `on_progress` with each event. They work on Kafka's brokers, too.

Example:
    from spindle import operations
    from spindle.client.blocking.client import WireClient
    from spindle.client.blocking.settings import client_settings

    with WireClient(client_settings({"bootstrap.servers": "127.0.0.1:9092"})) as client:
        print(operations.plan.drain(client, 2, "/disk3").placement.moved_bytes)
        result = operations.drain(client, 2, "/disk3", on_progress=print)
        print(result.is_cordoned, result.went_offline)
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spindle.operations import history, plan
    from spindle.operations.balance_run import BalanceResult, balance, cancel_balance
    from spindle.operations.cancellation import Cancellation, Cancelled
    from spindle.operations.drain_removal import Removal
    from spindle.operations.drain_run import DrainResult, cancel_drain, drain
    from spindle.operations.errors import OperationFailed
    from spindle.operations.events import OnProgress, ProgressEvent
    from spindle.operations.heal_run import (
        HealResult,
        HealSettings,
        HoursOfDay,
        heal,
        keep_healing,
    )
    from spindle.operations.plan_settings import PlanSettings
    from spindle.planner.healing import HealingLimits
    from spindle.planner.limits import PlanLimits
    from spindle.planner.plan import Infeasible

_MODULES: Final = {
    "BalanceResult": "balance_run",
    "Cancellation": "cancellation",
    "Cancelled": "cancellation",
    "DrainResult": "drain_run",
    "HealResult": "heal_run",
    "HealSettings": "heal_run",
    "HealingLimits": "heal_run",
    "HoursOfDay": "heal_run",
    "Infeasible": "plan",
    "OnProgress": "events",
    "OperationFailed": "errors",
    "PlanLimits": "plan_settings",
    "PlanSettings": "plan_settings",
    "ProgressEvent": "events",
    "Removal": "drain_removal",
    "balance": "balance_run",
    "cancel_balance": "balance_run",
    "cancel_drain": "drain_run",
    "drain": "drain_run",
    "heal": "heal_run",
    "history": "history",
    "keep_healing": "heal_run",
    "plan": "plan",
}

__all__ = [
    "BalanceResult",
    "Cancellation",
    "Cancelled",
    "DrainResult",
    "HealResult",
    "HealSettings",
    "HealingLimits",
    "HoursOfDay",
    "Infeasible",
    "OnProgress",
    "OperationFailed",
    "PlanLimits",
    "PlanSettings",
    "ProgressEvent",
    "Removal",
    "balance",
    "cancel_balance",
    "cancel_drain",
    "drain",
    "heal",
    "history",
    "keep_healing",
    "plan",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: tools need a part of the package, and start fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_MODULES[name]}")
    return module if name == _MODULES[name] else getattr(module, name)

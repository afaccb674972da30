"""Operations on the disks of a running cluster, for programs: drain, balance, heal, plan, history.

They are the operations behind the commands of the same names. They block until they are done,
return typed results and call `on_progress` with each event. They work on Kafka's brokers, too.

Examples:
    >>> from spindle import operations
    >>> with operations.connect("127.0.0.1:9092") as client:
    ...     print(operations.plan.drain(client, 2, "/disk3").placement.moved_bytes)
    ...     result = operations.drain(client, 2, "/disk3", on_progress=print)
    ...     print(result.is_cordoned, result.went_offline)
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spindle.client.blocking.client import connect
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
    from spindle.operations.rebuild_run import cancel_rebuild, rebuild
    from spindle.planner.healing import HealingLimits
    from spindle.planner.limits import PlanLimits
    from spindle.planner.plan import Infeasible

_MODULES: Final = {
    "BalanceResult": "spindle.operations.balance_run",
    "Cancellation": "spindle.operations.cancellation",
    "Cancelled": "spindle.operations.cancellation",
    "DrainResult": "spindle.operations.drain_run",
    "HealResult": "spindle.operations.heal_run",
    "HealSettings": "spindle.operations.heal_run",
    "HealingLimits": "spindle.planner.healing",
    "HoursOfDay": "spindle.operations.heal_run",
    "Infeasible": "spindle.planner.plan",
    "OnProgress": "spindle.operations.events",
    "OperationFailed": "spindle.operations.errors",
    "PlanLimits": "spindle.planner.limits",
    "PlanSettings": "spindle.operations.plan_settings",
    "ProgressEvent": "spindle.operations.events",
    "Removal": "spindle.operations.drain_removal",
    "balance": "spindle.operations.balance_run",
    "cancel_balance": "spindle.operations.balance_run",
    "cancel_drain": "spindle.operations.drain_run",
    "cancel_rebuild": "spindle.operations.rebuild_run",
    "connect": "spindle.client.blocking.client",
    "drain": "spindle.operations.drain_run",
    "heal": "spindle.operations.heal_run",
    "history": "spindle.operations.history",
    "keep_healing": "spindle.operations.heal_run",
    "plan": "spindle.operations.plan",
    "rebuild": "spindle.operations.rebuild_run",
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
    "cancel_rebuild",
    "connect",
    "drain",
    "heal",
    "history",
    "keep_healing",
    "plan",
    "rebuild",
]


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because tools must start fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    path = _MODULES[name]
    module = import_module(path)
    return module if path.endswith(f".{name}") else getattr(module, name)

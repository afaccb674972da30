"""Disk: one log directory with its replicas, its history and its actions."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from spindle.client.disks import DiskView
from spindle.console.actions import command_line
from spindle.console.disk_history import DiskSample
from spindle.console.page import Page, PageNotFound, PageRequest
from spindle.console.pages.overview import disk_state, fill_of, forecast_text

_MAX_ROWS: Final = 500


def _view(request: PageRequest) -> Mapping[str, Any]:
    broker, path = request.query.get("broker", ""), request.query.get("path", "")
    broker_id = int(broker) if broker.isascii() and broker.isdigit() else -1
    snapshot = request.snapshot
    disk = snapshot.disk(broker_id, path)
    if disk is None:
        raise PageNotFound(f"No broker reports the log directory {broker}:{path} now.")
    report = next(r for r in snapshot.status.reports if r.node.node_id == broker_id)
    held = sorted(snapshot.replicas_on(broker_id, path).items(), key=lambda item: -item[1])
    leaders = {where: partition.leader for where, partition in snapshot.status.partitions()}
    kind, state = disk_state(disk, snapshot.time_ms)
    forecast = snapshot.forecasts.get((broker_id, path))
    moves = [] if report.disks is None else report.disks.moves
    return {
        "title": f"{broker_id}:{path}",
        "broker_id": broker_id,
        "disk": disk,
        "is_spindle": report.is_spindle,
        "fill": fill_of(disk),
        "kind": kind,
        "state": state,
        "forecast": forecast_text(forecast),
        "forecast_reason": forecast.reason if forecast is not None else "the directory is offline",
        "rate": snapshot.rates.get((broker_id, path)),
        "replicas": [(w, size, leaders.get(w) == broker_id) for w, size in held[:_MAX_ROWS]],
        "more_replicas": max(0, len(held) - _MAX_ROWS),
        "moves": [move for move in moves if path in (move.source, move.target)],
        "chart": json.dumps(_chart(request.history.samples((broker_id, path)))),
        "is_cordoned": _has_own_cordon(disk),
        "drain": command_line(("drain", f"{broker_id}:{path}"), request.bootstrap),
    }


def _has_own_cordon(disk: DiskView) -> bool:
    """Return whether an operator has cordoned the directory; a full one is cordoned by itself."""
    return any(cordon.cause == "configuration" for cordon in disk.cordons)


def _chart(samples: list[DiskSample]) -> dict[str, list[float | None]]:
    """Return the columns of the charts, by field; None for an unknown value."""
    columns = zip(*samples, strict=True) if samples else [()] * len(DiskSample._fields)
    return {
        name: [None if math.isnan(value) else round(value, 3) for value in values]
        for name, values in zip(DiskSample._fields, columns, strict=True)
    }


PAGE: Final = Page("disk", "/disk", "Disk", _view, menu="overview", is_in_menu=False)

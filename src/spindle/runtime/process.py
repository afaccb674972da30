"""A process that runs one node: logging, event loop, signals and exit code."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Final

from spindle.common.errors import (
    ConfigError,
    CorruptLog,
    LogDirectoryFailed,
    UnsupportedMetadata,
)
from spindle.config.broker_keys.spindle import LOG_FORMAT
from spindle.config.node_config import NodeConfig
from spindle.log.errors import InvalidLogDirectory
from spindle.runtime.background import log_unhandled
from spindle.runtime.disks.open_files import raise_limit
from spindle.runtime.logging_setup import set_up_logging
from spindle.runtime.machine import Machine
from spindle.runtime.memory import keep_large_buffers
from spindle.runtime.node import Node

log = logging.getLogger(__name__)

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
_SIGNAL_EXIT: Final = 128
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_EXPLAINED: Final = (
    ConfigError,
    CorruptLog,
    LogDirectoryFailed,
    InvalidLogDirectory,
    OSError,
    UnsupportedMetadata,
)
"""Faults at the start that name their reason; any other one is a bug and has a trace."""
_GC_THRESHOLDS: Final = (20_000, 20, 50)
_SWITCH_INTERVAL_S: Final = 0.0005
"""The event loop waits at most this long for the interpreter lock (a tenth of Python's default)."""

NewEventLoop = Callable[[], asyncio.AbstractEventLoop]


async def run(
    config: NodeConfig,
    on_ready: Callable[[Node], None] | None = None,
    machine: Machine | None = None,
) -> int:
    """Run a node on the present event loop and return the exit code; see `run_node`."""
    node = Node(config, machine)
    loop = asyncio.get_running_loop()
    exit_code = EXIT_OK

    def terminate(number: signal.Signals) -> None:
        nonlocal exit_code
        exit_code = exit_code or _SIGNAL_EXIT + number
        log.info("Terminating process due to signal %s", number.name)
        node.request_stop()

    loop.set_exception_handler(log_unhandled)
    for number in _STOP_SIGNALS:
        # Under nohup a node ignores the end of its terminal.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, terminate, number)
    fatal: str | None = "the node did not start"
    try:
        await node.start()
        if not node.is_stopping:
            log.info("[KafkaRaftServer nodeId=%d] Kafka Server started", config.node_id)
            # Exclude the metadata image from later garbage collections. A collection before would
            # find almost nothing, and clients would wait for it.
            gc.freeze()
            if on_ready is not None:
                on_ready(node)
        fatal = await node.wait_stopped()
    except _EXPLAINED as error:
        log.critical("Exiting Kafka due to fatal exception: %s", error)
    finally:
        log.info("[KafkaRaftServer nodeId=%d] shutting down", config.node_id)
        await node.stop()
        log.info("[KafkaRaftServer nodeId=%d] shut down completed", config.node_id)
    return exit_code if fatal is None else EXIT_FAILED


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop, or of asyncio if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()  # type: ignore[no-any-return,unused-ignore]


def run_node(
    config: NodeConfig,
    on_ready: Callable[[Node], None] | None = None,
    machine: Machine | None = None,
    new_loop: NewEventLoop = new_event_loop,
) -> int:
    """Run a node until a signal stops it, and return the exit code of the process.

    After a clean stop it is 143 for SIGTERM, 130 for SIGINT (Ctrl-C) and 129 for SIGHUP, as of
    Kafka's JVM, also while the node starts or waits for a controller; 1 if the node could not start
    or a fault ended it.
    """
    set_up_logging(config.text(LOG_FORMAT))
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    keep_large_buffers()
    raise_limit()
    # Reference counts free the objects of records and requests, so collections are rarely needed.
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run(config, on_ready, machine))

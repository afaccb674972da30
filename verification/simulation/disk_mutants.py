"""Mutants that concern log directories: their failures, cordons, flushes, compaction and moves."""

from contextlib import nullcontext
from typing import Any, Final

from spindle.audit.repairs import _Repairs
from spindle.common.errors import ErrorCode
from spindle.controller import broker_changes
from spindle.controller.broker_changes import BrokerChangeRecords
from spindle.disks import replica_placement
from spindle.disks.directory_store import DirectoryStore
from spindle.log import loading
from spindle.log.cleaning import batch_filter, cleaning
from spindle.log.cleaning.batch_filter import BatchFilter
from spindle.log.cleaning.key_map import DictKeyMap
from spindle.log.log import Log
from spindle.metadata.cluster import BrokerRegistration
from spindle.replicas import replica_manager
from spindle.replicas.moves.future_logs import FutureLogs
from spindle.replicas.moves.move import Moves, MoveState, ReplicaMove
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker import replica_rebuilder
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.broker.lifecycle import BrokerLifecycle
from spindle.runtime.broker.replica_mover import ReplicaMover
from spindle.runtime.broker.replica_rebuilder import ReplicaRebuilder
from spindle.runtime.disks.watchdog import Watchdog
from verification.simulation.mutant import Function, Mutant, always, nothing

_A_YEAR_MS: Final = 365 * 24 * 60 * 60 * 1000


def _serve_requests_at_the_end(original: Function) -> Function:
    """Let the end of a flush answer all requests to flush, also those that came meanwhile."""

    def complete_flushes(self: Any, done: Any) -> None:
        original(self, done)
        self._seen_flush_requests = self.storage.flush_request_count

    return complete_flushes


def _watch_the_thread_alone(original: Function) -> Function:
    """Leave work beside the directory's thread unwatched."""

    def add(self: Any, thread: Any) -> None:
        if thread.function is None:
            original(self, thread)

    return add


def _in_python(key_map: type[DictKeyMap]) -> Function:
    """Return a replacement of `new_key_map` that never uses native code."""
    return lambda size, *, is_native: key_map(size)


def _drop_newest_records(original: Function) -> Function:
    """Let compaction remove the newest record of a key."""

    class Map(DictKeyMap):
        def newest_offset(self, key: bytes) -> int:
            return super().newest_offset(key) + 1

    return _in_python(Map)


def _confuse_keys(original: Function) -> Function:
    """Let compaction take keys of one length for the same key."""

    class Map(DictKeyMap):
        def put(self, key: bytes, offset: int) -> bool:
            return super().put(bytes(len(key)), offset)

        def newest_offset(self, key: bytes) -> int:
            return super().newest_offset(bytes(len(key)))

    return _in_python(Map)


def _forget_horizons(original: Function) -> Function:
    """Let compaction remove tombstones and markers whose delete horizon has not passed."""

    def rules(known_end: int, round_end: int, now_ms: int, *others: Any) -> Any:
        return original(known_end, round_end, now_ms + _A_YEAR_MS, *others)

    return rules


def _drop_markers(original: Function) -> Function:
    """Let compaction remove a marker with the last records of its transaction."""

    def filter_marker(self: Any, batch: Any) -> Any:
        original(self, batch)
        return None

    return filter_marker


def _shorten(original: Function) -> Function:
    """Let a rewritten batch end with the last record that stays in it."""

    def rebuild(header: Any, records: Any, **options: Any) -> bytes:
        last = records[-1].offset - header.base_offset
        return bytes(original(header._replace(last_offset_delta=last), records, **options))

    return rebuild


def _elect_only(original: Function) -> Function:
    """After the failure of a directory, change only the partitions that were led from it."""

    def directory_failed(self: Any, broker_id: int, directory: Any) -> None:
        led = broker_changes.partitions_where(
            self._image.topics.by_id.values(),
            lambda p: p.leader == broker_id and p.directory(broker_id) == directory,
        )
        self.update(led, remove=broker_id)

    return directory_failed


def _take_whole_broker(original: Function) -> Function:
    """After the failure of a directory, take all replicas of the broker out."""

    def directory_failed(self: Any, broker_id: int, directory: Any) -> None:
        hosted = broker_changes.partitions_where(
            self._image.topics.by_id.values(), lambda p: broker_id in p.replicas
        )
        self.update(hosted, remove=broker_id)

    return directory_failed


def _fail_all(original: Function) -> Function:
    """Give up all data directories of a broker when one fails."""

    def directory_failed(self: Any, failure: Any) -> None:
        for directory in self._env.directories[1:]:
            if not directory.is_offline:
                directory.executor.fail("another directory has failed")
        original(self, failure)

    return directory_failed


def _create_elsewhere(original: Function) -> Function:
    """Create a replica again although it may exist in a directory that is offline."""
    return lambda where, directories, recorded, preferred, cordoned: replica_placement.least_loaded(
        directories, cordoned
    )


def _place_anywhere(original: Function) -> Function:
    """Let a broker create replicas in cordoned directories."""
    return lambda directories, cordoned: original(directories, ())


# ---------------------------------------------------------------- moves between directories


def _ask_nobody(original: Function) -> Function:
    """Swap the logs before the controller has committed the directory."""

    def assign(self: Any) -> tuple[Any, ...]:
        self.state = MoveState.SWAPPING
        return ()

    return assign


def _replace_log(original: Function) -> Function:
    """Replace the log although it may still change."""

    def replace_log(self: Any, log: Any, directory: Any) -> None:
        self.log, self.directory = log, directory

    return replace_log


def _keep_name(original: Function) -> Function:
    """Keep the log that was replaced."""
    return lambda self, log, unique: self._forget(log)


def _delete_behind_gaps(original: Function) -> Function:
    """Let a load take every gap for a loss, and delete the segments behind it."""

    def unverified_gaps(opened: list[Any], torn: Any, safe_offset: int) -> list[Any]:
        gaps = original(opened, torn, safe_offset)
        while gaps and opened[-1].base_offset >= gaps[0].end_offset:
            opened.pop().delete()
        return []

    return unverified_gaps


def _look_once(original: Function) -> Function:
    """Do not look again at a directory that was there when a move was asked for."""

    def why_not_to_move(self: Any, partition: Any, target: Any) -> ErrorCode:
        return ErrorCode.KAFKA_STORAGE_ERROR if self._replicas.has_offline() else ErrorCode.NONE

    return why_not_to_move


def _leave_at_once(original: Function) -> Function:
    """Ask nobody whether the replica may still be elected."""

    async def leave_isr(self: Any, rebuild: Any) -> None:
        return None

    return leave_isr


def _trust_entries(original: Function) -> Function:
    """Take a log for one without records if no checkpoint has an entry, even if all were lost."""
    return lambda self, where, topic_id: self.has_records_missing(where, topic_id)


DISK_MUTANTS: Final[dict[str, Mutant]] = {
    "files of damaged replicas rebuilt": Mutant(
        _Repairs,
        "_is_copied_again",
        always(False),
        (Mutant(_Repairs, "_recovers_whole", always(True)),),
    ),
    "compaction not aborted": Mutant(Log, "_abort_cleaning", nothing),
    "compaction drops newest records": Mutant(cleaning, "new_key_map", _drop_newest_records),
    "compaction confuses keys": Mutant(cleaning, "new_key_map", _confuse_keys),
    "delete horizons ignored by compaction": Mutant(cleaning, "CopyRules", _forget_horizons),
    "markers dropped by compaction": Mutant(BatchFilter, "_filter_marker", _drop_markers),
    "last offsets lost by compaction": Mutant(
        batch_filter,
        "rebuild_batch",
        _shorten,
        (Mutant(cleaning, "new_key_map", lambda _: _in_python(DictKeyMap)),),
    ),
    "segments behind gaps deleted": Mutant(loading, "_unverified_gaps", _delete_behind_gaps),
    "segments behind gaps deleted, without recovery points": Mutant(
        loading,
        "_unverified_gaps",
        _delete_behind_gaps,
        (Mutant(DirectoryStore, "checkpoint_recovery_points", nothing),),
    ),
    "gaps not verified": Mutant(loading, "_unverified_gaps", always([])),
    "flush request lost by a roll": Mutant(
        DirectoryStore, "complete_flushes", _serve_requests_at_the_end
    ),
    "missing logs created empty": Mutant(DirectoryStore, "may_lack", always(False)),
    "lost checkpoints taken for a proof": Mutant(DirectoryStore, "may_lack", _trust_entries),
    "failed directories not reported": Mutant(BrokerLifecycle, "directory_failed", nothing),
    "followers kept in the ISR after a failure": Mutant(
        BrokerChangeRecords, "directory_failed", _elect_only
    ),
    "failure of a directory takes the broker out": Mutant(
        BrokerChangeRecords, "directory_failed", _take_whole_broker
    ),
    "failure of a directory ends the others": Mutant(BrokerServer, "directory_failed", _fail_all),
    "replica created beside an offline directory": Mutant(
        replica_manager, "choose_directory", _create_elsewhere
    ),
    "directories not reported": Mutant(ReplicaManager, "_report_directory", nothing),
    "cordons ignored by brokers": Mutant(replica_placement, "least_loaded", _place_anywhere),
    "cordons ignored by the controller": Mutant(
        BrokerRegistration, "has_uncordoned_directory", always(True)
    ),
    "hang beside the thread not seen": Mutant(Watchdog, "add", _watch_the_thread_alone),
    "hang not seen": Mutant(Watchdog, "look", nothing),
    "moves without the controller": Mutant(ReplicaMove, "_assign", _ask_nobody),
    "appends go on during a swap": Mutant(
        Partition, "pause_changes", nothing, (Mutant(Partition, "replace_log", _replace_log),)
    ),
    "whole copy of a cut swap removed": Mutant(FutureLogs, "_is_in_place", always(True)),
    "beginning moves not counted": Mutant(
        Moves,
        "about_to_begin",
        lambda _: lambda self, partition, target: nullcontext(),
        (Mutant(ReplicaMover, "_why_not_to_move", _look_once),),
    ),
    "two current logs": Mutant(DirectoryStore, "rename_to_replaced", _keep_name),
    "fetches for former logs counted": Mutant(
        ReplicaManager, "_require_new_fetches", always(False)
    ),
    "rebuilt before leaving the ISR": Mutant(
        ReplicaRebuilder,
        "_leave_isr",
        _leave_at_once,
        (Mutant(replica_rebuilder, "check_has_left", nothing),),
    ),
}

"""Broker keys: the controller quorum and the metadata log (KIP-500, KIP-595, KIP-630, KIP-853)."""

from spindle.config.definition import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    READ_ONLY,
    REQUIRED,
    STRING,
    ConfigKey,
)
from spindle.config.endpoints import ServerList, VoterList
from spindle.config.no_effect import FIXED_METADATA_BATCH, NO_EVENT_TIMES, NO_LINGER
from spindle.config.validators import ListOf, Range

# fmt: off
QUORUM_KEYS = (
    ConfigKey("controller.listener.names", LIST, REQUIRED, ListOf(may_be_empty=False), READ_ONLY,
              "Names of the listeners that the controllers use; brokers connect to the first one."),
    ConfigKey("controller.performance.always.log.threshold.ms", LONG, 2000, Range(0), READ_ONLY,
              "Controller events slower than this are always logged.",
              is_internal=True, no_effect=NO_EVENT_TIMES),
    ConfigKey("controller.performance.sample.period.ms", LONG, 60_000, Range(100), READ_ONLY,
              "Period over which controller event times are summed up.",
              is_internal=True, no_effect=NO_EVENT_TIMES),
    ConfigKey("controller.quorum.append.linger.ms", INT, 25, Range(0), READ_ONLY,
              "How long the leader gathers metadata records before it writes them to disk.",
              no_effect=NO_LINGER),
    ConfigKey("controller.quorum.auto.join.enable", BOOLEAN, False, None, READ_ONLY,
              "Whether a controller that is no voter adds itself to the voters."),
    ConfigKey("controller.quorum.bootstrap.servers", LIST, (), ServerList(), READ_ONLY,
              "Where to ask for the current quorum leader when the voters are kept in the "
              "metadata log."),
    ConfigKey("controller.quorum.election.backoff.max.ms", INT, 1000, Range(0), READ_ONLY,
              "Upper bound of the pause between two failed elections."),
    ConfigKey("controller.quorum.election.timeout.ms", INT, 1000, Range(0), READ_ONLY,
              "How long a candidate waits for votes before it starts over (a random share is "
              "added)."),
    ConfigKey("controller.quorum.fetch.max.bytes", INT, 1_048_576, Range(1), READ_ONLY,
              "Most bytes of metadata log in one fetch answer; one batch is always sent."),
    ConfigKey("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, Range(1), READ_ONLY,
              "Most bytes of a snapshot in one answer."),
    ConfigKey("controller.quorum.fetch.timeout.ms", INT, 2000, Range(0), READ_ONLY,
              "A follower without a successful fetch for this long calls an election; a leader "
              "without a majority of fetches resigns."),
    ConfigKey("controller.quorum.request.timeout.ms", INT, 2000, Range(0), READ_ONLY,
              "How long a quorum request may wait for its answer."),
    ConfigKey("controller.quorum.retry.backoff.ms", INT, 20, Range(0), READ_ONLY,
              "First pause before a failed quorum request is sent again."),
    ConfigKey("controller.quorum.voters", LIST, (), VoterList(), READ_ONLY,
              "The fixed voters as id@host:port; leave empty for a dynamic quorum."),
    ConfigKey("controller.socket.timeout.ms", INT, 30_000, None, READ_ONLY,
              "Time limit of a connection to the controller."),
    ConfigKey("internal.metadata.delete.delay.millis", LONG, 60_000, None, READ_ONLY,
              "Pause before deleted metadata files are removed from disk; for tests.",
              is_internal=True),
    ConfigKey("internal.metadata.log.segment.bytes", INT, None, None, READ_ONLY,
              "Segment size of the metadata log without the usual lower bound; for tests.",
              is_internal=True),
    ConfigKey("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, None, READ_ONLY,
              "Largest batch in the metadata log; for tests.",
              is_internal=True, no_effect=FIXED_METADATA_BATCH),
    ConfigKey("metadata.log.dir", STRING, None, None, READ_ONLY,
              "Directory of the metadata log; by default the first of log.dirs."),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, Range(1),
              READ_ONLY,
              "Bytes of metadata records after which a new snapshot is written."),
    ConfigKey("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, Range(0), READ_ONLY,
              "Longest time between two snapshots while records arrive; 0 turns it off."),
    ConfigKey("metadata.log.segment.bytes", INT, 1_073_741_824, Range(8_388_608), READ_ONLY,
              "Size at which a segment of the metadata log is closed."),
    ConfigKey("metadata.log.segment.ms", LONG, 604_800_000, None, READ_ONLY,
              "Age at which a segment of the metadata log is closed."),
    ConfigKey("metadata.max.idle.interval.ms", INT, 500, Range(0), READ_ONLY,
              "The active controller writes a no-op record when idle for this long; 0 turns it "
              "off."),
    ConfigKey("metadata.max.retention.bytes", LONG, 104_857_600, None, READ_ONLY,
              "Metadata log and snapshots above this size are removed, oldest first."),
    ConfigKey("metadata.max.retention.ms", LONG, 604_800_000, None, READ_ONLY,
              "Metadata log and snapshots older than this are removed."),
)
# fmt: on

//! The lane as Python sees it: classes `Lane` and `Lease`.
//!
//! `enter` and `leave` stand around every function of the directory's Python thread. Between them
//! the lane works with no log, so Python may use the logs, grant leases and take changes.

use std::fs::{File, OpenOptions};
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::batch::Rules;
use super::lease::{Counts, LeaseShared, LeaseState};
use super::producers::{CachedBatch, Producers};
use super::read::{Positions, ReadSegment};
use super::segment::{ActiveSegment, Limits, Progress};
use super::server::Server;
use super::session::{Session, SessionPart};
use super::shared::{Command, Event, Settings, Shared};
use super::system::duplicate;
use super::times::Times;
use super::wire::{read_fetch, read_header, read_produce, TopicKey};

type Batch = (i32, i64, i32, i64);
type ProducerEntry = (i64, i16, Vec<Batch>);
type Change = (u64, i64, i64, i64, ProgressFields, Vec<ProducerEntry>);
/// See `segment::Progress`.
type ProgressFields = (u64, i64, i64, i64, u64, i64, u64, u64, i64, i64);
/// Bytes, total ns, longest ns, (time in ns, count) of operations.
/// Topic key, index, leader epoch, offset, maximum bytes, high watermark and log start as shown.
type SessionPartFields = (Vec<u8>, i32, i32, i64, i32, i64, i64);
/// Id, epoch of the next request, whether topics are named by id, partitions.
type SessionFields = (i32, i32, bool, Vec<SessionPartFields>);
type TimeFields = (u64, u64, u64, Vec<(u64, u64)>);
type Changes = (
    Vec<Change>,
    Vec<(u64, i64, i64)>,
    Option<(TimeFields, TimeFields)>,
);

fn time_fields(times: Times) -> TimeFields {
    let by_time = times.by_time_ns.into_iter().collect();
    (times.size_bytes, times.total_ns, times.longest_ns, by_time)
}

/// The permission of the lane to append to one partition and to read it.
#[pyclass(frozen)]
pub struct Lease {
    shared: Arc<LeaseShared>,
    lane: Arc<Shared>,
}

#[pymethods]
impl Lease {
    #[getter]
    fn id(&self) -> u64 {
        self.shared.id
    }

    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.shared.leader_epoch
    }

    #[getter]
    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    #[getter]
    fn end_offset(&self) -> i64 {
        self.shared.end_offset.load(Ordering::Acquire)
    }

    #[getter]
    fn high_watermark(&self) -> i64 {
        self.shared.high_watermark.load(Ordering::Acquire)
    }

    /// Let the lane use the lease.
    fn activate(&self) {
        self.shared.is_active.store(true, Ordering::Release);
    }

    /// End the lease; `was_cut` says that records are removed from the end of the log.
    fn end(&self, was_cut: bool) {
        self.lane.end_lease(&self.shared, was_cut);
    }

    fn raise_high_watermark(&self, offset: i64) {
        if self.shared.raise_high_watermark(offset) {
            self.lane.wake_fetches(&self.shared);
        }
    }

    /// Store what Python has appended, between `enter` and `leave`: new state as in `grant`.
    ///
    /// A producer without batches is unknown to the lane from now on.
    fn refresh(
        &self,
        end_offset: i64,
        high_watermark: i64,
        progress: ProgressFields,
        producers: Vec<ProducerEntry>,
    ) {
        let mut leases = self.lane.leases();
        let Some(state) = leases.by_id.get_mut(&self.shared.id) else {
            return;
        };
        state.segment.progress = progress_of(progress);
        for (producer_id, epoch, batches) in producers {
            if batches.is_empty() {
                state.producers.forget(producer_id);
            } else {
                state.producers.put(
                    producer_id,
                    epoch,
                    batches.into_iter().map(cached).collect(),
                );
            }
        }
        self.shared.end_offset.store(end_offset, Ordering::Release);
        if self.shared.raise_high_watermark(high_watermark) {
            self.lane.wake_fetches(&self.shared);
        }
    }

    /// Set whether the event loop is woken for each append.
    fn wake_for_appends(&self, is_waiting: bool) {
        self.shared.must_wake.store(is_waiting, Ordering::Release);
        fence(Ordering::SeqCst); // see `Shared::note_progress`
    }

    /// Return (produces, bytes in, messages in, fetches, bytes out) since the last call.
    fn take_counts(&self) -> (u64, u64, u64, u64, u64, u64) {
        let counts: &Counts = &self.shared.counts;
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (
            take(&counts.produces),
            take(&counts.failed_produces),
            take(&counts.bytes_in),
            take(&counts.messages_in),
            take(&counts.fetches),
            take(&counts.bytes_out),
        )
    }
}

/// The native thread of one log directory.
#[pyclass(frozen)]
pub struct Lane {
    path: String,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    last_lease: AtomicU64,
}

#[pymethods]
impl Lane {
    /// Start the lane of the directory at `path`.
    #[new]
    fn new(
        path: String,
        max_frame_bytes: i32,
        fetch_max_bytes: u64,
        is_rack_aware: bool,
    ) -> PyResult<Self> {
        let shared = Arc::new(Shared::new(Settings {
            max_frame_bytes,
            fetch_max_bytes,
            is_rack_aware,
        })?);
        let mut server = Server::new(shared.clone())?;
        let named = path.clone();
        let thread = std::thread::Builder::new()
            .name("lane".to_string())
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| server.run());
                if std::panic::catch_unwind(run).is_err() {
                    // A log that is half changed must not be acknowledged by anybody.
                    eprintln!("spindle: the native lane of {named} has failed; the node ends");
                    std::process::abort();
                }
            })?;
        Ok(Lane {
            path,
            shared,
            thread: Mutex::new(Some(thread)),
            last_lease: AtomicU64::new(0),
        })
    }

    /// The descriptor that becomes readable when there are events.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.shared.loop_bell.descriptor()
    }

    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    /// Wait until the lane works with no log.
    fn enter(&self, py: Python<'_>) {
        py.detach(|| self.shared.gate.enter());
    }

    fn leave(&self) {
        self.shared.gate.leave();
    }

    /// The number of steps with the disk; it is odd while the lane works with it.
    #[getter]
    fn disk_steps(&self) -> u64 {
        self.shared.disk_steps.load(Ordering::Acquire)
    }

    /// Whether appends or fetches were served since the last `take_progress`.
    #[getter]
    fn has_progress(&self) -> bool {
        self.shared.has_progress.load(Ordering::Acquire)
    }

    /// Grant a lease. Call it between `enter` and `leave`.
    ///
    /// Args:
    ///     former: the previous lease of the same log, to which responses may still be sent.
    ///
    /// Raises:
    ///     OSError: a file cannot be opened.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (*, topic, topic_id, partition, leader_epoch, is_sole_replica, may_append,
        has_transactions, log_start_offset, end_offset, high_watermark, rules, paths, base_offset,
        limits, progress, older, producers, former=None))]
    fn grant(
        &self,
        topic: Vec<u8>,
        topic_id: [u8; 16],
        partition: i32,
        leader_epoch: i32,
        is_sole_replica: bool,
        may_append: bool,
        has_transactions: bool,
        log_start_offset: i64,
        end_offset: i64,
        high_watermark: i64,
        rules: (i64, bool, i64, bool),
        paths: (String, String, String),
        base_offset: i64,
        limits: (i64, i64, i64, u64, u64),
        progress: ProgressFields,
        older: Vec<(i64, u64, String, String, u64)>,
        producers: Vec<ProducerEntry>,
        former: Option<PyRef<'_, Lease>>,
    ) -> PyResult<Lease> {
        let open = |path: &str| -> std::io::Result<Arc<File>> {
            Ok(Arc::new(
                OpenOptions::new().read(true).write(true).open(path)?,
            ))
        };
        let segment = ActiveSegment {
            base_offset,
            log: open(&paths.0)?,
            offset_index: open(&paths.1)?,
            time_index: open(&paths.2)?,
            limits: Limits {
                segment_bytes: limits.0,
                max_timestamp: limits.1,
                index_interval_bytes: limits.2,
                offset_entries: limits.3,
                time_entries: limits.4,
            },
            progress: progress_of(progress),
        };
        let shared = Arc::new(LeaseShared {
            id: self.last_lease.fetch_add(1, Ordering::AcqRel) + 1,
            topic: topic.into_boxed_slice(),
            topic_id,
            partition,
            leader_epoch,
            is_sole_replica,
            is_active: false.into(),
            has_ended: false.into(),
            was_cut: former
                .map(|lease| lease.shared.was_cut.clone())
                .filter(|was_cut| !was_cut.load(Ordering::Acquire))
                .unwrap_or_default(),
            end_offset: end_offset.into(),
            high_watermark: high_watermark.into(),
            must_wake: (!is_sole_replica).into(),
            is_reported: false.into(),
            waiting: 0.into(),
            counts: Counts::default(),
        });
        let (max_batch_bytes, uses_log_append_time, timestamp_after_max_ms, limits_decompressed) =
            rules;
        self.shared.leases().add(LeaseState {
            shared: shared.clone(),
            rules: Rules {
                max_batch_bytes,
                uses_log_append_time,
                timestamp_after_max_ms,
                limits_decompressed,
            },
            may_append,
            has_transactions,
            log_start_offset,
            segment,
            older: older
                .into_iter()
                .map(|(base, size, log, index, entries)| {
                    ReadSegment::new(base, size, (log, index), entries)
                })
                .collect(),
            producers: producers_of(producers),
            positions: Positions::default(),
            is_dirty: false,
            first_append_ms: -1,
        });
        Ok(Lease {
            shared,
            lane: self.shared.clone(),
        })
    }

    /// Return what has changed in leased logs since the last call, between `enter` and `leave`.
    ///
    /// Each entry: id of the lease, log end offset, high watermark, time of the first append in ms
    /// (-1 without one), progress of the segment, changed producers. Leases that have ended are
    /// removed, and their files are closed: id, log end offset and high watermark. The last part
    /// has the times of reads and of writes; None without any.
    fn take_changes(&self) -> Changes {
        let mut leases = self.shared.leases();
        let dirty = std::mem::take(&mut leases.dirty);
        let mut changes = Vec::with_capacity(dirty.len());
        for id in dirty {
            let Some(state) = leases.by_id.get_mut(&id) else {
                continue;
            };
            state.is_dirty = false;
            let first_append_ms = std::mem::replace(&mut state.first_append_ms, -1);
            let producers = state.producers.take_changed().into_iter();
            changes.push((
                id,
                state.end_offset(),
                state.shared.high_watermark.load(Ordering::Acquire),
                first_append_ms,
                progress_fields(&state.segment.progress),
                producers
                    .map(|(id, producer)| {
                        let batches = producer.batches.iter();
                        let fields = batches.map(|batch| {
                            let (last, delta) = (batch.last_offset, batch.offset_delta);
                            (batch.last_sequence, last, delta, batch.timestamp_ms)
                        });
                        (id, producer.epoch, fields.collect())
                    })
                    .collect(),
            ));
        }
        let mut ended = Vec::new();
        for id in self.shared.take_ended() {
            if let Some(state) = leases.remove(id) {
                let high_watermark = state.shared.high_watermark.load(Ordering::Acquire);
                ended.push((id, state.end_offset(), high_watermark));
            }
        }
        let is_idle = leases.reads.by_time_ns.is_empty() && leases.writes.by_time_ns.is_empty();
        let times = (!is_idle).then(|| {
            (
                time_fields(leases.reads.take()),
                time_fields(leases.writes.take()),
            )
        });
        (changes, ended, times)
    }

    /// Serve a connection from now on. The lane uses a descriptor of its own.
    ///
    /// Args:
    ///     received: bytes of the client that were not handled.
    ///
    /// Raises:
    ///     OSError: no descriptor is left.
    fn adopt(
        &self,
        descriptor: i32,
        token: u64,
        listener: u32,
        received: Vec<u8>,
        session: Option<SessionFields>,
    ) -> PyResult<()> {
        let socket = duplicate(descriptor)?;
        self.shared.command(Command::Adopt {
            socket,
            token,
            listener,
            received,
            session: session.and_then(session_of),
        });
        Ok(())
    }

    /// Give a connection back to the event loop as soon as its response is sent.
    ///
    /// Close it instead if its client has read nothing of the response for `max_idle_ms`.
    fn ask_back(&self, token: u64, max_idle_ms: u64) {
        self.shared.command(Command::Return { token, max_idle_ms });
    }

    fn ask_all_back(&self) {
        self.shared.command(Command::ReturnAll);
    }

    /// Return the events since the last call: (token, received bytes or None, is_served, idle ms).
    ///
    /// None for a connection that was closed. `is_served` is false if the lane could not serve the
    /// first frame of the received bytes.
    fn take_events<'py>(&self, py: Python<'py>) -> Vec<EventFields<'py>> {
        let events = self.shared.take_events().into_iter();
        events
            .map(|event| match event {
                Event::Returned {
                    token,
                    received,
                    is_served,
                    idle_ms,
                    session,
                } => {
                    let received = Some(PyBytes::new(py, &received));
                    (
                        token,
                        received,
                        is_served,
                        idle_ms,
                        session.map(session_fields),
                    )
                }
                Event::Closed { token } => (token, None, false, 0, None),
            })
            .collect()
    }

    /// Return the ids of the leases with new offsets or counts since the last call.
    fn take_progress(&self) -> Vec<u64> {
        self.shared
            .take_progress()
            .iter()
            .map(|lease| lease.id)
            .collect()
    }

    /// Return the times of requests since the last call: (listener, API key, times).
    fn take_request_times(&self) -> Vec<(u32, i16, TimeFields)> {
        let times = self.shared.take_times().into_iter();
        times
            .map(|((listener, key), times)| (listener, key, time_fields(times)))
            .collect()
    }

    /// Return (bytes received, bytes sent) since the last call.
    fn take_traffic(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.shared.bytes_in), take(&self.shared.bytes_out))
    }

    /// Bytes of requests that were received and are not answered.
    #[getter]
    fn held_bytes(&self) -> u64 {
        self.shared.held_bytes.load(Ordering::Relaxed)
    }

    /// Return the error number of the disk's failure; None without one.
    fn failure(&self) -> Option<(i32, String)> {
        let failure = self
            .shared
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failure
            .as_ref()
            .map(|error| (error.raw_os_error().unwrap_or(libc::EIO), error.to_string()))
    }

    /// Serve nothing more: the directory is offline.
    fn fail(&self) {
        self.shared.end_service();
    }

    /// End the thread after the request that it serves. Do not wait for it.
    fn stop(&self) {
        self.shared.command(Command::Stop);
    }

    /// Wait for the end of the thread, at most `timeout_s`; return whether it has ended.
    fn join(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let mut slot = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = slot.take() else {
            return Ok(true);
        };
        let step = std::time::Duration::from_millis(1);
        let until = std::time::Instant::now()
            + std::time::Duration::try_from_secs_f64(timeout_s.max(0.0))
                .map_err(|error| PyOSError::new_err(error.to_string()))?;
        py.detach(|| {
            while !thread.is_finished() && std::time::Instant::now() < until {
                std::thread::sleep(step);
            }
        });
        if thread.is_finished() {
            return Ok(thread.join().is_ok());
        }
        *slot = Some(thread);
        Ok(false)
    }
}

fn progress_of(fields: ProgressFields) -> Progress {
    Progress {
        size_bytes: fields.0,
        max_timestamp: fields.1,
        max_timestamp_offset: fields.2,
        bytes_since_entry: fields.3,
        offset_entries: fields.4,
        last_entry_offset: fields.5,
        last_entry_position: fields.6,
        time_entries: fields.7,
        last_entry_timestamp: fields.8,
        last_entry_timestamp_offset: fields.9,
    }
}

fn progress_fields(progress: &Progress) -> ProgressFields {
    (
        progress.size_bytes,
        progress.max_timestamp,
        progress.max_timestamp_offset,
        progress.bytes_since_entry,
        progress.offset_entries,
        progress.last_entry_offset,
        progress.last_entry_position,
        progress.time_entries,
        progress.last_entry_timestamp,
        progress.last_entry_timestamp_offset,
    )
}

fn producers_of(entries: Vec<ProducerEntry>) -> Producers {
    let mut producers = Producers::default();
    for (producer_id, epoch, batches) in entries {
        producers.put(
            producer_id,
            epoch,
            batches.into_iter().map(cached).collect(),
        );
    }
    producers
}

fn session_of((id, epoch, has_ids, parts): SessionFields) -> Option<Session> {
    let mut session = Session {
        id,
        epoch,
        ..Session::default()
    };
    for (key, index, leader_epoch, offset, max_bytes, high_watermark, log_start_offset) in parts {
        let topic = session.add_topic(&key, has_ids)?;
        session.parts.push(SessionPart {
            topic,
            index,
            leader_epoch,
            offset,
            max_bytes,
            high_watermark,
            log_start_offset,
        });
    }
    Some(session)
}

fn session_fields(session: Session) -> SessionFields {
    let has_ids = matches!(session.topics.first(), Some(TopicKey::Id(_)));
    let key = |topic: usize| match &session.topics[topic] {
        TopicKey::Name(range) => session.names[range.clone()].to_vec(),
        TopicKey::Id(id) => id.to_vec(),
    };
    let fields = |part: &SessionPart| {
        let (offset, max_bytes) = (part.offset, part.max_bytes);
        let shown = (part.high_watermark, part.log_start_offset);
        (
            key(part.topic),
            part.index,
            part.leader_epoch,
            offset,
            max_bytes,
            shown.0,
            shown.1,
        )
    };
    (
        session.id,
        session.epoch,
        has_ids,
        session.parts.iter().map(fields).collect(),
    )
}

fn cached((last_sequence, last_offset, offset_delta, timestamp_ms): Batch) -> CachedBatch {
    CachedBatch {
        last_sequence,
        last_offset,
        offset_delta,
        timestamp_ms,
    }
}

type EventFields<'py> = (
    u64,
    Option<Bound<'py, PyBytes>>,
    bool,
    u64,
    Option<SessionFields>,
);
type Targets<'py> = Vec<(Bound<'py, PyBytes>, i32)>;

fn targets<'py>(
    py: Python<'py>,
    frame: &[u8],
    topics: &[TopicKey],
    parts: impl Iterator<Item = (usize, i32)>,
) -> Targets<'py> {
    let key = |topic: usize| match &topics[topic] {
        TopicKey::Name(range) => PyBytes::new(py, &frame[range.clone()]),
        TopicKey::Id(id) => PyBytes::new(py, id),
    };
    parts.map(|(topic, index)| (key(topic), index)).collect()
}

/// Return (acks, has_topic_ids, targets) of a Produce request that the lane may serve, else None.
///
/// A target is a topic, by name or by id, and a partition.
#[pyfunction]
pub fn targets_of_produce<'py>(py: Python<'py>, frame: &[u8]) -> Option<(i16, bool, Targets<'py>)> {
    let header = read_header(frame).filter(|header| header.api_key == super::wire::PRODUCE)?;
    let request = read_produce(frame, &header)?;
    let has_ids = matches!(request.topics.first()?, TopicKey::Id(_));
    let parts = request.parts.iter().map(|part| (part.topic, part.index));
    Some((
        request.acks,
        has_ids,
        targets(py, frame, &request.topics, parts),
    ))
}

/// Return (session id, session epoch, has_topic_ids, targets) of a consumer's Fetch, else None.
#[pyfunction]
pub fn targets_of_fetch<'py>(
    py: Python<'py>,
    frame: &[u8],
) -> Option<(i32, i32, bool, Targets<'py>)> {
    let header = read_header(frame).filter(|header| header.api_key == super::wire::FETCH)?;
    let request = read_fetch(frame, &header)?;
    let has_ids = matches!(request.topics.first(), Some(TopicKey::Id(_)));
    let parts = request.parts.iter().map(|part| (part.topic, part.index));
    let found = targets(py, frame, &request.topics, parts);
    Some((request.session_id, request.session_epoch, has_ids, found))
}

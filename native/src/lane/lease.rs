//! The permission to append to a partition and to read it, in one leader epoch.

use std::collections::HashMap;
use std::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use super::batch::Rules;
use super::producers::Producers;
use super::read::{Positions, ReadSegment};
use super::segment::ActiveSegment;
use super::times::Times;

/// What the lane has done for a partition since Python has last asked.
#[derive(Default)]
pub struct Counts {
    pub produces: AtomicU64,
    pub failed_produces: AtomicU64,
    pub bytes_in: AtomicU64,
    pub messages_in: AtomicU64,
    pub fetches: AtomicU64,
    pub bytes_out: AtomicU64,
}

/// The part of a lease that all threads may use at any time.
pub struct LeaseShared {
    pub id: u64,
    pub topic: Box<[u8]>,
    pub topic_id: [u8; 16],
    pub partition: i32,
    pub leader_epoch: i32,
    /// No other replica has to have a record before it is committed.
    pub is_sole_replica: bool,
    /// The event loop has confirmed the grant.
    pub is_active: AtomicBool,
    pub has_ended: AtomicBool,
    /// Records were removed from the end of the log, or replaced; all leases since the previous
    /// time share it.
    pub was_cut: Arc<AtomicBool>,
    pub end_offset: AtomicI64,
    pub high_watermark: AtomicI64,
    /// Somebody waits on the event loop for appends.
    pub must_wake: AtomicBool,
    pub is_reported: AtomicBool,
    pub waiting: AtomicUsize,
    pub counts: Counts,
}

impl LeaseShared {
    pub fn is_valid(&self) -> bool {
        self.is_active.load(Ordering::Acquire) && !self.has_ended.load(Ordering::Acquire)
    }

    /// Return whether the lease has ended, after the caller has stored the log end.
    ///
    /// An end of the lease that is not seen here finds that log end.
    pub fn has_ended_meanwhile(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_ended.load(Ordering::Acquire)
    }

    /// Return whether fetches wait, after a change that the caller has made before; they do not
    /// count any more, because the caller has them looked at.
    ///
    /// A fetch that looks at the same time is either seen here, or sees the change.
    pub fn take_waiting(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Acquire) > 0 && self.waiting.swap(0, Ordering::AcqRel) > 0
    }

    /// Set the number of fetches that wait; the caller looks once more afterwards.
    pub fn set_waiting(&self, count: usize) {
        self.waiting.store(count, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Raise the high watermark; it never passes the log end.
    pub fn raise_high_watermark(&self, offset: i64) -> bool {
        let offset = offset.min(self.end_offset.load(Ordering::Acquire));
        self.high_watermark.fetch_max(offset, Ordering::AcqRel) < offset
    }
}

/// The part of a lease that is used behind the gate.
pub struct LeaseState {
    pub shared: Arc<LeaseShared>,
    pub rules: Rules,
    pub may_append: bool,
    pub has_transactions: bool,
    pub log_start_offset: i64,
    pub segment: ActiveSegment,
    pub older: Vec<ReadSegment>,
    pub producers: Producers,
    pub positions: Positions,
    pub is_dirty: bool,
    pub first_append_ms: i64,
}

impl LeaseState {
    pub fn end_offset(&self) -> i64 {
        self.shared.end_offset.load(Ordering::Acquire)
    }
}

/// All leases of a directory; used behind the gate.
#[derive(Default)]
pub struct Leases {
    pub by_id: HashMap<u64, LeaseState>,
    names: HashMap<Box<[u8]>, Vec<(i32, u64)>>,
    topic_ids: HashMap<[u8; 16], Vec<(i32, u64)>>,
    pub dirty: Vec<u64>,
    pub reads: Times,
    pub writes: Times,
}

impl Leases {
    pub fn add(&mut self, state: LeaseState) {
        let shared = &state.shared;
        let entry = (shared.partition, shared.id);
        self.names
            .entry(shared.topic.clone())
            .or_default()
            .push(entry);
        self.topic_ids
            .entry(shared.topic_id)
            .or_default()
            .push(entry);
        self.by_id.insert(shared.id, state);
    }

    fn valid(&self, entries: Option<&Vec<(i32, u64)>>, partition: i32) -> Option<u64> {
        let is_valid = |id: &u64| {
            self.by_id
                .get(id)
                .is_some_and(|state| state.shared.is_valid())
        };
        entries?
            .iter()
            .filter(|(index, _)| *index == partition)
            .map(|(_, id)| *id)
            .find(is_valid)
    }

    /// Return the valid lease of a partition, by the name of its topic.
    pub fn by_name(&self, topic: &[u8], partition: i32) -> Option<u64> {
        self.valid(self.names.get(topic), partition)
    }

    /// Return the valid lease of a partition, by the id of its topic.
    pub fn by_topic_id(&self, topic_id: &[u8; 16], partition: i32) -> Option<u64> {
        self.valid(self.topic_ids.get(topic_id), partition)
    }

    /// Remove a lease, which closes its files.
    pub fn remove(&mut self, id: u64) -> Option<LeaseState> {
        let state = self.by_id.remove(&id)?;
        let shared = state.shared.clone();
        if let Some(entries) = self.names.get_mut(&shared.topic) {
            entries.retain(|(_, known)| *known != id);
            if entries.is_empty() {
                self.names.remove(&shared.topic);
            }
        }
        if let Some(entries) = self.topic_ids.get_mut(&shared.topic_id) {
            entries.retain(|(_, known)| *known != id);
            if entries.is_empty() {
                self.topic_ids.remove(&shared.topic_id);
            }
        }
        Some(state)
    }

    pub fn mark_dirty(&mut self, id: u64) {
        if let Some(state) = self.by_id.get_mut(&id) {
            if !state.is_dirty {
                state.is_dirty = true;
                self.dirty.push(id);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::segment::{Limits, Progress};
    use super::*;
    use std::fs::{File, OpenOptions};

    /// A file of zeros that nobody else can open.
    pub fn new_file(size_bytes: u64) -> File {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("spindle-lane-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(size_bytes).unwrap();
        file
    }

    /// A lease of partition `id` of topic `t`, whose log is empty.
    pub fn lease(id: u64, is_sole_replica: bool) -> LeaseShared {
        LeaseShared {
            id,
            topic: (*b"t").into(),
            topic_id: [7; 16],
            partition: id as i32,
            leader_epoch: 3,
            is_sole_replica,
            is_active: true.into(),
            has_ended: false.into(),
            was_cut: Arc::default(),
            end_offset: 0.into(),
            high_watermark: 0.into(),
            must_wake: false.into(),
            is_reported: false.into(),
            waiting: 0.into(),
            counts: Counts::default(),
        }
    }

    pub fn state(id: u64) -> LeaseState {
        let progress = Progress {
            size_bytes: 0,
            max_timestamp: -1,
            max_timestamp_offset: -1,
            bytes_since_entry: 0,
            offset_entries: 0,
            last_entry_offset: 0,
            last_entry_position: 0,
            time_entries: 0,
            last_entry_timestamp: -1,
            last_entry_timestamp_offset: -1,
        };
        LeaseState {
            shared: Arc::new(lease(id, true)),
            rules: Rules {
                max_batch_bytes: 1 << 20,
                uses_log_append_time: false,
                timestamp_after_max_ms: i64::MAX,
                limits_decompressed: false,
            },
            may_append: true,
            has_transactions: false,
            log_start_offset: 0,
            segment: ActiveSegment {
                base_offset: 0,
                log: Arc::new(new_file(0)),
                offset_index: Arc::new(new_file(0)),
                time_index: Arc::new(new_file(0)),
                limits: Limits {
                    segment_bytes: 1 << 30,
                    max_timestamp: i64::MAX,
                    index_interval_bytes: 0,
                    offset_entries: 100,
                    time_entries: 100,
                },
                progress,
            },
            older: Vec::new(),
            producers: Producers::default(),
            positions: Positions::default(),
            is_dirty: false,
            first_append_ms: -1,
        }
    }
}

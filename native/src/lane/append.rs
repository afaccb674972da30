//! Produce from frame to answer.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::batch::{
    check_client_batch, patch_log_append_time, patch_offset_and_epoch, BatchHeader,
};
use super::lease::{LeaseShared, LeaseState, Leases};
use super::wire::{Header, Produce, Produced, TopicKey};
use crate::batch::HEADER_BYTES;

const NOT_STORED: i16 = 56; // KAFKA_STORAGE_ERROR
const NOT_LEADER: i16 = 6; // NOT_LEADER_OR_FOLLOWER
const ACKS_ALL: i16 = -1;

/// Why a request was not served whole.
#[derive(Debug)]
pub enum AppendError {
    /// Nothing was appended: Python serves the request.
    Up,
    /// Nothing was appended, and the disk has failed, or has no space left.
    Disk(io::Error),
}

/// The result of a request: what each partition got, and the error of the disk if there was one.
pub type Appended = (Vec<Produced>, Option<io::Error>);

/// Return the headers of the batches; None if Python has to look at one of them.
pub fn check_batches(frame: &[u8], header: &Header, request: &Produce) -> Option<Vec<BatchHeader>> {
    if !matches!(request.acks, ACKS_ALL | 0 | 1) {
        return None;
    }
    let check = |records: &[u8]| check_client_batch(records, header.version);
    request
        .parts
        .iter()
        .map(|part| check(&frame[part.records.clone()]))
        .collect()
}

/// Return the leases of all partitions, if every batch may be appended now.
fn admit(
    leases: &Leases,
    frame: &[u8],
    request: &Produce,
    headers: &[BatchHeader],
    now_ms: i64,
) -> Option<Vec<u64>> {
    let mut ids = Vec::with_capacity(headers.len());
    for (part, header) in request.parts.iter().zip(headers) {
        let id = match &request.topics[part.topic] {
            TopicKey::Name(range) => leases.by_name(&frame[range.clone()], part.index),
            TopicKey::Id(topic_id) => leases.by_topic_id(topic_id, part.index),
        }?;
        let state = leases.by_id.get(&id)?;
        let may_append = state.may_append
            && (request.acks != ACKS_ALL || state.shared.is_sole_replica)
            && state.rules.allow(header, now_ms)
            && state.producers.is_next(header);
        let timestamp = if state.rules.uses_log_append_time {
            now_ms
        } else {
            header.max_timestamp
        };
        let last_offset = state.end_offset() + i64::from(header.last_offset_delta);
        let must_roll = state
            .segment
            .must_roll(header.size_bytes(), last_offset, timestamp);
        if !may_append || must_roll || ids.contains(&id) {
            return None;
        }
        ids.push(id);
    }
    Some(ids)
}

/// Append all batches of a request, or none. The caller has passed the gate.
///
/// If the disk fails behind the first batch, the partitions without their batch get an error.
pub fn append(
    leases: &mut Leases,
    frame: &mut [u8],
    request: &Produce,
    headers: &mut [BatchHeader],
    now_ms: i64,
    end_lease: impl Fn(&LeaseShared),
) -> Result<(Vec<u64>, Appended), AppendError> {
    let ids = admit(leases, frame, request, headers, now_ms).ok_or(AppendError::Up)?;
    let mut results = Vec::with_capacity(ids.len());
    let mut failure = None;
    for (at, id) in ids.iter().enumerate() {
        let Some(state) = leases.by_id.get_mut(id) else {
            return Err(AppendError::Up);
        };
        if failure.is_some() {
            results.push(failed(&state.shared, NOT_STORED));
            continue;
        }
        let records = &mut frame[request.parts[at].records.clone()];
        let mut unpatched = [0; HEADER_BYTES];
        unpatched.copy_from_slice(&records[..HEADER_BYTES]);
        let began = Instant::now();
        match append_one(state, records, &mut headers[at], request.acks, now_ms) {
            Ok(result) => {
                leases
                    .writes
                    .observe(began.elapsed(), headers[at].size_bytes() as u64);
                results.push(result);
                leases.mark_dirty(*id);
            }
            Err(error) => {
                // Python checks the batch as the client has sent it.
                records[..HEADER_BYTES].copy_from_slice(&unpatched);
                // Python's log, which knows nothing of the bytes, writes at the same place.
                let shared = state.shared.clone();
                end_lease(&shared);
                leases.mark_dirty(*id);
                if at == 0 {
                    return Err(AppendError::Disk(error));
                }
                results.push(failed(&shared, NOT_STORED));
                failure = Some(error);
            }
        }
    }
    Ok((ids, (results, failure)))
}

fn failed(lease: &LeaseShared, error_code: i16) -> Produced {
    let none = -1;
    lease.counts.produces.fetch_add(1, Ordering::Relaxed);
    lease.counts.failed_produces.fetch_add(1, Ordering::Relaxed);
    Produced {
        error_code,
        base_offset: none,
        log_append_time_ms: none,
        log_start_offset: none,
    }
}

/// Write a batch, and return what its producer is told.
///
/// If the lease has ended meanwhile, other replicas may have to have the records before they are
/// committed.
fn append_one(
    state: &mut LeaseState,
    records: &mut [u8],
    header: &mut BatchHeader,
    acks: i16,
    now_ms: i64,
) -> io::Result<Produced> {
    let shared = state.shared.clone();
    let base_offset = state.end_offset();
    let mut log_append_time_ms = -1;
    if state.rules.uses_log_append_time {
        patch_log_append_time(records, header, now_ms);
        log_append_time_ms = now_ms;
    }
    patch_offset_and_epoch(records, base_offset, shared.leader_epoch);
    header.base_offset = base_offset;
    let position = state.segment.progress.size_bytes;
    state.segment.append(records, header)?;
    state.producers.append(header, base_offset);
    state
        .positions
        .note(base_offset, state.segment.base_offset, position);
    if state.first_append_ms < 0 {
        state.first_append_ms = now_ms;
    }
    let end_offset = header.last_offset() + 1;
    shared.end_offset.store(end_offset, Ordering::Release);
    if shared.has_ended_meanwhile() {
        if acks == ACKS_ALL {
            return Ok(failed(&shared, NOT_LEADER));
        }
    } else if shared.is_sole_replica {
        shared.raise_high_watermark(end_offset);
    }
    shared.counts.produces.fetch_add(1, Ordering::Relaxed);
    shared
        .counts
        .bytes_in
        .fetch_add(records.len() as u64, Ordering::Relaxed);
    shared
        .counts
        .messages_in
        .fetch_add(header.record_count as u64, Ordering::Relaxed);
    let log_start_offset = state.log_start_offset;
    Ok(Produced {
        error_code: 0,
        base_offset,
        log_append_time_ms,
        log_start_offset,
    })
}

#[cfg(test)]
mod tests {
    use super::super::batch::{tests::batch, Rules};
    use super::super::lease::Counts;
    use super::super::producers::Producers;
    use super::super::read::Positions;
    use super::super::segment::{ActiveSegment, Limits, Progress};
    use super::*;
    use std::fs::File;
    use std::sync::Arc;

    /// The lease of an only replica whose files accept everything.
    fn state() -> LeaseState {
        let file = || Arc::new(File::options().write(true).open("/dev/null").unwrap());
        let shared = Arc::new(LeaseShared {
            id: 1,
            topic: Box::from(&b"t"[..]),
            topic_id: [1; 16],
            partition: 0,
            leader_epoch: 3,
            is_sole_replica: true,
            is_active: true.into(),
            has_ended: false.into(),
            was_cut: Arc::default(),
            end_offset: 10.into(),
            high_watermark: 10.into(),
            must_wake: false.into(),
            is_reported: false.into(),
            waiting: 0.into(),
            counts: Counts::default(),
        });
        LeaseState {
            shared,
            rules: Rules {
                max_batch_bytes: 1000,
                uses_log_append_time: false,
                timestamp_after_max_ms: 1000,
                limits_decompressed: false,
            },
            may_append: true,
            has_transactions: false,
            log_start_offset: 0,
            segment: ActiveSegment {
                base_offset: 0,
                log: file(),
                offset_index: file(),
                time_index: file(),
                limits: Limits {
                    segment_bytes: 1 << 20,
                    max_timestamp: i64::MAX,
                    index_interval_bytes: 4096,
                    offset_entries: 10,
                    time_entries: 10,
                },
                progress: Progress {
                    size_bytes: 100,
                    max_timestamp: 0,
                    max_timestamp_offset: 0,
                    bytes_since_entry: 0,
                    offset_entries: 0,
                    last_entry_offset: 0,
                    last_entry_position: 0,
                    time_entries: 0,
                    last_entry_timestamp: 0,
                    last_entry_timestamp_offset: 0,
                },
            },
            older: Vec::new(),
            producers: Producers::default(),
            positions: Positions::default(),
            waiters: Vec::new(),
            is_dirty: false,
            first_append_ms: -1,
        }
    }

    /// Append a batch of one record; return the error code, the log end and the high watermark.
    fn appended(state: &mut LeaseState, acks: i16) -> (i16, i64, i64) {
        let mut records = batch(1, (-1, -1, -1), 5);
        let mut header = check_client_batch(&records, 9).unwrap();
        let produced = append_one(state, &mut records, &mut header, acks, 5).unwrap();
        let high_watermark = state.shared.high_watermark.load(Ordering::Acquire);
        (produced.error_code, state.end_offset(), high_watermark)
    }

    #[test]
    fn an_only_replica_commits_what_it_appends() {
        assert_eq!(appended(&mut state(), ACKS_ALL), (0, 11, 11));
    }

    #[test]
    fn an_append_whose_lease_ends_during_the_write_is_not_committed() {
        let mut state = state();
        state.shared.has_ended.store(true, Ordering::Release);
        assert_eq!(appended(&mut state, ACKS_ALL), (NOT_LEADER, 11, 10));
        assert_eq!(appended(&mut state, 1), (0, 12, 10));
    }
}

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
/// Nothing more is written once `is_over` returns true: a write may have hung meanwhile.
pub fn append(
    leases: &mut Leases,
    frame: &mut [u8],
    request: &Produce,
    headers: &mut [BatchHeader],
    now_ms: i64,
    end_lease: impl Fn(&LeaseShared),
    is_over: impl Fn() -> bool,
) -> Result<(Vec<u64>, Appended), AppendError> {
    let ids = admit(leases, frame, request, headers, now_ms).ok_or(AppendError::Up)?;
    let mut results = Vec::with_capacity(ids.len());
    let mut failure = None;
    for (at, id) in ids.iter().enumerate() {
        let Some(state) = leases.by_id.get_mut(id) else {
            return Err(AppendError::Up);
        };
        if failure.is_some() || is_over() {
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

/// The result of a partition whose batch was not stored, or whose directory is offline now.
pub const STORAGE_ERROR: Produced = Produced {
    error_code: NOT_STORED,
    base_offset: -1,
    log_append_time_ms: -1,
    log_start_offset: -1,
};

fn failed(lease: &LeaseShared, error_code: i16) -> Produced {
    lease.counts.produces.fetch_add(1, Ordering::Relaxed);
    lease.counts.failed_produces.fetch_add(1, Ordering::Relaxed);
    Produced {
        error_code,
        ..STORAGE_ERROR
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
    use super::super::batch::tests::batch;
    use super::super::lease::tests::state;
    use super::super::wire::ProducePart;
    use super::*;
    use std::cell::Cell;
    use std::fs::File;
    use std::sync::Arc;

    /// A request for partitions 1 and 2 of topic `t`, its frame and the headers of its batches.
    fn request() -> (Produce, Vec<u8>, Vec<BatchHeader>) {
        let bytes = batch(1, (-1, -1, -1), 5);
        let size = bytes.len();
        let frame = [b"t".as_slice(), &bytes, &bytes].concat();
        let part = |index: i32, start: usize| ProducePart {
            topic: 0,
            index,
            records: start..start + size,
        };
        let request = Produce {
            acks: 1,
            topics: vec![TopicKey::Name(0..1)],
            parts: vec![part(1, 1), part(2, 1 + size)],
        };
        let header = check_client_batch(&bytes, 9).unwrap();
        (request, frame, vec![header, header])
    }

    fn leases() -> Leases {
        let mut leases = Leases::default();
        leases.add(state(1));
        leases.add(state(2));
        leases
    }

    fn log_bytes(leases: &Leases, id: u64) -> u64 {
        leases.by_id[&id].segment.log.metadata().unwrap().len()
    }

    #[test]
    fn nothing_is_written_behind_a_write_that_has_hung_until_the_directory_was_offline() {
        let (request, mut frame, mut headers) = request();
        let mut leases = leases();
        let looks = Cell::new(0);
        let is_over = || looks.replace(looks.get() + 1) > 0;
        let appended = append(
            &mut leases,
            &mut frame,
            &request,
            &mut headers,
            9,
            |_| {},
            is_over,
        );
        let (_, (results, _)) = appended.unwrap();
        let errors: Vec<_> = results.iter().map(|result| result.error_code).collect();
        assert_eq!(errors, [0, NOT_STORED]);
        assert!(log_bytes(&leases, 1) > 0);
        assert_eq!(log_bytes(&leases, 2), 0);
    }

    #[test]
    fn bytes_of_an_append_that_failed_are_cut() {
        let (request, mut frame, mut headers) = request();
        let mut leases = leases();
        let segment = &mut leases.by_id.get_mut(&2).unwrap().segment;
        segment.offset_index = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        segment.limits.index_interval_bytes = -1; // each batch gets an entry
        let before = segment.progress;
        let appended = append(
            &mut leases,
            &mut frame,
            &request,
            &mut headers,
            9,
            |_| {},
            || false,
        );
        let (_, (results, failure)) = appended.unwrap();
        assert_eq!(failure.unwrap().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(results[1], STORAGE_ERROR);
        assert_eq!(leases.by_id[&2].segment.progress, before);
        assert_eq!(log_bytes(&leases, 2), 0);
    }

    #[test]
    fn a_lease_that_has_ended_since_the_request_was_read_takes_nothing() {
        let (request, mut frame, mut headers) = request();
        let mut leases = leases();
        let ended = &leases.by_id[&2].shared.has_ended;
        ended.store(true, Ordering::Release);
        let appended = append(
            &mut leases,
            &mut frame,
            &request,
            &mut headers,
            9,
            |_| {},
            || false,
        );
        assert!(matches!(appended, Err(AppendError::Up)));
        assert_eq!((log_bytes(&leases, 1), log_bytes(&leases, 2)), (0, 0));
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
        assert_eq!(appended(&mut state(1), ACKS_ALL), (0, 1, 1));
    }

    #[test]
    fn an_append_whose_lease_ends_during_the_write_is_not_committed() {
        let mut state = state(1);
        state.shared.has_ended.store(true, Ordering::Release);
        assert_eq!(appended(&mut state, ACKS_ALL), (NOT_LEADER, 1, 0));
        assert_eq!(appended(&mut state, 1), (0, 2, 0));
    }
}

//! Fetch of consumers: the records of leased partitions, or a wait for them.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::lease::{LeaseShared, Leases};
use super::read::{Records, Refusal, Wanted};
use super::wire::{Fetch, Fetched, TopicKey};

/// The records of one partition of a response.
pub struct PartRecords {
    pub lease: Arc<LeaseShared>,
    pub records: Records,
}

/// The partitions of a response, and their records in the same order.
pub struct Answer {
    pub shown: Vec<(usize, Fetched)>,
    pub records: Vec<PartRecords>,
}

impl Answer {
    /// Keep the partitions for which `is_shown` returns true.
    pub fn keep(&mut self, is_shown: impl Fn(usize, &Fetched) -> bool) {
        let flags: Vec<bool> = self.shown.iter().map(|(at, f)| is_shown(*at, f)).collect();
        let mut flag = flags.iter();
        self.shown.retain(|_| *flag.next().unwrap_or(&true));
        let mut flag = flags.iter();
        self.records.retain(|_| *flag.next().unwrap_or(&true));
    }
}

pub enum Looked {
    Answer(Answer),
    /// Too little: wait for appends to these leases.
    Wait(Vec<u64>),
}

fn lease_of(leases: &Leases, names: &[u8], key: &TopicKey, partition: i32) -> Option<u64> {
    match key {
        TopicKey::Name(range) => leases.by_name(&names[range.clone()], partition),
        TopicKey::Id(topic_id) => leases.by_topic_id(topic_id, partition),
    }
}

/// Return the lease of each partition, and its limit if it has records for the client, else 0.
fn check(leases: &Leases, names: &[u8], request: &Fetch) -> Result<Vec<(u64, u64)>, Refusal> {
    let mut checked: Vec<(u64, u64)> = Vec::with_capacity(request.parts.len());
    for part in &request.parts {
        let id = lease_of(leases, names, &request.topics[part.topic], part.index);
        let is_new = |id: &u64| checked.iter().all(|(known, _)| known != id);
        let id = id.filter(is_new).ok_or(Refusal::Up)?;
        let state = leases.by_id.get(&id).ok_or(Refusal::Up)?;
        let shared = &state.shared;
        if (part.leader_epoch >= 0 && part.leader_epoch != shared.leader_epoch)
            || (request.is_committed && state.has_transactions)
            || !(state.log_start_offset..=state.end_offset()).contains(&part.offset)
        {
            return Err(Refusal::Up);
        }
        let has_records = part.offset < shared.high_watermark.load(Ordering::Acquire);
        checked.push((
            id,
            if has_records {
                part.max_bytes.max(0) as u64
            } else {
                0
            },
        ));
    }
    Ok(checked)
}

/// Look at all partitions of a request. The caller has passed the gate.
///
/// Args:
///     is_due: the request is answered even if it has too little.
pub fn look(
    leases: &mut Leases,
    names: &[u8],
    request: &Fetch,
    max_bytes: u64,
    is_due: bool,
    scratch: &mut Vec<u8>,
) -> Result<Looked, Refusal> {
    let readable = check(leases, names, request)?;
    let wanted_bytes: u64 = readable.iter().map(|(_, part_bytes)| part_bytes).sum();
    let limit_bytes = max_bytes
        .min(request.max_bytes.max(0) as u64)
        .min(wanted_bytes);
    let mut answer = Answer {
        shown: Vec::new(),
        records: Vec::new(),
    };
    let mut room = limit_bytes;
    let (mut has_any, mut found_bytes, mut counted_bytes) = (false, 0u64, 0u64);
    for (at, part) in request.parts.iter().enumerate() {
        let state = leases.by_id.get_mut(&readable[at].0).ok_or(Refusal::Up)?;
        let (shared, log_start_offset) = (state.shared.clone(), state.log_start_offset);
        let high_watermark = shared.high_watermark.load(Ordering::Acquire);
        let (records, next_offset) = if room < 61 && has_any {
            (Records::NONE, part.offset)
        } else {
            let wanted = Wanted {
                offset: part.offset,
                max_bytes: room.min(part.max_bytes.max(0) as u64),
                end_offset: high_watermark,
                min_one_batch: !has_any,
            };
            let began = Instant::now();
            let found = state.read(wanted, scratch)?;
            // The others are read when they are sent.
            if let Records::Memory(range) = &found.0 {
                if !range.is_empty() {
                    leases.reads.observe(began.elapsed(), range.len() as u64);
                }
            }
            found
        };
        let size = records.len() as u64;
        has_any = has_any || size > 0;
        room = room.saturating_sub(size);
        found_bytes += size;
        // A partition that has more than its limit counts with the limit: waiting adds nothing.
        counted_bytes += if next_offset < high_watermark {
            size.max(part.max_bytes.max(0) as u64)
        } else {
            size
        };
        answer.shown.push((
            at,
            Fetched {
                high_watermark,
                last_stable_offset: high_watermark,
                log_start_offset,
                records_bytes: size as usize,
            },
        ));
        answer.records.push(PartRecords {
            lease: shared,
            records,
        });
    }
    let min_bytes = (request.min_bytes.max(0) as u64).min(limit_bytes);
    let is_enough = has_any && (found_bytes >= min_bytes || counted_bytes >= min_bytes);
    if is_due || is_enough || request.max_wait_ms <= 0 {
        return Ok(Looked::Answer(answer));
    }
    Ok(Looked::Wait(
        readable.into_iter().map(|(id, _)| id).collect(),
    ))
}

//! Whole chunks of plain batches: uncompressed, and outside of transactions.

use super::filter::{
    choose_records, map_records, write_records, Batch, Kept, Rules, MAX_RECORD_GROWTH,
};
use super::key_map::KeyMap;
use crate::batch::{
    computed_crc, is_base_offset, APPEND_TIME_FLAG, BASE_TIMESTAMP_AT, CODEC_MASK, CONTROL_FLAG,
    CRC_AT, DELETE_HORIZON_FLAG, FLAGS_AT, HEADER_BYTES, LAST_DELTA_AT, LENGTH_AT,
    LOG_OVERHEAD_BYTES, MAGIC_AT, MAX_TIMESTAMP_AT, RECORD_COUNT_AT, TRANSACTIONAL_FLAG,
};
use crate::numbers::{i32_at, i64_at, u32_at};

const NEEDS_PYTHON_FLAGS: u8 = CODEC_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG;
const MIN_RECORD_BYTES: i64 = 7;

/// A place in the copies for which the index of the segment needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPoint {
    pub last_offset: i64,
    pub position: usize,
    pub max_timestamp: i64,
    pub max_timestamp_offset: i64,
}

/// The state of a segment's index between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    pub max_timestamp: i64,
    pub max_timestamp_offset: i64,
    pub bytes_since_point: i64,
}

/// The rules of a pass; see `CopyRules` of `key_map.py`.
pub struct CopyRules {
    pub rules: Rules,
    pub round_end: i64,
    /// Ascending; batches that end there may have to stay, if need be empty.
    pub last_offsets: Vec<i64>,
    pub index_interval_bytes: i64,
    pub max_points: usize,
}

/// The copies of one chunk.
#[derive(Debug)]
pub struct Copied {
    /// Where the first batch starts that was not copied.
    pub position: usize,
    pub written: usize,
    pub points: Vec<IndexPoint>,
    pub progress: IndexProgress,
    pub records_read: usize,
    pub records_kept: usize,
}

/// Return the whole batch at the beginning of `data` if it is plain.
fn plain_batch(data: &[u8]) -> Option<&[u8]> {
    if data.len() < HEADER_BYTES || !is_base_offset(i64_at(data, 0)) {
        return None;
    }
    let size = i64::from(i32_at(data, LENGTH_AT)) + LOG_OVERHEAD_BYTES;
    if size < HEADER_BYTES as i64 || size > data.len() as i64 || data[MAGIC_AT] != 2 {
        return None;
    }
    if data[FLAGS_AT] & NEEDS_PYTHON_FLAGS != 0 || i32_at(data, LAST_DELTA_AT) < 0 {
        return None;
    }
    // With more records than offsets, the map could have no room for their keys.
    let offsets = i64::from(i32_at(data, LAST_DELTA_AT)) + 1;
    let max_count = offsets.min(size / MIN_RECORD_BYTES);
    if !(0..=max_count).contains(&i64::from(i32_at(data, RECORD_COUNT_AT))) {
        return None;
    }
    let batch = &data[..size as usize];
    (computed_crc(batch) == u32_at(batch, CRC_AT)).then_some(batch)
}

fn last_offset(batch: &[u8]) -> i64 {
    i64_at(batch, 0) + i64::from(i32_at(batch, LAST_DELTA_AT))
}

/// Note the keys of the batches from `at` on that end before `end_offset`.
///
/// Return where the first batch starts whose keys were not noted, and the offset after the last
/// one whose keys were (-1 if there is none).
pub fn map_batches(
    map: &mut KeyMap,
    data: &[u8],
    mut at: usize,
    first_offset: i64,
    end_offset: i64,
    max_keys: usize,
) -> (usize, i64) {
    let mut mapped_end = -1;
    while let Some(batch) = plain_batch(&data[at..]) {
        let last_offset = last_offset(batch);
        let count = i32_at(batch, RECORD_COUNT_AT) as usize;
        if last_offset >= end_offset {
            break;
        }
        if last_offset >= first_offset {
            let (records, base_offset) = (&batch[HEADER_BYTES..], i64_at(batch, 0));
            if map.used() + count > max_keys
                || !map_records(map, records, count, base_offset, first_offset)
            {
                break;
            }
            mapped_end = last_offset + 1;
        }
        at += batch.len();
    }
    (at, mapped_end)
}

/// Write what stays of the batches from `at` on to `out`.
///
/// End in front of a batch that is not plain, may have to stay empty, or for which `out` or the
/// points have no room.
pub fn copy_batches(
    map: &KeyMap,
    copy_rules: &CopyRules,
    data: &[u8],
    at: usize,
    progress: IndexProgress,
    is_kept: &mut Vec<bool>,
    out: &mut [u8],
) -> Copied {
    let mut copied = Copied {
        position: at,
        written: 0,
        points: Vec::new(),
        progress,
        records_read: 0,
        records_kept: 0,
    };
    while let Some(batch) = plain_batch(&data[copied.position..]) {
        let header = Batch {
            count: i32_at(batch, RECORD_COUNT_AT) as usize,
            base_offset: i64_at(batch, 0),
            base_timestamp: i64_at(batch, BASE_TIMESTAMP_AT),
            max_timestamp: i64_at(batch, MAX_TIMESTAMP_AT),
            has_append_time: batch[FLAGS_AT] & APPEND_TIME_FLAG != 0,
            has_horizon: batch[FLAGS_AT] & DELETE_HORIZON_FLAG != 0,
        };
        let left = &mut out[copied.written..];
        let max_bytes = batch.len() + header.count * MAX_RECORD_GROWTH;
        if copied.points.len() >= copy_rules.max_points || left.len() < max_bytes {
            break;
        }
        let (records, rules) = (&batch[HEADER_BYTES..], &copy_rules.rules);
        let Some(kept) = choose_records(map, records, &header, rules, is_kept) else {
            break;
        };
        if kept.count == 0 && may_have_to_stay(copy_rules, last_offset(batch)) {
            break;
        }
        if kept.count > 0 {
            let Some(written) = write_batch(batch, &header, &kept, is_kept, left) else {
                break;
            };
            copied.note_point(copy_rules, &out[copied.written..][..written]);
            copied.written += written;
        }
        copied.records_read += header.count;
        copied.records_kept += kept.count;
        copied.position += batch.len();
    }
    copied
}

/// Write what stays of a batch; return its size, None if Python has to handle the batch.
fn write_batch(
    batch: &[u8],
    header: &Batch,
    kept: &Kept,
    is_kept: &[bool],
    out: &mut [u8],
) -> Option<usize> {
    if kept.is_unchanged {
        out[..batch.len()].copy_from_slice(batch);
        return Some(batch.len());
    }
    let (records, room) = (&batch[HEADER_BYTES..], &mut out[HEADER_BYTES..]);
    let size = HEADER_BYTES + write_records(records, header, kept, is_kept, room)?;
    let out = &mut out[..size];
    out[..HEADER_BYTES].copy_from_slice(&batch[..HEADER_BYTES]);
    put(
        out,
        LENGTH_AT,
        &((size as i64 - LOG_OVERHEAD_BYTES) as i32).to_be_bytes(),
    );
    if kept.sets_horizon {
        out[FLAGS_AT] |= DELETE_HORIZON_FLAG;
    }
    put(out, BASE_TIMESTAMP_AT, &kept.base_timestamp.to_be_bytes());
    put(out, MAX_TIMESTAMP_AT, &kept.max_timestamp.to_be_bytes());
    put(out, RECORD_COUNT_AT, &(kept.count as i32).to_be_bytes());
    let crc = computed_crc(out);
    put(out, CRC_AT, &crc.to_be_bytes());
    Some(size)
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn may_have_to_stay(rules: &CopyRules, last_offset: i64) -> bool {
    last_offset + 1 == rules.round_end || rules.last_offsets.binary_search(&last_offset).is_ok()
}

impl Copied {
    /// Note a batch that was written at the end of the copies.
    fn note_point(&mut self, rules: &CopyRules, batch: &[u8]) {
        let (last_offset, progress) = (last_offset(batch), &mut self.progress);
        let max_timestamp = i64_at(batch, MAX_TIMESTAMP_AT);
        if max_timestamp > progress.max_timestamp {
            progress.max_timestamp = max_timestamp;
            progress.max_timestamp_offset = last_offset;
        }
        if progress.bytes_since_point > rules.index_interval_bytes {
            self.points.push(IndexPoint {
                last_offset,
                position: self.written,
                max_timestamp: progress.max_timestamp,
                max_timestamp_offset: progress.max_timestamp_offset,
            });
            progress.bytes_since_point = 0;
        }
        progress.bytes_since_point += batch.len() as i64;
    }
}

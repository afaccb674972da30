//! The records of one batch that compaction keeps.

use super::key_map::{Hash, KeyMap, GROUP};
use super::records::{take_record, Record};
use crate::batch::is_base_offset;
use crate::numbers::{number_bytes, write_number};

/// The length and the timestamp of a record may need longer numbers.
pub const MAX_RECORD_GROWTH: usize = 16;

/// What the header of a batch and the rules of a pass say; see `CopyRules` of `key_map.py`.
#[derive(Clone, Copy)]
pub struct Batch {
    pub count: usize,
    pub base_offset: i64,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub has_append_time: bool,
    pub has_horizon: bool,
}

#[derive(Clone, Copy)]
pub struct Rules {
    /// Keys are known below this offset; records from here on stay.
    pub known_end: i64,
    pub now_ms: i64,
    pub new_horizon_ms: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    pub count: usize,
    pub is_unchanged: bool,
    pub sets_horizon: bool,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    /// The most that `write_records` writes: nothing if all records stay, or none.
    pub max_bytes: usize,
}

/// Note the keys of a batch's records, from `first_offset` on.
///
/// Return false if the records do not parse or the map is full; some keys may be noted then.
pub fn map_records(
    map: &mut KeyMap,
    mut data: &[u8],
    mut count: usize,
    base_offset: i64,
    first_offset: i64,
) -> bool {
    if !is_base_offset(base_offset) {
        return false;
    }
    while count > 0 {
        let mut hashes = [Hash::default(); GROUP];
        let mut offsets = [0; GROUP];
        let mut held = 0;
        while count > 0 && held < GROUP {
            let Some(record) = take_record(&mut data) else {
                return false;
            };
            count -= 1;
            let offset = base_offset + record.offset_delta;
            if let (Some(key), true) = (record.key, offset >= first_offset) {
                hashes[held] = map.hash(key);
                offsets[held] = offset;
                held += 1;
            }
        }
        map.touch(&hashes[..held]);
        for (&hash, &offset) in hashes[..held].iter().zip(&offsets) {
            if map.put(hash, offset).is_err() {
                return false;
            }
        }
    }
    data.is_empty()
}

/// Choose the records that stay, and fill `is_kept`.
///
/// Return None if the records do not parse, or have a time that no batch can hold.
pub fn choose_records(
    map: &KeyMap,
    data: &[u8],
    batch: &Batch,
    rules: &Rules,
    is_kept: &mut Vec<bool>,
) -> Option<Kept> {
    if !is_base_offset(batch.base_offset) {
        return None;
    }
    let (mut kept, has_tombstone) = walk_records(map, data, batch, rules, is_kept)?;
    kept.sets_horizon = has_tombstone && !batch.has_horizon;
    kept.is_unchanged = kept.count == batch.count && !kept.sets_horizon;
    if kept.count == 0 || kept.is_unchanged {
        return Some(kept);
    }
    if batch.has_append_time {
        kept.max_timestamp = batch.max_timestamp;
    }
    if kept.sets_horizon {
        kept.base_timestamp = rules.new_horizon_ms;
    } else if batch.has_horizon {
        kept.base_timestamp = batch.base_timestamp;
    }
    kept.max_bytes = data.len() + kept.count * MAX_RECORD_GROWTH;
    Some(kept)
}

/// Fill `is_kept`; return what is kept, and whether there is a tombstone among it.
fn walk_records(
    map: &KeyMap,
    mut data: &[u8],
    batch: &Batch,
    rules: &Rules,
    is_kept: &mut Vec<bool>,
) -> Option<(Kept, bool)> {
    let mut has_tombstone = false;
    let mut kept = Kept {
        count: 0,
        is_unchanged: false,
        sets_horizon: false,
        base_timestamp: -1,
        max_timestamp: -1,
        max_bytes: 0,
    };
    is_kept.clear();
    while is_kept.len() < batch.count {
        let mut group = [Record::default(); GROUP];
        let mut hashes = [Hash::default(); GROUP];
        let held = GROUP.min(batch.count - is_kept.len());
        for (record, hash) in group[..held].iter_mut().zip(&mut hashes) {
            *record = take_record(&mut data)?;
            if let Some(key) = record.key {
                *hash = map.hash(key);
            }
        }
        map.touch(&hashes[..held]);
        for (record, &hash) in group[..held].iter().zip(&hashes) {
            let stays = stays(map, batch, rules, record, hash);
            is_kept.push(stays);
            if !stays {
                continue;
            }
            let timestamp = match batch.has_append_time {
                true => batch.max_timestamp,
                false => batch.base_timestamp.checked_add(record.timestamp_delta)?,
            };
            if kept.count == 0 {
                kept.base_timestamp = timestamp;
                kept.max_timestamp = timestamp;
            }
            kept.max_timestamp = kept.max_timestamp.max(timestamp);
            kept.count += 1;
            has_tombstone |= record.is_tombstone;
        }
    }
    data.is_empty().then_some((kept, has_tombstone))
}

#[inline]
fn stays(map: &KeyMap, batch: &Batch, rules: &Rules, record: &Record, hash: Hash) -> bool {
    let offset = batch.base_offset + record.offset_delta;
    if offset >= rules.known_end {
        return true;
    }
    if record.key.is_none() || offset < map.newest_offset(hash) {
        return false;
    }
    !(record.is_tombstone && batch.has_horizon && batch.base_timestamp <= rules.now_ms)
}

/// Write the records that stay, with timestamps from a new base; return the count of bytes.
///
/// `out` has room for `kept.max_bytes`. Return None if a time is too far from the new base.
pub fn write_records(
    mut data: &[u8],
    batch: &Batch,
    kept: &Kept,
    is_kept: &[bool],
    out: &mut [u8],
) -> Option<usize> {
    let mut end = 0;
    for &is_kept in is_kept {
        let record = take_record(&mut data)?;
        if !is_kept {
            continue;
        }
        let timestamp = match batch.has_append_time {
            true => batch.max_timestamp,
            false => batch.base_timestamp.checked_add(record.timestamp_delta)?,
        };
        let delta = timestamp.checked_sub(kept.base_timestamp)?;
        let size = 1 + number_bytes(delta) + record.rest.len();
        end = write_number(out, end, size as i64);
        out[end] = 0; // attributes
        end = write_number(out, end + 1, delta);
        out[end..end + record.rest.len()].copy_from_slice(record.rest);
        end += record.rest.len();
    }
    Some(end)
}

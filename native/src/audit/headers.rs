//! The walk over batch headers. It touches no records, unless checksums are wanted.

use super::records::check_records;
use crate::batch::{
    computed_crc, ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CODEC_MASK, CONTROL_FLAG,
    CRC_AT, FLAGS_AT, HEADER_BYTES, LAST_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT, LOG_OVERHEAD_BYTES,
    MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, RECORD_COUNT_AT,
};
use crate::numbers::{i16_at, i32_at, i64_at, u32_at};

/// Rows of the table, which has a column for each batch; see `header_table.py`.
pub const FIELD_COUNT: usize = 14;
/// Rows of the table of records.
pub const RECORDS_WIDTH: usize = 2;
/// The status of a batch that must be decompressed first.
const RECORDS_ARE_PACKED: i64 = -1;

/// What is wrong with a header; the numbers are those of `SCAN_FINDINGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    OldFormat = 1,
    UnknownFormat = 2,
    WrongLength = 3,
    WrongCount = 5,
    WrongOffsets = 6,
}

/// Bytes of a segment in memory, and what is wanted of them.
pub struct Window<'a> {
    pub data: &'a [u8],
    /// The position of the data in the file.
    pub start: i64,
    pub file_end: i64,
    /// Batches that hold offsets of [first, end) are wanted.
    pub limits: (i64, i64),
    /// Compute the checksums of batches, which have to be in memory as a whole.
    pub checks_crcs: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Walked {
    pub finding: Option<Finding>,
    /// Where to read on in the file.
    pub position: i64,
    pub batches: usize,
    /// The offset after the last batch that was passed.
    pub next_offset: i64,
    pub is_finished: bool,
    /// The walk stopped before a batch that the file does not hold as a whole.
    pub is_torn: bool,
}

/// Fill `table` with the batches of a window, and `records` with what their records say.
///
/// Each has a row for a field and `room` columns; without any row in `records`, records are not
/// read. Stop where the next header (with checksums: the next batch) is not in the window as a
/// whole, at the end offset, at a full table, in front of a header that cannot be one, and in front
/// of a batch that the file does not hold as a whole.
pub fn walk_headers(
    window: &Window,
    next_offset: i64,
    table: &mut [i64],
    records: &mut [i64],
    room: usize,
) -> Walked {
    let end = window.start + window.data.len() as i64;
    let mut walked = Walked {
        position: window.start,
        next_offset,
        ..Walked::default()
    };
    while end - walked.position >= HEADER_BYTES as i64 && walked.batches < room {
        let data = &window.data[(walked.position - window.start) as usize..];
        let size = i64::from(i32_at(data, LENGTH_AT)) + LOG_OVERHEAD_BYTES;
        if data[MAGIC_AT] < 2 && size == LOG_OVERHEAD_BYTES {
            walked.is_torn = true; // zeros: space that was allocated and not written
            break;
        }
        walked.finding = format_finding(data[MAGIC_AT], size);
        if walked.finding.is_some() {
            break;
        }
        if window.file_end - walked.position < size {
            walked.is_torn = true;
            break;
        }
        if window.checks_crcs && end - walked.position < size {
            break;
        }
        let (base_offset, last_delta) = (i64_at(data, 0), i64::from(i32_at(data, LAST_DELTA_AT)));
        // Before any sum, which could overflow.
        if base_offset < 0 || last_delta < 0 || base_offset >= i64::MAX - last_delta {
            walked.finding = Some(Finding::WrongOffsets);
            break;
        }
        if base_offset >= window.limits.1 {
            walked.is_finished = true;
            break;
        }
        let next_offset = base_offset + last_delta + 1;
        if !(0..=last_delta + 1).contains(&i64::from(i32_at(data, RECORD_COUNT_AT))) {
            walked.finding = Some(Finding::WrongCount);
            break;
        }
        if next_offset > window.limits.0 {
            note_batch(window, data, size, &walked, table, records, room);
            walked.batches += 1;
        }
        walked.position += size;
        walked.next_offset = next_offset;
        if next_offset >= window.limits.1 {
            walked.is_finished = true;
            break;
        }
    }
    walked
}

fn format_finding(magic: u8, size: i64) -> Option<Finding> {
    match magic {
        0 | 1 => Some(Finding::OldFormat),
        2 if size < HEADER_BYTES as i64 => Some(Finding::WrongLength),
        2 => None,
        _ => Some(Finding::UnknownFormat),
    }
}

/// Fill the next column of both tables.
fn note_batch(
    window: &Window,
    data: &[u8],
    size: i64,
    walked: &Walked,
    table: &mut [i64],
    records: &mut [i64],
    room: usize,
) {
    let crc = u32_at(data, CRC_AT);
    let computed = match window.checks_crcs {
        true => computed_crc(&data[..size as usize]),
        false => crc,
    };
    let count = i64::from(i32_at(data, RECORD_COUNT_AT));
    let last_delta = i64::from(i32_at(data, LAST_DELTA_AT));
    let fields: [i64; FIELD_COUNT] = [
        walked.position,
        size,
        i64_at(data, 0),
        i64::from(i32_at(data, LEADER_EPOCH_AT)),
        i64::from(crc),
        i64::from(i16_at(data, ATTRIBUTES_AT)),
        last_delta,
        i64_at(data, BASE_TIMESTAMP_AT),
        i64_at(data, MAX_TIMESTAMP_AT),
        i64_at(data, PRODUCER_ID_AT),
        i64::from(i16_at(data, PRODUCER_EPOCH_AT)),
        i64::from(i32_at(data, BASE_SEQUENCE_AT)),
        count,
        i64::from(computed),
    ];
    for (row, value) in fields.into_iter().enumerate() {
        table[row * room + walked.batches] = value;
    }
    if records.is_empty() {
        return;
    }
    let (status, byte) = (walked.batches, room + walked.batches);
    records[status] = 0;
    if crc != computed || count == 0 || data[FLAGS_AT] & CONTROL_FLAG != 0 {
        return;
    }
    if data[FLAGS_AT] & CODEC_MASK != 0 {
        records[status] = RECORDS_ARE_PACKED;
        return;
    }
    match check_records(&data[HEADER_BYTES..size as usize], count, last_delta) {
        Ok(end) => records[byte] = end as i64,
        Err(damage) => {
            records[status] = damage.finding as i64;
            records[byte] = damage.byte as i64;
        }
    }
}

//! The header of a batch (message format 2, KIP-98): positions of its fields, flags and limits.

pub const HEADER_BYTES: usize = 61;
/// The base offset and the length, which does not count them.
pub const LOG_OVERHEAD_BYTES: i64 = 12;

pub const LENGTH_AT: usize = 8;
pub const LEADER_EPOCH_AT: usize = 12;
pub const MAGIC_AT: usize = 16;
pub const CRC_AT: usize = 17;
/// The checksum covers the batch from its attributes on.
pub const ATTRIBUTES_AT: usize = 21;
pub const LAST_DELTA_AT: usize = 23;
pub const BASE_TIMESTAMP_AT: usize = 27;
pub const MAX_TIMESTAMP_AT: usize = 35;
pub const PRODUCER_ID_AT: usize = 43;
pub const PRODUCER_EPOCH_AT: usize = 51;
pub const BASE_SEQUENCE_AT: usize = 53;
pub const RECORD_COUNT_AT: usize = 57;

/// The byte of the attributes that has the flags.
pub const FLAGS_AT: usize = 22;
pub const CODEC_MASK: u8 = 0x07;
pub const APPEND_TIME_FLAG: u8 = 0x08;
pub const TRANSACTIONAL_FLAG: u8 = 0x10;
pub const CONTROL_FLAG: u8 = 0x20;
pub const DELETE_HORIZON_FLAG: u8 = 0x40;

/// With it, no offset in a batch overflows.
const MAX_BASE_OFFSET: i64 = i64::MAX - i32::MAX as i64 - 1;

pub fn is_base_offset(offset: i64) -> bool {
    (0..=MAX_BASE_OFFSET).contains(&offset)
}

/// Return the checksum over a whole batch.
#[inline]
pub fn computed_crc(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&batch[ATTRIBUTES_AT..])
}

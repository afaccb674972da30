//! The record batch of format version 2: what the lane checks and changes of its header.

use crate::batch::{
    computed_crc, APPEND_TIME_FLAG, ATTRIBUTES_AT, BASE_SEQUENCE_AT, CODEC_MASK, CONTROL_FLAG,
    CRC_AT, HEADER_BYTES, LAST_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT, LOG_OVERHEAD_BYTES, MAGIC_AT,
    MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, RECORD_COUNT_AT, TRANSACTIONAL_FLAG,
};
use crate::numbers::{i16_at, i32_at, i64_at, u32_at};

const MAGIC: u8 = 2;
const ZSTD: u8 = 4;
/// Produce requests before this version may not carry zstd.
const ZSTD_FROM: i16 = 7;
const MAX_SEQUENCE: i32 = i32::MAX;

/// The fields of a header that the lane uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    pub batch_length: i32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

/// The rules of a topic for appends. Times in ms.
#[derive(Clone, Debug)]
pub struct Rules {
    pub max_batch_bytes: i64,
    pub uses_log_append_time: bool,
    pub timestamp_after_max_ms: i64,
    pub limits_decompressed: bool,
}

impl BatchHeader {
    /// Read the header at the start; None if it is cut off, or not one of a batch of magic 2.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES || bytes[MAGIC_AT] != MAGIC {
            return None;
        }
        let header = BatchHeader {
            base_offset: i64_at(bytes, 0),
            batch_length: i32_at(bytes, LENGTH_AT),
            attributes: i16_at(bytes, ATTRIBUTES_AT),
            last_offset_delta: i32_at(bytes, LAST_DELTA_AT),
            max_timestamp: i64_at(bytes, MAX_TIMESTAMP_AT),
            producer_id: i64_at(bytes, PRODUCER_ID_AT),
            producer_epoch: i16_at(bytes, PRODUCER_EPOCH_AT),
            base_sequence: i32_at(bytes, BASE_SEQUENCE_AT),
            record_count: i32_at(bytes, RECORD_COUNT_AT),
        };
        (header.batch_length >= 0 && header.size_bytes() >= HEADER_BYTES).then_some(header)
    }

    pub fn size_bytes(&self) -> usize {
        self.batch_length as usize + LOG_OVERHEAD_BYTES as usize
    }

    fn has(&self, flags: u8) -> bool {
        self.attributes & i16::from(flags) != 0
    }

    /// Saturates, because the bytes may be damaged.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        self.base_sequence.wrapping_add(self.last_offset_delta) & MAX_SEQUENCE
    }
}

/// Return the header of a client's batch that can be appended as it is; None to let Python decide.
pub fn check_client_batch(records: &[u8], version: i16) -> Option<BatchHeader> {
    let header = BatchHeader::read(records)?;
    let codec = header.attributes as u8 & CODEC_MASK;
    let is_fine = header.size_bytes() == records.len()
        && codec <= ZSTD
        && (codec != ZSTD || version >= ZSTD_FROM)
        && header.record_count > 0
        && header.last_offset_delta == header.record_count - 1
        && header.base_offset == 0
        && !header.has(CONTROL_FLAG | TRANSACTIONAL_FLAG)
        && (header.producer_id < 0 || header.base_sequence >= 0);
    (is_fine && computed_crc(records) == u32_at(records, CRC_AT)).then_some(header)
}

impl Rules {
    /// Return whether the batch may be appended without a look at its records.
    pub fn allow(&self, header: &BatchHeader, now_ms: i64) -> bool {
        header.size_bytes() as i64 <= self.max_batch_bytes
            && !(self.limits_decompressed && header.has(CODEC_MASK))
            && (self.uses_log_append_time
                || (!header.has(APPEND_TIME_FLAG)
                    && header.max_timestamp <= now_ms.saturating_add(self.timestamp_after_max_ms)))
    }
}

/// Write the leader's base offset and epoch, which the checksum does not cover.
pub fn patch_offset_and_epoch(records: &mut [u8], base_offset: i64, leader_epoch: i32) {
    put(records, 0, base_offset.to_be_bytes());
    put(records, LEADER_EPOCH_AT, leader_epoch.to_be_bytes());
}

/// Write the time of the append, and the new checksum.
pub fn patch_log_append_time(records: &mut [u8], header: &mut BatchHeader, now_ms: i64) {
    header.attributes |= i16::from(APPEND_TIME_FLAG);
    header.max_timestamp = now_ms;
    put(records, ATTRIBUTES_AT, header.attributes.to_be_bytes());
    put(records, MAX_TIMESTAMP_AT, now_ms.to_be_bytes());
    put(records, CRC_AT, computed_crc(records).to_be_bytes());
}

fn put<const N: usize>(records: &mut [u8], at: usize, bytes: [u8; N]) {
    records[at..at + N].copy_from_slice(&bytes);
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A batch of `count` records, with any bytes as records.
    pub fn batch(count: i32, producer: (i64, i16, i32), max_timestamp: i64) -> Vec<u8> {
        let mut bytes = vec![0u8; HEADER_BYTES + 10 * count as usize];
        let length = bytes.len() as i32 - LOG_OVERHEAD_BYTES as i32;
        put(&mut bytes, LENGTH_AT, length.to_be_bytes());
        bytes[MAGIC_AT] = MAGIC;
        put(&mut bytes, LAST_DELTA_AT, (count - 1).to_be_bytes());
        put(&mut bytes, MAX_TIMESTAMP_AT, max_timestamp.to_be_bytes());
        put(&mut bytes, PRODUCER_ID_AT, producer.0.to_be_bytes());
        put(&mut bytes, PRODUCER_EPOCH_AT, producer.1.to_be_bytes());
        put(&mut bytes, BASE_SEQUENCE_AT, producer.2.to_be_bytes());
        put(&mut bytes, RECORD_COUNT_AT, count.to_be_bytes());
        let crc = computed_crc(&bytes);
        put(&mut bytes, CRC_AT, crc.to_be_bytes());
        bytes
    }

    #[test]
    fn a_sound_batch_is_taken() {
        let bytes = batch(3, (-1, -1, -1), 5);
        let header = check_client_batch(&bytes, 9).unwrap();
        assert_eq!(header.record_count, 3);
        assert_eq!(header.last_sequence(), -1);
    }

    #[test]
    fn any_changed_byte_after_the_checksum_is_noticed() {
        let bytes = batch(1, (-1, -1, -1), 5);
        for at in ATTRIBUTES_AT..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(check_client_batch(&changed, 9).is_none(), "byte {at}");
        }
    }

    #[test]
    fn a_cut_off_batch_is_not_taken() {
        let bytes = batch(1, (-1, -1, -1), 5);
        for end in 0..bytes.len() {
            assert!(
                check_client_batch(&bytes[..end], 9).is_none(),
                "{end} bytes"
            );
        }
    }

    #[test]
    fn the_log_append_time_gets_a_valid_checksum() {
        let mut bytes = batch(1, (-1, -1, -1), 5);
        let mut header = check_client_batch(&bytes, 9).unwrap();
        patch_log_append_time(&mut bytes, &mut header, 77);
        patch_offset_and_epoch(&mut bytes, 12, 3);
        let patched = BatchHeader::read(&bytes).unwrap();
        assert_eq!((patched.max_timestamp, patched.base_offset), (77, 12));
        assert_eq!(computed_crc(&bytes), u32_at(&bytes, CRC_AT));
    }

    #[test]
    fn a_sequence_wraps_to_zero() {
        let bytes = batch(2, (1, 0, i32::MAX), 5);
        assert_eq!(check_client_batch(&bytes, 9).unwrap().last_sequence(), 0);
    }
}

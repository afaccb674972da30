//! The record batch of format version 2: what the lane checks and changes of its header.

pub const HEADER_BYTES: usize = 61;
pub const LOG_OVERHEAD_BYTES: usize = 12;
const MAGIC: u8 = 2;
const CRC_COVERS_FROM: usize = 21;
const CODEC_MASK: i16 = 0x07;
const TIMESTAMP_TYPE_FLAG: i16 = 0x08;
const TRANSACTIONAL_FLAG: i16 = 0x10;
const CONTROL_FLAG: i16 = 0x20;
const ZSTD: i16 = 4;
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

fn int16(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn int32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn int64(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

impl BatchHeader {
    /// Read the header at the start; None if it is cut off, or not one of a batch of magic 2.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_BYTES || bytes[16] != MAGIC {
            return None;
        }
        let header = BatchHeader {
            base_offset: int64(bytes, 0),
            batch_length: int32(bytes, 8),
            attributes: int16(bytes, 21),
            last_offset_delta: int32(bytes, 23),
            max_timestamp: int64(bytes, 35),
            producer_id: int64(bytes, 43),
            producer_epoch: int16(bytes, 51),
            base_sequence: int32(bytes, 53),
            record_count: int32(bytes, 57),
        };
        (header.batch_length >= (HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32).then_some(header)
    }

    pub fn size_bytes(&self) -> usize {
        self.batch_length as usize + LOG_OVERHEAD_BYTES
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
    let codec = header.attributes & CODEC_MASK;
    let is_fine = header.size_bytes() == records.len()
        && codec <= ZSTD
        && (codec != ZSTD || version >= ZSTD_FROM)
        && header.record_count > 0
        && header.last_offset_delta == header.record_count - 1
        && header.base_offset == 0
        && header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG) == 0
        && (header.producer_id < 0 || header.base_sequence >= 0);
    (is_fine && crc_fast::crc32_iscsi(&records[CRC_COVERS_FROM..]) == int32(records, 17) as u32)
        .then_some(header)
}

impl Rules {
    /// Return whether the batch may be appended without a look at its records.
    pub fn allow(&self, header: &BatchHeader, now_ms: i64) -> bool {
        header.size_bytes() as i64 <= self.max_batch_bytes
            && !(self.limits_decompressed && header.attributes & CODEC_MASK != 0)
            && (self.uses_log_append_time
                || (header.attributes & TIMESTAMP_TYPE_FLAG == 0
                    && header.max_timestamp <= now_ms.saturating_add(self.timestamp_after_max_ms)))
    }
}

/// Write the leader's base offset and epoch, which the checksum does not cover.
pub fn patch_offset_and_epoch(records: &mut [u8], base_offset: i64, leader_epoch: i32) {
    records[..8].copy_from_slice(&base_offset.to_be_bytes());
    records[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Write the time of the append, and the new checksum.
pub fn patch_log_append_time(records: &mut [u8], header: &mut BatchHeader, now_ms: i64) {
    header.attributes |= TIMESTAMP_TYPE_FLAG;
    header.max_timestamp = now_ms;
    records[21..23].copy_from_slice(&header.attributes.to_be_bytes());
    records[35..43].copy_from_slice(&now_ms.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&records[CRC_COVERS_FROM..]);
    records[17..21].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A batch of `count` records, with any bytes as records.
    pub fn batch(count: i32, producer: (i64, i16, i32), max_timestamp: i64) -> Vec<u8> {
        let mut bytes = vec![0u8; HEADER_BYTES + 10 * count as usize];
        let length = (bytes.len() - LOG_OVERHEAD_BYTES) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = MAGIC;
        bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        bytes[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&producer.0.to_be_bytes());
        bytes[51..53].copy_from_slice(&producer.1.to_be_bytes());
        bytes[53..57].copy_from_slice(&producer.2.to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        let crc = crc_fast::crc32_iscsi(&bytes[CRC_COVERS_FROM..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
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
        for at in CRC_COVERS_FROM..bytes.len() {
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
        assert_eq!(
            crc_fast::crc32_iscsi(&bytes[CRC_COVERS_FROM..]),
            int32(&bytes, 17) as u32
        );
    }

    #[test]
    fn a_sequence_wraps_to_zero() {
        let bytes = batch(2, (1, 0, i32::MAX), 5);
        assert_eq!(check_client_batch(&bytes, 9).unwrap().last_sequence(), 0);
    }
}

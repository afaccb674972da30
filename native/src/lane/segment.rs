//! The active segment of a leased log: its file, its indexes, and the rules for both.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::batch::BatchHeader;
use crate::batch::LOG_OVERHEAD_BYTES;

pub const OFFSET_ENTRY_BYTES: u64 = 8;
const TIME_ENTRY_BYTES: u64 = 12;
const MAX_RELATIVE_OFFSET: i64 = i32::MAX as i64;

/// What Python has to know of the segment after appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub size_bytes: u64,
    pub max_timestamp: i64,
    pub max_timestamp_offset: i64,
    pub bytes_since_entry: i64,
    pub offset_entries: u64,
    pub last_entry_offset: i64,
    pub last_entry_position: u64,
    pub time_entries: u64,
    pub last_entry_timestamp: i64,
    pub last_entry_timestamp_offset: i64,
}

/// The limits at which a new segment begins, or an index gets an entry.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub segment_bytes: i64,
    /// The largest timestamp that the segment may get.
    pub max_timestamp: i64,
    pub index_interval_bytes: i64,
    pub offset_entries: u64,
    pub time_entries: u64,
}

pub struct ActiveSegment {
    pub base_offset: i64,
    pub log: Arc<File>,
    pub offset_index: Arc<File>,
    pub time_index: Arc<File>,
    pub limits: Limits,
    pub progress: Progress,
}

impl ActiveSegment {
    /// Return whether a batch with this size, last offset and timestamp begins a new segment.
    pub fn must_roll(&self, size_bytes: usize, last_offset: i64, timestamp: i64) -> bool {
        let (limits, now) = (&self.limits, &self.progress);
        now.size_bytes as i64 > limits.segment_bytes - size_bytes as i64
            || timestamp > limits.max_timestamp
            || now.offset_entries >= limits.offset_entries
            || now.time_entries + 1 >= limits.time_entries
            || last_offset - self.base_offset > MAX_RELATIVE_OFFSET
    }

    /// Write a batch, with final offsets, at the end.
    pub fn append(&mut self, records: &[u8], header: &BatchHeader) -> io::Result<()> {
        let before = self.progress;
        let position = before.size_bytes;
        let result = match self.log.write_all_at(records, position) {
            Ok(()) => self.note_batch(position, header),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => self.progress.size_bytes = position + records.len() as u64,
            Err(error) => {
                self.progress = before; // as if nothing was written
                self.cut()?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Remove the bytes of an append that failed: after a clean stop they would be records.
    fn cut(&self) -> io::Result<()> {
        let size_bytes = self.progress.size_bytes;
        if self.log.metadata()?.len() > size_bytes {
            self.log.set_len(size_bytes)?;
        }
        Ok(())
    }

    fn note_batch(&mut self, position: u64, header: &BatchHeader) -> io::Result<()> {
        let last_offset = header.last_offset();
        let now = &mut self.progress;
        if header.max_timestamp > now.max_timestamp {
            now.max_timestamp = header.max_timestamp;
            now.max_timestamp_offset = last_offset;
        }
        if now.bytes_since_entry > self.limits.index_interval_bytes {
            let mut entry = [0u8; OFFSET_ENTRY_BYTES as usize];
            entry[..4].copy_from_slice(&((last_offset - self.base_offset) as i32).to_be_bytes());
            entry[4..].copy_from_slice(&(position as i32).to_be_bytes());
            self.offset_index
                .write_all_at(&entry, now.offset_entries * OFFSET_ENTRY_BYTES)?;
            now.offset_entries += 1;
            (now.last_entry_offset, now.last_entry_position) = (last_offset, position);
            if now.max_timestamp > now.last_entry_timestamp {
                let relative = (now.max_timestamp_offset - self.base_offset) as i32;
                let mut entry = [0u8; TIME_ENTRY_BYTES as usize];
                entry[..8].copy_from_slice(&now.max_timestamp.to_be_bytes());
                entry[8..].copy_from_slice(&relative.to_be_bytes());
                self.time_index
                    .write_all_at(&entry, now.time_entries * TIME_ENTRY_BYTES)?;
                now.time_entries += 1;
                now.last_entry_timestamp = now.max_timestamp;
                now.last_entry_timestamp_offset = now.max_timestamp_offset;
            }
            now.bytes_since_entry = 0;
        }
        now.bytes_since_entry += i64::from(header.batch_length) + LOG_OVERHEAD_BYTES;
        Ok(())
    }
}

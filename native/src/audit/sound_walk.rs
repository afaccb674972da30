//! The audit of a segment up to its first unusual batch; see `audit/sound_walk.py`.
//!
//! It reports nothing: in front of whatever the checks over columns would report or treat in a
//! special way, it stops, and they go on from there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::indexes::{OffsetIndex, TimeEntry};
use super::records::check_records;
use crate::batch::{
    computed_crc, is_base_offset, BASE_SEQUENCE_AT, CODEC_MASK, CONTROL_FLAG, CRC_AT,
    DELETE_HORIZON_FLAG, FLAGS_AT, HEADER_BYTES, LAST_DELTA_AT, LEADER_EPOCH_AT, LENGTH_AT,
    LOG_OVERHEAD_BYTES, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT,
    RECORD_COUNT_AT, TRANSACTIONAL_FLAG,
};
use crate::numbers::{i16_at, i32_at, i64_at, u32_at};

const MAX_CODEC: u8 = 4;
const MAX_RELATIVE_OFFSET: i64 = i32::MAX as i64;
/// More epochs, or more time entries behind the offset index, are unusual.
const MAX_EPOCH_RUNS: usize = 256;
const MAX_TIMES_BEHIND: usize = 64;
/// The digests of so many last batches are kept one by one (`TAIL_BATCHES` of `digests.py`).
const TAIL_BATCHES: usize = 1024;
const STRETCH_OFFSETS: i64 = 4096;

/// Batches of one leader epoch, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRun {
    pub position: i64,
    pub epoch: i32,
    pub first_offset: i64,
    pub last_offset: i64,
}

/// The last batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBatch {
    pub epoch: i16,
    pub base_sequence: i32,
    pub last_delta: i64,
    pub last_offset: i64,
}

/// A batch whose records have to be decompressed first; its bytes are at `start` of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct PackedBatch {
    pub start: usize,
    pub size: usize,
    pub position: i64,
    pub base_offset: i64,
    pub codec: u8,
    pub count: i64,
    pub last_delta: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    AtEnd,
    Paused,
    /// The next batch begins at the offset of a producer snapshot, or after it.
    AtSnapshot,
    Unusual,
}

/// What does not change during a walk.
pub struct Segment {
    pub size_bytes: i64,
    pub base_offset: i64,
    pub checks_records: bool,
    pub max_batch_bytes: i64,
    pub offset_index: OffsetIndex,
    pub time_entries: Vec<TimeEntry>,
    /// The bytes of one read, and of one call of `run`.
    pub window_bytes: usize,
    pub budget_bytes: i64,
}

/// How far the walk has come in the indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEntries {
    pub starts: usize,
    pub ends: usize,
    pub times: usize,
    /// Positions of the batches that time entries name, after the last one in the offset index.
    pub times_behind: Vec<i64>,
    pub greatest_timestamp: i64,
}

pub struct SoundWalk {
    segment: Segment,
    buffer: Vec<u8>,
    pub position: i64,
    pub last_position: i64,
    pub batch_count: usize,
    pub first_offset: i64,
    pub next_offset: i64,
    /// Records are missing, or a batch has a delete horizon: compaction wrote it.
    pub is_rewritten: bool,
    pub seen: SeenEntries,
    pub runs: Vec<EpochRun>,
    /// The last batches: their base offsets and digests, the one with number n at n % TAIL_BATCHES.
    tail: Vec<(i64, u64)>,
    /// What the caller takes after each call of `run`.
    pub producers: HashMap<i64, LastBatch>,
    pub range_sums: Vec<(i64, u64)>,
    pub packed: Vec<PackedBatch>,
}

impl SoundWalk {
    pub fn new(segment: Segment) -> Self {
        Self {
            segment,
            buffer: Vec::new(),
            position: 0,
            last_position: 0,
            batch_count: 0,
            first_offset: 0,
            next_offset: 0,
            is_rewritten: false,
            seen: SeenEntries {
                starts: 0,
                ends: 0,
                times: 0,
                times_behind: Vec::new(),
                greatest_timestamp: -1,
            },
            runs: Vec::new(),
            tail: Vec::new(),
            producers: HashMap::new(),
            range_sums: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// Read batches from `position` on, up to the budget, and not beyond batches to decompress.
    ///
    /// The results of the call before must have been taken.
    ///
    /// # Errors
    /// There is no memory for a large batch.
    pub fn run(&mut self, file: &File, snapshot_offset: i64) -> io::Result<Status> {
        let read_until = self.position.saturating_add(self.segment.budget_bytes);
        if !is_base_offset(self.segment.base_offset) {
            return Ok(Status::Unusual);
        }
        let mut room = self.segment.window_bytes.max(HEADER_BYTES);
        while self.position < self.segment.size_bytes {
            if self.position >= read_until || !self.packed.is_empty() {
                return Ok(Status::Paused);
            }
            let left = self.segment.size_bytes - self.position;
            let wanted = usize::try_from(left).unwrap_or(room).min(room);
            self.resize_buffer(wanted)?;
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = file.read_exact_at(&mut buffer, self.position as u64);
            let walked = read.map(|()| self.walk_window(&buffer, snapshot_offset));
            self.buffer = buffer;
            match walked {
                Ok(Ok(0)) if wanted == room => room = self.next_batch_bytes(),
                Ok(Ok(0)) | Err(_) => return Ok(Status::Unusual),
                Ok(Ok(_)) => room = self.segment.window_bytes.max(HEADER_BYTES),
                Ok(Err(status)) => return Ok(status),
            }
        }
        Ok(match self.packed.is_empty() {
            true => Status::AtEnd,
            false => Status::Paused,
        })
    }

    fn resize_buffer(&mut self, size: usize) -> io::Result<()> {
        let missing = size.saturating_sub(self.buffer.len());
        self.buffer
            .try_reserve_exact(missing)
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        self.buffer.resize(size, 0);
        Ok(())
    }

    /// Return the size of the batch at the beginning of the buffer, which `walk_window` accepts.
    fn next_batch_bytes(&self) -> usize {
        (i64::from(i32_at(&self.buffer, LENGTH_AT)) + LOG_OVERHEAD_BYTES) as usize
    }

    /// Note the batches of a window; return the bytes of those that are in it as a whole.
    fn walk_window(&mut self, window: &[u8], snapshot_offset: i64) -> Result<usize, Status> {
        let mut start = 0;
        while window.len() - start >= HEADER_BYTES {
            let data = &window[start..];
            let size = i64::from(i32_at(data, LENGTH_AT)) + LOG_OVERHEAD_BYTES;
            let left = self.segment.size_bytes - self.position;
            if data[MAGIC_AT] != 2 || size < HEADER_BYTES as i64 || size > left {
                return Err(Status::Unusual);
            }
            if size > self.segment.max_batch_bytes || !self.has_usual_offsets(data) {
                return Err(Status::Unusual);
            }
            let Some(batch) = data.get(..size as usize) else {
                break;
            };
            if i64_at(batch, 0) >= snapshot_offset {
                return Err(Status::AtSnapshot);
            }
            if !self.note_batch(batch, start) {
                return Err(Status::Unusual);
            }
            start += batch.len();
            self.position += size;
        }
        Ok(start)
    }

    /// Return whether the offsets of a batch belong into the segment and follow the batch before.
    fn has_usual_offsets(&self, batch: &[u8]) -> bool {
        let (base_offset, last_delta) = (i64_at(batch, 0), i64::from(i32_at(batch, LAST_DELTA_AT)));
        is_base_offset(base_offset)
            && base_offset >= self.segment.base_offset
            && last_delta >= 0
            && base_offset + last_delta - self.segment.base_offset <= MAX_RELATIVE_OFFSET
            && (self.batch_count == 0 || base_offset == self.next_offset)
    }

    /// Note a batch with usual offsets, which is at `start` of the buffer; false if it is unusual.
    fn note_batch(&mut self, batch: &[u8], start: usize) -> bool {
        let (base_offset, last_delta) = (i64_at(batch, 0), i64::from(i32_at(batch, LAST_DELTA_AT)));
        let (count, crc) = (
            i64::from(i32_at(batch, RECORD_COUNT_AT)),
            u32_at(batch, CRC_AT),
        );
        let (flags, epoch) = (batch[FLAGS_AT], i32_at(batch, LEADER_EPOCH_AT));
        let codec = flags & CODEC_MASK;
        let last_offset = base_offset + last_delta;
        if !(0..=last_delta + 1).contains(&count) || codec > MAX_CODEC {
            return false;
        }
        if flags & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0 || computed_crc(batch) != crc {
            return false;
        }
        let checks_records = self.segment.checks_records && count > 0;
        let is_plain = checks_records && codec == 0;
        if is_plain && check_records(&batch[HEADER_BYTES..], count, last_delta).is_err() {
            return false;
        }
        let is_new_run = self.runs.last().is_none_or(|run| run.epoch != epoch);
        if is_new_run && self.runs.len() == MAX_EPOCH_RUNS {
            return false;
        }
        let Some(seen) = self.seen_after(base_offset, last_offset, i64_at(batch, MAX_TIMESTAMP_AT))
        else {
            return false;
        };
        self.seen = seen;
        if checks_records && codec != 0 {
            self.packed.push(PackedBatch {
                start,
                size: batch.len(),
                position: self.position,
                base_offset,
                codec,
                count,
                last_delta,
            });
        }
        match self.runs.last_mut() {
            Some(run) if run.epoch == epoch => run.last_offset = last_offset,
            _ => self.runs.push(EpochRun {
                position: self.position,
                epoch,
                first_offset: base_offset,
                last_offset,
            }),
        }
        self.note_producer(batch, last_delta, last_offset);
        self.note_digest(base_offset, last_delta, crc, epoch);
        self.is_rewritten |= count != last_delta + 1 || flags & DELETE_HORIZON_FLAG != 0;
        if self.batch_count == 0 {
            self.first_offset = base_offset;
        }
        self.batch_count += 1;
        self.next_offset = last_offset + 1;
        self.last_position = self.position;
        true
    }

    fn note_producer(&mut self, batch: &[u8], last_delta: i64, last_offset: i64) {
        let producer_id = i64_at(batch, PRODUCER_ID_AT);
        if producer_id >= 0 {
            let last = LastBatch {
                epoch: i16_at(batch, PRODUCER_EPOCH_AT),
                base_sequence: i32_at(batch, BASE_SEQUENCE_AT),
                last_delta,
                last_offset,
            };
            self.producers.insert(producer_id, last);
        }
    }

    /// Add a batch to the digest of the segment, as `batch_digests.py` does.
    fn note_digest(&mut self, base_offset: i64, last_delta: i64, crc: u32, epoch: i32) {
        const FACTORS: [u64; 4] = [
            0x9E37_79B9_7F4A_7C15,
            0xC2B2_AE3D_27D4_EB4F,
            0x1656_67B1_9E37_79F9,
            0xD6E8_FEB8_6659_FD93,
        ];
        let fields = [base_offset, last_delta, i64::from(crc), i64::from(epoch)];
        let mut mixed: u64 = 0;
        for (field, factor) in fields.into_iter().zip(FACTORS) {
            mixed = (mixed ^ field as u64).wrapping_mul(factor);
            mixed ^= mixed >> 29;
        }
        match self.batch_count < TAIL_BATCHES {
            true => self.tail.push((base_offset, mixed)),
            false => self.tail[self.batch_count % TAIL_BATCHES] = (base_offset, mixed),
        }
        let number = base_offset / STRETCH_OFFSETS;
        match self.range_sums.last_mut() {
            Some((last, sum)) if *last == number => *sum = sum.wrapping_add(mixed),
            _ => self.range_sums.push((number, mixed)),
        }
    }

    /// Return the base offsets and digests of the last batches, in their order.
    pub fn tail(&self) -> Vec<(i64, u64)> {
        let mut tail = self.tail.clone();
        if tail.len() == TAIL_BATCHES {
            tail.rotate_left(self.batch_count % TAIL_BATCHES);
        }
        tail
    }

    /// Return the bytes of a batch to decompress.
    pub fn batch_bytes(&self, packed: &PackedBatch) -> &[u8] {
        &self.buffer[packed.start..][..packed.size]
    }

    /// Return the state after the entries that name this batch; None unless all of them are right.
    fn seen_after(
        &self,
        base_offset: i64,
        last_offset: i64,
        max_timestamp: i64,
    ) -> Option<SeenEntries> {
        let mut seen = self.seen.clone();
        seen.greatest_timestamp = seen.greatest_timestamp.max(max_timestamp);
        self.pass_offset_entries(&mut seen, last_offset)?;
        self.pass_time_entries(&mut seen, base_offset, last_offset, max_timestamp)?;
        Some(seen)
    }

    fn pass_offset_entries(&self, seen: &mut SeenEntries, last_offset: i64) -> Option<()> {
        let entries = &self.segment.offset_index.entries;
        if let Some(entry) = entries.get(seen.starts) {
            if entry.position < self.position {
                return None;
            }
            seen.starts += usize::from(entry.position == self.position);
        }
        let Some(entry) = entries.get(seen.ends) else {
            return Some(());
        };
        let wanted = self.segment.base_offset + entry.relative_offset;
        if wanted > last_offset {
            return Some(());
        }
        if wanted < last_offset || self.position < entry.position {
            return None;
        }
        seen.ends += 1;
        let is_last = |next: &super::indexes::OffsetEntry| self.position < next.position;
        entries.get(seen.ends).is_none_or(is_last).then_some(())
    }

    fn pass_time_entries(
        &self,
        seen: &mut SeenEntries,
        base_offset: i64,
        last_offset: i64,
        max_timestamp: i64,
    ) -> Option<()> {
        let last_named = self.segment.offset_index.last_position();
        while let Some(entry) = self.segment.time_entries.get(seen.times) {
            let offset = self.segment.base_offset + entry.relative_offset;
            if offset > last_offset {
                break;
            }
            let is_right = entry.timestamp == max_timestamp
                && entry.timestamp == seen.greatest_timestamp
                && offset >= base_offset;
            if !is_right {
                return None;
            }
            if self.position > last_named {
                if seen.times_behind.len() == MAX_TIMES_BEHIND {
                    return None;
                }
                seen.times_behind.push(self.position);
            }
            seen.times += 1;
        }
        Some(())
    }
}

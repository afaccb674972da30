//! Where the records of a read lie: the same ranges that Python finds.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::batch::BatchHeader;
use super::lease::LeaseState;
use super::segment::OFFSET_ENTRY_BYTES;
use crate::batch::HEADER_BYTES;

/// Records of at least this size are sent from their file without being read.
pub const MIN_SENT_BYTES: u64 = 64 * 1024;
/// Records that a response keeps in memory while its client does not read it.
const MAX_MEMORY_BYTES: usize = 128 * 1024;
const LOOKUP_BYTES: usize = 32 * 1024;
const MAX_POSITIONS: usize = 16;

/// Why the lane does not serve a read.
#[derive(Debug)]
pub enum Refusal {
    /// Python has an answer: an error of the request, damage, or a case that is rare.
    Up,
    Disk(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            // The process has no descriptor left: the disk is not at fault.
            Some(libc::EMFILE | libc::ENFILE) => Refusal::Up,
            _ => Refusal::Disk(error),
        }
    }
}

/// The records of one partition.
#[derive(Clone, Debug)]
pub enum Records {
    /// The part of the scratch memory of the reader that has them.
    Memory(Range<usize>),
    InFile {
        file: Arc<File>,
        position: u64,
        size: usize,
    },
}

impl Records {
    pub const NONE: Records = Records::Memory(0..0);

    pub fn len(&self) -> usize {
        match self {
            Records::Memory(range) => range.len(),
            Records::InFile { size, .. } => *size,
        }
    }
}

/// A segment that is only read.
pub struct ReadSegment {
    pub base_offset: i64,
    pub size_bytes: u64,
    pub log_path: String,
    pub index_path: String,
    pub offset_entries: u64,
    files: Option<(Arc<File>, Arc<File>)>,
}

impl ReadSegment {
    pub fn new(base_offset: i64, size_bytes: u64, paths: (String, String), entries: u64) -> Self {
        let (log_path, index_path) = paths;
        let offset_entries = entries;
        ReadSegment {
            base_offset,
            size_bytes,
            log_path,
            index_path,
            offset_entries,
            files: None,
        }
    }

    fn opened(&mut self) -> io::Result<(Arc<File>, Arc<File>)> {
        if self.files.is_none() {
            let (log, index) = (File::open(&self.log_path)?, File::open(&self.index_path)?);
            self.files = Some((Arc::new(log), Arc::new(index)));
        }
        self.files
            .clone()
            .ok_or_else(|| io::Error::other("no file"))
    }

    pub fn close(&mut self) {
        self.files = None;
    }

    pub fn is_open(&self) -> bool {
        self.files.is_some()
    }
}

/// Starts of batches that reads have begun or ended at: (offset, base of the segment, position).
#[derive(Debug, Default)]
pub struct Positions {
    known: Vec<(i64, i64, u64)>,
    next: usize,
}

impl Positions {
    fn at(&self, offset: i64, base_offset: i64) -> Option<u64> {
        let is_it = |entry: &&(i64, i64, u64)| (entry.0, entry.1) == (offset, base_offset);
        self.known.iter().find(is_it).map(|entry| entry.2)
    }

    pub fn note(&mut self, offset: i64, base_offset: i64, position: u64) {
        if self.at(offset, base_offset).is_some() {
            return;
        }
        if self.known.len() < MAX_POSITIONS {
            self.known.push((offset, base_offset, position));
        } else {
            self.known[self.next] = (offset, base_offset, position);
            self.next = (self.next + 1) % MAX_POSITIONS;
        }
    }
}

/// The files of the segment that is read, and its numbers.
struct Source {
    log: Arc<File>,
    index: Arc<File>,
    base_offset: i64,
    size_bytes: u64,
    entries: u64,
    /// Where the next segment begins, or the log ends.
    end_offset: i64,
}

impl Source {
    fn header_at(&self, position: u64) -> Result<BatchHeader, Refusal> {
        let mut bytes = [0u8; HEADER_BYTES];
        if position + HEADER_BYTES as u64 > self.size_bytes {
            return Err(Refusal::Up);
        }
        read_exactly(&self.log, &mut bytes, position)?;
        BatchHeader::read(&bytes).ok_or(Refusal::Up)
    }

    /// The last index entry whose field at byte `at` is at most `number`: (offset, position).
    fn floor_entry(&self, number: i64, at: usize) -> Result<Option<(i64, u64)>, Refusal> {
        let (mut low, mut high, mut last) = (0, self.entries, None);
        while low < high {
            let middle = (low + high) / 2;
            let mut entry = [0u8; OFFSET_ENTRY_BYTES as usize];
            read_exactly(&self.index, &mut entry, middle * OFFSET_ENTRY_BYTES)?;
            let field = |at: usize| {
                i32::from_be_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
            };
            if i64::from(field(at)) <= number {
                let position = u64::try_from(field(4)).map_err(|_| Refusal::Up)?;
                last = Some((self.base_offset + i64::from(field(0)), position));
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(last)
    }

    /// The position of the first batch that ends at `offset` or later; None if there is none.
    fn position_of(&self, offset: i64) -> Result<Option<u64>, Refusal> {
        let mut position = match self.floor_entry(offset - self.base_offset, 0)? {
            None => 0,
            Some((_, position)) => {
                let header = self.header_at(position)?;
                if !(self.base_offset..=offset).contains(&header.base_offset) {
                    return Err(Refusal::Up); // Python builds the index again
                }
                position
            }
        };
        let mut bytes = vec![0u8; LOOKUP_BYTES];
        while self.size_bytes >= position + HEADER_BYTES as u64 {
            let want = LOOKUP_BYTES.min((self.size_bytes - position) as usize);
            read_exactly(&self.log, &mut bytes[..want], position)?;
            let mut at = 0;
            while want - at >= HEADER_BYTES {
                let header = BatchHeader::read(&bytes[at..want]).ok_or(Refusal::Up)?;
                if position + (at + header.size_bytes()) as u64 > self.size_bytes {
                    return Ok(None);
                }
                if header.last_offset() >= offset {
                    return Ok(Some(position + at as u64));
                }
                at += header.size_bytes();
                if at > want {
                    break;
                }
            }
            position += at as u64;
        }
        Ok(None)
    }

    /// The end of the last indexed batch within `max_bytes`, and the offset there.
    fn end_of_range(&self, position: u64, max_bytes: u64) -> Result<(u64, i64), Refusal> {
        if max_bytes >= self.size_bytes - position {
            return Ok((self.size_bytes, self.end_offset));
        }
        let limit = i64::try_from(position + max_bytes).map_err(|_| Refusal::Up)?;
        let end = self
            .floor_entry(limit, 4)?
            .map_or(0, |(_, position)| position);
        if end <= position {
            return Ok((end, -1));
        }
        Ok((end, self.header_at(end)?.base_offset))
    }
}

fn read_exactly(file: &File, bytes: &mut [u8], position: u64) -> Result<(), Refusal> {
    match file.read_exact_at(bytes, position) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Refusal::Up),
        Err(error) => Err(Refusal::Disk(error)),
    }
}

/// Limits of a read.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub offset: i64,
    pub max_bytes: u64,
    pub end_offset: i64,
    pub min_one_batch: bool,
}

/// The records and the offset after them.
pub type Found = (Records, i64);

impl LeaseState {
    fn source(&mut self, index: usize) -> io::Result<Source> {
        let log_end_offset = self.end_offset();
        if index == self.older.len() {
            let segment = &self.segment;
            return Ok(Source {
                log: segment.log.clone(),
                index: segment.offset_index.clone(),
                base_offset: segment.base_offset,
                size_bytes: segment.progress.size_bytes,
                entries: segment.progress.offset_entries,
                end_offset: log_end_offset,
            });
        }
        let end_offset = match self.older.get(index + 1) {
            Some(next) => next.base_offset,
            None => self.segment.base_offset,
        };
        if !self.older[index].is_open() {
            // Few files are open: readers go through the segments in order.
            self.older.iter_mut().for_each(ReadSegment::close);
        }
        let segment = &mut self.older[index];
        let (log, index) = segment.opened()?;
        Ok(Source {
            log,
            index,
            base_offset: segment.base_offset,
            size_bytes: segment.size_bytes,
            entries: segment.offset_entries,
            end_offset,
        })
    }

    /// Find whole batches from the one that holds `offset` to below `end_offset`.
    ///
    /// Small records are appended to `scratch`.
    pub fn read(&mut self, wanted: Wanted, scratch: &mut Vec<u8>) -> Result<Found, Refusal> {
        let nothing = (Records::NONE, wanted.offset);
        let limit = wanted.end_offset.min(self.end_offset());
        if wanted.offset >= limit {
            return Ok(nothing);
        }
        let first = if wanted.offset >= self.segment.base_offset {
            self.older.len()
        } else {
            self.older
                .partition_point(|s| s.base_offset <= wanted.offset)
                .saturating_sub(1)
        };
        for index in first..=self.older.len() {
            let source = self.source(index)?;
            let known = self.positions.at(wanted.offset, source.base_offset);
            let position = match known {
                Some(position) => Some(position),
                None => source.position_of(wanted.offset)?,
            };
            let Some(position) = position.filter(|at| *at < source.size_bytes) else {
                continue;
            };
            let located = locate(&source, position, wanted, limit)?;
            let (records, end, next_offset) = match located {
                Some(found) => found,
                None => match read_batches(&source, position, wanted, limit, scratch)? {
                    Some(found) => found,
                    None => return Ok(nothing),
                },
            };
            self.positions
                .note(wanted.offset, source.base_offset, position);
            self.positions.note(next_offset, source.base_offset, end);
            return Ok((records, next_offset));
        }
        Ok(nothing)
    }
}

type Ranged = (Records, u64, i64);

/// Find a large range that ends at an indexed batch, so that no scan is needed.
fn locate(
    source: &Source,
    position: u64,
    wanted: Wanted,
    limit: i64,
) -> Result<Option<Ranged>, Refusal> {
    if source.size_bytes - position < MIN_SENT_BYTES {
        return Ok(None);
    }
    let (mut end, mut next_offset) = source.end_of_range(position, wanted.max_bytes)?;
    if wanted.min_one_batch && end < position + MIN_SENT_BYTES {
        let first = source.header_at(position)?;
        if first.size_bytes() as u64 <= wanted.max_bytes {
            return Ok(None);
        }
        end = position + first.size_bytes() as u64;
        next_offset = first.last_offset().saturating_add(1);
    }
    if end < position + MIN_SENT_BYTES
        || end > source.size_bytes
        || next_offset <= wanted.offset
        || next_offset > limit
    {
        return Ok(None);
    }
    let size = (end - position) as usize;
    let file = source.log.clone();
    Ok(Some((
        Records::InFile {
            file,
            position,
            size,
        },
        end,
        next_offset,
    )))
}

/// Read whole batches; None if the first one does not fit or begins at the limit.
fn read_batches(
    source: &Source,
    position: u64,
    wanted: Wanted,
    limit: i64,
    scratch: &mut Vec<u8>,
) -> Result<Option<Ranged>, Refusal> {
    let start = scratch.len();
    let first = source.header_at(position)?;
    if first.base_offset >= limit {
        return Ok(None);
    }
    let first_bytes = first.size_bytes() as u64;
    if position + first_bytes > source.size_bytes {
        return Err(Refusal::Up);
    }
    let mut want = wanted
        .max_bytes
        .max(HEADER_BYTES as u64)
        .min(source.size_bytes - position);
    if first_bytes > wanted.max_bytes {
        if !wanted.min_one_batch {
            return Ok(None);
        }
        want = first_bytes;
    }
    scratch.resize(start + want as usize, 0);
    read_exactly(&source.log, &mut scratch[start..], position)?;
    let data = &scratch[start..];
    let (mut at, mut next_offset) = (0, wanted.offset);
    while data.len() - at >= HEADER_BYTES {
        let Some(header) = BatchHeader::read(&data[at..]) else {
            if at == 0 {
                return Err(Refusal::Up);
            }
            break;
        };
        if header.base_offset >= limit || at + header.size_bytes() > data.len() {
            break;
        }
        at += header.size_bytes();
        next_offset = header.last_offset().saturating_add(1);
    }
    let end = position + at as u64;
    if (at as u64) < MIN_SENT_BYTES && start + at <= MAX_MEMORY_BYTES {
        scratch.truncate(start + at);
        return Ok(Some((Records::Memory(start..start + at), end, next_offset)));
    }
    scratch.truncate(start);
    let file = source.log.clone();
    Ok(Some((
        Records::InFile {
            file,
            position,
            size: at,
        },
        end,
        next_offset,
    )))
}

//! The entries of `.index` and `.timeindex`, which must ascend.

use crate::numbers::{i32_at, i64_at};

pub const OFFSET_ENTRY_BYTES: usize = 8;
pub const TIME_ENTRY_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    pub relative_offset: i64,
    pub position: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    pub timestamp: i64,
    pub relative_offset: i64,
}

/// The entries of an offset index, without the zeros at its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OffsetIndex {
    pub entries: Vec<OffsetEntry>,
    /// The smallest and the largest distance between their positions; 0 without entries.
    pub gaps: (i64, i64),
}

impl OffsetIndex {
    /// Return None if the entries do not ascend.
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut index = Self {
            entries: without_zeros(data, OFFSET_ENTRY_BYTES)
                .map(|entry| OffsetEntry {
                    relative_offset: i64::from(i32_at(entry, 0)),
                    position: i64::from(i32_at(entry, 4)),
                })
                .collect(),
            gaps: (0, 0),
        };
        let ascends = |pair: &[OffsetEntry]| {
            pair[0].relative_offset < pair[1].relative_offset && pair[0].position < pair[1].position
        };
        if !index.entries.windows(2).all(ascends) {
            return None;
        }
        let before = [0]
            .into_iter()
            .chain(index.entries.iter().map(|entry| entry.position));
        let gaps = index.entries.iter().zip(before);
        let gaps = gaps.map(|(entry, before)| entry.position - before);
        if let (Some(smallest), Some(largest)) = (gaps.clone().min(), gaps.max()) {
            index.gaps = (smallest, largest);
        }
        Some(index)
    }

    /// The position of the last entry, 0 without one.
    pub fn last_position(&self) -> i64 {
        self.entries.last().map_or(0, |entry| entry.position)
    }
}

/// Return the entries of a time index without the zeros at its end; None if they do not ascend.
pub fn read_time_index(data: &[u8]) -> Option<Vec<TimeEntry>> {
    let entries: Vec<TimeEntry> = without_zeros(data, TIME_ENTRY_BYTES)
        .map(|entry| TimeEntry {
            timestamp: i64_at(entry, 0),
            relative_offset: i64::from(i32_at(entry, 8)),
        })
        .collect();
    let ascends = |pair: &[TimeEntry]| {
        pair[0].timestamp < pair[1].timestamp && pair[0].relative_offset <= pair[1].relative_offset
    };
    let is_sound =
        entries.windows(2).all(ascends) && entries.first().is_none_or(|first| first.timestamp > -1);
    is_sound.then_some(entries)
}

/// Return the whole entries up to the last one that is not zeros.
fn without_zeros(data: &[u8], entry_bytes: usize) -> std::slice::ChunksExact<'_, u8> {
    let is_used = |entry: &[u8]| entry.iter().any(|&byte| byte != 0);
    let count = data.chunks_exact(entry_bytes).rposition(is_used);
    data[..count.map_or(0, |last| (last + 1) * entry_bytes)].chunks_exact(entry_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset_index(entries: &[(i32, i32)]) -> Vec<u8> {
        let bytes = |&(offset, position): &(i32, i32)| {
            [offset.to_be_bytes(), position.to_be_bytes()].concat()
        };
        entries.iter().flat_map(bytes).collect()
    }

    #[test]
    fn the_zeros_at_the_end_and_half_an_entry_are_no_entries() {
        let mut data = offset_index(&[(5, 100), (9, 450), (0, 0), (0, 0)]);
        data.extend([0, 0, 1]);
        let index = OffsetIndex::read(&data).unwrap();
        assert_eq!((index.entries.len(), index.last_position()), (2, 450));
        assert_eq!(index.gaps, (100, 350));
        assert_eq!(OffsetIndex::read(&[]), Some(OffsetIndex::default()));
    }

    #[test]
    fn entries_that_do_not_ascend_are_refused() {
        for entries in [
            [(5, 100), (5, 200)],
            [(5, 100), (6, 100)],
            [(0, 0), (-1, 7)],
        ] {
            assert_eq!(OffsetIndex::read(&offset_index(&entries)), None);
        }
        let time = |timestamp: i64| [timestamp.to_be_bytes().as_slice(), &[0, 0, 0, 1]].concat();
        assert_eq!(read_time_index(&time(-1)), None);
        assert_eq!(read_time_index(&[time(5), time(5)].concat()), None);
        assert_eq!(
            read_time_index(&[time(5), time(6)].concat()).unwrap().len(),
            2
        );
    }
}

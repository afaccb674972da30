//! The idempotent producers of a leased partition (KIP-98): epoch and last five batches of each.
//!
//! The lane takes only the next batch of a producer that it knows. Python answers everything else:
//! unknown producers, new epochs, repeated batches and gaps.

use std::collections::HashMap;

use super::batch::BatchHeader;

const CACHED_BATCHES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedBatch {
    pub last_sequence: i32,
    pub last_offset: i64,
    pub offset_delta: i32,
    pub timestamp_ms: i64,
}

#[derive(Clone, Debug)]
pub struct Producer {
    pub epoch: i16,
    pub batches: Vec<CachedBatch>,
    pub is_changed: bool,
}

#[derive(Debug, Default)]
pub struct Producers {
    by_id: HashMap<i64, Producer>,
    changed: Vec<i64>,
}

impl Producers {
    pub fn put(&mut self, producer_id: i64, epoch: i16, batches: Vec<CachedBatch>) {
        self.by_id.insert(
            producer_id,
            Producer {
                epoch,
                batches,
                is_changed: false,
            },
        );
    }

    pub fn forget(&mut self, producer_id: i64) {
        self.by_id.remove(&producer_id);
    }

    /// Return whether the batch is the next one of a known producer, or has no producer.
    pub fn is_next(&self, header: &BatchHeader) -> bool {
        if header.producer_id < 0 {
            return true;
        }
        let Some(producer) = self.by_id.get(&header.producer_id) else {
            return false;
        };
        let Some(last) = producer.batches.last() else {
            return false;
        };
        producer.epoch == header.producer_epoch
            && last.last_sequence >= 0
            && header.base_sequence == last.last_sequence.wrapping_add(1) & i32::MAX
    }

    /// Record a batch that `is_next` has allowed, and that begins at `base_offset`.
    pub fn append(&mut self, header: &BatchHeader, base_offset: i64) {
        let Some(producer) = self.by_id.get_mut(&header.producer_id) else {
            return;
        };
        if producer.batches.len() == CACHED_BATCHES {
            producer.batches.remove(0);
        }
        producer.batches.push(CachedBatch {
            last_sequence: header.last_sequence(),
            last_offset: base_offset + i64::from(header.last_offset_delta),
            offset_delta: header.last_offset_delta,
            timestamp_ms: header.max_timestamp,
        });
        if !producer.is_changed {
            producer.is_changed = true;
            self.changed.push(header.producer_id);
        }
    }

    /// Return the producers that have appended since the last call.
    pub fn take_changed(&mut self) -> Vec<(i64, Producer)> {
        let mut taken = Vec::with_capacity(self.changed.len());
        for producer_id in self.changed.drain(..) {
            if let Some(producer) = self.by_id.get_mut(&producer_id) {
                producer.is_changed = false;
                taken.push((producer_id, producer.clone()));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::{check_client_batch, tests::batch};
    use super::*;

    fn known(last_sequence: i32) -> Producers {
        let mut producers = Producers::default();
        let earlier = CachedBatch {
            last_sequence,
            last_offset: 9,
            offset_delta: 0,
            timestamp_ms: 1,
        };
        producers.put(7, 2, vec![earlier]);
        producers
    }

    fn header(epoch: i16, sequence: i32) -> BatchHeader {
        check_client_batch(&batch(1, (7, epoch, sequence), 5), 9).unwrap()
    }

    #[test]
    fn only_the_next_batch_of_a_known_producer_is_taken() {
        let producers = known(4);
        assert!(producers.is_next(&header(2, 5)));
        for (epoch, sequence) in [(2, 4), (2, 6), (3, 0), (1, 5)] {
            assert!(
                !producers.is_next(&header(epoch, sequence)),
                "{epoch} {sequence}"
            );
        }
        assert!(!Producers::default().is_next(&header(2, 5)));
    }

    #[test]
    fn the_sequence_after_the_largest_is_zero() {
        assert!(known(i32::MAX).is_next(&header(2, 0)));
    }

    #[test]
    fn five_batches_are_kept_and_changes_are_reported_once() {
        let mut producers = known(0);
        for sequence in 1..8 {
            producers.append(&header(2, sequence), 10 + i64::from(sequence));
        }
        let changed = producers.take_changed();
        assert_eq!(changed.len(), 1);
        let sequences: Vec<_> = changed[0]
            .1
            .batches
            .iter()
            .map(|b| b.last_sequence)
            .collect();
        assert_eq!(sequences, [3, 4, 5, 6, 7]);
        assert!(producers.take_changed().is_empty());
    }
}

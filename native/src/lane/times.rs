//! Counts and times of operations, in the buckets of Python's metrics.

use std::collections::BTreeMap;
use std::time::Duration;

/// Operations since the last `take`: their count by time in ns, which Python puts into buckets.
#[derive(Debug, Default)]
pub struct Times {
    pub size_bytes: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
    /// Operations by time, rounded down to five significant bits.
    pub by_time_ns: BTreeMap<u64, u64>,
}

impl Times {
    pub fn observe(&mut self, elapsed: Duration, size_bytes: u64) {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.size_bytes += size_bytes;
        self.total_ns += elapsed_ns;
        self.longest_ns = self.longest_ns.max(elapsed_ns);
        let shift = (64 - elapsed_ns.leading_zeros()).saturating_sub(5);
        *self
            .by_time_ns
            .entry(elapsed_ns >> shift << shift)
            .or_default() += 1;
    }

    pub fn take(&mut self) -> Times {
        std::mem::take(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_times_share_an_entry_and_the_sum_is_exact() {
        let mut times = Times::default();
        times.observe(Duration::from_nanos(1000), 10);
        times.observe(Duration::from_nanos(1001), 20);
        times.observe(Duration::from_nanos(2000), 30);
        assert_eq!(
            (times.size_bytes, times.total_ns, times.longest_ns),
            (60, 4001, 2000)
        );
        assert_eq!(
            times.by_time_ns.values().copied().collect::<Vec<_>>(),
            [2, 1]
        );
        assert_eq!(times.take().total_ns, 4001);
        assert!(times.by_time_ns.is_empty());
    }
}

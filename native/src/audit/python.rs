//! The functions and classes that `spindle.columnar` and `spindle.audit` use.

use std::fs::File;
use std::mem::{take, ManuallyDrop};
use std::os::fd::FromRawFd;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::headers::{walk_headers, Window, FIELD_COUNT, RECORDS_WIDTH};
use super::indexes::{read_time_index, OffsetIndex};
use super::records::{add_digests, check_records, RecordDigest};
use super::sound_walk::{Segment, SoundWalk, Status};
use crate::buffers::Lent;

/// (finding, position, batches, next offset, is finished, is torn)
type WalkedHeaders = (i64, i64, usize, i64, bool, bool);
/// (start, length, record count, base offset, last delta) of the records of a batch
type BatchRow = (usize, usize, i64, i64, i64);
/// (producer id, epoch, base sequence, last delta, last offset)
type LastBatchRow = (i64, i16, i32, i64, i64);
/// (position, base offset, codec, record count, last delta, bytes)
type PackedRow<'py> = (i64, i64, u8, i64, i64, Bound<'py, PyBytes>);

/// Check uncompressed records; return (finding, the byte at which the walk stopped).
#[pyfunction(name = "check_records")]
pub fn py_check_records(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    count: i64,
    last_delta: i64,
) -> PyResult<(i64, usize)> {
    let data = Lent::new(data)?;
    let data = data.slice();
    Ok(py.detach(|| match check_records(data, count, last_delta) {
        Ok(end) => (0, end),
        Err(damage) => (damage.finding as i64, damage.byte),
    }))
}

/// Return the digests of the records of batches: rows of four numbers of 64 bits.
#[pyfunction]
pub fn digest_records<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    batches: Vec<BatchRow>,
) -> PyResult<Bound<'py, PyBytes>> {
    let data = Lent::new(data)?;
    let data = data.slice();
    let digests = py.detach(|| {
        let mut digests: Vec<RecordDigest> = Vec::new();
        for &(start, length, count, base_offset, last_delta) in &batches {
            let records = data.get(start..)?.get(..length)?;
            add_digests(records, count, base_offset, last_delta, &mut digests);
        }
        Some(digests)
    });
    let Some(digests) = digests else {
        return Err(PyValueError::new_err("a batch is outside of the data"));
    };
    PyBytes::new_with(py, digests.len() * size_of::<RecordDigest>(), |bytes| {
        let numbers = digests.iter().flatten();
        for (bytes, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}

/// Walk over the batch headers of a window; see `walk_headers` of `header_walk.py`.
#[pyfunction(name = "walk_headers")]
#[allow(clippy::too_many_arguments)]
pub fn py_walk_headers(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    start: i64,
    file_end: i64,
    limits: (i64, i64),
    next_offset: i64,
    checks_crcs: bool,
    table: &Bound<'_, PyAny>,
    records: &Bound<'_, PyAny>,
) -> PyResult<WalkedHeaders> {
    let data = Lent::new(data)?;
    let (mut table, mut records) = (Lent::writable(table)?, Lent::writable(records)?);
    let window = Window {
        data: data.slice(),
        start,
        file_end,
        limits,
        checks_crcs,
    };
    let (table, records) = (table.slice_mut(), records.slice_mut());
    let room = table.len() / FIELD_COUNT;
    if table.len() != room * FIELD_COUNT || !checked_records(records, room, checks_crcs) {
        return Err(PyValueError::new_err("the tables have other sizes"));
    }
    let walked = py.detach(|| walk_headers(&window, next_offset, table, records, room));
    Ok((
        walked.finding.map_or(0, |finding| finding as i64),
        walked.position,
        walked.batches,
        walked.next_offset,
        walked.is_finished,
        walked.is_torn,
    ))
}

/// Records are checked in batches that are in memory as a whole, after their checksums.
fn checked_records(records: &[i64], room: usize, checks_crcs: bool) -> bool {
    records.is_empty() || (checks_crcs && records.len() == room * RECORDS_WIDTH)
}

/// The audit of a segment up to its first unusual batch.
#[pyclass(name = "SoundWalk", module = "spindle._native")]
pub struct PySoundWalk {
    walk: SoundWalk,
    offset_count: usize,
    gaps: (i64, i64),
    last_indexed_position: i64,
    time_count: usize,
    last_timestamp: i64,
}

#[pymethods]
impl PySoundWalk {
    /// Return None if the entries of an index do not ascend. The indexes are whole files.
    #[staticmethod]
    #[allow(clippy::too_many_arguments)]
    fn begin(
        size_bytes: i64,
        base_offset: i64,
        checks_records: bool,
        max_batch_bytes: i64,
        offset_index: &Bound<'_, PyAny>,
        time_index: &Bound<'_, PyAny>,
        window_bytes: usize,
        budget_bytes: i64,
    ) -> PyResult<Option<Self>> {
        let (offset_index, time_index) = (Lent::new(offset_index)?, Lent::new(time_index)?);
        let (Some(offset_index), Some(time_entries)) = (
            OffsetIndex::read(offset_index.slice()),
            read_time_index(time_index.slice()),
        ) else {
            return Ok(None);
        };
        Ok(Some(Self {
            offset_count: offset_index.entries.len(),
            gaps: offset_index.gaps,
            last_indexed_position: offset_index.last_position(),
            time_count: time_entries.len(),
            last_timestamp: time_entries.last().map_or(-1, |entry| entry.timestamp),
            walk: SoundWalk::new(Segment {
                size_bytes,
                base_offset,
                checks_records,
                max_batch_bytes,
                offset_index,
                time_entries,
                window_bytes,
                budget_bytes,
            }),
        }))
    }

    /// Read the open file on; return how it ended: at the end, paused, at the snapshot, unusual.
    fn run(&mut self, py: Python<'_>, file: i32, snapshot_offset: i64) -> PyResult<&'static str> {
        if file < 0 {
            return Err(PyValueError::new_err("the file is closed"));
        }
        // SAFETY: the caller holds the file open during the call. It is not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file) });
        let walk = &mut self.walk;
        Ok(match py.detach(|| walk.run(&file, snapshot_offset))? {
            Status::AtEnd => "at end",
            Status::Paused => "paused",
            Status::AtSnapshot => "at snapshot",
            Status::Unusual => "unusual",
        })
    }

    /// Return the last batches of the producers since the last call.
    fn take_producers(&mut self) -> Vec<LastBatchRow> {
        let producers = take(&mut self.walk.producers).into_iter();
        let rows = producers.map(|(id, last)| {
            let sequence = last.base_sequence;
            (id, last.epoch, sequence, last.last_delta, last.last_offset)
        });
        rows.collect()
    }

    /// Return the sums of digests since the last call: (number of the offset range, sum).
    fn take_range_sums(&mut self) -> Vec<(i64, u64)> {
        take(&mut self.walk.range_sums)
    }

    /// Return the batches to decompress since the last call.
    fn take_packed<'py>(&mut self, py: Python<'py>) -> Vec<PackedRow<'py>> {
        let packed = take(&mut self.walk.packed);
        let rows = packed.iter().map(|batch| {
            (
                batch.position,
                batch.base_offset,
                batch.codec,
                batch.count,
                batch.last_delta,
                PyBytes::new(py, self.walk.batch_bytes(batch)),
            )
        });
        rows.collect()
    }

    /// (position, epoch, first offset, last offset) of the epochs.
    #[getter]
    fn runs(&self) -> Vec<(i64, i32, i64, i64)> {
        let runs = self.walk.runs.iter();
        runs.map(|run| (run.position, run.epoch, run.first_offset, run.last_offset))
            .collect()
    }

    /// (base offset, digest) of the last batches.
    #[getter]
    fn tail(&self) -> Vec<(i64, u64)> {
        self.walk.tail()
    }

    #[getter]
    fn position(&self) -> i64 {
        self.walk.position
    }

    #[getter]
    fn last_position(&self) -> i64 {
        self.walk.last_position
    }

    #[getter]
    fn batch_count(&self) -> usize {
        self.walk.batch_count
    }

    #[getter]
    fn first_offset(&self) -> i64 {
        self.walk.first_offset
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.walk.next_offset
    }

    #[getter]
    fn is_rewritten(&self) -> bool {
        self.walk.is_rewritten
    }

    #[getter]
    fn starts_seen(&self) -> usize {
        self.walk.seen.starts
    }

    #[getter]
    fn ends_seen(&self) -> usize {
        self.walk.seen.ends
    }

    #[getter]
    fn times_seen(&self) -> usize {
        self.walk.seen.times
    }

    #[getter]
    fn times_behind(&self) -> Vec<i64> {
        self.walk.seen.times_behind.clone()
    }

    #[getter]
    fn greatest_timestamp(&self) -> i64 {
        self.walk.seen.greatest_timestamp
    }

    #[getter]
    fn offset_count(&self) -> usize {
        self.offset_count
    }

    /// The smallest and the largest distance between positions in the offset index.
    #[getter]
    fn gaps(&self) -> (i64, i64) {
        self.gaps
    }

    #[getter]
    fn last_indexed_position(&self) -> i64 {
        self.last_indexed_position
    }

    #[getter]
    fn time_count(&self) -> usize {
        self.time_count
    }

    /// The last timestamp of the time index, -1 without one.
    #[getter]
    fn last_timestamp(&self) -> i64 {
        self.last_timestamp
    }
}

//! The classes that `native_key_map.py` uses.

use std::collections::TryReserveError;

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::batches::{copy_batches, map_batches, CopyRules, IndexProgress};
use super::filter::{choose_records, map_records, write_records, Batch, Rules};
use super::key_map::{KeyMap, SLOT_BYTES};
use crate::buffers::Lent;

type KeptRecords<'py> = (usize, bool, bool, i64, i64, Bound<'py, PyBytes>);
type Point = (i64, usize, i64, i64);
type Progress = (i64, i64, i64);

#[pyclass(name = "KeyMap", module = "spindle._native")]
pub struct PyKeyMap {
    /// None: closed.
    map: Option<KeyMap>,
    max_keys: usize,
}

#[pymethods]
impl PyKeyMap {
    /// Make a map that is full with `max_keys` keys. `secret` are two words of 64 bits.
    #[new]
    fn new(slot_count: usize, max_keys: usize, secret: (u64, u64)) -> PyResult<Self> {
        let map = KeyMap::new(slot_count, secret).map_err(|error| {
            let size = slot_count.saturating_mul(SLOT_BYTES);
            PyMemoryError::new_err(format!("a key map of {size} bytes: {error}"))
        })?;
        Ok(Self {
            map: Some(map),
            max_keys,
        })
    }

    /// The number of keys.
    #[getter]
    fn used(&self) -> PyResult<usize> {
        Ok(self.map()?.used())
    }

    fn put(&mut self, key: &[u8], offset: i64) -> PyResult<bool> {
        let map = self.map_mut()?;
        let hash = map.hash(key);
        Ok(map.put(hash, offset).is_ok())
    }

    fn newest_offset(&self, key: &[u8]) -> PyResult<i64> {
        let map = self.map()?;
        Ok(map.newest_offset(map.hash(key)))
    }

    /// Note the keys of uncompressed records; return false if they do not parse or do not fit.
    fn put_records(
        &mut self,
        py: Python<'_>,
        data: &[u8],
        count: usize,
        base_offset: i64,
        first_offset: i64,
    ) -> PyResult<bool> {
        let map = self.map_mut()?;
        Ok(py.detach(|| map_records(map, data, count, base_offset, first_offset)))
    }

    /// Return what stays of uncompressed records; None for records that Python has to filter.
    ///
    /// `batch` is (count, base offset, base timestamp, max timestamp, has append time, has
    /// horizon), `rules` is (known end, now, new horizon).
    fn filter_records<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        batch: (usize, i64, i64, i64, bool, bool),
        rules: (i64, i64, i64),
    ) -> PyResult<Option<KeptRecords<'py>>> {
        let map = self.map()?;
        let (count, base_offset, base_timestamp, max_timestamp, has_append_time, has_horizon) =
            batch;
        let batch = Batch {
            count,
            base_offset,
            base_timestamp,
            max_timestamp,
            has_append_time,
            has_horizon,
        };
        let filtered = py.detach(|| -> Result<_, TryReserveError> {
            let mut is_kept = Vec::new();
            let Some(kept) = choose_records(map, data, &batch, &to_rules(rules), &mut is_kept)
            else {
                return Ok(None);
            };
            let mut out = Vec::new();
            out.try_reserve_exact(kept.max_bytes)?;
            out.resize(kept.max_bytes, 0);
            let size = match kept.max_bytes {
                0 => Some(0),
                _ => write_records(data, &batch, &kept, &is_kept, &mut out),
            };
            Ok(size.map(|size| {
                out.truncate(size);
                (kept, out)
            }))
        });
        let filtered = filtered.map_err(|error| PyMemoryError::new_err(error.to_string()))?;
        Ok(filtered.map(|(kept, out)| {
            (
                kept.count,
                kept.is_unchanged,
                kept.sets_horizon,
                kept.base_timestamp,
                kept.max_timestamp,
                PyBytes::new(py, &out),
            )
        }))
    }

    /// Note the keys of plain batches; see `map_batches`.
    fn put_batches(
        &mut self,
        py: Python<'_>,
        data: &[u8],
        at: usize,
        first_offset: i64,
        end_offset: i64,
    ) -> PyResult<(usize, i64)> {
        check_position(data, at)?;
        let max_keys = self.max_keys;
        let map = self.map_mut()?;
        Ok(py.detach(|| map_batches(map, data, at, first_offset, end_offset, max_keys)))
    }

    /// Free the memory.
    fn close(&mut self) {
        self.map = None;
    }
}

impl PyKeyMap {
    fn map(&self) -> PyResult<&KeyMap> {
        self.map.as_ref().ok_or_else(closed)
    }

    fn map_mut(&mut self) -> PyResult<&mut KeyMap> {
        self.map.as_mut().ok_or_else(closed)
    }
}

/// Copies the kept records of plain batches.
#[pyclass(name = "Copier", module = "spindle._native")]
pub struct PyCopier {
    keys: Py<PyKeyMap>,
    rules: CopyRules,
    is_kept: Vec<bool>,
}

#[pymethods]
impl PyCopier {
    #[new]
    fn new(
        keys: Py<PyKeyMap>,
        rules: (i64, i64, i64),
        round_end: i64,
        last_offsets: Vec<i64>,
        index_interval_bytes: i64,
        max_points: usize,
    ) -> PyResult<Self> {
        if !last_offsets.is_sorted() {
            return Err(PyValueError::new_err("last_offsets do not ascend"));
        }
        let rules = CopyRules {
            rules: to_rules(rules),
            round_end,
            last_offsets,
            index_interval_bytes,
            max_points,
        };
        Ok(Self {
            keys,
            rules,
            is_kept: Vec::new(),
        })
    }

    /// Copy the batches of `data` from `at` on to the buffer `out`; see `copy_batches`.
    ///
    /// Return (position, bytes written, index points, index progress, records read, records kept).
    #[allow(clippy::type_complexity)]
    fn copy(
        &mut self,
        py: Python<'_>,
        data: &[u8],
        at: usize,
        progress: Progress,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<(usize, usize, Vec<Point>, Progress, usize, usize)> {
        check_position(data, at)?;
        let (max_timestamp, max_timestamp_offset, bytes_since_point) = progress;
        let progress = IndexProgress {
            max_timestamp,
            max_timestamp_offset,
            bytes_since_point,
        };
        let mut out = Lent::writable(out)?;
        let keys = self.keys.borrow(py);
        let map = keys.map()?;
        let (rules, is_kept, out) = (&self.rules, &mut self.is_kept, out.slice_mut());
        let copied = py.detach(|| copy_batches(map, rules, data, at, progress, is_kept, out));
        let points = copied.points.iter().map(|point| {
            (
                point.last_offset,
                point.position,
                point.max_timestamp,
                point.max_timestamp_offset,
            )
        });
        let progress = copied.progress;
        Ok((
            copied.position,
            copied.written,
            points.collect(),
            (
                progress.max_timestamp,
                progress.max_timestamp_offset,
                progress.bytes_since_point,
            ),
            copied.records_read,
            copied.records_kept,
        ))
    }
}

fn to_rules((known_end, now_ms, new_horizon_ms): (i64, i64, i64)) -> Rules {
    Rules {
        known_end,
        now_ms,
        new_horizon_ms,
    }
}

fn check_position(data: &[u8], at: usize) -> PyResult<()> {
    match at <= data.len() {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!(
            "position {at} is behind the end of {} bytes",
            data.len()
        ))),
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the key map is closed")
}

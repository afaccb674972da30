//! The native code of Spindle, as the Python module `spindle._native`.
//!
//! A part is a pure core, which `cargo test` runs without a Python, and a module `python` with the
//! classes and functions that Python sees. Whoever has no native code runs Python code that does
//! the same, and tests compare both.

#![deny(unsafe_code)]
// The cores' only caller is not compiled into their tests.
#![cfg_attr(test, allow(dead_code))]

mod audit;
mod batch;
#[cfg(not(test))]
#[allow(unsafe_code)]
mod buffers;
mod compaction;
mod lane;
mod numbers;

#[cfg(not(test))]
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::audit::python::{digest_records, py_check_records, py_walk_headers, PySoundWalk};
    #[pymodule_export]
    use crate::compaction::python::{PyCopier, PyKeyMap};
    #[pymodule_export]
    use crate::lane::python::{targets_of_fetch, targets_of_produce, Lane, Lease};
}

//! The native code of Spindle, as the Python module `spindle._native`.
//!
//! A part is a pure core, which `cargo test` runs without a Python, and a `python` module with the
//! classes and functions that Python sees.

mod lane;

#[cfg(not(test))]
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::lane::python::{targets_of_fetch, targets_of_produce, Lane, Lease};
}

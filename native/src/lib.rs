//! The native code of Spindle, as the Python module `spindle._native`.
//!
//! A part is a pure core, which `cargo test` runs without a Python, and a `python` module with the
//! classes and functions that Python sees.

#[cfg(not(test))]
#[pyo3::pymodule]
mod _native {}

//! Memory that Python lends for one call, as slices: from `bytes`, `bytearray`, NumPy arrays.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// A contiguous buffer. It stays where it is as long as this value lives.
///
/// Python must neither write to it meanwhile nor, if it is lent to be written to, read it: the
/// classes of this module are used by one thread at a time, which waits for the call.
pub struct Lent<T: Element>(PyBuffer<T>);

impl<T: Element> Lent<T> {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(PyBufferError::new_err("the buffer is not contiguous")),
        }
    }

    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let lent = Self::new(object)?;
        match lent.0.readonly() {
            false => Ok(lent),
            true => Err(PyBufferError::new_err("the buffer is not writable")),
        }
    }

    pub fn slice(&self) -> &[T] {
        if self.0.item_count() == 0 {
            return &[];
        }
        // SAFETY: PyO3 has checked type and alignment, `new` that the items are one after the
        // other. The view keeps them in place, and nobody writes to them (see above).
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.item_count()) }
    }

    /// Return the memory of a buffer that was made by `writable`.
    pub fn slice_mut(&mut self) -> &mut [T] {
        if self.0.item_count() == 0 || self.0.readonly() {
            return &mut [];
        }
        // SAFETY: as above; the view is writable, and nobody else uses the memory (see above).
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.item_count()) }
    }
}

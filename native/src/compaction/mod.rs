//! The inner loops of compaction: the key map, and the records of uncompressed batches.
//!
//! Every function gives up in front of what it does not handle (a compressed, transactional,
//! control or damaged batch); `spindle.log.cleaning` then handles that batch in Python. So nothing
//! is decided here that the Python code does not decide as well.

pub mod batches;
pub mod filter;
pub mod key_map;
#[cfg(not(test))]
pub mod python;
pub mod records;

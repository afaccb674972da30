//! The lane of a log directory: a thread that serves Produce and Fetch from frame to answer.
//!
//! Python decides, the lane moves bytes. A lease permits it to append to one partition and to read
//! it, in one leader epoch. Each request that does not fit goes up to the event loop, together with
//! its connection.

#![cfg_attr(test, allow(dead_code))]

pub mod append;
pub mod batch;
pub mod connection;
pub mod fetch;
pub mod gate;
pub mod lease;
pub mod producers;
#[cfg(not(test))]
pub mod python;
pub mod read;
pub mod segment;
pub mod server;
pub mod session;
pub mod shared;
#[allow(unsafe_code)]
pub mod system;
pub mod times;
pub mod wire;

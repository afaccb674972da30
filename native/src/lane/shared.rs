//! What the lane's thread, the event loop and the directory's Python thread share.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::gate::Gate;
use super::lease::{LeaseShared, Leases};
use super::session::Session;
use super::system::Bell;
use super::times::Times;

/// What the event loop asks of the lane.
pub enum Command {
    Adopt {
        socket: OwnedFd,
        token: u64,
        listener: u32,
        received: Vec<u8>,
        session: Option<Session>,
    },
    Return {
        token: u64,
        max_idle_ms: u64,
    },
    ReturnAll,
    Stop,
}

/// What the lane reports to the event loop.
pub enum Event {
    /// The connection is the loop's again, with these unread bytes.
    Returned {
        token: u64,
        received: Vec<u8>,
        is_served: bool,
        idle_ms: u64,
        session: Option<Session>,
    },
    Closed {
        token: u64,
    },
}

#[derive(Clone, Copy)]
pub struct Settings {
    pub max_frame_bytes: i32,
    pub fetch_max_bytes: u64,
    pub is_rack_aware: bool,
}

/// What the lane's thread, the event loop and the directory's Python thread share.
pub struct Shared {
    pub settings: Settings,
    pub gate: Gate,
    leases: Mutex<Leases>,
    pub commands: Mutex<Vec<Command>>,
    events: Mutex<Vec<Event>>,
    progress: Mutex<Vec<Arc<LeaseShared>>>,
    times: Mutex<HashMap<(u32, i16), Times>>,
    ended: Mutex<Vec<u64>>,
    /// Leases for which fetches wait, and that have changed.
    changed: Mutex<Vec<u64>>,
    pub failure: Mutex<Option<io::Error>>,
    pub bell: Bell,
    pub loop_bell: Bell,
    is_loop_rung: AtomicBool,
    pub has_progress: AtomicBool,
    /// The directory is offline, or the lane is abandoned: it serves nothing more.
    pub has_failed: AtomicBool,
    /// Steps with the disk; odd while the lane works with it.
    pub disk_steps: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    /// Bytes that clients have sent and that are not served yet.
    pub held_bytes: AtomicU64,
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(settings: Settings) -> io::Result<Self> {
        Ok(Shared {
            settings,
            gate: Gate::default(),
            leases: Mutex::default(),
            commands: Mutex::default(),
            events: Mutex::default(),
            progress: Mutex::default(),
            times: Mutex::default(),
            ended: Mutex::default(),
            changed: Mutex::default(),
            failure: Mutex::default(),
            bell: Bell::new()?,
            loop_bell: Bell::new()?,
            is_loop_rung: AtomicBool::new(false),
            has_progress: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            disk_steps: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
        })
    }

    /// All leases, for a thread that has passed the gate.
    pub fn leases(&self) -> MutexGuard<'_, Leases> {
        locked(&self.leases)
    }

    pub fn command(&self, command: Command) {
        locked(&self.commands).push(command);
        self.bell.ring();
    }

    /// Have the lane look again at the fetches that wait for a lease that the caller has changed.
    pub fn wake_fetches(&self, lease: &LeaseShared) {
        if lease.take_waiting() {
            locked(&self.changed).push(lease.id);
            self.bell.ring();
        }
    }

    /// Return the leases at whose fetches the lane has to look again.
    pub fn take_changed(&self) -> Vec<u64> {
        std::mem::take(&mut *locked(&self.changed))
    }

    pub fn ring_loop(&self) {
        if !self.is_loop_rung.swap(true, Ordering::AcqRel) {
            self.loop_bell.ring();
        }
    }

    /// Return the events since the last call, in their order.
    pub fn take_events(&self) -> Vec<Event> {
        self.loop_bell.silence();
        // The flag is cleared first: an event that comes now rings again.
        self.is_loop_rung.store(false, Ordering::Release);
        std::mem::take(&mut *locked(&self.events))
    }

    /// Return the leases with new offsets or counts since the last call.
    pub fn take_progress(&self) -> Vec<Arc<LeaseShared>> {
        self.has_progress.store(false, Ordering::Release);
        let taken = std::mem::take(&mut *locked(&self.progress));
        // An exchange: an append that finds the flag set was made before the caller reads the end.
        for lease in &taken {
            lease.is_reported.swap(false, Ordering::AcqRel);
        }
        taken
    }

    /// End a lease; its state stays until the next `take_ended`.
    pub fn end_lease(&self, lease: &LeaseShared, was_cut: bool) {
        if was_cut {
            lease.was_cut.store(true, Ordering::Release);
        }
        let had_ended = lease.has_ended.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst); // see `LeaseShared::has_ended_meanwhile`
        if !had_ended {
            locked(&self.ended).push(lease.id);
            self.wake_fetches(lease);
        }
    }

    pub fn take_ended(&self) -> Vec<u64> {
        std::mem::take(&mut *locked(&self.ended))
    }

    pub fn take_times(&self) -> HashMap<(u32, i16), Times> {
        std::mem::take(&mut *locked(&self.times))
    }

    pub fn note_progress(&self, lease: &Arc<LeaseShared>) {
        if !lease.is_reported.swap(true, Ordering::AcqRel) {
            locked(&self.progress).push(lease.clone());
            self.has_progress.store(true, Ordering::Release);
        }
        // Who sets `must_wake` at the same time sees the progress.
        fence(Ordering::SeqCst);
        if lease.must_wake.load(Ordering::Acquire) {
            self.ring_loop();
        }
    }

    pub fn report(&self, event: Event) {
        locked(&self.events).push(event);
        self.ring_loop();
    }

    /// Serve nothing more.
    pub fn end_service(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.gate.look_again();
        self.command(Command::ReturnAll);
    }

    pub fn fail(&self, error: io::Error) {
        locked(&self.failure).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        self.ring_loop();
    }

    pub fn observe(&self, listener: u32, api_key: i16, elapsed: Duration) {
        locked(&self.times)
            .entry((listener, api_key))
            .or_default()
            .observe(elapsed, 0);
    }
}

/// Marks that the lane works with the disk, for the watchdog.
pub struct AtDisk<'a>(&'a AtomicU64);

impl<'a> AtDisk<'a> {
    pub fn new(steps: &'a AtomicU64) -> Self {
        steps.fetch_add(1, Ordering::AcqRel);
        AtDisk(steps)
    }
}

impl Drop for AtDisk<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Report new counts, without waking the event loop.
    pub fn note_counts(&self, lease: &Arc<LeaseShared>) {
        if !lease.is_reported.swap(true, Ordering::AcqRel) {
            locked(&self.progress).push(lease.clone());
            self.has_progress.store(true, Ordering::Release);
        }
    }
}

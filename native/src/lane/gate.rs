//! The gate of a log directory: one thread at a time works on its logs, in the order of arrival.
//!
//! Without an order, a lane that is never idle would keep the directory's Python thread waiting.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Tickets {
    next: u64,
    served: u64,
    given_up: BTreeSet<u64>,
}

impl Tickets {
    fn served_was_given_up(&mut self) -> bool {
        let served = self.served;
        self.given_up.remove(&served)
    }
}

#[derive(Default)]
pub struct Gate {
    tickets: Mutex<Tickets>,
    turn: Condvar,
}

impl Gate {
    /// Wait for the turn of the caller, who must `leave` afterwards.
    pub fn enter(&self) {
        let mut tickets = self.locked();
        let own = tickets.next;
        tickets.next += 1;
        while tickets.served != own {
            tickets = self
                .turn
                .wait(tickets)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn leave(&self) {
        let mut tickets = self.locked();
        tickets.served += 1;
        while tickets.served_was_given_up() {
            tickets.served += 1;
        }
        let has_waiter = tickets.served != tickets.next;
        drop(tickets);
        if has_waiter {
            self.turn.notify_all();
        }
    }

    /// Wait for the turn of the caller; return a guard that leaves when it is dropped.
    ///
    /// Return None if `is_over` becomes true first: who is inside may hang on its disk.
    pub fn pass(&self, is_over: &AtomicBool) -> Option<Pass<'_>> {
        let mut tickets = self.locked();
        let own = tickets.next;
        tickets.next += 1;
        while tickets.served != own {
            if is_over.load(Ordering::Acquire) {
                tickets.given_up.insert(own);
                return None;
            }
            tickets = self
                .turn
                .wait(tickets)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Some(Pass(self))
    }

    /// Have those who wait look again whether it is over.
    pub fn look_again(&self) {
        drop(self.locked());
        self.turn.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, Tickets> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_thread_at_a_time_passes() {
        let gate = Arc::new(Gate::default());
        let count = Arc::new(Mutex::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (gate, count) = (gate.clone(), count.clone());
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        let _pass = gate.pass(&AtomicBool::new(false)).unwrap();
                        *count.try_lock().expect("another thread is inside") += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*count.lock().unwrap(), 4000);
    }

    #[test]
    fn who_waits_gives_up_when_it_is_over_and_the_next_one_passes() {
        let (gate, is_over) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        gate.enter();
        let (its_gate, its_over) = (gate.clone(), is_over.clone());
        let waiting = std::thread::spawn(move || its_gate.pass(&its_over).is_none());
        while gate.locked().next < 2 {
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Release);
        gate.look_again();
        assert!(waiting.join().unwrap());
        gate.leave();
        gate.enter();
        gate.leave();
    }
}

//! The gate of a log directory: one thread at a time works on its logs, in the order of arrival.
//!
//! Without an order, a lane that is never idle would keep the directory's Python thread waiting.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Tickets {
    next: u64,
    served: u64,
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
            tickets = self.turn.wait(tickets).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn leave(&self) {
        let mut tickets = self.locked();
        tickets.served += 1;
        let has_waiter = tickets.served != tickets.next;
        drop(tickets);
        if has_waiter {
            self.turn.notify_all();
        }
    }

    /// Return a guard that leaves when it is dropped.
    pub fn pass(&self) -> Pass<'_> {
        self.enter();
        Pass(self)
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
                        let _pass = gate.pass();
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
}

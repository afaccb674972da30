//! The thread of a lane: its epoll set, its connections, and what they wait for.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::append::{append, check_batches, AppendError};
use super::connection::{Buffers, Connection, Input, Piece, SendError};
use super::fetch::{look, Answer, Looked};
use super::gate::Gate;
use super::lease::{LeaseShared, Leases};
use super::read::{Records, Refusal};
use super::system::{Bell, Epoll, READABLE, WRITABLE};
use super::times::Times;
use super::wire::{read_fetch, read_header, read_produce, write_fetched, write_produced};
use super::wire::{Header, FETCH, PRODUCE};

const BELL_KEY: u64 = u64::MAX;
/// Frames of one connection that are served before another connection gets its turn.
const MAX_FRAMES_IN_TURN: usize = 16;
const DISK_FULL: [i32; 2] = [libc::ENOSPC, libc::EDQUOT];

/// What the event loop asks of the lane.
pub enum Command {
    Adopt {
        socket: OwnedFd,
        token: u64,
        listener: u32,
        received: Vec<u8>,
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
    commands: Mutex<Vec<Command>>,
    events: Mutex<Vec<Event>>,
    progress: Mutex<Vec<Arc<LeaseShared>>>,
    times: Mutex<HashMap<(u32, i16), Times>>,
    ended: Mutex<Vec<u64>>,
    pub failure: Mutex<Option<io::Error>>,
    bell: Bell,
    pub loop_bell: Bell,
    is_loop_rung: AtomicBool,
    pub has_progress: AtomicBool,
    /// The directory is offline, or the lane is abandoned: it serves nothing more.
    pub has_failed: AtomicBool,
    /// Steps with the disk; odd while the lane works with it.
    pub disk_steps: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
            failure: Mutex::default(),
            bell: Bell::new()?,
            loop_bell: Bell::new()?,
            is_loop_rung: AtomicBool::new(false),
            has_progress: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            disk_steps: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
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

    /// Have the lane look again at what waits.
    pub fn wake(&self) {
        self.bell.ring();
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
        if !lease.has_ended.swap(true, Ordering::AcqRel) {
            locked(&self.ended).push(lease.id);
            if lease.has_waiting() {
                self.wake();
            }
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

    fn report(&self, event: Event) {
        locked(&self.events).push(event);
        self.ring_loop();
    }

    /// Serve nothing more.
    pub fn end_service(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.gate.look_again();
        self.command(Command::ReturnAll);
    }

    fn fail(&self, error: io::Error) {
        locked(&self.failure).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        self.ring_loop();
    }

    fn observe(&self, listener: u32, api_key: i16, elapsed: Duration) {
        locked(&self.times)
            .entry((listener, api_key))
            .or_default()
            .observe(elapsed, 0);
    }
}

/// Marks that the lane works with the disk, for the watchdog.
struct AtDisk<'a>(&'a AtomicU64);

impl<'a> AtDisk<'a> {
    fn new(steps: &'a AtomicU64) -> Self {
        steps.fetch_add(1, Ordering::AcqRel);
        AtDisk(steps)
    }
}

impl Drop for AtDisk<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// How the lane goes on with a connection after a frame.
enum Step {
    Served,
    Waits,
    Return,
    Close,
}

pub struct Server {
    shared: Arc<Shared>,
    epoll: Epoll,
    connections: HashMap<u64, Connection>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Connections that get a turn without a new event.
    again: VecDeque<u64>,
    free: Buffers,
    scratch: Vec<u8>,
    response: Vec<u8>,
    gaps: Vec<usize>,
}

impl Server {
    pub fn new(shared: Arc<Shared>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(shared.bell.descriptor(), READABLE, BELL_KEY)?;
        Ok(Server {
            shared,
            epoll,
            connections: HashMap::new(),
            deadlines: BTreeSet::new(),
            again: VecDeque::new(),
            free: Buffers::default(),
            scratch: Vec::new(),
            response: Vec::new(),
            gaps: Vec::new(),
        })
    }

    /// Serve until `Command::Stop`.
    pub fn run(&mut self) {
        let mut ready = Vec::with_capacity(64);
        loop {
            ready.clear();
            if self.epoll.wait(self.timeout_ms(), &mut ready).is_err() {
                return;
            }
            let mut is_rung = false;
            for (key, events) in ready.drain(..) {
                if key == BELL_KEY {
                    is_rung = true;
                } else {
                    self.on_ready(key, events);
                }
            }
            for _ in 0..self.again.len() {
                if let Some(token) = self.again.pop_front() {
                    self.serve(token, false);
                }
            }
            if is_rung && !self.on_bell() {
                return;
            }
            self.on_deadlines();
        }
    }

    fn timeout_ms(&self) -> i32 {
        if !self.again.is_empty() {
            return 0;
        }
        match self.deadlines.first() {
            None => -1,
            Some((at, _)) => {
                let left = at.saturating_duration_since(Instant::now());
                i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
            }
        }
    }

    // -- events

    /// Handle the commands of the event loop; return false to stop.
    fn on_bell(&mut self) -> bool {
        self.shared.bell.silence();
        let commands = std::mem::take(&mut *locked(&self.shared.commands));
        for command in commands {
            match command {
                Command::Adopt {
                    socket,
                    token,
                    listener,
                    received,
                } => {
                    self.adopt(socket, token, listener, &received);
                }
                Command::Return { token, max_idle_ms } => {
                    if self.is_stuck(token, Duration::from_millis(max_idle_ms)) {
                        self.close(token);
                    } else {
                        self.ask_back(token);
                    }
                }
                Command::ReturnAll => {
                    let tokens: Vec<u64> = self.connections.keys().copied().collect();
                    tokens.into_iter().for_each(|token| self.ask_back(token));
                }
                Command::Stop => return false,
            }
        }
        // A lease may have ended, or a high watermark may have moved.
        let waiting: Vec<u64> = self.deadlines.iter().map(|(_, token)| *token).collect();
        waiting
            .into_iter()
            .for_each(|token| self.serve(token, false));
        true
    }

    fn adopt(&mut self, socket: OwnedFd, token: u64, listener: u32, received: &[u8]) {
        let mut connection = Connection {
            stream: TcpStream::from(socket),
            listener,
            input: Input::default(),
            unsent: VecDeque::new(),
            deadline: None,
            began: None,
            interest: READABLE,
            must_return: false,
            last_active: Instant::now(),
        };
        if !received.is_empty() {
            connection.input.put(received, &mut self.free);
        }
        if self
            .epoll
            .add(connection.descriptor(), READABLE, token)
            .is_err()
        {
            let received = connection.input.unread().to_vec();
            self.shared.report(Event::Returned {
                token,
                received,
                is_served: true,
                idle_ms: 0,
            });
            return;
        }
        self.connections.insert(token, connection);
        self.serve(token, false);
    }

    /// Return whether the client has read nothing of its response for this long.
    fn is_stuck(&self, token: u64, max_idle: Duration) -> bool {
        self.connections.get(&token).is_some_and(|connection| {
            !connection.unsent.is_empty() && connection.last_active.elapsed() >= max_idle
        })
    }

    fn ask_back(&mut self, token: u64) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.must_return = true;
            self.serve(token, false);
        }
    }

    fn on_ready(&mut self, token: u64, events: u32) {
        if events & WRITABLE != 0 && !self.flush(token) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        if events & !WRITABLE == 0 {
            self.serve(token, false);
            return;
        }
        match connection.input.receive(&connection.stream, &mut self.free) {
            Ok(0) => self.close(token),
            Ok(_) => self.serve(token, false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.close(token),
        }
    }

    fn on_deadlines(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((at, token)) = self.deadlines.first().copied() {
            if at > now {
                return;
            }
            self.deadlines.remove(&(at, token));
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.deadline = None;
            }
            self.serve(token, true);
        }
    }

    // -- connections

    /// Serve complete frames, while their responses are sent at once.
    fn serve(&mut self, token: u64, is_due: bool) {
        let mut is_due = is_due;
        for _ in 0..MAX_FRAMES_IN_TURN {
            let Some(connection) = self.connections.get_mut(&token) else {
                return;
            };
            if !connection.unsent.is_empty() {
                self.set_interest(token);
                return;
            }
            if connection.must_return || self.shared.has_failed.load(Ordering::Acquire) {
                self.give_back(token, true);
                return;
            }
            let Some(size) = connection.input.frame_bytes() else {
                break;
            };
            if size <= 0 || size > self.shared.settings.max_frame_bytes {
                self.give_back(token, false);
                return;
            }
            if connection.input.unread().len() < size as usize + 4 {
                break;
            }
            // The frame is taken out, so that the lane can be used beside it.
            let mut input = std::mem::take(&mut connection.input);
            let frame = &mut input.unread_mut()[4..size as usize + 4];
            let step = self.serve_frame(token, frame, is_due);
            is_due = false;
            let Some(connection) = self.connections.get_mut(&token) else {
                return;
            };
            connection.input = input;
            match step {
                Step::Served => {
                    self.end_wait(token);
                    let Some(connection) = self.connections.get_mut(&token) else {
                        return;
                    };
                    connection.input.skip(size as usize + 4, &mut self.free);
                    self.shared
                        .bytes_in
                        .fetch_add(size as u64 + 4, Ordering::Relaxed);
                    if !self.flush(token) {
                        return;
                    }
                }
                Step::Waits => {
                    self.set_interest(token);
                    return;
                }
                Step::Return => {
                    let has_failed = self.shared.has_failed.load(Ordering::Acquire);
                    self.give_back(token, has_failed);
                    return;
                }
                Step::Close => {
                    self.close(token);
                    return;
                }
            }
        }
        let Some(connection) = self.connections.get(&token) else {
            return;
        };
        let size = connection.input.frame_bytes();
        if size.is_some_and(|size| connection.input.unread().len() >= size.max(0) as usize + 4) {
            self.again.push_back(token);
        }
        self.set_interest(token);
    }

    /// Send what is unsent; return false if the connection was closed.
    fn flush(&mut self, token: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&token) else {
            return false;
        };
        if connection.unsent.is_empty() {
            return true;
        }
        let mut sent_bytes = 0;
        let is_in_memory = connection
            .unsent
            .iter()
            .all(|piece| matches!(piece, Piece::Memory { .. }));
        let result = if is_in_memory {
            connection.flush(&mut sent_bytes)
        } else {
            match self.shared.gate.pass(&self.shared.has_failed) {
                None => Err(SendError::Socket),
                Some(_pass) => {
                    let _step = AtDisk::new(&self.shared.disk_steps);
                    connection.flush(&mut sent_bytes)
                }
            }
        };
        self.shared
            .bytes_out
            .fetch_add(sent_bytes, Ordering::Relaxed);
        if sent_bytes > 0 {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.last_active = Instant::now();
            }
        }
        match result {
            Ok(_) => true,
            Err(SendError::Socket) => {
                self.close(token);
                false
            }
            Err(SendError::Disk(error)) => {
                self.shared.fail(error);
                self.close(token);
                false
            }
        }
    }

    /// Wait for what the connection needs next.
    fn set_interest(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let interest = if !connection.unsent.is_empty() {
            WRITABLE
        } else if connection.deadline.is_some() && connection.input.is_full() {
            0
        } else {
            READABLE
        };
        if interest != connection.interest {
            connection.interest = interest;
            if self
                .epoll
                .change(connection.descriptor(), interest, token)
                .is_err()
            {
                self.close(token);
            }
        }
    }

    fn end_wait(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.began = None;
        if let Some(at) = connection.deadline.take() {
            self.deadlines.remove(&(at, token));
        }
    }

    fn take_out(&mut self, token: u64) -> Option<Connection> {
        self.end_wait(token);
        let connection = self.connections.remove(&token)?;
        self.epoll.remove(connection.descriptor());
        Some(connection)
    }

    /// Give a connection back to the event loop, with the frames that were not served.
    fn give_back(&mut self, token: u64, is_served: bool) {
        if let Some(mut connection) = self.take_out(token) {
            let received = connection.input.unread().to_vec();
            connection.input.skip(received.len(), &mut self.free);
            let idle = connection.last_active.elapsed().as_millis();
            let idle_ms = u64::try_from(idle).unwrap_or(u64::MAX);
            drop(connection); // the loop uses its own descriptor
            self.shared.report(Event::Returned {
                token,
                received,
                is_served,
                idle_ms,
            });
        }
    }

    fn close(&mut self, token: u64) {
        if self.take_out(token).is_some() {
            self.shared.report(Event::Closed { token });
        }
    }

    // -- requests

    fn serve_frame(&mut self, token: u64, frame: &mut [u8], is_due: bool) -> Step {
        let began = match self.connections.get_mut(&token) {
            Some(connection) => {
                let began = *connection.began.get_or_insert_with(Instant::now);
                connection.last_active = began;
                began
            }
            None => return Step::Close,
        };
        let Some(header) = read_header(frame) else {
            return Step::Return;
        };
        let step = match header.api_key {
            PRODUCE => self.serve_produce(token, frame, &header),
            FETCH => self.serve_fetch(token, frame, &header, began, is_due),
            _ => Step::Return,
        };
        if matches!(step, Step::Served) {
            if let Some(connection) = self.connections.get(&token) {
                self.shared
                    .observe(connection.listener, header.api_key, began.elapsed());
            }
        }
        step
    }

    fn serve_produce(&mut self, token: u64, frame: &mut [u8], header: &Header) -> Step {
        let Some(request) = read_produce(frame, header) else {
            return Step::Return;
        };
        let Some(mut headers) = check_batches(frame, header, &request) else {
            return Step::Return;
        };
        let shared = self.shared.clone();
        let (results, failure) = {
            let Some(_pass) = shared.gate.pass(&shared.has_failed) else {
                return Step::Return;
            };
            let _step = AtDisk::new(&shared.disk_steps);
            if shared.has_failed.load(Ordering::Acquire) {
                return Step::Return;
            }
            let mut leases = shared.leases();
            let end = |lease: &LeaseShared| shared.end_lease(lease, false);
            match append(&mut leases, frame, &request, &mut headers, now_ms(), end) {
                Ok((ids, appended)) => {
                    for id in ids {
                        self.appended(&mut leases, id);
                    }
                    appended
                }
                Err(AppendError::Up) => return Step::Return,
                Err(AppendError::Disk(error)) => {
                    fail_unless_full(&shared, error);
                    return Step::Return;
                }
            }
        };
        if let Some(error) = failure {
            fail_unless_full(&shared, error);
        }
        if request.acks != 0 {
            self.response.clear();
            write_produced(&mut self.response, frame, header, &request, &results);
            let bytes = self.response.clone();
            self.answer(token, Piece::Memory { bytes, sent: 0 });
        } else if results.iter().any(|result| result.error_code != 0) {
            return Step::Close; // the producer expects no answer
        }
        Step::Served
    }

    /// Report the append, and look again at the fetches that wait for it.
    fn appended(&mut self, leases: &mut Leases, id: u64) {
        if let Some(state) = leases.by_id.get_mut(&id) {
            self.again.extend(state.waiters.drain(..));
            state.shared.waiting.store(0, Ordering::Release);
            self.shared.note_progress(&state.shared);
        }
    }

    fn serve_fetch(
        &mut self,
        token: u64,
        frame: &[u8],
        header: &Header,
        began: Instant,
        is_due: bool,
    ) -> Step {
        let Some(request) = read_fetch(frame, header) else {
            return Step::Return;
        };
        let is_session = request.session_id != 0 || request.session_epoch >= 0;
        let has_rack = request.has_rack && self.shared.settings.is_rack_aware;
        if is_session || has_rack || request.parts.is_empty() {
            return Step::Return;
        }
        let shared = self.shared.clone();
        self.scratch.clear();
        let looked = {
            let Some(_pass) = shared.gate.pass(&shared.has_failed) else {
                return Step::Return;
            };
            let _step = AtDisk::new(&shared.disk_steps);
            let mut leases = shared.leases();
            let max_bytes = shared.settings.fetch_max_bytes;
            let scratch = &mut self.scratch;
            let looked = look(&mut leases, frame, &request, max_bytes, is_due, scratch);
            if let Ok(Looked::Wait(ids)) = &looked {
                for id in ids {
                    if let Some(state) = leases.by_id.get_mut(id) {
                        if !state.waiters.contains(&token) {
                            state.waiters.push(token);
                        }
                        state.shared.set_waiting(state.waiters.len());
                    }
                }
                // A high watermark that moved before `set_waiting` has woken nobody.
                scratch.clear();
                look(&mut leases, frame, &request, max_bytes, is_due, scratch)
            } else {
                looked
            }
        };
        match looked {
            Ok(Looked::Answer(answer)) => {
                self.respond(token, frame, header, &request, answer);
                Step::Served
            }
            Ok(Looked::Wait(_)) => {
                self.wait(
                    token,
                    began + Duration::from_millis(request.max_wait_ms as u64),
                );
                Step::Waits
            }
            Err(Refusal::Up) => Step::Return,
            Err(Refusal::Disk(error)) => {
                shared.fail(error);
                Step::Return
            }
        }
    }

    fn wait(&mut self, token: u64, deadline: Instant) {
        if let Some(connection) = self.connections.get_mut(&token) {
            if connection.deadline.is_none() {
                connection.deadline = Some(deadline);
                self.deadlines.insert((deadline, token));
            }
        }
    }

    fn respond(
        &mut self,
        token: u64,
        frame: &[u8],
        header: &Header,
        request: &super::wire::Fetch,
        answer: Answer,
    ) {
        self.response.clear();
        self.gaps.clear();
        let (out, gaps) = (&mut self.response, &mut self.gaps);
        write_fetched(out, gaps, header, request, frame, &answer.shown);
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut memory, mut at, mut read) = (Vec::new(), 0, 0);
        for (gap, part) in self.gaps.iter().zip(answer.records) {
            memory.extend_from_slice(&self.response[at..*gap]);
            at = *gap;
            part.lease.counts.fetches.fetch_add(1, Ordering::Relaxed);
            let size = part.records.len();
            part.lease
                .counts
                .bytes_out
                .fetch_add(size as u64, Ordering::Relaxed);
            self.shared.note_counts(&part.lease);
            match part.records {
                Records::Memory(size) => {
                    memory.extend_from_slice(&self.scratch[read..read + size]);
                    read += size;
                }
                Records::InFile {
                    file,
                    position,
                    size,
                } => {
                    let bytes = std::mem::take(&mut memory);
                    pieces.push(Piece::Memory { bytes, sent: 0 });
                    pieces.push(Piece::InFile {
                        file,
                        position,
                        left: size,
                        lease: part.lease,
                    });
                }
            }
        }
        memory.extend_from_slice(&self.response[at..]);
        pieces.push(Piece::Memory {
            bytes: memory,
            sent: 0,
        });
        pieces
            .into_iter()
            .for_each(|piece| self.answer(token, piece));
    }

    fn answer(&mut self, token: u64, piece: Piece) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.unsent.push_back(piece);
        }
    }
}

impl Shared {
    /// Report new counts, without waking the event loop.
    fn note_counts(&self, lease: &Arc<LeaseShared>) {
        if !lease.is_reported.swap(true, Ordering::AcqRel) {
            locked(&self.progress).push(lease.clone());
            self.has_progress.store(true, Ordering::Release);
        }
    }
}

/// Python tries an append again if the disk is full: it can release reserved space.
fn fail_unless_full(shared: &Shared, error: io::Error) {
    if !error
        .raw_os_error()
        .is_some_and(|code| DISK_FULL.contains(&code))
    {
        shared.fail(error);
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

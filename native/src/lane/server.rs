//! The thread of a lane: its epoll set, its connections, and what they wait for.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::append::{append, check_batches, AppendError, STORAGE_ERROR};
use super::connection::{Buffers, Connection, Piece, SendError, Sent};
use super::fetch::{look, Answer, Looked};
use super::lease::{LeaseShared, Leases};
use super::read::{Records, Refusal};
use super::session::Session;
use super::shared::{locked, AtDisk, Command, Event, Shared};
use super::system::{Epoll, READABLE, WRITABLE};
use super::wire::{read_fetch, read_header, read_produce, write_fetched, write_produced};
use super::wire::{Fetch, Header, FETCH, PRODUCE};

const BELL_KEY: u64 = u64::MAX;
/// Frames of one connection that are served before another connection gets its turn.
const MAX_FRAMES_IN_TURN: usize = 16;
const DISK_FULL: [i32; 2] = [libc::ENOSPC, libc::EDQUOT];

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
    /// Connections whose fetches wait, by lease. Some have been answered since, or closed.
    waiting: HashMap<u64, BTreeSet<u64>>,
    /// Connections that get a turn without a new event.
    again: VecDeque<u64>,
    free: Buffers,
    scratch: Vec<u8>,
    response: Vec<u8>,
    gaps: Vec<(usize, usize)>,
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
            waiting: HashMap::new(),
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
                    session,
                } => {
                    self.adopt(socket, token, listener, &received, session);
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
        for id in self.shared.take_changed() {
            let waiting = self.waiting.remove(&id).unwrap_or_default();
            waiting
                .into_iter()
                .for_each(|token| self.serve(token, false));
        }
        true
    }

    fn adopt(
        &mut self,
        socket: OwnedFd,
        token: u64,
        listener: u32,
        received: &[u8],
        session: Option<Session>,
    ) {
        let mut connection = Connection::new(TcpStream::from(socket), listener, session);
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
                session: connection.session,
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
            Ok(count) => {
                self.shared
                    .bytes_in
                    .fetch_add(count as u64, Ordering::Relaxed);
                self.serve(token, false);
            }
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
        self.serve_frames(token, is_due);
        if let Some(connection) = self.connections.get_mut(&token) {
            let held_bytes = connection.input.unread().len();
            let growth = (held_bytes as u64).wrapping_sub(connection.held_bytes as u64);
            connection.held_bytes = held_bytes;
            self.shared.held_bytes.fetch_add(growth, Ordering::Relaxed);
        }
    }

    fn serve_frames(&mut self, token: u64, is_due: bool) {
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
        let mut sent = Sent::default();
        let is_in_memory = connection
            .unsent
            .iter()
            .all(|piece| matches!(piece, Piece::Memory { .. }));
        let result = if is_in_memory {
            connection.flush(&mut sent)
        } else {
            match self.shared.gate.pass(&self.shared.has_failed) {
                None => Err(SendError::Socket),
                Some(_pass) => {
                    let _step = AtDisk::new(&self.shared.disk_steps);
                    let result = connection.flush(&mut sent);
                    if sent.file_bytes > 0 {
                        let reads = &mut self.shared.leases().reads;
                        reads.observe(sent.from_files, sent.file_bytes as u64);
                    }
                    result
                }
            }
        };
        self.shared
            .bytes_out
            .fetch_add(sent.bytes, Ordering::Relaxed);
        if sent.bytes > 0 {
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
        let held_bytes = connection.held_bytes as u64;
        self.shared
            .held_bytes
            .fetch_sub(held_bytes, Ordering::Relaxed);
        Some(connection)
    }

    /// Give a connection back to the event loop, with the frames that were not served.
    fn give_back(&mut self, token: u64, is_served: bool) {
        if let Some(mut connection) = self.take_out(token) {
            let received = connection.input.unread().to_vec();
            connection.input.skip(received.len(), &mut self.free);
            let idle = connection.last_active.elapsed().as_millis();
            let idle_ms = u64::try_from(idle).unwrap_or(u64::MAX);
            let session = connection.session.take();
            drop(connection); // the loop uses its own descriptor
            self.shared.report(Event::Returned {
                token,
                received,
                is_served,
                idle_ms,
                session,
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
        let (mut results, failure, is_over) = {
            let Some(_pass) = shared.gate.pass(&shared.has_failed) else {
                return Step::Return;
            };
            let _step = AtDisk::new(&shared.disk_steps);
            if shared.has_failed.load(Ordering::Acquire) {
                return Step::Return;
            }
            let mut leases = shared.leases();
            let end = |lease: &LeaseShared| shared.end_lease(lease, false);
            let is_over = || shared.has_failed.load(Ordering::Acquire);
            let now_ms = now_ms();
            match append(
                &mut leases,
                frame,
                &request,
                &mut headers,
                now_ms,
                end,
                is_over,
            ) {
                Ok((ids, (results, failure))) => {
                    for id in ids {
                        self.appended(&mut leases, id);
                    }
                    (results, failure, is_over())
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
        if is_over {
            // The disk came back too late: another replica may lead by now.
            results.fill(STORAGE_ERROR);
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
            if state.shared.is_sole_replica {
                // Otherwise they wait for the high watermark, which follows later.
                state.shared.waiting.store(0, Ordering::Release);
                self.again
                    .extend(self.waiting.remove(&id).unwrap_or_default());
            }
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
        let Some(mut request) = read_fetch(frame, header) else {
            return Step::Return;
        };
        let has_rack = request.has_rack && self.shared.settings.is_rack_aware;
        if has_rack {
            return Step::Return;
        }
        // The session is taken out, and put back by `keep_session`.
        let mut session = None;
        if request.session_id != 0 || request.session_epoch >= 0 {
            session = self.session_of(token);
            let whole = session
                .as_mut()
                .and_then(|session| session.apply(frame, &request));
            let Some(whole) = whole else {
                self.keep_session(token, session);
                return Step::Return;
            };
            request = whole;
        }
        let names = session.as_ref().map_or(frame, |session| &session.names);
        let names = names.to_vec();
        let step = self.look_and_respond(
            token,
            header,
            (&request, &names),
            &mut session,
            began,
            is_due,
        );
        self.keep_session(token, session);
        step
    }

    fn session_of(&mut self, token: u64) -> Option<Session> {
        self.connections.get_mut(&token)?.session.take()
    }

    fn keep_session(&mut self, token: u64, session: Option<Session>) {
        if let Some(connection) = self.connections.get_mut(&token) {
            if session.is_some() {
                connection.session = session;
            }
        }
    }

    fn look_and_respond(
        &mut self,
        token: u64,
        header: &Header,
        (request, names): (&Fetch, &[u8]),
        session: &mut Option<Session>,
        began: Instant,
        is_due: bool,
    ) -> Step {
        if request.parts.is_empty() {
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
            let looked = look(&mut leases, names, request, max_bytes, is_due, scratch);
            if let Ok(Looked::Wait(ids)) = &looked {
                for id in ids {
                    if let Some(state) = leases.by_id.get(id) {
                        let waiting = self.waiting.entry(*id).or_default();
                        if waiting.len() > 2 * self.connections.len() {
                            let connections = &self.connections;
                            waiting.retain(|token| connections.contains_key(token));
                        }
                        waiting.insert(token);
                        state.shared.set_waiting(waiting.len());
                    }
                }
                // A high watermark that moved before `set_waiting` has woken nobody.
                scratch.clear();
                look(&mut leases, names, request, max_bytes, is_due, scratch)
            } else {
                looked
            }
        };
        match looked {
            Ok(Looked::Answer(mut answer)) => {
                if let Some(session) = session {
                    answer.keep(|at, fetched| session.is_news(at, fetched));
                    session.answered(&answer.shown);
                }
                self.respond(token, names, header, request, answer);
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
        request: &Fetch,
        answer: Answer,
    ) {
        self.response.clear();
        self.gaps.clear();
        let (out, gaps) = (&mut self.response, &mut self.gaps);
        write_fetched(out, gaps, header, request, frame, &answer.shown);
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut memory, mut at) = (Vec::new(), 0);
        for (place, gap) in &self.gaps {
            let part = &answer.records[*place];
            memory.extend_from_slice(&self.response[at..*gap]);
            at = *gap;
            part.lease.counts.fetches.fetch_add(1, Ordering::Relaxed);
            let size = part.records.len();
            part.lease
                .counts
                .bytes_out
                .fetch_add(size as u64, Ordering::Relaxed);
            self.shared.note_counts(&part.lease);
            match &part.records {
                Records::Memory(range) => memory.extend_from_slice(&self.scratch[range.clone()]),
                Records::InFile {
                    file,
                    position,
                    size,
                } => {
                    let bytes = std::mem::take(&mut memory);
                    pieces.push(Piece::Memory { bytes, sent: 0 });
                    pieces.push(Piece::InFile {
                        file: file.clone(),
                        position: *position,
                        left: *size,
                        lease: part.lease.clone(),
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

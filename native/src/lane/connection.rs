//! A client's connection in the lane: received bytes, and the unsent part of a response.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lease::LeaseShared;
use super::session::Session;
use super::system::{send, send_file, READABLE};

const SMALL_BYTES: usize = 64 * 1024;
/// The memory of a larger frame grows as its bytes arrive.
const FIRST_ALLOCATION_BYTES: usize = 2 * 1024 * 1024;
const MAX_FREE_BUFFERS: usize = 8;
const MAX_FREE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of files that are sent to one client before others get their turn, and the gate is free.
pub const MAX_SENT_BYTES: usize = 1024 * 1024;

/// Receive buffers that no connection uses now.
#[derive(Default)]
pub struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| vec![0; SMALL_BYTES])
    }

    fn put(&mut self, buffer: Vec<u8>) {
        if self.0.len() < MAX_FREE_BUFFERS && (1..=MAX_FREE_BYTES).contains(&buffer.len()) {
            self.0.push(buffer);
        }
    }
}

/// The unread bytes of a connection: `bytes[start..end]`.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The size of the first frame, without its size field; None if that is not complete.
    pub fn frame_bytes(&self) -> Option<i32> {
        self.unread()
            .first_chunk::<4>()
            .map(|size| i32::from_be_bytes(*size))
    }

    pub fn skip(&mut self, count: usize, free: &mut Buffers) {
        self.start += count;
        if self.start == self.end {
            free.put(std::mem::take(&mut self.bytes));
            (self.start, self.end) = (0, 0);
        }
    }

    pub fn put(&mut self, bytes: &[u8], free: &mut Buffers) {
        self.make_room(bytes.len(), free);
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    fn make_room(&mut self, count: usize, free: &mut Buffers) {
        if self.bytes.is_empty() {
            self.bytes = free.take();
        }
        if self.bytes.len() - self.end < count {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < count {
            self.bytes.resize(self.end + count, 0);
        }
    }

    /// Read from the socket once; Ok(0) if the client has closed it.
    pub fn receive(&mut self, stream: &TcpStream, free: &mut Buffers) -> io::Result<usize> {
        let have = self.end - self.start;
        let missing = match self.frame_bytes() {
            Some(size) if size > 0 => (size as usize + 4).saturating_sub(have),
            _ => 0,
        };
        let growth = FIRST_ALLOCATION_BYTES.max(have);
        self.make_room(missing.clamp(1, growth).max(1024.min(SMALL_BYTES)), free);
        let mut stream = stream;
        let count = stream.read(&mut self.bytes[self.end..]);
        if let Ok(count) = count {
            self.end += count;
        }
        if self.is_empty() {
            self.skip(0, free);
        }
        count
    }

    /// More of the same frames is not read while this much waits.
    pub fn is_full(&self) -> bool {
        self.end - self.start >= SMALL_BYTES
    }
}

/// An unsent piece of a response.
pub enum Piece {
    Memory {
        bytes: Vec<u8>,
        sent: usize,
    },
    InFile {
        file: Arc<File>,
        position: u64,
        left: usize,
        lease: Arc<LeaseShared>,
    },
}

/// Why a response cannot be sent.
#[derive(Debug)]
pub enum SendError {
    /// The client, or its network, is gone; or the records were cut from the log meanwhile.
    Socket,
    Disk(io::Error),
}

/// What was sent in one turn.
#[derive(Default)]
pub struct Sent {
    pub bytes: u64,
    /// The part that comes from files, and how long that took.
    pub file_bytes: usize,
    pub from_files: Duration,
}

pub struct Connection {
    pub stream: TcpStream,
    pub listener: u32,
    pub input: Input,
    pub unsent: VecDeque<Piece>,
    /// The part of `Shared::held_bytes` that is of this connection.
    pub held_bytes: usize,
    /// The first frame waits until then.
    pub deadline: Option<Instant>,
    pub began: Option<Instant>,
    /// The events that the lane waits for now.
    pub interest: u32,
    pub must_return: bool,
    pub last_active: Instant,
    pub session: Option<Session>,
}

impl Connection {
    pub fn new(stream: TcpStream, listener: u32, session: Option<Session>) -> Self {
        Connection {
            stream,
            listener,
            input: Input::default(),
            unsent: VecDeque::new(),
            held_bytes: 0,
            deadline: None,
            began: None,
            interest: READABLE,
            must_return: false,
            last_active: Instant::now(),
            session,
        }
    }

    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Send as much as the socket takes, but at most `MAX_SENT_BYTES` of files.
    pub fn flush(&mut self, sent: &mut Sent) -> Result<bool, SendError> {
        let socket = self.descriptor();
        while let Some(piece) = self.unsent.pop_front() {
            let has_more = !self.unsent.is_empty();
            match send_piece(socket, piece, has_more, sent)? {
                None => {}
                Some(rest) => {
                    self.unsent.push_front(rest);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Send a piece; return what the socket did not take.
fn send_piece(
    socket: RawFd,
    piece: Piece,
    has_more: bool,
    turn: &mut Sent,
) -> Result<Option<Piece>, SendError> {
    match piece {
        Piece::Memory { bytes, mut sent } => {
            match send(socket, &bytes[sent..], has_more) {
                Ok(count) => {
                    sent += count;
                    turn.bytes += count as u64;
                }
                Err(error) if is_full(&error) => {}
                Err(_) => return Err(SendError::Socket),
            }
            Ok((sent < bytes.len()).then_some(Piece::Memory { bytes, sent }))
        }
        Piece::InFile {
            file,
            mut position,
            mut left,
            lease,
        } => {
            let began = Instant::now();
            while left > 0 {
                if lease.was_cut.load(std::sync::atomic::Ordering::Acquire) {
                    return Err(SendError::Socket);
                }
                let size = left.min(MAX_SENT_BYTES - turn.file_bytes);
                let count = match size {
                    0 => 0, // the turn is over
                    _ => send_range(socket, &file, position, size)?,
                };
                if count == 0 {
                    break;
                }
                position += count as u64;
                left -= count;
                turn.bytes += count as u64;
                turn.file_bytes += count;
            }
            turn.from_files += began.elapsed();
            Ok((left > 0).then_some(Piece::InFile {
                file,
                position,
                left,
                lease,
            }))
        }
    }
}

/// Send a range of a file; return how many bytes the socket took, 0 if it is full.
fn send_range(socket: RawFd, file: &File, position: u64, size: usize) -> Result<usize, SendError> {
    match send_file(socket, file, position, size) {
        Ok(0) => Err(SendError::Socket), // the file is shorter than it was
        Ok(count) => Ok(count),
        Err(error) if is_full(&error) => Ok(0),
        Err(_) => {
            // Only a read says whether the disk has failed, only a send says it of the socket.
            let mut bytes = vec![0; size.min(SMALL_BYTES)];
            file.read_exact_at(&mut bytes, position)
                .map_err(SendError::Disk)?;
            match send(socket, &bytes, false) {
                Ok(count) => Ok(count),
                Err(error) if is_full(&error) => Ok(0),
                Err(_) => Err(SendError::Socket),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::tests::{lease, new_file};
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, server)
    }

    #[test]
    fn frames_larger_than_the_buffer_are_received_whole() {
        let (mut client, server) = pair();
        let (mut input, mut free) = (Input::default(), Buffers::default());
        let size = 300_000usize;
        let mut frame = (size as i32).to_be_bytes().to_vec();
        frame.extend((0..size).map(|at| at as u8));
        let expected = frame.clone();
        let writer = std::thread::spawn(move || client.write_all(&frame).unwrap());
        while input.unread().len() < expected.len() {
            assert!(input.receive(&server, &mut free).unwrap() > 0);
        }
        writer.join().unwrap();
        assert_eq!(input.unread(), expected);
        input.skip(expected.len(), &mut free);
        assert!(input.is_empty() && input.bytes.is_empty());
    }

    #[test]
    fn a_reader_that_keeps_up_gets_a_limited_part_of_a_file_in_one_turn() {
        let (mut client, server) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut client, &mut io::sink()));
        let size = 16 * MAX_SENT_BYTES;
        let mut connection = Connection::new(server, 0, None);
        connection.unsent.push_back(Piece::InFile {
            file: Arc::new(new_file(size as u64)),
            position: 0,
            left: size,
            lease: Arc::new(lease(1, true)),
        });
        let mut total = 0;
        loop {
            let mut sent = Sent::default();
            let is_all = connection.flush(&mut sent).unwrap();
            assert!(sent.file_bytes <= MAX_SENT_BYTES);
            total += sent.file_bytes;
            if is_all {
                break;
            }
        }
        assert_eq!(total, size);
        drop(connection);
        assert_eq!(reader.join().unwrap().unwrap(), size as u64);
    }

    #[test]
    fn an_idle_connection_holds_no_buffer() {
        let (mut client, server) = pair();
        let (mut input, mut free) = (Input::default(), Buffers::default());
        client.write_all(&[1, 2, 3]).unwrap();
        input.receive(&server, &mut free).unwrap();
        input.skip(3, &mut free);
        assert_eq!((input.bytes.len(), free.0.len()), (0, 1));
    }
}

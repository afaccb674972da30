//! System calls that the standard library does not offer, each behind a safe function.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;

/// A set of descriptors to wait for.
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no memory, and the descriptor that it returns has no other owner.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: see above.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        interest: u32,
        key: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest,
            u64: key,
        };
        // SAFETY: the event lives until the call returns, and the kernel keeps a copy.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) })?;
        Ok(())
    }

    pub fn add(&self, fd: RawFd, interest: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, key)
    }

    pub fn change(&self, fd: RawFd, interest: u32, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, key)
    }

    /// Remove the descriptor, so that another descriptor of the same socket reports nothing here.
    pub fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Wait at most `timeout_ms` (-1: for ever), and append (key, events) of what is ready.
    pub fn wait(&self, timeout_ms: i32, ready: &mut Vec<(u64, u32)>) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // SAFETY: the kernel writes at most 64 events into the array.
        let result = checked(unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, timeout_ms)
        });
        match result {
            Ok(count) => {
                ready.extend(
                    events[..count as usize]
                        .iter()
                        .map(|event| (event.u64, event.events)),
                );
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A counter that wakes who waits for its descriptor.
pub struct Bell(OwnedFd);

impl Bell {
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no memory, and the descriptor that it returns has no other owner.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: see above.
        Ok(Bell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the kernel reads the eight bytes of `one`.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the kernel writes at most the eight bytes of `count`.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Send bytes; `has_more` says that the rest of the response follows at once.
pub fn send(socket: RawFd, bytes: &[u8], has_more: bool) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | if has_more { libc::MSG_MORE } else { 0 };
    // SAFETY: the kernel reads the bytes of the slice before the call returns.
    let count = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
    if count < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(count as usize)
    }
}

/// Send a range of a file. The error may come from the disk or from the socket.
pub fn send_file(socket: RawFd, file: &File, position: u64, size: usize) -> io::Result<usize> {
    let mut offset = position as libc::off_t;
    // SAFETY: the kernel changes `offset`, which lives until the call returns, and no other memory.
    let count = unsafe { libc::sendfile(socket, file.as_raw_fd(), &mut offset, size) };
    if count < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(count as usize)
    }
}

/// Return another descriptor of the same socket.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no memory, and the descriptor that it returns has no other owner.
    let own = checked(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: see above.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

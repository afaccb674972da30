"""The file system port over the operating system."""

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from spindle.common.errors import is_out_of_descriptors
from spindle.common.ports import Bytes, File

_UNKNOWN: Final = -1
_DESCRIPTORS_WAIT_S: Final = 10.0
_DESCRIPTORS_PAUSE_S: Final = 0.01
_CAN_FORGET: Final = hasattr(os, "posix_fadvise")
_KEEP_SIZE: Final = 1
"""The mode FALLOC_FL_KEEP_SIZE of Linux."""
_NOT_SUPPORTED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENODEV)
_READ_BYTES: Final = 1024 * 1024
_RESERVATION_BYTES: Final = 8 * 1024 * 1024
_MOUNT_POINT_FIELD: Final = 4
"""Of a line of `/proc/self/mountinfo`: see proc(5)."""
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


def _open(path: str, flags: int, mode: int = 0o644) -> int:
    """Open a file descriptor; wait a while if none is free.

    A burst of connections can take all descriptors for a moment, which is not a failure of the
    disk.
    """
    deadline_s = time.monotonic() + _DESCRIPTORS_WAIT_S
    while True:
        try:
            return os.open(path, flags | os.O_CLOEXEC, mode)
        except OSError as error:
            if not is_out_of_descriptors(error) or time.monotonic() > deadline_s:
                raise
        time.sleep(_DESCRIPTORS_PAUSE_S)


def _write_at(fd: int, data: memoryview, position: int) -> None:
    """Write all of the data; a disk that writes nothing without an error has failed as well."""
    done = 0
    while done < len(data):
        count = os.pwrite(fd, data[done:], position + done)
        if not count:
            raise OSError(errno.EIO, f"only {done} of {len(data)} bytes were written")
        done += count


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the function of the C library, which Python lacks; None where there is none.

    It returns 0 or an error number.
    """
    import ctypes

    if ctypes.sizeof(ctypes.c_void_p) < 8:
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

    def fallocate(fd: int, mode: int, position: int, size_bytes: int) -> int:
        return ctypes.get_errno() if function(fd, mode, position, size_bytes) else 0

    return fallocate


class OsFile:
    """A file by descriptor. `append` keeps its own end position, so no seek is ever needed."""

    __slots__ = ("_end", "_fd", "path")

    def __init__(self, path: str, *, create: bool, writable: bool) -> None:
        flags = os.O_RDWR if writable else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        self.path = path
        self._fd = _open(path, flags)
        self._end = _UNKNOWN

    def _end_position(self) -> int:
        # Most files are opened for reading or are new, so the size is read when it is needed.
        if self._end == _UNKNOWN:
            self._end = os.fstat(self._fd).st_size
        return self._end

    def pread(self, size_bytes: int, position: int, /) -> bytes:
        data = os.pread(self._fd, size_bytes, position)
        while len(data) < size_bytes:
            more = os.pread(self._fd, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def send(self, socket_descriptor: int, size_bytes: int, position: int, /) -> int:
        return os.sendfile(socket_descriptor, self._fd, position, size_bytes)

    def append(self, parts: Sequence[Bytes], /) -> int:
        total = sum(map(len, parts))
        end = self._end_position()
        written = os.pwritev(self._fd, parts, end)
        if written < total:
            rest = memoryview(b"".join(parts))
            _write_at(self._fd, rest[written:], end + written)
        self._end = end + total
        return total

    def pwrite(self, data: Bytes, position: int, /) -> None:
        size_bytes = len(data)
        written = os.pwrite(self._fd, data, position)
        if written < size_bytes:
            _write_at(self._fd, memoryview(data)[written:], position + written)
        if self._end != _UNKNOWN:
            self._end = max(self._end, position + size_bytes)

    def reserve(self, size_bytes: int, position: int, /) -> bool:
        fallocate = _fallocate()
        if fallocate is None:
            return False
        error = errno.EINTR
        while error == errno.EINTR:
            error = fallocate(self._fd, _KEEP_SIZE, position, size_bytes)
        if error and error not in _NOT_SUPPORTED:
            raise OSError(error, os.strerror(error), self.path)
        return not error

    def size(self) -> int:
        return self._end_position()

    def truncate(self, size_bytes: int, /) -> None:
        os.ftruncate(self._fd, size_bytes)
        self._end = size_bytes

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def forget_cached(self, size_bytes: int, position: int, /) -> None:
        if _CAN_FORGET:
            os.posix_fadvise(self._fd, position, size_bytes, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """`FileSystem` on the disks of this machine."""

    reservation_bytes = _RESERVATION_BYTES

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        return OsFile(path, create=create, writable=writable)

    def read_bytes(self, path: str) -> bytes:
        # No file object: a start reads thousands of small files.
        fd = _open(path, os.O_RDONLY)
        try:
            data = os.read(fd, os.fstat(fd).st_size)
            while more := os.read(fd, _READ_BYTES):
                data += more
            return data
        finally:
            os.close(fd)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb", opener=_open) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        # os.path.exists hides EIO and EACCES, the errors of a dead disk.
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def capacity(self, path: str) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def is_directory(self, path: str) -> bool:
        # os.path.isdir hides errors, too: a partition on a dead disk would seem not to exist.
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        while True:
            try:
                shutil.rmtree(path)
                return
            except FileNotFoundError:
                # Another process has removed an entry of the tree meanwhile, or there is no tree.
                if not self.exists(path):
                    raise

    def sync_directory(self, path: str) -> None:
        fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_read_only(self, path: str) -> None:
        os.chmod(path, os.stat(path).st_mode & ~0o222)

    def mount_point(self, path: str) -> str:
        # Linux knows the mount points also while a disk does not answer.
        place = os.path.realpath(path)
        mounted = _mount_points()
        while place != "/" and not (
            os.path.ismount(place) if mounted is None else place in mounted
        ):
            place = os.path.dirname(place)
        return place


def _mount_points() -> frozenset[str] | None:
    """Return where file systems are mounted; None if the system does not list them."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            fields = [line.split()[_MOUNT_POINT_FIELD] for line in file]
    except OSError:
        return None
    return frozenset(os.fsdecode(_ESCAPED.sub(_unescaped, field)) for field in fields)


def _unescaped(escaped: re.Match[bytes]) -> bytes:
    return bytes([int(escaped[1], 8)])

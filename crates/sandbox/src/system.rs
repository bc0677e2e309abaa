//! Thin, safe faces of the few system calls that no dependency offers.
#![allow(
    unsafe_code,
    reason = "prctl, pidfd and posix_spawn have no safe wrapper with the options needed here"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::SandboxError;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes this process the adoptive parent of every orphaned descendant, so that none can leave the
/// tree by losing its parent.
///
/// # Errors
/// When the kernel refuses.
pub fn become_subreaper() -> Result<(), SandboxError> {
    // SAFETY: the call takes integers only.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }))
        .map(drop)
        .map_err(SandboxError::system("become a subreaper"))
}

/// Hides this process's memory, environment and descriptors from other processes of the same user.
///
/// # Errors
/// When the kernel refuses.
pub fn refuse_inspection() -> Result<(), SandboxError> {
    // SAFETY: the call takes integers only.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }))
        .map(drop)
        .map_err(SandboxError::system("refuse inspection"))
}

/// A connected pair of stream sockets that no child inherits unless it is passed on purpose.
///
/// # Errors
/// When no descriptor is left.
pub fn unix_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (left, right) = std::os::unix::net::UnixStream::pair()?;
    Ok((left.into(), right.into()))
}

/// Takes over a descriptor that this process was started with.
///
/// # Errors
/// When there is no open descriptor of that number, or it is one of the standard streams.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a standard stream is not passed on"));
    }
    // SAFETY: the call takes integers only.
    check(libc::c_long::from(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }))?;
    // SAFETY: the descriptor is open, and by the contract of the caller nothing else in this process uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// What there is of children, without reaping any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    /// No child at all. A subreaper without children has no descendants either.
    None,
    /// Children, and none of them has ended.
    Alive,
    /// This child has ended; others may have, too.
    Ended(i32),
}

/// Looks at the children as a whole; costs the same however many processes the machine has.
pub(crate) fn children() -> Children {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` outlives the call, which reaps nothing.
    if unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } != 0 {
        let none = io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD);
        return if none { Children::None } else { Children::Alive };
    }
    // SAFETY: zeroed above, and filled by a successful call; the field of a child's end may be read.
    match unsafe { info.assume_init().si_pid() } {
        0 => Children::Alive,
        pid => Children::Ended(pid),
    }
}

/// A handle of a process that stays unambiguous when its number is used again.
pub(crate) fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers only; a non-negative result is a new descriptor that we own.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    #[allow(clippy::cast_possible_truncation, reason = "descriptors are small")]
    let fd = fd as i32;
    // SAFETY: see above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a process handle awaitable: it is readable once the process has ended.
pub(crate) fn watch(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open and the same until the registration is dropped with it.
    Ok(unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?)
}

/// Sends a signal through a process handle.
pub(crate) fn pidfd_signal(handle: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the handle is open for the call and the info pointer may be null.
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), signal, none, 0) })
        .map(drop)
}

/// Sends a signal to a process group.
pub(crate) fn signal_group(group: i32, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes integers only.
    check(libc::c_long::from(unsafe { libc::kill(-group, signal) })).map(drop)
}

/// The exit status of a child that has ended, reaping it; `None` while it runs.
pub(crate) fn reap(pid: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let result = check(libc::c_long::from(unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) }))?;
    Ok((result != 0).then_some(status))
}

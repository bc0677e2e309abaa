//! `posix_spawn` with the options that the standard library does not offer together: a new session,
//! a working directory, descriptors at chosen numbers, and nothing else inherited. Its cost does not
//! grow with the memory of the caller, which a fork's does.
#![allow(unsafe_code, reason = "posix_spawn has no safe wrapper with chdir, setsid and closefrom")]

use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

const SETSID: libc::c_short = 0x80;

/// What is started; every string is already checked for NUL bytes.
pub(crate) struct RawSpec<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [CString],
    pub(crate) environment: &'a [CString],
    pub(crate) directory: &'a Path,
    /// (descriptor of this process, number in the new one); the numbers start at 0 without a gap.
    pub(crate) descriptors: &'a [(OwnedFd, RawFd)],
}

struct FileActions(MaybeUninit<libc::posix_spawn_file_actions_t>);

impl FileActions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: initialises the value before it is used.
        checked(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        Ok(Self(actions))
    }

    fn duplicate(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: the value is initialised.
        checked(unsafe { libc::posix_spawn_file_actions_adddup2(self.0.as_mut_ptr(), from, to) })
    }

    fn close_from(&mut self, first: RawFd) -> io::Result<()> {
        // SAFETY: the value is initialised.
        checked(unsafe { libc::posix_spawn_file_actions_addclosefrom_np(self.0.as_mut_ptr(), first) })
    }

    fn change_directory(&mut self, directory: &CString) -> io::Result<()> {
        // SAFETY: the value is initialised and the path outlives it.
        checked(unsafe {
            libc::posix_spawn_file_actions_addchdir_np(self.0.as_mut_ptr(), directory.as_ptr())
        })
    }
}

impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: the value is initialised and destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

struct Attributes(MaybeUninit<libc::posix_spawnattr_t>);

impl Attributes {
    /// A new session, no blocked signal, every signal at its default action.
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: initialises the value before it is used.
        checked(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        let mut this = Self(attributes);
        let mut none = MaybeUninit::uninit();
        let mut all = MaybeUninit::uninit();
        // SAFETY: both sets are initialised here, before the calls that read them.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigfillset(all.as_mut_ptr());
            libc::sigdelset(all.as_mut_ptr(), libc::SIGKILL);
            libc::sigdelset(all.as_mut_ptr(), libc::SIGSTOP);
            checked(libc::posix_spawnattr_setsigmask(this.0.as_mut_ptr(), none.as_ptr()))?;
            checked(libc::posix_spawnattr_setsigdefault(this.0.as_mut_ptr(), all.as_ptr()))?;
            #[allow(clippy::cast_possible_truncation, reason = "the flags fit a short by definition")]
            let flags =
                SETSID | (libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF) as libc::c_short;
            checked(libc::posix_spawnattr_setflags(this.0.as_mut_ptr(), flags))?;
        }
        Ok(this)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: the value is initialised and destroyed once.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
    }
}

fn checked(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

pub(crate) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Starts the process and returns its number.
pub(crate) fn spawn(spec: &RawSpec<'_>) -> io::Result<i32> {
    let program = c_string(spec.program.as_os_str())?;
    let directory = c_string(spec.directory.as_os_str())?;
    let mut actions = FileActions::new()?;
    // Every source is first moved above all targets, so that no target overwrites a later source.
    let first_free = 64 + RawFd::try_from(spec.descriptors.len()).unwrap_or(0);
    let mut moved = Vec::with_capacity(spec.descriptors.len());
    for (descriptor, _) in spec.descriptors {
        // SAFETY: duplicates an open descriptor to a fresh, close-on-exec one above `first_free`.
        let copy = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, first_free) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        moved.push(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(copy) });
    }
    let mut next = 0;
    for (copy, (_, target)) in moved.iter().zip(spec.descriptors) {
        actions.duplicate(copy.as_raw_fd(), *target)?;
        next = next.max(target + 1);
    }
    actions.close_from(next)?;
    actions.change_directory(&directory)?;
    let attributes = Attributes::new()?;
    let mut arguments: Vec<*mut libc::c_char> =
        spec.arguments.iter().map(|text| text.as_ptr().cast_mut()).collect();
    arguments.push(ptr::null_mut());
    let mut environment: Vec<*mut libc::c_char> =
        spec.environment.iter().map(|text| text.as_ptr().cast_mut()).collect();
    environment.push(ptr::null_mut());
    let mut pid = 0;
    // SAFETY: all pointers stay valid for the call; both arrays end with a null pointer.
    checked(unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            actions.0.as_ptr(),
            attributes.0.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    })?;
    Ok(pid)
}

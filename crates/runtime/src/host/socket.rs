//! Where the host socket lives: a directory that only this user can enter, a short path.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// Longest path in bytes; the kernel's limit is 107, other systems allow less.
const LONGEST_PATH: usize = 100;

/// A listening socket whose file goes away with it.
#[derive(Debug)]
pub(crate) struct HostSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
}

impl HostSocket {
    /// Binds a fresh socket in the directory of this user.
    pub(crate) fn bind() -> io::Result<Self> {
        Self::bind_in(&user_directory()?)
    }

    fn bind_in(directory: &Path) -> io::Result<Self> {
        let name = uuid::Uuid::new_v4().simple().to_string();
        let path = directory.join(format!("h-{}.sock", name.get(..12).unwrap_or(&name)));
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(io::Error::other(format!(
                "the socket path {} is longer than 100 bytes",
                path.display()
            )));
        }
        let listener = UnixListener::bind(&path)?;
        let socket = Self { listener, path };
        fs::set_permissions(&socket.path, Permissions::from_mode(0o600))?;
        sweep(directory, &socket.path);
        Ok(socket)
    }
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes what killed processes left behind: old sockets that nobody listens on.
fn sweep(directory: &Path, own: &Path) {
    const OLD_SECONDS: i64 = 600;
    let Ok(now) = fs::metadata(own).map(|found| found.mtime()) else { return };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_old = entry.metadata().is_ok_and(|found| now.saturating_sub(found.mtime()) > OLD_SECONDS);
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(b"h-");
        let is_dead = || {
            std::os::unix::net::UnixStream::connect(entry.path())
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_old && is_ours && is_dead() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// `/run/user/UID/trestle`, or `trestle-UID` in the directory for temporary files.
fn user_directory() -> io::Result<PathBuf> {
    let user = nix::unistd::getuid();
    let session = PathBuf::from(format!("/run/user/{user}"));
    if is_private(&session, user.as_raw())
        && let Ok(directory) = private_directory(&session.join("trestle"), user.as_raw())
    {
        return Ok(directory);
    }
    // A fixed place: a long TMPDIR must not make the path too long.
    private_directory(&PathBuf::from(format!("/tmp/trestle-{user}")), user.as_raw())
}

fn is_private(directory: &Path, user: u32) -> bool {
    fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.permissions().mode() & 0o077 == 0)
}

/// Makes the directory, or accepts an existing one that nobody else can enter or replace.
fn private_directory(directory: &Path, user: u32) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_private(directory, user) {
        return Ok(directory.to_path_buf());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} exists and is not a directory of this user alone", directory.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_for_this_user_alone_and_goes_away() {
        let socket = HostSocket::bind().unwrap();
        let path = socket.path.clone();
        assert!(path.as_os_str().len() <= LONGEST_PATH);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_others_can_enter_or_that_is_a_link_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let user = nix::unistd::getuid().as_raw();
        let open = root.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        assert!(private_directory(&open, user).is_err());
        let target = root.path().join("target");
        DirBuilder::new().mode(0o700).create(&target).unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(private_directory(&link, user).is_err());
        assert!(private_directory(&root.path().join("new"), user).is_ok());
        assert!(private_directory(&root.path().join("new"), user.wrapping_add(1)).is_err());
    }

    #[tokio::test]
    async fn only_old_sockets_that_nobody_listens_on_are_swept() {
        let root = tempfile::tempdir().unwrap();
        let live = std::os::unix::net::UnixListener::bind(root.path().join("h-live.sock")).unwrap();
        for name in ["h-dead.sock", "other.sock"] {
            drop(std::os::unix::net::UnixListener::bind(root.path().join(name)).unwrap());
        }
        for name in ["h-live.sock", "h-dead.sock", "other.sock"] {
            let old = nix::sys::time::TimeSpec::new(1, 0);
            nix::sys::stat::utimensat(
                nix::fcntl::AT_FDCWD,
                &root.path().join(name),
                &old,
                &old,
                nix::sys::stat::UtimensatFlags::NoFollowSymlink,
            )
            .unwrap();
        }
        drop(std::os::unix::net::UnixListener::bind(root.path().join("h-young.sock")).unwrap());
        let socket = HostSocket::bind_in(root.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.retain(|name| *name != socket.path.file_name().unwrap().to_str().unwrap());
        left.sort_unstable();
        assert_eq!(left, ["h-live.sock", "h-young.sock", "other.sock"]);
        drop(live);
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_refused_with_its_reason() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(120));
        fs::create_dir(&deep).unwrap();
        assert!(HostSocket::bind_in(&deep).unwrap_err().to_string().contains("100 bytes"));
    }
}

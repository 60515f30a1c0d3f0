//! The few file operations that a commit consists of, behind a trait so that a test can stop at any of them.

use fs_err as fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Changes on disk. Each call is one step of a commit: a crash happens before, inside or after it.
pub(super) trait Disk: Send + Sync {
    /// Makes a folder and those above it.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Writes a whole file and waits until it is on the medium.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Adds to a file's end in one call, without waiting for the medium.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Gives a file another name in the same file system, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until a folder's names are on the medium.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The file system.
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // Only Unix opens folders as files; elsewhere the file system orders its names itself.
        if cfg!(unix) { fs::File::open(dir)?.sync_all() } else { Ok(()) }
    }
}

/// Text of a file, empty when there is none.
pub(super) fn read_if_there(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

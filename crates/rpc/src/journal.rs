//! The journal's file: its format, and what is noted in it when, are [`raddle_rpc_core::journal`]'s.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

pub use raddle_rpc_core::journal::{Entry, Keys, Left, Noted, Notes, PENDING, Place, age};
use raddle_rpc_core::journal::{HEAD, Head, RING, ring_at};

/// Seconds since the machine started.
pub fn second() -> u32 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes a value of this type, which lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u32
}

/// Which boot of the machine this is; 0 where that cannot be read.
fn boot() -> u128 {
    let said = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let digits = said.unwrap_or_default().trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// A file in which calls that are sent are noted ([`Notes`]).
#[derive(Debug)]
pub struct Journal {
    notes: Notes,
    book: Option<Book>,
}

/// The file.
#[derive(Debug)]
pub struct Book(File);

impl Journal {
    /// One without a file: nothing outlives the process. Draw the keys.
    pub fn none(keys: Keys) -> Journal {
        Journal {
            notes: Notes::none(keys),
            book: None,
        }
    }

    /// Opens the file, or makes it with these keys, and gives what an earlier process has left in it since the machine
    /// started, as by [`Left::of`].
    ///
    /// # Errors
    /// It cannot be used, or is used by another process (`WouldBlock`).
    pub fn open(
        path: &Path,
        keys: Keys,
        wanted: impl Fn(u16, SocketAddr) -> bool,
    ) -> io::Result<(Journal, Left)> {
        Journal::open_in(path, keys, (boot(), second()), wanted)
    }

    /// The same in this boot, at this second.
    fn open_in(
        path: &Path,
        keys: Keys,
        (boot, now): (u128, u32),
        wanted: impl Fn(u16, SocketAddr) -> bool,
    ) -> io::Result<(Journal, Left)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        file.try_lock()?;
        let mut head = [0; HEAD];
        let whole = file.read_exact_at(&mut head, 0).is_ok();
        let known = Head::parse(&head).filter(|head| whole && head.boot == boot);
        let mut rings = [Vec::new(), Vec::new()];
        if known.is_some() {
            for (i, ring) in rings.iter_mut().enumerate() {
                *ring = read_up_to(&file, RING, ring_at(i))?;
            }
        } else {
            file.set_len(0)?;
            file.write_all_at(&Head { keys, boot }.to_bytes(), 0)?;
        }
        let keys = known.map_or(keys, |head| head.keys);
        let rings = rings.each_ref().map(Vec::as_slice);
        let (notes, entries) = Notes::of_file(keys, rings, now);
        let book = Some(Book(file));
        Ok((Journal { notes, book }, Left::of(entries, now, wanted)))
    }

    /// The keys of the hash that calls are known by.
    pub fn keys(&self) -> Keys {
        self.notes.keys()
    }

    /// What is noted, and the file that it goes to, if there is one.
    pub fn into_parts(self) -> (Notes, Option<Book>) {
        (self.notes, self.book)
    }
}

impl Book {
    /// Writes what was noted, at this second; to be called before any of it is sent. Whether it can be written again,
    /// after it could not.
    ///
    /// # Errors
    /// It cannot be written. Nothing is noted for a minute from then on, and then it is tried again.
    pub fn write(&self, notes: &mut Notes, second: u32) -> io::Result<bool> {
        let mut wrote = false;
        while let Some((at, bytes)) = notes.unwritten() {
            if let Err(e) = self.0.write_all_at(bytes, at) {
                notes.failed(second);
                return Err(e);
            }
            notes.wrote();
            wrote = true;
        }
        Ok(wrote && notes.works())
    }
}

/// Reads as much as there is, of so many bytes.
fn read_up_to(file: &File, most: usize, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests;

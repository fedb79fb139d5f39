//! A small NFSv3 server, for machines without nfs-ganesha and for the proxy's own cost: every file reads as
//! zeros, and what is written is thrown away. It sends from the page cache and receives without copying, so
//! that it takes next to nothing of the core that it shares.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;

use nix::sys::signal::{SigSet, Signal};

use super::xdr::{self, GETATTR, LOOKUP, MNT, MOUNT, NFS, READ, WRITE, arguments, opaque, word};

/// Bytes of a call that are looked at: header, credential, handle, offset, count.
const HEAD: usize = 512;
/// Bytes that a READ gives at most.
const MOST: usize = 1 << 20;
/// The handle of every file and directory.
const HANDLE: [u8; 16] = *b"raddle bench rpc";

/// Listens at these addresses, in this thread's namespace, and serves until the process ends.
///
/// # Errors
/// When an address is taken.
pub(super) fn start(addresses: &[SocketAddr]) -> io::Result<()> {
    let data = Arc::new(zeros()?);
    for address in addresses {
        let listener = TcpListener::bind(address)?;
        let data = Arc::clone(&data);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let data = Arc::clone(&data);
                // A connection that ends, ends its thread.
                std::thread::spawn(move || serve(stream, &data));
            }
        });
    }
    Ok(())
}

/// A file in memory.
fn zeros() -> io::Result<File> {
    // SAFETY: the name is a C string; the call touches no other memory.
    let fd = unsafe { libc::memfd_create(c"raddle-bench".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(&vec![0; MOST])?;
    Ok(file)
}

fn serve(mut stream: TcpStream, data: &File) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // A client that leaves meanwhile must not end the program: sendfile knows no MSG_NOSIGNAL.
    SigSet::from(Signal::SIGPIPE).thread_block()?;
    loop {
        let call = super::wire::receive(&mut stream, HEAD, |_| {})?;
        let (reply, more) = answer(&call).ok_or(io::ErrorKind::InvalidData)?;
        // What follows goes out together with it.
        let flags = if more > 0 { libc::MSG_MORE } else { 0 };
        send(&stream, &reply.record(more), flags)?;
        let mut offset = 0;
        while (offset as usize) < more {
            // SAFETY: both descriptors live through the call, and it writes the offset alone.
            let sent = unsafe {
                libc::sendfile(
                    stream.as_raw_fd(),
                    data.as_raw_fd(),
                    &raw mut offset,
                    more - offset as usize,
                )
            };
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
}

fn send(stream: &TcpStream, mut bytes: &[u8], flags: libc::c_int) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = flags | libc::MSG_NOSIGNAL;
        // SAFETY: the slice lives through the call, and the length is its own.
        let sent = unsafe {
            libc::send(
                stream.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        bytes = &bytes[sent.unsigned_abs()..];
    }
    Ok(())
}

/// The reply to a call, and how many bytes of data follow it; none to what is no call.
fn answer(call: &[u8]) -> Option<(xdr::Call, usize)> {
    let (program, procedure) = (word(call, 12)?, word(call, 20)?);
    let reply = xdr::Call::reply(word(call, 0)?);
    let arguments = arguments(call)?;
    let with_attributes = |reply: xdr::Call| attributes(reply.word(1));
    Some(match (program, procedure) {
        (NFS | MOUNT, 0) => (reply.word(0), 0),
        (MOUNT, MNT) => (reply.word(0).word(0).opaque(&HANDLE).word(1).word(1), 0),
        (NFS, GETATTR) => (attributes(reply.word(0).word(0)), 0),
        (NFS, LOOKUP) => {
            let reply = reply.word(0).word(0).opaque(&HANDLE);
            (with_attributes(with_attributes(reply)), 0)
        }
        (NFS, READ) => {
            let (_, at) = opaque(arguments, 0)?;
            let count = word(arguments, at + 8)?.min(MOST as u32) & !3;
            let reply = with_attributes(reply.word(0).word(0));
            (reply.word(count).word(0).word(count), count as usize)
        }
        (NFS, WRITE) => {
            let (_, at) = opaque(arguments, 0)?;
            let count = word(arguments, at + 8)?;
            // No attributes before or after; as if on disk.
            let reply = reply.word(0).word(0).word(0).word(0).word(count).word(2);
            (reply.long(0), 0)
        }
        // No such procedure.
        (NFS | MOUNT, _) => (reply.word(3), 0),
        // No such program.
        _ => (reply.word(1), 0),
    })
}

/// A file of 1 GiB, of root.
fn attributes(reply: xdr::Call) -> xdr::Call {
    let mut reply = reply;
    for word in [1, 0o644, 1, 0, 0] {
        reply = reply.word(word);
    }
    // Size and used bytes, device, file system, number; then three times.
    for long in [1 << 30, 1 << 30, 0, 1, 1, 0, 0, 0] {
        reply = reply.long(long);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_length_that_the_protocol_says() {
        let call = |procedure| xdr::Call::new(9, NFS, procedure).opaque(&HANDLE);
        let lengths = |call: xdr::Call| {
            let record = call.record(0);
            let (reply, more) = answer(&record[4..]).unwrap();
            (reply.record(more).len() - 4, more)
        };
        assert_eq!(lengths(call(GETATTR)), (24 + 4 + 84, 0));
        assert_eq!(
            lengths(call(READ).long(0).word(4096)),
            (xdr::READ_HEAD, 4096)
        );
        assert_eq!(
            lengths(call(WRITE).long(0).word(8).word(0)),
            (24 + 4 + 4 + 4 + 4 + 4 + 8, 0)
        );
        assert_eq!(lengths(call(99)), (24, 0));
    }
}

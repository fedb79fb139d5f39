//! Sockets of the load and of the small server: records in and out.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Bytes that one read throws away at most.
const CHUNK: usize = 256 << 10;

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Receives a record: its first bytes, up to `keep`, are given back; the rest is not copied out of the
/// kernel, which costs this side as good as nothing. `passed` is told of those bytes as they come.
///
/// # Errors
/// What the kernel says; `UnexpectedEof` at the end of the connection.
pub(super) fn receive(
    stream: &mut TcpStream,
    keep: usize,
    mut passed: impl FnMut(usize),
) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        let mut left = (mark & 0x7fff_ffff) as usize;
        let from = head.len();
        let kept = left.min(keep.saturating_sub(from));
        head.resize(from + kept, 0);
        stream.read_exact(&mut head[from..])?;
        left -= kept;
        while left > 0 {
            let bytes = discard(stream, left.min(CHUNK))?;
            passed(bytes);
            left -= bytes;
        }
        if mark >> 31 == 1 {
            return Ok(head);
        }
        if head.is_empty() && mark == 0 {
            return Err(odd("an empty fragment"));
        }
    }
}

/// Throws bytes away, at most so many; at least one.
fn discard(stream: &TcpStream, most: usize) -> io::Result<usize> {
    loop {
        // SAFETY: with MSG_TRUNC, a TCP socket writes nothing to the buffer (tcp(7)), so there need be none.
        let done = unsafe {
            libc::recv(
                stream.as_raw_fd(),
                std::ptr::null_mut(),
                most,
                libc::MSG_TRUNC,
            )
        };
        match done {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            1.. => return Ok(done.unsigned_abs()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

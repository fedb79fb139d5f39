//! The portmapper's answers (RFC 1833) about the proxy itself, so that clients that ask for ports find it.

use bytes::{BufMut, Bytes, BytesMut};

use crate::message::{Answer, Call, answer};
use crate::program::number;
use crate::wire::Cursor;

/// Programs that are named. Every port of the proxy answers the portmapper's questions, so that this one is
/// named as well: `rpcinfo -p` asks where it is.
const NAMED: [(u32, u32); 5] = [
    (number::PORTMAP, 2),
    (number::NFS, 3),
    (number::NFS, 4),
    (number::MOUNT, 3),
    (number::NFS_ACL, 3),
];

/// The reply, without a record mark, to a call of the portmapper; `port` is the proxy's.
///
/// 1. NULL of versions 2 to 4 succeeds.
/// 2. GETPORT of version 2, and DUMP: NFS, MOUNT, NFS_ACL and the portmapper are at `port` over TCP, everything
///    else nowhere.
/// 3. GETADDR of versions 3 and 4: the same, at the address that was asked, if one was named.
/// 4. Everything else is no procedure here; nobody can register.
pub fn reply(call: &Call, bytes: &[u8], port: u16) -> Bytes {
    let arguments = bytes.get(call.arguments..).unwrap_or(&[]);
    let mut out = BytesMut::new();
    // Accepted, no verifier, success.
    for word in [call.xid, 1, 0, 0, 0, 0] {
        out.put_u32(word);
    }
    match (call.version, call.procedure) {
        (2..=4, 0) => {}
        (2, 3) => out.put_u32(get_port(arguments, port).unwrap_or(0)),
        (2, 4) => {
            for (program, version) in NAMED {
                for word in [1, program, version, 6, u32::from(port)] {
                    out.put_u32(word);
                }
            }
            out.put_u32(0);
        }
        (3 | 4, 3) => {
            let address = get_address(arguments, port).unwrap_or_default();
            out.put_u32(address.len() as u32);
            out.put_slice(address.as_bytes());
            out.put_bytes(0, address.len().next_multiple_of(4) - address.len());
        }
        _ => return answer(call.xid, Answer::NoProcedure),
    }
    out.freeze()
}

fn is_named(program: u32) -> bool {
    NAMED.iter().any(|(named, _)| *named == program)
}

fn get_port(arguments: &[u8], port: u16) -> Option<u32> {
    let mut cursor = Cursor::new(arguments);
    let (program, _, protocol) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
    (is_named(program) && protocol == 6).then_some(u32::from(port))
}

/// A universal address: the one of the request with another port.
fn get_address(arguments: &[u8], port: u16) -> Option<String> {
    let mut cursor = Cursor::new(arguments);
    let (program, _) = (cursor.u32()?, cursor.u32()?);
    let network = std::str::from_utf8(cursor.opaque()?).ok()?;
    if !is_named(program) || !matches!(network, "tcp" | "tcp6") {
        return None;
    }
    let asked = std::str::from_utf8(cursor.opaque()?).ok()?;
    let host = asked.rsplitn(3, '.').nth(2);
    let any = if network == "tcp6" { "::" } else { "0.0.0.0" };
    let host = host.filter(|host| !host.is_empty()).unwrap_or(any);
    Some(format!("{host}.{}.{}", port >> 8, port & 255))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(version: u32, procedure: u32, arguments: &[u8]) -> Bytes {
        let call = Call {
            xid: 7,
            program: number::PORTMAP,
            version,
            procedure,
            flavour: 0,
            arguments: 0,
        };
        reply(&call, arguments, 2049)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn names_itself_for_nfs_over_tcp_alone() {
        let port = |program, protocol| ask(2, 3, &words(&[program, 3, protocol, 0]))[24..].to_vec();
        assert_eq!(port(number::NFS, 6), words(&[2049]));
        assert_eq!(port(number::MOUNT, 6), words(&[2049]));
        assert_eq!(port(number::PORTMAP, 6), words(&[2049]));
        assert_eq!(port(number::NFS, 17), words(&[0]));
        assert_eq!(port(100_021, 6), words(&[0]));
        assert_eq!(ask(2, 0, &[]).len(), 24);
        assert_eq!(ask(2, 1, &[]), answer(7, Answer::NoProcedure));
        assert_eq!(ask(2, 4, &[]).len(), 24 + 5 * 20 + 4);
    }

    #[test]
    fn universal_addresses_keep_their_host() {
        let mut asked = words(&[number::NFS, 3, 3]);
        asked.extend(b"tcp\0");
        asked.extend(words(&[13]));
        asked.extend(b"127.0.0.1.0.9\0\0\0");
        let said = ask(4, 3, &asked);
        assert_eq!(&said[24..28], words(&[13]));
        assert_eq!(&said[28..], b"127.0.0.1.8.1\0\0\0");
        // Cut off anywhere: no address.
        for cut in 0..asked.len() - 8 {
            assert_eq!(&ask(4, 3, &asked[..cut])[24..], words(&[0]));
        }
    }
}

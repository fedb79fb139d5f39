//! Calls and replies of the world, by their words. Each call carries a number of its own, its token, and so does the
//! reply to it.

use bytes::Bytes;

const NFS: u32 = 100_003;
const CALLBACK: u32 = 0x4000_0000;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Read-only, and small.
    Getattr,
    /// Read-only, and large.
    Read,
    /// Non-idempotent.
    Mkdir,
    /// A small one.
    Write,
    /// One that is written by itself.
    LargeWrite,
    /// Non-idempotent, and signed anew each time (RPCSEC_GSS).
    Signed,
    /// NFSv4.1's: gives the client a backchannel.
    CreateSession,
}

impl Op {
    /// By number; whether calls may be signed.
    pub(crate) fn of(number: u8, signs: bool) -> Op {
        match number % 10 {
            0 | 1 => Op::Getattr,
            2 | 3 => Op::Read,
            4 => Op::Mkdir,
            5 => Op::Write,
            6 => Op::LargeWrite,
            7 | 8 if signs => Op::Signed,
            7 | 8 => Op::Mkdir,
            _ => Op::CreateSession,
        }
    }

    /// Whether it must not be run twice.
    pub(crate) fn is_non_idempotent(self) -> bool {
        !matches!(self, Op::Getattr | Op::Read)
    }
}

/// What comes behind the head of a large call or reply.
pub(crate) static FILLING: [u8; 20 << 10] = [0; 20 << 10];

fn bytes(words: &[u32]) -> Bytes {
    let bytes = words.iter().flat_map(|word| word.to_be_bytes());
    bytes.collect::<Vec<u8>>().into()
}

/// A word of a message.
pub(crate) fn word(message: &[u8], i: usize) -> u32 {
    let bytes = message.get(4 * i..4 * i + 4);
    bytes.map_or(0, |bytes| {
        u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    })
}

/// A call, or its head, behind which is [`FILLING`]; a signed one has this sequence number, and its token names the
/// context, too.
pub(crate) fn call(op: Op, xid: u32, token: u32, sequence: u32) -> Bytes {
    if op == Op::Signed {
        let head = [xid, 0, 2, NFS, 3, 9, 6, 24, 1, 0, sequence, 1, 4, token];
        return bytes(&[&head[..], &[6, 4, sequence, 4, token]].concat());
    }
    let head = |version, procedure| [xid, 0, 2, NFS, version, procedure, 0, 0, 0, 0];
    let filling = FILLING.len() as u32;
    let (head, arguments): ([u32; 10], &[u32]) = match op {
        Op::Getattr => (head(3, 1), &[4, token]),
        Op::Read => (head(3, 6), &[4, token, 0, 0, 1 << 20]),
        Op::Mkdir => (head(3, 9), &[4, token, 1, 0x6100_0000, 0, 0, 0, 0, 0, 0]),
        Op::Signed | Op::Write => (head(3, 7), &[4, token, 0, 0, 1, 2, 1, 0]),
        Op::LargeWrite => (head(3, 7), &[4, token, 0, 0, 1, 2, filling]),
        Op::CreateSession => (head(4, 1), &[0, 1, 1, 43, token, 0, 0, 0, 0]),
    };
    bytes(&[&head[..], arguments].concat())
}

/// The token of a call, and what it asks for; none of a question whether the server is there.
pub(crate) fn parse(call: &[u8]) -> Option<(Op, u32)> {
    if word(call, 6) == 6 {
        return Some((Op::Signed, word(call, 13)));
    }
    let op = match (word(call, 4), word(call, 5)) {
        (_, 0) => return None,
        (4, _) => return Some((Op::CreateSession, word(call, 14))),
        (_, 1) => Op::Getattr,
        (_, 6) => Op::Read,
        (_, 9) => Op::Mkdir,
        _ if call.len() > FILLING.len() => Op::LargeWrite,
        _ => Op::Write,
    };
    Some((op, word(call, 11)))
}

/// The reply to a call; the session that it makes is named by the token.
pub(crate) fn reply(op: Op, xid: u32, token: u32) -> Bytes {
    let head = [xid, 1, 0, 0, 0, 0];
    let results: &[u32] = match op {
        Op::CreateSession => &[0, 0, 1, 43, 0, token, 0, 0, 0, 1, 2, 0, 0],
        _ => &[token],
    };
    bytes(&[&head[..], results].concat())
}

/// The token of a reply.
pub(crate) fn token_of(reply: &[u8]) -> u32 {
    match reply.len() {
        76 => word(reply, 11),
        _ => word(reply, 6),
    }
}

/// A call of the server, in this session.
pub(crate) fn call_back(xid: u32, session: u32) -> Bytes {
    let head = [xid, 0, 2, CALLBACK, 1, 1, 0, 0, 0, 0];
    let arguments = [0, 1, 0, 1, 11, session, 0, 0, 0, 1, 0, 0, 0, 0];
    bytes(&[&head[..], &arguments].concat())
}

/// The session of a call of the server.
pub(crate) fn session_of(call: &[u8]) -> u32 {
    word(call, 15)
}

/// A client's reply to it.
pub(crate) fn answer(xid: u32, session: u32) -> Bytes {
    bytes(&[xid, 1, 0, 0, 0, 0, session])
}

/// Takes the records out of a stream that holds nothing but whole ones.
pub(crate) fn records(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while stream.len() >= 4 {
        let mark = word(stream, 0);
        let end = 4 + (mark & 0x7fff_ffff) as usize;
        assert!(mark >> 31 == 1 && end <= stream.len(), "a record is cut");
        all.push(stream[4..end].to_vec());
        stream = &stream[end..];
    }
    assert!(stream.is_empty(), "bytes behind the last record");
    all
}

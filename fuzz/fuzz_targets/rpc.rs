//! Any bytes as a stream of RPC: the same messages however it is cut, and nothing panics.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use raddle_rpc_core::assemble::{Assembler, PIECE, Part, WHOLE};
use raddle_rpc_core::message::{Call, FromServer};
use raddle_rpc_core::{portmap, program};

/// Longest record.
const MOST: u32 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((cut, stream)) = data.split_first() else {
        return;
    };
    let whole = messages(stream, stream.len().max(1));
    assert_eq!(whole, messages(stream, usize::from(*cut) + 1));
    for message in &whole.0 {
        look(message);
    }
});

/// The messages, and whether the stream was refused.
fn messages(stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, bool) {
    let mut assembler = Assembler::new(MOST);
    let (mut messages, mut large) = (Vec::new(), Vec::new());
    let mut input = BytesMut::new();
    for piece in stream.chunks(cut) {
        input.extend_from_slice(piece);
        loop {
            match assembler.next(&mut input) {
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return (messages, true);
                }
                Ok(None) => break,
                Ok(Some(Part::Whole(message))) => {
                    assert!(message.len() <= WHOLE);
                    messages.push(message.to_vec());
                }
                Ok(Some(Part::Start { head, rest, .. })) => {
                    assert!(head.len() + rest as usize > WHOLE);
                    large = head.to_vec();
                }
                Ok(Some(Part::Fragment { .. })) => {}
                Ok(Some(Part::Data(bytes))) => large.extend_from_slice(&bytes),
                Ok(Some(Part::End)) => messages.push(std::mem::take(&mut large)),
            }
        }
        assert!(
            input.len()
                < if assembler.passes().is_some() {
                    PIECE
                } else {
                    1
                }
        );
    }
    (messages, false)
}

fn look(message: &[u8]) {
    let _ = FromServer::parse(message);
    if let Ok(call) = Call::parse(message) {
        assert!(call.arguments <= message.len());
        // What the head of a call says may be less than all of it says, but nothing worse.
        program::nature(&call, message);
        program::nature(&call, &message[..message.len() / 2]);
        let reply = portmap::reply(&call, message, 2049);
        assert_eq!(FromServer::parse(&reply), Ok(FromServer::Reply(call.xid)));
    }
}

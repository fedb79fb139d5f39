//! What a server sends.

use std::io;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

use crate::assemble::Assembler;
use crate::core::Event;
use crate::proxy::client::READ;
use crate::proxy::shared::Shared;

/// Reads until the connection fails; why it does.
pub(super) async fn read(shared: &Rc<Shared>, index: usize, reader: &OwnedReadHalf) -> String {
    let mut assembler = Assembler::new(shared.most);
    let mut input = BytesMut::new();
    loop {
        let ready = match assembler.is_inside() {
            true => match timeout(shared.patience, reader.readable()).await {
                Ok(ready) => ready,
                Err(_) => return "the server stalled within a record".into(),
            },
            false => reader.readable().await,
        };
        if let Err(e) = ready {
            return e.to_string();
        }
        if input.capacity() - input.len() < READ / 4 {
            input.reserve(READ);
        }
        match reader.try_read_buf(&mut input) {
            Ok(0) => return "closed by the server".into(),
            Ok(bytes) => shared.tell(Event::In(index, bytes)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // What says nothing has no buffer. What a large reply has taken of it is there in any case, and the
                // next part of it belongs behind that.
                if input.is_empty() && assembler.passes().is_none() {
                    input = BytesMut::new();
                }
            }
            Err(e) => return e.to_string(),
        }
        loop {
            // Before each record, also those that have come together with the end of another.
            if !assembler.is_inside() {
                shared.room_for_replies().await;
            }
            match assembler.next(&mut input) {
                Ok(None) => break,
                Ok(Some(part)) => {
                    if let Err(error) = shared.handle(Event::FromServer(index, part)) {
                        return format!("the server sends {error}");
                    }
                }
                Err(error) => return format!("the server sends {error}"),
            }
        }
    }
}

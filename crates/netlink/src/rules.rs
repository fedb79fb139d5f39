//! The routing rules of both families, without a mirror of everything.

use raddle_rib::event::{Event, Rule};

use crate::codec::number::rtm::RTM_GETRULE;
use crate::codec::number::{INET, INET6};
use crate::codec::{Builder, Decoded, Messages, decode_message};
use crate::error::Error;
use crate::socket::{DumpSink, Socket};

impl Socket {
    /// The rules of this socket's network namespace, IPv4 first. Two dumps.
    ///
    /// # Errors
    /// [`Error::Refused`] when the kernel refuses a dump; [`Error::Decode`] for rules that make no sense.
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        let mut sink = Sink::default();
        for family in [INET, INET6] {
            let mut request = Builder::new();
            let mut head = [0; 12];
            head[0] = family;
            request.begin(RTM_GETRULE, 0, &head).end()?;
            match self.dump(&mut request, "dump rules", &mut sink) {
                Ok(_) => {}
                // A kernel without this family, or without rules.
                Err(e) if e.errno() == Some(libc::EOPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sink.rules)
    }
}

/// Keeps the rules of a dump.
#[derive(Default)]
struct Sink {
    rules: Vec<Rule>,
    buffer: Vec<u8>,
}

impl DumpSink for Sink {
    fn buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn take(&mut self, buffer: Vec<u8>) -> Result<(), Error> {
        for message in Messages::new(&buffer) {
            if let Decoded::Event(Event::Rule(rule)) = decode_message(&message?)? {
                self.rules.push(rule);
            }
        }
        self.buffer = buffer;
        Ok(())
    }
}

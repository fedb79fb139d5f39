//! pcapng by hand, in either byte order.

/// Builds pcapng by hand, in either byte order.
pub(crate) struct Ng {
    pub(crate) big_endian: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Ng {
    pub(crate) fn new(big_endian: bool) -> Ng {
        let mut ng = Ng {
            big_endian,
            bytes: Vec::new(),
        };
        ng.section();
        ng
    }

    pub(crate) fn word(&self, word: u32) -> [u8; 4] {
        if self.big_endian {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        }
    }

    pub(crate) fn half(&self, half: u16) -> [u8; 2] {
        if self.big_endian {
            half.to_be_bytes()
        } else {
            half.to_le_bytes()
        }
    }

    pub(crate) fn block(&mut self, kind: u32, body: &[u8]) -> &mut Ng {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.word(body.len() as u32 + 12);
        let kind = self.word(kind);
        self.bytes
            .extend_from_slice(&[&kind[..], &length, &body, &length].concat());
        self
    }

    pub(crate) fn section(&mut self) -> &mut Ng {
        let body = [
            &self.word(0x1a2b_3c4d)[..],
            &self.half(1),
            &self.half(0),
            &[0xff; 8],
        ]
        .concat();
        self.block(0x0a0d_0d0a, &body)
    }

    pub(crate) fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        let length = self.half(value.len() as u16);
        value.resize(value.len().next_multiple_of(4), 0);
        [&self.half(code)[..], &length, &value].concat()
    }

    pub(crate) fn interface(
        &mut self,
        link_type: u16,
        snaplen: u32,
        options: &[Vec<u8>],
    ) -> &mut Ng {
        let mut body = [
            &self.half(link_type)[..],
            &self.half(0),
            &self.word(snaplen),
            &options.concat(),
        ]
        .concat();
        if !options.is_empty() {
            body.extend(self.option(0, &[]));
        }
        self.block(1, &body)
    }

    pub(crate) fn packet(
        &mut self,
        interface: u32,
        ts: u64,
        original: u32,
        data: &[u8],
    ) -> &mut Ng {
        let words = [
            interface,
            (ts >> 32) as u32,
            ts as u32,
            data.len() as u32,
            original,
        ]
        .map(|w| self.word(w));
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(4), 0xee);
        self.block(6, &[words.as_flattened(), &data].concat())
    }

    pub(crate) fn simple_packet(&mut self, original: u32, data: &[u8]) -> &mut Ng {
        self.block(3, &[&self.word(original)[..], data].concat())
    }
}

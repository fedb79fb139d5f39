//! Writing classic pcap files.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::{Error, MAX_RECORD, Record, Resolution};

/// Writes a classic pcap file of Ethernet frames: little-endian, version 2.4, snapshot length
/// [`MAX_RECORD`].
///
/// Call [`Writer::finish`] at the end: dropping a writer flushes it too, but cannot say if that
/// failed.
pub struct Writer {
    output: BufWriter<Box<dyn Write + Send>>,
    name: String,
    resolution: Resolution,
    records: u64,
}

impl Writer {
    /// Creates `path` (or empties it), or takes standard output when it is `-`, and writes the
    /// file's header.
    ///
    /// # Errors
    /// [`Error::Open`] and [`Error::Write`].
    pub fn create(path: impl AsRef<Path>, resolution: Resolution) -> Result<Writer, Error> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Writer::new(io::stdout(), "standard output", resolution);
        }
        let file = path.display().to_string();
        match File::create(path) {
            Ok(output) => Writer::new(output, &file, resolution),
            Err(source) => Err(Error::Open { file, source }),
        }
    }

    /// Writes a capture to `output`; errors call it `name`.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn new(
        output: impl Write + Send + 'static,
        name: &str,
        resolution: Resolution,
    ) -> Result<Writer, Error> {
        let mut writer = Writer {
            output: BufWriter::with_capacity(64 * 1024, Box::new(output)),
            name: name.to_owned(),
            resolution,
            records: 0,
        };
        let magic: u32 = match resolution {
            Resolution::Micro => 0xa1b2_c3d4,
            Resolution::Nano => 0xa1b2_3c4d,
        };
        // Magic, version 2.4, time zone and accuracy (always 0), snapshot length, Ethernet.
        let header = [magic, 4 << 16 | 2, 0, 0, MAX_RECORD as u32, 1];
        writer.put(header.map(u32::to_le_bytes).as_flattened())?;
        Ok(writer)
    }

    /// Appends a record. With [`Resolution::Micro`] the timestamp is rounded down.
    ///
    /// # Errors
    /// [`Error::Unwritable`] for more than [`MAX_RECORD`] bytes or a time after 2106-02-07, where
    /// the format's 32-bit seconds end (nothing is written then); [`Error::Write`].
    pub fn write(&mut self, record: &Record) -> Result<(), Error> {
        self.write_parts(record.ts_ns, record.original_len, &record.data)
    }

    /// As [`Writer::write`], for a frame that is not in a [`Record`].
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_parts(&mut self, ts_ns: u64, original_len: u32, data: &[u8]) -> Result<(), Error> {
        let unwritable = |what| Error::Unwritable {
            file: self.name.clone(),
            record: self.records + 1,
            what,
        };
        if data.len() > MAX_RECORD {
            return Err(unwritable("it is longer than 262144 bytes"));
        }
        let seconds = u32::try_from(ts_ns / 1_000_000_000)
            .map_err(|_| unwritable("its time is after the year 2106"))?;
        let fraction = (ts_ns % 1_000_000_000 / self.resolution.unit_ns()) as u32;
        let captured = data.len() as u32;
        let header = [seconds, fraction, captured, original_len.max(captured)];
        self.put(header.map(u32::to_le_bytes).as_flattened())?;
        self.put(data)?;
        self.records += 1;
        Ok(())
    }

    /// How many records were written.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self) -> Result<(), Error> {
        self.output.flush().map_err(|source| Error::Write {
            file: self.name.clone(),
            source,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.output.write_all(bytes).map_err(|source| Error::Write {
            file: self.name.clone(),
            source,
        })
    }
}

//! Serves the metrics of a daemon that has done nothing yet, scrapes them once, and prints what Prometheus would get.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use raddle_control::{Command, Counters, Reply, Request, Segments, Status};
use raddle_metrics::{Source, serve};

fn main() {
    if let Err(e) = scrape() {
        eprintln!("{e}");
    }
}

fn scrape() -> Result<(), Box<dyn std::error::Error>> {
    let address = free_address()?;
    let requests = serve(address, Source::Daemon)?;
    // In raddle the daemon's main loop does this, beside its work.
    std::thread::spawn(move || requests.iter().for_each(answer));
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    println!("{text}");
    Ok(())
}

fn answer(request: Request) {
    let reply = match request.command {
        Command::Counters => Reply::of(&Counters::default()),
        Command::Segments => Reply::of(&Segments::default()),
        _ => Reply::of(&Status::default()),
    };
    // The scrape may have been given up.
    let _ = request.answer.send(reply);
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

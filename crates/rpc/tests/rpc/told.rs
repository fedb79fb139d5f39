//! What is told in the log, and how often.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::common::{config, connected, fragments, free, proxy_to, record, run, word, words};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

/// The text of an event.
struct Text(RefCell<String>);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.replace(format!("{value:?}"));
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(RefCell::default());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0.into_inner());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Answers with more than the proxy keeps.
async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::task::spawn_local(async move {
            loop {
                let call = record(&mut stream).await?;
                let mut reply = words(&[word(&call, 0), 1, 0, 0, 0, 0]);
                reply.resize(40_000, 0);
                stream.write_all(&fragments(&reply, 1 << 20)).await?;
            }
            #[allow(unreachable_code, reason = "it says what may fail")]
            io::Result::Ok(())
        });
    }
}

async fn make(stream: &mut TcpStream, xid: u32) {
    let call = words(&[xid, 0, 2, 400_000, 1, 1, 0, 0, 0, 0, xid]);
    stream.write_all(&fragments(&call, 1000)).await.unwrap();
    assert_eq!(word(&record(stream).await.unwrap(), 0), xid);
}

#[test]
fn of_many_calls_that_are_sent_again_a_few_are_told() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    run(async {
        let listener = free().await;
        let at: SocketAddr = listener.local_addr().unwrap();
        tokio::task::spawn_local(serve(listener));
        let (proxy, address) = proxy_to(at, config(1, 64 << 20, 60)).await;
        connected(&proxy).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        for xid in 0..50 {
            make(&mut client, xid).await;
            make(&mut client, xid).await;
        }
        assert_eq!(proxy.status().counters.run_again, 50);
    });
    let warnings = warnings.0.lock().unwrap();
    let told = warnings.iter().filter(|text| text.contains("sent again"));
    // Five in each minute, of which there may be two.
    let told = told.count();
    assert!((1..=10).contains(&told), "{told}: {warnings:?}");
}

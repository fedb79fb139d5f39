//! What the proxy takes of memory: all of it, as the allocator sees it, against what it says that it keeps.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use raddle_rpc::proxy::{Config, Proxy};
use raddle_rpc::record::mark;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use common::{config, connected, fragments, free, proxy_to, record, run, until, word, words};
use std::net::SocketAddr;
use std::time::Duration;

#[allow(dead_code, reason = "others of these tests need the rest")]
#[path = "rpc/common.rs"]
mod common;

/// Counts what is allocated now.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is the system's; the count does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: what the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Other tests of this program would be counted, too.
static ALONE: Mutex<()> = Mutex::new(());

fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

const WRITE: u32 = 7;

/// Answers all but WRITEs.
async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let call = record(&mut stream).await?;
        if word(&call, 5) != WRITE {
            let reply = words(&[word(&call, 0), 1, 0, 0, 0, 0]);
            stream.write_all(&fragments(&reply, 1000)).await?;
        }
    }
}

async fn lab(config: Config) -> (Proxy, SocketAddr) {
    let listener = free().await;
    let at = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(serve(stream));
        }
    });
    let (proxy, address) = proxy_to(at, config).await;
    connected(&proxy).await;
    (proxy, address)
}

/// A call with so many bytes behind its header, without a mark.
fn call(xid: u32, procedure: u32, bytes: usize) -> Vec<u8> {
    let mut call = words(&[xid, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0]);
    call.resize(40 + bytes, 0);
    call
}

async fn answered(address: SocketAddr, xid: u32) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let call = fragments(&call(xid, 1, 100), 1000);
    stream.write_all(&call).await.unwrap();
    let reply = timeout(Duration::from_secs(20), record(&mut stream)).await;
    assert_eq!(word(&reply.expect("a reply in time").unwrap(), 0), xid);
}

/// Every piece of a call kept all of the buffer that it came in, 256 KiB.
#[test]
fn what_comes_in_small_pieces_takes_no_more_than_it_is() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let (proxy, address) = lab(config(1, 64 << 20, 60)).await;
        for (clients, bytes, piece) in [(1, 300_000, 100), (16, 600_000, 1448)] {
            let calls = fragments(&call(7, WRITE, bytes), 1 << 20);
            let mut streams = Vec::new();
            for _ in 0..clients {
                let stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                streams.push(stream);
            }
            let before = allocated();
            let pieces: Vec<&[u8]> = calls.chunks(piece).collect();
            let (last, all) = pieces.split_last().unwrap();
            for piece in all {
                for stream in &mut streams {
                    stream.write_all(piece).await.unwrap();
                }
                // The proxy has read it, and waits for more.
                sleep(Duration::from_millis(1)).await;
            }
            let most = 16 << 10;
            until(|| proxy.status().kept_bytes.0 + clients * most >= clients * bytes).await;
            let (kept, taken) = (proxy.status().kept_bytes.0, allocated() - before);
            assert!(taken < 4 * kept, "{taken} bytes are taken for {kept}");
            for stream in &mut streams {
                stream.write_all(last).await.unwrap();
            }
            let done = || proxy.status().clients.iter().all(|c| c.calls == 1);
            until(done).await;
            let (kept, taken) = (proxy.status().kept_bytes.0, allocated() - before);
            assert!(kept > clients * bytes && taken < 4 * kept, "{taken} {kept}");
            drop(streams);
            until(|| proxy.status().clients.is_empty()).await;
        }
    });
}

/// Each was asked whether there is room when it began, and counted when it was known to be large.
async fn many_large_ones(pieces: usize) {
    const MEMORY: usize = 16 << 20;
    const BYTES: usize = 3 << 20;
    let (proxy, address) = lab(config(1, MEMORY, 60)).await;
    let before = allocated();
    let calls: &'static [u8] = fragments(&call(7, WRITE, BYTES), pieces).leak();
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&calls[..4]).await.unwrap();
        streams.push(stream);
    }
    let all = || proxy.status().clients.len() == 16;
    until(all).await;
    answered(address, 1).await;
    for mut stream in streams {
        tokio::task::spawn_local(async move {
            let _ = stream.write_all(&calls[4..]).await;
            std::future::pending::<()>().await;
        });
    }
    let is_here = || proxy.status().clients.iter().any(|c| c.calls == 1);
    until(|| proxy.status().kept_bytes.0 > BYTES && is_here()).await;
    // Others are served meanwhile, though they are of the same user.
    for xid in 0..200 {
        answered(address, xid).await;
    }
    let (kept, taken) = (proxy.status().kept_bytes.0, allocated() - before);
    assert!(
        kept <= MEMORY / 2,
        "{kept} bytes of {MEMORY} are one user's"
    );
    assert!(taken - calls.len() < MEMORY, "{taken} bytes of {MEMORY}");
}

#[test]
fn large_calls_wait_until_there_is_room_for_all_of_them() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(many_large_ones(4 << 20));
}

#[test]
fn so_do_those_of_many_fragments() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(many_large_ones(100_000));
}

/// As large as the memory is, or larger: it passes when its user has nothing else.
#[test]
fn a_call_larger_than_the_memory_passes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let (proxy, address) = lab(config(1, 1 << 20, 60)).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        for xid in 0..3 {
            // Not a WRITE, so that it is answered.
            let bytes = call(xid, 1, 3 << 20);
            stream
                .write_all(&mark(bytes.len() as u32, true))
                .await
                .unwrap();
            stream.write_all(&bytes).await.unwrap();
            assert_eq!(word(&record(&mut stream).await.unwrap(), 0), xid);
        }
        assert_eq!(proxy.status().kept_bytes, (0, 0));
    });
}

//! Network namespaces and veths that vanish with the thread that made them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;

/// Runs a test inside a network namespace of its own, on a thread of its own; says so and returns
/// where there is no root.
pub fn in_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: {name} needs root (network namespaces and BPF)");
        return;
    }
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Gives this thread mounts of its own, without a bpffs at its usual place.
pub fn private_mounts() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    let flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    mount(none, "/", none, flags, none).unwrap();
    while umount2("/sys/fs/bpf", MntFlags::MNT_DETACH).is_ok() {}
}

/// Runs a command in this thread's namespace.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
}

/// Interface index.
pub fn index_of(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

/// A pair of veths, up, without IPv6 chatter, with this MTU.
pub fn veth(a: &str, b: &str, mtu: u32) {
    let mtu = mtu.to_string();
    run(
        "ip",
        &[
            "link", "add", a, "mtu", &mtu, "type", "veth", "peer", "name", b, "mtu", &mtu,
        ],
    );
    for name in [a, b] {
        // No addresses of its own, so nothing but what the test sends crosses the pair.
        run("ip", &["link", "set", name, "addrgenmode", "none"]);
        run("ip", &["link", "set", name, "up"]);
    }
}

/// Veths `l0`, `l1`, ..., whose other ends are `p0`, `p1`, ...: their interface indices.
pub fn links<const N: usize>() -> [u32; N] {
    std::array::from_fn(|n| {
        veth(&format!("l{n}"), &format!("p{n}"), 1500);
        index_of(&format!("l{n}"))
    })
}

/// A packet socket on one end of a veth.
pub struct Wire {
    socket: OwnedFd,
    index: u32,
}

impl Wire {
    /// Everything that comes in on the device; what is sent from here is not seen again.
    pub fn open(name: &str) -> Wire {
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
        .unwrap();
        let wire = Wire {
            socket,
            index: index_of(name),
        };
        let address = wire.address();
        // SAFETY: `address` is a complete sockaddr_ll and its size is given.
        let result = unsafe {
            libc::bind(
                wire.socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        setsockopt(
            &wire.socket,
            sockopt::ReceiveTimeout,
            &TimeVal::new(0, 300_000),
        )
        .unwrap();
        wire
    }

    fn address(&self) -> libc::sockaddr_ll {
        // SAFETY: all zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = self.index as i32;
        address
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) {
        let sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
        assert_eq!(sent, frame.len());
    }

    /// The next frame, or none after a third of a second.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65536];
        match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(len) => {
                buffer.truncate(len);
                Some(buffer)
            }
            Err(nix::Error::EAGAIN) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

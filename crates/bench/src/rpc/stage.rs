//! Where it is measured: a lab of parallel links, a server at one end, proxies at the other.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raddle_control::{PROXIES, Proxies, Serving, ask_at};
use raddle_lab::{Lab, Links, ScopedLab, UpOptions};
use raddle_rpc::proxy::{Status, TransportState, TransportStatus};

use super::{load, own};
use crate::cli::RpcServer;
use crate::program;
use raddle_exit::Failure;

/// Ports of NFS and MOUNT at the server.
pub(super) const PORTS: [u16; 2] = [2049, 20048];
/// The proxy's address.
pub(super) const PROXY: SocketAddr = at(Ipv4Addr::LOCALHOST, 2049);
/// Files of the export.
pub(super) const FILES: [&str; 2] = ["read", "written"];
/// How long a server or a proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const fn at(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(ip), port)
}

/// The server's address in the lab.
pub(super) const fn server(ipv6: bool) -> IpAddr {
    match ipv6 {
        false => IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
        true => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1)),
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("raddle-bench: {}: {e}; remove it", self.0.display());
        }
    }
}

/// A lab and its server.
pub(super) struct Stage {
    pub lab: ScopedLab,
    pub server: RpcServer,
    /// The server's address.
    pub ip: IpAddr,
    daemon: Option<Child>,
    folder: Folder,
    /// Proxies that were started.
    proxies: AtomicU32,
}

/// Whether nfs-ganesha can be started here.
pub(super) fn has_ganesha() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let has = |program: &&str| dirs.iter().any(|dir| dir.join(program).is_file());
    ["ganesha.nfsd", "rpcbind"].iter().all(has)
}

impl Stage {
    /// Builds a lab of links and starts the server in it, which is asked at this address.
    pub(super) fn up(
        description: &Links,
        (server, ip): (RpcServer, IpAddr),
        dir: &Path,
    ) -> Result<Stage, Failure> {
        let topology = description.topology();
        let topology = topology.map_err(|e| Failure::usage(e.to_string()))?;
        let name = format!("bench-rpc-{}", std::process::id());
        let folder = dir.join(format!("raddle-{name}-{}", description.links));
        let made = fs::create_dir(&folder);
        made.map_err(|e| Failure::system(format!("cannot make {}: {e}", folder.display())))?;
        let folder = Folder(folder);
        let lab = Lab::up(&name, &topology, UpOptions::default())?.scoped();
        let mut stage = Stage {
            lab,
            server,
            ip,
            daemon: None,
            folder,
            proxies: AtomicU32::new(0),
        };
        match server {
            RpcServer::Own => {
                let addresses = PORTS.map(|port| SocketAddr::new(ip, port));
                stage.lab.within("server", || own::start(&addresses))??;
            }
            RpcServer::Ganesha => stage.daemon = Some(stage.ganesha()?),
        }
        let handle = || stage.handle(stage.mount(), stage.nfs(), FILES[0]);
        wait(|| handle().map_err(|e| e.to_string())).map_err(|why| {
            let log = fs::read_to_string(stage.folder.0.join("log")).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(5).collect();
            Failure::system(format!(
                "the server does not answer: {why}; the last of its log, newest first:\n{}",
                last.join("\n")
            ))
        })?;
        Ok(stage)
    }

    /// Gives both hosts other hash seeds, so that connections lie otherwise; the same for the same number.
    pub(super) fn seed(&self, number: u32) {
        for (node, salt) in [("client", 0x9e37_79b9_u32), ("server", 0x85eb_ca6b)] {
            let seed = number.wrapping_mul(salt).max(1).to_string();
            // Before Linux 6.11 there is none, and connections are not placed.
            let _ = self
                .lab
                .set_sysctl(node, "net.ipv4.fib_multipath_hash_seed", &seed);
        }
    }

    /// Where the server has NFS.
    pub(super) fn nfs(&self) -> SocketAddr {
        SocketAddr::new(self.ip, PORTS[0])
    }

    /// Where it has MOUNT.
    pub(super) fn mount(&self) -> SocketAddr {
        SocketAddr::new(self.ip, PORTS[1])
    }

    /// What is exported.
    pub(super) fn export(&self) -> PathBuf {
        self.folder.0.join("export")
    }

    /// Makes the files, and starts the server in the node, with files of its own in place of the machine's.
    fn ganesha(&self) -> Result<Child, Failure> {
        let (folder, export) = (&self.folder.0, self.export());
        fs::create_dir(&export)?;
        for name in FILES {
            let block = vec![0x5a; 1 << 20];
            let mut file = fs::File::create(export.join(name))?;
            for _ in 0..load::FILE >> 20 {
                std::io::Write::write_all(&mut file, &block)?;
            }
        }
        let config = folder.join("ganesha.conf");
        fs::write(
            &config,
            format!(
                "NFS_CORE_PARAM {{ Protocols = 3; MNT_Port = {}; Enable_NLM = false; \
                 Enable_RQUOTA = false; Enable_UDP = false; }}\n\
                 EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RW; \
                 Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3; \
                 FSAL {{ Name = VFS; }} }}\n",
                PORTS[1],
                export = export.display()
            ),
        )?;
        // Its registry must run beside it, and both write to /run and /var/lib/nfs.
        let script = "PATH=$PATH:/usr/sbin:/sbin; mount -t tmpfs tmpfs /run || exit 1; \
                      [ ! -d /var/lib/nfs ] || mount -t tmpfs tmpfs /var/lib/nfs || exit 1; \
                      mkdir -p /run/rpcbind /run/ganesha /var/lib/nfs/ganesha; rpcbind -w -f & \
                      exec ganesha.nfsd -F -f \"$1/ganesha.conf\" -L \"$1/log\" \
                      -p /run/ganesha/pid -N NIV_EVENT";
        let mut command = self.lab.command("server", "sh")?;
        command.args(["-c", script, "sh"]).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command.stderr(Stdio::null()).spawn()?)
    }

    /// Does something in the client's namespace.
    pub(super) fn client<T: Send>(
        &self,
        what: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> Result<T, Failure> {
        Ok(self.lab.within("client", what)??)
    }

    /// The handle of a file, asked of these addresses.
    pub(super) fn handle(
        &self,
        mount: SocketAddr,
        nfs: SocketAddr,
        file: &str,
    ) -> Result<Vec<u8>, Failure> {
        let export = self.export().display().to_string();
        self.client(|| load::handle(mount, nfs, &export, file))
    }

    /// Starts a proxy with these options in the client's namespace, and waits until all of its connections
    /// stand.
    pub(super) fn proxy(&self, options: &[&str]) -> Result<Proxy, Failure> {
        let mount = PORTS[1].to_string();
        let server = self.nfs().to_string();
        let mut all = vec!["--mount-port", &mount, "--server", &server];
        all.extend(options);
        self.proxy_to(&all)
    }

    /// The same for a server elsewhere.
    pub(super) fn proxy_to(&self, options: &[&str]) -> Result<Proxy, Failure> {
        // Each has a folder of its own, so that it is no successor of the last one: that would take its ports again,
        // and lie by the hash seeds of the trial before.
        let number = self.proxies.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.0.join(format!("proxy-{number}"));
        let made = fs::create_dir(&folder);
        made.map_err(|e| Failure::system(format!("cannot make {}: {e}", folder.display())))?;
        Proxy::start(&self.lab, &folder, options)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            // It has nothing to keep.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// From the client to the server, or from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    Back,
}

/// The connections of the first service that are not kept for small calls.
pub(super) fn bulk(status: Status) -> impl Iterator<Item = TransportStatus> {
    let transports = status.transports.into_iter();
    transports.filter(|transport| !transport.lane && transport.service == 0)
}

/// A running `raddle rpc`.
pub(super) struct Proxy {
    child: Child,
    socket: PathBuf,
}

impl Proxy {
    fn start(lab: &Lab, folder: &Path, options: &[&str]) -> Result<Proxy, Failure> {
        let log = folder.join("proxy.log");
        let socket = folder.join("rpc.sock");
        let program = program::raddle()?;
        let mut command = lab.command("client", &program.display().to_string())?;
        command
            .arg("rpc")
            .args(options)
            .arg("--socket")
            .arg(&socket);
        if !options.contains(&"--listen") {
            command.arg("--listen").arg(PROXY.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(fs::File::create(&log)?).spawn()?;
        let mut proxy = Proxy { child, socket };
        let stands = wait(|| proxy.stands());
        stands.map_err(|why| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            Failure::system(format!("raddle rpc does not connect: {why}\n{log}"))
        })?;
        Ok(proxy)
    }

    fn stands(&mut self) -> Result<(), String> {
        if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
            return Err(format!("it has ended: {status}"));
        }
        let status = self.status().map_err(|e| e.to_string())?;
        let is_down =
            |transport: &&TransportStatus| matches!(transport.state, TransportState::Down { .. });
        match status.transports.iter().find(is_down) {
            None => Ok(()),
            Some(transport) => Err(format!("not all are up: {:?}", transport.state)),
        }
    }

    /// What it says of itself.
    pub(super) fn status(&self) -> Result<Status, Failure> {
        let said: Proxies = ask_at(&self.socket, PROXIES)?;
        match said.servers.into_iter().next().map(|server| server.serving) {
            Some(Serving::Yes(status)) => Ok(*status),
            Some(Serving::Not { not_served }) => Err(Failure::system(not_served)),
            None => Err(Failure::system("raddle rpc says that it has no server")),
        }
    }

    /// The links of its connections for large calls, on one of the ways.
    pub(super) fn links(&self, way: Way) -> Result<Vec<String>, Failure> {
        let link = |state: TransportState| match (state, way) {
            (TransportState::Up { out, .. }, Way::Out) => out,
            (TransportState::Up { back, .. }, Way::Back) => back,
            (TransportState::Down { .. }, _) => None,
        };
        let status = self.status()?;
        let links = bulk(status).map(|transport| link(transport.state));
        Ok(links
            .map(|link| link.unwrap_or_else(|| "-".into()))
            .collect())
    }

    /// Keeps it on these CPUs.
    pub(super) fn pin(&self, cpus: &CpuSet) -> Result<(), Failure> {
        pin(self.pid(), cpus)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Seconds that its one busy thread has run, and that it has waited for a CPU that others had.
    pub(super) fn ran(&self) -> Result<[f64; 2], Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let mut words = stat
            .split(' ')
            .map(|word| word.trim().parse().unwrap_or(0.0));
        let mut seconds = || words.next().unwrap_or(0.0) / 1e9;
        Ok([seconds(), seconds()])
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = kill(self.pid(), Signal::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps a thread or process on these CPUs; 0 is this thread.
pub(super) fn pin(pid: Pid, cpus: &CpuSet) -> Result<(), Failure> {
    let failed = |e| Failure::system(format!("cannot keep to a CPU: {e}"));
    sched_setaffinity(pid, cpus).map_err(failed)
}

/// The first CPU that this thread may use, and the others; none where there is but one.
pub(super) fn cpus() -> Option<(CpuSet, CpuSet)> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let mut usable = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu) == Ok(true));
    let (mut one, mut rest) = (CpuSet::new(), CpuSet::new());
    one.set(usable.next()?).ok()?;
    rest.set(usable.next()?).ok()?;
    usable.try_for_each(|cpu| rest.set(cpu)).ok()?;
    Some((one, rest))
}

/// Asks until there is an answer.
fn wait<T>(mut ask: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    loop {
        match ask() {
            Err(why) if start.elapsed() > PATIENCE => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
}

/// A program of the system in a node, or what to install.
pub(super) fn tool(lab: &Lab, node: &str, argv: &[&str], package: &str) -> Result<Child, Failure> {
    let mut command: Command = lab.command(node, argv[0])?;
    command.args(&argv[1..]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|e| match e.kind() {
        ErrorKind::NotFound => Failure::system(format!(
            "{} is not there; apt-get install {package}",
            argv[0]
        )),
        _ => Failure::system(format!("cannot run {}: {e}", argv[0])),
    })
}

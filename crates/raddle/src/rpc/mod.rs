//! `raddle rpc`: what is asked for and shown; the proxies are `raddle-rpc-paths`'.

mod screen;
mod top;

use raddle_control::{PROXIES, Proxies, Proxy, ProxyConfig, Server as Control, ask_at, path_of};
use raddle_rpc_paths::{Asked, Config, Numbers, Options, Phase, Process, Server, serve, show};
use sd_notify::NotifyState;
use serde::Serialize;

use crate::cli;
use crate::error::Failure;

/// Runs the command.
pub(crate) fn run(args: &cli::Rpc) -> Result<(), Failure> {
    match &args.command {
        Some(cli::RpcCommand::Status(args)) => status(args),
        Some(cli::RpcCommand::Top(args)) => top::run(args),
        None => proxy(args),
    }
}

/// The proxies that run here, or the one of the server with this name; and what is known of their configuration.
fn ask(args: &cli::Ask, name: Option<&str>) -> Result<Proxies, Failure> {
    let path = args.socket.clone().unwrap_or_else(|| path_of("rpc"));
    let mut said: Proxies = ask_at(&path, PROXIES)?;
    if let Some(name) = name {
        let names: Vec<String> = said.servers.iter().map(|s| s.name.clone()).collect();
        said.servers.retain(|server| server.name == name);
        if said.servers.is_empty() {
            return Err(Failure::usage(format!(
                "no server is called '{name}'; there are: {}",
                names.join(", ")
            )));
        }
    }
    Ok(said)
}

/// A server's proxy, and the configuration that all have.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    proxy: &'a Proxy,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a ProxyConfig>,
}

fn status(args: &cli::RpcStatus) -> Result<(), Failure> {
    let Proxies { servers, config } = ask(&args.ask, args.name.as_deref())?;
    for (i, proxy) in servers.iter().enumerate() {
        if args.ask.json {
            let config = config.as_ref();
            let line = serde_json::to_string(&Line { proxy, config });
            println!("{}", line.map_err(|e| Failure::system(e.to_string()))?);
            continue;
        }
        if i > 0 {
            println!();
        }
        print!("{}", show::text(proxy, args.details));
    }
    if let Some(config) = config.filter(|_| !args.ask.json) {
        print!("\n{}", show::config(&config));
    }
    Ok(())
}

/// The server of the command line.
fn server(args: &cli::RpcProxy) -> Result<Server, Failure> {
    let server = args.server.clone().ok_or_else(|| {
        Failure::usage("name the server: --server HOST:PORT, such as nas.example:2049")
    })?;
    let usual = Server::new(server);
    Ok(Server {
        name: args.name.clone().unwrap_or(usual.name),
        listen: match args.listen.is_empty() {
            true => usual.listen,
            false => args.listen.clone(),
        },
        server: usual.server,
        server_addresses: args.server_addresses.clone(),
        local_addresses: args.local_addresses.clone(),
        mount_port: args.mount_port,
        connections: args.connections,
        lane: !args.no_lane,
        policy: args.policy.into(),
        placement: !args.no_placement,
        privileged_ports: args.privileged_ports,
        replay_routes: (!args.no_replay_routes).then_some(Numbers {
            table: args.replay_table,
            mark: args.replay_mark,
        }),
        memory: args.memory,
        max_record: args.max_record,
    })
}

/// What is not about servers: the command line goes before the file.
fn process(file: &Process, options: &cli::RpcDaemon) -> Process {
    Process {
        metrics: options.metrics.or(file.metrics),
        socket: options.socket.clone().or_else(|| file.socket.clone()),
        log_json: options.log_json || file.log_json,
    }
}

fn proxy(args: &cli::Rpc) -> Result<(), Failure> {
    let wanted = match &args.config {
        Some(path) => Config::load(path)?,
        None => Config {
            process: Process::default(),
            servers: vec![server(&args.proxy)?],
        },
    };
    let here = process(&wanted.process, &args.daemon);
    crate::logging::start(here.log_json);
    here.metrics
        .map_or(Ok(()), raddle_metrics::require_loopback)?;
    // Before the first thread: one that does not block the signals would be ended by them.
    let (stop, reload) = crate::signals::stop_and_reload_flags()?;
    let socket = here.socket.clone().unwrap_or_else(|| path_of("rpc"));
    let control = Control::start(socket.clone())?;
    let Control { requests, .. } = &control;
    let metrics = |address| raddle_metrics::serve(address, raddle_metrics::Source::Proxies);
    let scrapes = here.metrics.map(metrics).transpose()?;
    let options = Options {
        servers: wanted.servers,
        file: args.config.clone().map(|path| (path, wanted.process)),
        journals: socket.with_extension(""),
        asked: Asked {
            requests: std::iter::once(requests).chain(&scrapes).collect(),
            stop: &stop,
            reload: &reload,
        },
    };
    Ok(serve(options, |phase| {
        let state = match phase {
            Phase::Ready => NotifyState::Ready,
            Phase::Stopping => NotifyState::Stopping,
        };
        let _ = sd_notify::notify(&[state]);
    })?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Args, Command, FromArgMatches};
    use raddle_config::{File, Mistake};

    use super::*;

    fn command<T: Args>() -> Command {
        T::augment_args(Command::new("").no_binary_name(true))
    }

    fn options<T: Args>() -> BTreeSet<String> {
        let command = command::<T>();
        let all = command.get_arguments().filter_map(|arg| arg.get_long());
        all.map(str::to_owned).collect()
    }

    /// The keys that may stand where `here` does, which is none.
    fn keys(text: &str) -> BTreeSet<String> {
        let error = Config::of(&File::new("rpc.toml", text)).unwrap_err();
        match error.mistake() {
            Some(Mistake::UnknownKey { known, .. }) => {
                known.iter().map(|key| (*key).to_owned()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_of_the_file_are_the_options() {
        assert_eq!(keys("[[server]]\nhere = 1"), options::<cli::RpcProxy>());
        let mut process = options::<cli::RpcDaemon>();
        process.insert("server".into());
        assert_eq!(keys("here = 1"), process);
    }

    #[test]
    fn options_and_keys_have_the_same_defaults_and_meanings() {
        for (words, keys) in [
            ("", ""),
            (
                "--name b --listen 127.0.0.2:111 --listen 127.0.0.2:2049 --mount-port 7 --connections 9 --no-lane",
                "name = 'b'\nlisten = ['127.0.0.2:111', '127.0.0.2:2049']\nmount-port = 7\nconnections = 9\nno-lane = true",
            ),
            (
                "--policy hash --no-placement --privileged-ports --memory 3 --max-record 5",
                "policy = 'hash'\nno-placement = true\nprivileged-ports = true\nmemory = 3\nmax-record = 5",
            ),
            (
                "--policy round-robin --replay-table 300 --replay-mark 0x7",
                "policy = 'round-robin'\nreplay-table = 300\nreplay-mark = '0x7'",
            ),
            (
                "--policy least-bytes --replay-mark 9",
                "policy = 'least-bytes'\nreplay-mark = 9",
            ),
            (
                "--no-replay-routes --server-addresses 10.0.0.2,10.0.0.3 --local-addresses 10.0.0.1",
                "no-replay-routes = true\nserver-addresses = ['10.0.0.2', '10.0.0.3']\nlocal-addresses = '10.0.0.1'",
            ),
        ] {
            let words = words.split_whitespace().chain(["--server", "nas"]);
            let matches = command::<cli::RpcProxy>().try_get_matches_from(words);
            let args = cli::RpcProxy::from_arg_matches(&matches.unwrap()).unwrap();
            let text = format!("[[server]]\nserver = 'nas'\n{keys}");
            let file = Config::of(&File::new("rpc.toml", text)).unwrap();
            assert_eq!(file.servers, [server(&args).unwrap()], "{keys}");
        }
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file = Process {
            metrics: Some("127.0.0.1:1".parse().unwrap()),
            socket: Some("/a".into()),
            log_json: true,
        };
        let none = cli::RpcDaemon {
            metrics: None,
            socket: None,
            log_json: false,
        };
        assert_eq!(process(&file, &none), file);
        let some = cli::RpcDaemon {
            socket: Some("/b".into()),
            ..none
        };
        let both = Process {
            socket: Some("/b".into()),
            ..file.clone()
        };
        assert_eq!(process(&file, &some), both);
        assert!(!process(&Process::default(), &some).log_json);
    }
}

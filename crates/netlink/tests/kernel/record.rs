//! Records what the kernel says, for the codec's tests: `RADDLE_UPDATE_CAPTURES=1`. With `RADDLE_CAPTURES` it goes to that folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use raddle_netlink::Socket;
use raddle_netlink::codec::number::{group, nlm, rtm};
use raddle_netlink::codec::{Builder, Messages};

use crate::support::{in_namespace, ip, sysctl, try_ip};

const SCRIPT: &str = "
    link add v0 address 02:00:00:00:00:01 type veth peer name p0 address 02:00:00:00:00:02
    link set p0 up
    link set v0 up
    addr add 10.0.0.1/24 dev v0
    addr add 10.0.9.1/32 peer 10.0.9.2/32 dev v0
    -6 addr add 2001:db8::1/64 dev v0 nodad
    neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev v0
    -6 neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev v0 nud stale
    nexthop add id 1 via 10.0.0.2 dev v0
    nexthop add id 2 via 10.0.0.3 dev v0
    nexthop add id 3 via 2001:db8::2 dev v0
    nexthop add id 4 blackhole
    nexthop add id 5 group 1,250/2,3
    nexthop add id 6 group 1/2 type resilient buckets 4 idle_timer 7 unbalanced_timer 9
    nexthop add id 7 encap seg6 mode encap segs 2001:db8:1::1 via 2001:db8::2 dev v0
    route add 10.1.0.0/16 via 10.0.0.2 mtu 1400 src 10.0.0.1
    route append 10.1.0.0/16 via 10.0.0.3
    route add 10.2.0.0/16 table 70000 metric 5 nexthop via 10.0.0.2 weight 256 nexthop via inet6 2001:db8::2 dev v0
    route add default via inet6 2001:db8::2 dev v0
    route add 10.3.0.0/16 nhid 5
    route add throw 10.4.0.0/16
    -6 route add 2001:db8:2::/48 nexthop via 2001:db8::2 weight 2 nexthop via 2001:db8::3
    -6 route append 2001:db8:2::/48 via 2001:db8::4
    -6 route add 2001:db8:3::/48 encap seg6 mode encap segs 2001:db8:1::1,2001:db8:1::2 via 2001:db8::2
    -6 route add 2001:db8:4::1/128 encap seg6local action End dev v0
    -6 route add prohibit 2001:db8:5::/48
    rule add from 10.0.0.0/8 to 10.9.0.0/16 fwmark 1/0xff iif v0 lookup 70000 pref 77
    -6 rule add not from all sport 5-7 tos 4 suppress_prefixlength 0 lookup 100 pref 78
    ";

const CHANGES: &str = "
    nexthop replace id 5 group 2
    route replace 10.1.0.0/16 via 10.0.0.9
    -6 route del 2001:db8:2::/48 via 2001:db8::3
    route del 10.3.0.0/16
    nexthop del id 4
    neigh del 10.0.0.2 dev v0
    rule del pref 77
    addr del 10.0.9.1 peer 10.0.9.2/32 dev v0
    link set p0 down
    link del v0
    ";

/// Needs a kernel with `CONFIG_BRIDGE_VLAN_FILTERING`.
const BRIDGES: &str = "
    ip link add br0 address 02:00:00:00:00:10 type bridge vlan_filtering 1
    ip link add v0 address 02:00:00:00:00:01 type veth peer name p0
    ip link add v1 address 02:00:00:00:00:03 type veth peer name p1
    ip link add m0 address 02:00:00:00:00:04 link p1 type macvlan mode vepa
    ip link set v0 master br0
    ip link set v1 master br0
    ip link set p0 up
    ip link set v0 up
    ip link set p1 up
    ip link set v1 up
    ip link set br0 up
    bridge vlan add dev v0 vid 10-20
    bridge vlan add dev v0 vid 30 pvid untagged
    bridge vlan add dev br0 vid 30 self
    bridge fdb add 02:00:00:00:01:01 dev v0 master static vlan 10
    bridge fdb add 02:00:00:00:01:02 dev v0 master dynamic vlan 10
    bridge fdb add 02:00:00:00:01:03 dev v0 self
    ";

const BRIDGES_CHANGE: &str = "
    ip link set v0 type bridge_slave learning off
    bridge link set dev v0 state 4
    bridge link set dev v0 state 3
    ip link set v1 type bridge_slave locked on backup_port v0
    bridge vlan set dev v0 vid 12 state blocking
    bridge vlan del dev v0 vid 14-15
    bridge fdb replace 02:00:00:00:01:02 dev v1 master dynamic vlan 1
    bridge fdb del 02:00:00:00:01:01 dev v0 master vlan 10
    ip link set br0 type bridge vlan_protocol 802.1ad nf_call_iptables 1
    ip link set v0 nomaster
    ip link del br0
    ";

#[test]
fn record_bridges() {
    if std::env::var_os("RADDLE_UPDATE_CAPTURES").is_none() {
        return;
    }
    in_namespace("record_bridges", || {
        sysctl("ipv6/conf/default/disable_ipv6", "1");
        if !try_ip("link add br0 type bridge vlan_filtering 1") {
            eprintln!(
                "this kernel lacks CONFIG_BRIDGE_VLAN_FILTERING: captures of bridges are as they were"
            );
            return;
        }
        ip("link del br0");
        let listener = Socket::open().unwrap();
        let groups = [group::LINK, group::NEIGH, group::BRVLAN];
        groups
            .into_iter()
            .for_each(|group| listener.join(group).unwrap());
        listener.set_receive_buffer(1 << 20).unwrap();
        programs(BRIDGES);
        let kinds = [
            (rtm::RTM_GETLINK, 16, 0),
            (rtm::RTM_GETNEIGH, 12, 7),
            (rtm::RTM_GETVLAN, 8, 7),
        ];
        write("bridge-dumps", &dumps(&kinds));
        programs(BRIDGES_CHANGE);
        write("bridge-notifications", &notifications(&listener));
    });
}

fn programs(script: &str) {
    for command in script.lines().map(str::trim).filter(|c| !c.is_empty()) {
        let (program, arguments) = command.split_once(' ').unwrap();
        let mut command = Command::new(program);
        assert!(
            command
                .args(arguments.split(' '))
                .status()
                .unwrap()
                .success(),
            "{arguments}"
        );
    }
}

#[test]
fn record() {
    if std::env::var_os("RADDLE_UPDATE_CAPTURES").is_none() {
        return;
    }
    in_namespace("record", || {
        sysctl("ipv6/conf/default/addr_gen_mode", "1");
        let listener = Socket::open().unwrap();
        for group in [
            group::LINK,
            group::NEIGH,
            group::IPV4_IFADDR,
            group::IPV4_ROUTE,
            group::IPV4_RULE,
            group::IPV6_IFADDR,
            group::IPV6_ROUTE,
            group::IPV6_RULE,
            group::IPV4_NETCONF,
            group::IPV6_NETCONF,
            group::NEXTHOP,
        ] {
            listener.join(group).unwrap();
        }
        listener.set_receive_buffer(1 << 20).unwrap();
        commands(SCRIPT);
        write("dumps", &dumps(&KINDS));
        commands(CHANGES);
        write("notifications", &notifications(&listener));
    });
}

fn notifications(listener: &Socket) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 << 20);
    while listener.receive(&mut bytes, false).unwrap().is_some() {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn commands(script: &str) {
    for command in script.lines().map(str::trim).filter(|c| !c.is_empty()) {
        if command.contains("seg6") {
            try_ip(command); // not in every kernel
        } else {
            ip(command);
        }
    }
}

/// What is dumped: message, length of its header, family.
const KINDS: [(u16, usize, u8); 11] = [
    (rtm::RTM_GETLINK, 16, 0),
    (rtm::RTM_GETADDR, 8, 2),
    (rtm::RTM_GETADDR, 8, 10),
    (rtm::RTM_GETNEIGH, 12, 0),
    (rtm::RTM_GETRULE, 12, 2),
    (rtm::RTM_GETRULE, 12, 10),
    (rtm::RTM_GETNEXTHOP, 8, 0),
    (rtm::RTM_GETNEXTHOPBUCKET, 8, 0),
    (rtm::RTM_GETROUTE, 12, 2),
    (rtm::RTM_GETROUTE, 12, 10),
    (rtm::RTM_GETNETCONF, 1, 2),
];

fn dumps(kinds: &[(u16, usize, u8)]) -> Vec<u8> {
    let mut all = Vec::with_capacity(1 << 20);
    for &(kind, header, family) in kinds {
        let socket = Socket::open().unwrap();
        let mut head = [0; 16];
        head[0] = family;
        let mut request = Builder::new();
        request
            .begin(kind, nlm::REQUEST | nlm::DUMP, &head[..header])
            .end()
            .unwrap();
        socket.send(request.as_bytes()).unwrap();
        loop {
            let start = all.len();
            socket.receive(&mut all, true).unwrap();
            all.resize(all.len().next_multiple_of(4), 0);
            if Messages::new(&all[start..]).any(|m| m.unwrap().kind == libc::NLMSG_DONE as u16) {
                break;
            }
        }
    }
    all
}

fn write(name: &str, bytes: &[u8]) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let data = std::env::var_os("RADDLE_CAPTURES").map_or(data, PathBuf::from);
    std::fs::write(data.join(format!("{name}.bin")), bytes).unwrap();
}

//! What links tell of tunnels over IPv4: `IFLA_INFO_DATA` of the kinds `ipip`, `sit`, `gre` and `vxlan`.

use std::net::Ipv4Addr;

use raddle_rib::event::{Tunnel, TunnelDf, TunnelKind};

use super::build::Builder;
use super::wire::{Attribute, DecodeError};

const IFLA_IPTUN_LINK: u16 = 1;
const IFLA_IPTUN_LOCAL: u16 = 2;
const IFLA_IPTUN_REMOTE: u16 = 3;
const IFLA_IPTUN_TTL: u16 = 4;
const IFLA_IPTUN_TOS: u16 = 5;
const IFLA_IPTUN_FLAGS: u16 = 8;
const IFLA_IPTUN_PROTO: u16 = 9;
const IFLA_IPTUN_PMTUDISC: u16 = 10;
const IFLA_IPTUN_ENCAP_TYPE: u16 = 15;
const IFLA_IPTUN_COLLECT_METADATA: u16 = 19;
const IFLA_IPTUN_FWMARK: u16 = 20;

const IFLA_GRE_LINK: u16 = 1;
const IFLA_GRE_IFLAGS: u16 = 2;
const IFLA_GRE_OFLAGS: u16 = 3;
const IFLA_GRE_IKEY: u16 = 4;
const IFLA_GRE_OKEY: u16 = 5;
const IFLA_GRE_LOCAL: u16 = 6;
const IFLA_GRE_REMOTE: u16 = 7;
const IFLA_GRE_TTL: u16 = 8;
const IFLA_GRE_TOS: u16 = 9;
const IFLA_GRE_PMTUDISC: u16 = 10;
const IFLA_GRE_ENCAP_TYPE: u16 = 14;
const IFLA_GRE_COLLECT_METADATA: u16 = 18;
const IFLA_GRE_IGNORE_DF: u16 = 19;
const IFLA_GRE_FWMARK: u16 = 20;
/// There is a key, in `IFLA_GRE_IFLAGS` and `IFLA_GRE_OFLAGS`.
const GRE_KEY: u16 = 0x2000;

const IFLA_VXLAN_ID: u16 = 1;
const IFLA_VXLAN_GROUP: u16 = 2;
const IFLA_VXLAN_LINK: u16 = 3;
const IFLA_VXLAN_LOCAL: u16 = 4;
const IFLA_VXLAN_TTL: u16 = 5;
const IFLA_VXLAN_TOS: u16 = 6;
const IFLA_VXLAN_LEARNING: u16 = 7;
const IFLA_VXLAN_PORT_RANGE: u16 = 10;
const IFLA_VXLAN_PROXY: u16 = 11;
const IFLA_VXLAN_RSC: u16 = 12;
const IFLA_VXLAN_L2MISS: u16 = 13;
const IFLA_VXLAN_L3MISS: u16 = 14;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_GROUP6: u16 = 16;
const IFLA_VXLAN_LOCAL6: u16 = 17;
const IFLA_VXLAN_UDP_CSUM: u16 = 18;
const IFLA_VXLAN_REMCSUM_TX: u16 = 21;
const IFLA_VXLAN_REMCSUM_RX: u16 = 22;
const IFLA_VXLAN_GBP: u16 = 23;
const IFLA_VXLAN_REMCSUM_NOPARTIAL: u16 = 24;
const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
const IFLA_VXLAN_GPE: u16 = 27;
const IFLA_VXLAN_TTL_INHERIT: u16 = 28;
const IFLA_VXLAN_DF: u16 = 29;
const IFLA_VXLAN_VNIFILTER: u16 = 30;
/// `IFLA_VXLAN_MC_ROUTE`, the last one known (Linux 6.16). Those before it that are not named change nothing of unicast over IPv4, or
/// only what engines leave to the kernel: `localbypass` what is to this machine, `reserved_bits` headers that are not plain.
const IFLA_VXLAN_LAST: u16 = 34;
/// The port of who does not say another one (`vxlan_port`).
const VXLAN_PORT: u16 = 8472;

const IPPROTO_IPIP: u8 = 4;
const IPPROTO_IPV6: u8 = 41;

/// What a tunnel is set to; none of devices that are no tunnels over IPv4. `kind` is that of the device.
pub(super) fn decode(kind: &str, data: &Attribute<'_>) -> Result<Option<Tunnel>, DecodeError> {
    let tunnel = match kind {
        "ipip" => decode_ip(data, TunnelKind::Ipip, IPPROTO_IPIP)?,
        "sit" => decode_ip(data, TunnelKind::Sit, IPPROTO_IPV6)?,
        "gre" => decode_gre(data)?,
        "vxlan" => decode_vxlan(data)?,
        _ => return Ok(None),
    };
    Ok(Some(tunnel))
}

/// What kinds have in common.
#[derive(Default)]
struct Common {
    local: Option<Ipv4Addr>,
    remote: Option<Ipv4Addr>,
    ttl: u8,
    tos: u8,
    df: TunnelDf,
    link: u32,
    is_special: bool,
}

impl Common {
    fn set_remote(&mut self, remote: Option<Ipv4Addr>) {
        self.remote = remote;
        self.is_special |= remote.is_some_and(|remote| remote.is_multicast());
    }

    fn set_tos(&mut self, tos: u8) {
        self.tos = tos;
        // Kinds differ in what they make of other odd ones than 1 (`inherit`).
        self.is_special |= tos & 1 != 0 && tos != 1;
    }

    fn of(self, kind: TunnelKind) -> Tunnel {
        Tunnel {
            kind,
            local: self.local,
            remote: self.remote,
            ttl: self.ttl,
            tos: self.tos,
            df: self.df,
            link: self.link,
            is_special: self.is_special,
        }
    }
}

/// An address of 4 bytes; none for zeros.
fn address(a: &Attribute<'_>, what: &'static str) -> Result<Option<Ipv4Addr>, DecodeError> {
    let address = Ipv4Addr::from(*a.bytes::<4>(what)?);
    Ok(Some(address).filter(|address| !address.is_unspecified()))
}

fn be16(a: &Attribute<'_>, what: &'static str) -> Result<u16, DecodeError> {
    a.u16(what).map(u16::from_be)
}

/// With `pmtudisc` all outer packets are not to be fragmented, else those of IPv4 packets that are not themselves (`ip_tunnel_xmit`; `sit`
/// carries none of these).
fn df_of(pmtudisc: u8) -> TunnelDf {
    match pmtudisc {
        0 => TunnelDf::Inner,
        _ => TunnelDf::Set,
    }
}

/// Of `ipip` and `sit`; `carries` is the protocol of what the kind carries for engines. The prefixes of 6RD count only for tunnels without
/// a remote.
fn decode_ip(data: &Attribute<'_>, kind: TunnelKind, carries: u8) -> Result<Tunnel, DecodeError> {
    let mut tunnel = Common::default();
    for attribute in data.nested() {
        let a = attribute?;
        match a.kind {
            IFLA_IPTUN_LINK => tunnel.link = a.u32("IFLA_IPTUN_LINK")?,
            IFLA_IPTUN_LOCAL => tunnel.local = address(&a, "IFLA_IPTUN_LOCAL")?,
            IFLA_IPTUN_REMOTE => tunnel.set_remote(address(&a, "IFLA_IPTUN_REMOTE")?),
            IFLA_IPTUN_TTL => tunnel.ttl = a.u8("IFLA_IPTUN_TTL")?,
            IFLA_IPTUN_TOS => tunnel.set_tos(a.u8("IFLA_IPTUN_TOS")?),
            IFLA_IPTUN_PMTUDISC => tunnel.df = df_of(a.u8("IFLA_IPTUN_PMTUDISC")?),
            // 0 is for all that it can carry.
            IFLA_IPTUN_PROTO => {
                tunnel.is_special |= ![0, carries].contains(&a.u8("IFLA_IPTUN_PROTO")?);
            }
            // ISATAP.
            IFLA_IPTUN_FLAGS => tunnel.is_special |= a.u16("IFLA_IPTUN_FLAGS")? != 0,
            IFLA_IPTUN_ENCAP_TYPE => tunnel.is_special |= a.u16("IFLA_IPTUN_ENCAP_TYPE")? != 0,
            IFLA_IPTUN_COLLECT_METADATA => tunnel.is_special = true,
            IFLA_IPTUN_FWMARK => tunnel.is_special |= a.u32("IFLA_IPTUN_FWMARK")? != 0,
            kind => tunnel.is_special |= kind > IFLA_IPTUN_FWMARK,
        }
    }
    Ok(tunnel.of(kind))
}

fn decode_gre(data: &Attribute<'_>) -> Result<Tunnel, DecodeError> {
    let mut tunnel = Common::default();
    let (mut flags, mut keys) = ([0; 2], [0; 2]);
    let mut ignores_df = false;
    for attribute in data.nested() {
        let a = attribute?;
        match a.kind {
            IFLA_GRE_LINK => tunnel.link = a.u32("IFLA_GRE_LINK")?,
            IFLA_GRE_IFLAGS => flags[0] = be16(&a, "IFLA_GRE_IFLAGS")?,
            IFLA_GRE_OFLAGS => flags[1] = be16(&a, "IFLA_GRE_OFLAGS")?,
            IFLA_GRE_IKEY => keys[0] = u32::from_be(a.u32("IFLA_GRE_IKEY")?),
            IFLA_GRE_OKEY => keys[1] = u32::from_be(a.u32("IFLA_GRE_OKEY")?),
            IFLA_GRE_LOCAL => tunnel.local = address(&a, "IFLA_GRE_LOCAL")?,
            IFLA_GRE_REMOTE => tunnel.set_remote(address(&a, "IFLA_GRE_REMOTE")?),
            IFLA_GRE_TTL => tunnel.ttl = a.u8("IFLA_GRE_TTL")?,
            IFLA_GRE_TOS => tunnel.set_tos(a.u8("IFLA_GRE_TOS")?),
            IFLA_GRE_PMTUDISC => tunnel.df = df_of(a.u8("IFLA_GRE_PMTUDISC")?),
            IFLA_GRE_IGNORE_DF => ignores_df = a.u8("IFLA_GRE_IGNORE_DF")? != 0,
            IFLA_GRE_ENCAP_TYPE => tunnel.is_special |= a.u16("IFLA_GRE_ENCAP_TYPE")? != 0,
            IFLA_GRE_COLLECT_METADATA => tunnel.is_special = true,
            IFLA_GRE_FWMARK => tunnel.is_special |= a.u32("IFLA_GRE_FWMARK")? != 0,
            kind => tunnel.is_special |= kind > IFLA_GRE_FWMARK,
        }
    }
    if ignores_df && tunnel.df == TunnelDf::Inner {
        tunnel.df = TunnelDf::Unset;
    }
    let [ikey, okey] = [0, 1].map(|way| Some(keys[way]).filter(|_| flags[way] & GRE_KEY != 0));
    tunnel.is_special |= flags.iter().any(|flags| flags & !GRE_KEY != 0);
    Ok(tunnel.of(TunnelKind::Gre { ikey, okey }))
}

fn decode_vxlan(data: &Attribute<'_>) -> Result<Tunnel, DecodeError> {
    let (mut vni, mut port, mut sports) = (0, VXLAN_PORT, (0, 0));
    let (mut learns, mut checksum, mut ttl_inner) = (false, false, false);
    let mut tunnel = Common::default();
    for attribute in data.nested() {
        let a = attribute?;
        match a.kind {
            IFLA_VXLAN_ID => vni = a.u32("IFLA_VXLAN_ID")?,
            IFLA_VXLAN_GROUP => tunnel.set_remote(address(&a, "IFLA_VXLAN_GROUP")?),
            IFLA_VXLAN_LINK => tunnel.link = a.u32("IFLA_VXLAN_LINK")?,
            IFLA_VXLAN_LOCAL => tunnel.local = address(&a, "IFLA_VXLAN_LOCAL")?,
            IFLA_VXLAN_TTL => tunnel.ttl = a.u8("IFLA_VXLAN_TTL")?,
            IFLA_VXLAN_TOS => tunnel.set_tos(a.u8("IFLA_VXLAN_TOS")?),
            IFLA_VXLAN_LEARNING => learns = a.u8("IFLA_VXLAN_LEARNING")? != 0,
            IFLA_VXLAN_PORT => port = be16(&a, "IFLA_VXLAN_PORT")?,
            IFLA_VXLAN_PORT_RANGE => {
                let [a, b, c, d] = *a.bytes::<4>("IFLA_VXLAN_PORT_RANGE")?;
                let (low, high) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                // One that is empty is none (`udp_flow_src_port`).
                sports = Some((low, high)).filter(|_| low < high).unwrap_or_default();
            }
            IFLA_VXLAN_UDP_CSUM => checksum = a.u8("IFLA_VXLAN_UDP_CSUM")? != 0,
            IFLA_VXLAN_TTL_INHERIT => ttl_inner = a.u8("IFLA_VXLAN_TTL_INHERIT")? != 0,
            IFLA_VXLAN_DF => match a.u8("IFLA_VXLAN_DF")? {
                0 => {}
                1 => tunnel.df = TunnelDf::Set,
                // With `inherit`, packets with IPv6 inside are never to be fragmented either (`vxlan_xmit_one`).
                _ => (tunnel.df, tunnel.is_special) = (TunnelDf::Inner, true),
            },
            IFLA_VXLAN_PROXY
            | IFLA_VXLAN_RSC
            | IFLA_VXLAN_L2MISS
            | IFLA_VXLAN_L3MISS
            | IFLA_VXLAN_REMCSUM_TX
            | IFLA_VXLAN_REMCSUM_RX
            | IFLA_VXLAN_COLLECT_METADATA
            | IFLA_VXLAN_VNIFILTER => tunnel.is_special |= a.u8("IFLA_VXLAN_PROXY")? != 0,
            // Flags without a value; addresses that are told only where there is one.
            IFLA_VXLAN_GROUP6
            | IFLA_VXLAN_LOCAL6
            | IFLA_VXLAN_GBP
            | IFLA_VXLAN_REMCSUM_NOPARTIAL
            | IFLA_VXLAN_GPE => tunnel.is_special = true,
            kind => tunnel.is_special |= kind > IFLA_VXLAN_LAST,
        }
    }
    Ok(tunnel.of(TunnelKind::Vxlan {
        vni,
        port,
        sports,
        learns,
        checksum,
        ttl_inner,
    }))
}

/// As an example of what makes a tunnel special, it has a mark, or answers for neighbours.
pub(super) fn encode(b: &mut Builder, tunnel: &Tunnel) {
    match tunnel.kind {
        TunnelKind::Ipip => encode_ip(b, tunnel, IPPROTO_IPIP),
        TunnelKind::Sit => encode_ip(b, tunnel, IPPROTO_IPV6),
        TunnelKind::Gre { ikey, okey } => encode_gre(b, tunnel, [ikey, okey]),
        TunnelKind::Vxlan {
            vni,
            port,
            sports: (low, high),
            learns,
            checksum,
            ttl_inner,
        } => {
            encode_vxlan(b, tunnel);
            b.put_u32(IFLA_VXLAN_ID, vni)
                .put(IFLA_VXLAN_PORT, &port.to_be_bytes())
                .put(
                    IFLA_VXLAN_PORT_RANGE,
                    &[low, high].map(u16::to_be_bytes).concat(),
                )
                .put_u8(IFLA_VXLAN_LEARNING, learns.into())
                .put_u8(IFLA_VXLAN_UDP_CSUM, checksum.into())
                .put_u8(IFLA_VXLAN_TTL_INHERIT, ttl_inner.into());
        }
    }
}

fn octets(address: Option<Ipv4Addr>) -> [u8; 4] {
    address.map_or([0; 4], |address| address.octets())
}

fn encode_ip(b: &mut Builder, tunnel: &Tunnel, carries: u8) {
    b.put_u32(IFLA_IPTUN_LINK, tunnel.link)
        .put(IFLA_IPTUN_LOCAL, &octets(tunnel.local))
        .put(IFLA_IPTUN_REMOTE, &octets(tunnel.remote))
        .put_u8(IFLA_IPTUN_TTL, tunnel.ttl)
        .put_u8(IFLA_IPTUN_TOS, tunnel.tos)
        .put_u8(IFLA_IPTUN_PROTO, carries)
        .put_u8(IFLA_IPTUN_PMTUDISC, (tunnel.df == TunnelDf::Set).into());
    if tunnel.is_special {
        b.put_u32(IFLA_IPTUN_FWMARK, 1);
    }
}

fn encode_gre(b: &mut Builder, tunnel: &Tunnel, keys: [Option<u32>; 2]) {
    let [iflags, oflags] = keys.map(|key| key.map_or(0, |_| GRE_KEY).to_be_bytes());
    let [ikey, okey] = keys.map(|key| key.unwrap_or(0).to_be_bytes());
    b.put_u32(IFLA_GRE_LINK, tunnel.link)
        .put(IFLA_GRE_IFLAGS, &iflags)
        .put(IFLA_GRE_OFLAGS, &oflags)
        .put(IFLA_GRE_IKEY, &ikey)
        .put(IFLA_GRE_OKEY, &okey)
        .put(IFLA_GRE_LOCAL, &octets(tunnel.local))
        .put(IFLA_GRE_REMOTE, &octets(tunnel.remote))
        .put_u8(IFLA_GRE_TTL, tunnel.ttl)
        .put_u8(IFLA_GRE_TOS, tunnel.tos)
        .put_u8(IFLA_GRE_PMTUDISC, (tunnel.df == TunnelDf::Set).into())
        .put_u8(IFLA_GRE_IGNORE_DF, (tunnel.df == TunnelDf::Unset).into());
    if tunnel.is_special {
        b.put_u32(IFLA_GRE_FWMARK, 1);
    }
}

fn encode_vxlan(b: &mut Builder, tunnel: &Tunnel) {
    // The kernel tells the addresses only where there are any.
    for (kind, address) in [
        (IFLA_VXLAN_GROUP, tunnel.remote),
        (IFLA_VXLAN_LOCAL, tunnel.local),
    ] {
        if let Some(address) = address {
            b.put(kind, &address.octets());
        }
    }
    let df = match tunnel.df {
        TunnelDf::Unset => 0,
        TunnelDf::Set => 1,
        TunnelDf::Inner => 2,
    };
    b.put_u32(IFLA_VXLAN_LINK, tunnel.link)
        .put_u8(IFLA_VXLAN_TTL, tunnel.ttl)
        .put_u8(IFLA_VXLAN_TOS, tunnel.tos)
        .put_u8(IFLA_VXLAN_DF, df);
    if tunnel.is_special {
        b.put_u8(IFLA_VXLAN_PROXY, 1);
    }
}

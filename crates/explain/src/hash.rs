//! Steps 5 to 8: what is hashed, and the hash.

use raddle_image::Reason;
use raddle_packet::protocol::{self, ports_offset};
use raddle_packet::{Stop, dissect};
use raddle_rib::MpAlgo;
use raddle_select::{
    Brings, Brought, Explanation, Field, Giver, HashConfig, HashKey, HashedKey, Input,
    KernelVersion, KeyError, KeyKind, Part, Policy, Seed, explain_flow, explain_packet,
    explain_plain_packet,
};
use serde_json::{Value, json};

use super::confidence::{Confidence, l4_hash_doubts};
use super::packet::Packet;
use super::steps::Walk;

impl Walk<'_> {
    /// Steps 5 to 8.
    pub(super) fn hash(&mut self) -> Result<u32, Reason> {
        let settings = self.view.rib.settings();
        let (number, fields) = match self.is_v4() {
            true => (settings.hash_policy4, settings.hash_fields4),
            false => (settings.hash_policy6, settings.hash_fields6),
        };
        let family = self.by_family("ipv4", "ipv6");
        let sysctl = format!("net.{family}.fib_multipath_hash_policy");
        let function = self.by_family("fib_multipath_hash", "rt6_multipath_hash");
        let Some(config) = HashConfig::kernel(number, fields) else {
            let text = format!("{number} ({sysctl}): not modelled, to the kernel");
            self.add(5, "policy", function, text, json!({ "policy": number }));
            return Err(Reason::HashPolicy);
        };
        let mut text = format!("{number}, {} ({sysctl})", config.policy);
        let mut data = json!({ "policy": number });
        let mut config = config;
        if let Some(
            algo @ MpAlgo::Hash {
                policy,
                icmp_follows_flow,
            },
        ) = self.algo
        {
            config.policy = policy;
            config.icmp_follows_flow = icmp_follows_flow;
            text = format!(
                "{}, {policy} (mp-algo {algo}, in place of {sysctl}): not the kernel's choice",
                policy as u8
            );
            data = json!({ "policy": policy as u8, "mp_algo": algo.to_string() });
        }
        if config.policy == Policy::Custom {
            text += &format!(", fields {fields:#x} (net.{family}.fib_multipath_hash_fields)");
            data["hash_fields"] = fields.into();
        }
        self.add(5, "policy", function, text, data);
        if config.policy == Policy::L4
            && self.algo.is_none()
            && !self.passes_over_brought()
            && let Some(hash31) = self.brought(&config)
        {
            return Ok(hash31);
        }
        let function = "fib_multipath_hash_from_keys";
        let kind = self.view.rib.key_kind();
        let Some(key) = self.view.rib.hash_key() else {
            let text = self.no_key();
            let data = json!({ "seed": null, "key": kind.name() });
            self.add(7, "seed", function, text, data);
            return Err(Reason::SeedUnknown);
        };
        self.unnamed(&config);
        let hashed = self.hashed(&config, key)?;
        self.fields(&hashed);
        self.hash_doubts(&hashed);
        let (text, data) = match kind {
            KeyKind::Seed => (
                format!("{} (net.ipv4.fib_multipath_hash_seed)", settings.hash_seed),
                json!({ "seed": settings.hash_seed, "key": kind.name() }),
            ),
            _ if self.is_secret() => (
                "none is set: the kernel's own key, which is not shown (--show-key)".to_owned(),
                json!({ "seed": null, "key": kind.name() }),
            ),
            _ => {
                let shown = key.words().map(|word| format!("{word:#018x}"));
                // From Linux 6.11 on a seed is all of it.
                let seed = Seed::new(key.number()).filter(|seed| key == (*seed).into());
                let what = match seed {
                    Some(seed) => format!("seed {}", seed.get()),
                    None => format!("key, {}", shown.join(" ")),
                };
                (
                    format!("none is set: the kernel's own {what}"),
                    json!({ "seed": seed.map(Seed::get), "key": kind.name(), "words": shown }),
                )
            }
        };
        self.add(7, "seed", function, text, data);
        self.sum(&hashed);
        Ok(hashed.hash31)
    }

    /// Whether the packet brings a hash over ports, or may do so, that raddle, which runs here, does not choose by: it cannot read
    /// the kernel's, and reads a NIC's where the driver lets it.
    fn passes_over_brought(&mut self) -> bool {
        let name = self.words.iif.as_deref().unwrap_or_default();
        let Some(link) = self
            .view
            .rib
            .link_named(name)
            .filter(|_| !self.view.kernel_alone)
        else {
            return false;
        };
        let marks = self.view.around.marks(link);
        let reads = match (marks.ours, self.of_brings(&marks.brings(link))) {
            (Some(reads), Brought::Hash { giver, .. }) => reads && giver == Giver::Nic,
            (Some(reads), Brought::Unknown(_)) => reads,
            _ => return false,
        };
        self.passed_over |= !reads;
        !reads
    }

    /// Steps 6 to 8 of a packet that brings a hash over ports; none of one that does not, or may not.
    fn brought(&mut self, config: &HashConfig) -> Option<u32> {
        let iif = self.words.iif.as_deref()?;
        let link = self.view.rib.link_named(iif)?;
        let marks = self.view.around.marks(link);
        let brought = self.of_brings(&marks.brings(link));
        let Brought::Hash { hash, giver } = brought else {
            return None;
        };
        self.giver = Some(giver);
        self.unnamed(config);
        l4_hash_doubts(
            link,
            &marks,
            brought,
            (true, true),
            "policy 1",
            &mut self.confidence,
        );
        let mut doubts = Confidence::default();
        self.brought_doubts(giver, &mut doubts);
        self.confidence.merge(&doubts);
        let function = self.by_family("fib_multipath_hash", "rt6_multipath_hash");
        let text = "not looked at: the packet brings a hash over ports, and policy 1 takes that in place of seed and fields";
        let by = match giver {
            Giver::Nic => "nic",
            Giver::Kernel => "kernel",
        };
        let data = json!({ "input": "brought", "by": by });
        self.add(6, "fields", function, text.to_owned(), data);
        let hash31 = hash >> 1;
        let whose = match giver {
            Giver::Nic => format!(
                "of the NIC of {iif}: Toeplitz of addresses and ports by its key (ethtool -x {iif})"
            ),
            Giver::Kernel => format!(
                "of the kernel, for receive packet steering at {iif}: SipHash-2-4 of addresses, ports or flow label, protocol and \
                 EtherType by its own key"
            ),
        };
        let (text, data) = match self.is_secret() {
            true => (
                format!("{whose}, not shown (--show-key)"),
                json!({ "by": by }),
            ),
            false => (
                format!("{whose}, {hash:#010x}, without the lowest bit {hash31}"),
                json!({ "by": by, "hash32": hash, "hash31": hash31 }),
            ),
        };
        let function = match giver {
            Giver::Nic => "skb_set_hash",
            Giver::Kernel => "__skb_get_hash",
        };
        self.add(8, "hash", function, text, data);
        Some(hash31)
    }

    /// What makes a hash that the packet brings another one.
    pub(super) fn brought_doubts(&self, giver: Giver, confidence: &mut Confidence) {
        self.cut_off(confidence);
        if giver == Giver::Nic {
            return;
        }
        self.dissector_doubts(confidence);
        if self.packet.is_none() && !self.is_v4() && self.words.flow_label == 0 {
            confidence.unless(
                "its packets have a flow label (flowlabel), as those of most IPv6 senders: the kernel hashes that in place of \
                 the ports",
            );
        }
    }

    /// What the packet, or one of the flow, brings along.
    pub(super) fn of_brings(&self, brings: &Brings) -> Brought {
        if brings.is_nothing() {
            return Brought::Nothing;
        }
        if self.look_up > 1 {
            return Brought::Unknown(
                "what comes out of a SID keeps the hash of the packet that came in, or none",
            );
        }
        match (self.packet, self.words.flow()) {
            (Some(packet), _) if packet.vlan.is_some() && brings.software.is_some() => {
                Brought::Unknown("the kernel hashes its VLAN tag, too")
            }
            (Some(packet), _) => brings.of_packet(packet.family, &packet.l3),
            (None, Some(flow)) => brings.of_flow(&flow),
            (None, None) => Brought::Nothing,
        }
    }

    /// Whether hashes are to be kept back: one of them gives a key of 32 bits away.
    pub(super) fn is_secret(&self) -> bool {
        let told = match self.giver {
            Some(Giver::Nic) => true,
            Some(Giver::Kernel) => false,
            None => self.view.rib.key_kind() != KeyKind::Kernel,
        };
        !told && !self.view.around.show_key
    }

    /// A hash, or words for one that is kept back.
    pub(super) fn shown(&self, hash31: u32) -> String {
        match self.is_secret() {
            true => "the hash".to_owned(),
            false => hash31.to_string(),
        }
    }

    /// Why there is no key to hash with.
    fn no_key(&self) -> String {
        let around = self.view.around;
        let why = match (&around.no_key, around.is_live()) {
            (Some(why), _) => format!("unknown: no seed is set, and {why}"),
            (None, true) => {
                "unknown: no seed is set, and the kernel's own key has not been read".to_owned()
            }
            (None, false) => {
                "unknown: no seed was set, and the kernel's own key is in no snapshot".to_owned()
            }
        };
        match KernelVersion::may_have_hash_seed(around.kernel) {
            true => why,
            false => format!("{why}; this kernel {}", KernelVersion::WITHOUT_HASH_SEED),
        }
    }

    /// What a packet of the flow would have and nobody has named, and is hashed as 0.
    fn unnamed(&mut self, config: &HashConfig) {
        if self.is_local() || self.packet.is_some() {
            return;
        }
        if self.words.src.is_unspecified() {
            self.confidence
                .unknown("no source address was named (from), and it is hashed");
        }
        if config.policy == Policy::L4 && self.words.proto == 0 {
            self.confidence.unknown(
                "no protocol and ports were named (ipproto, sport, dport), and they are hashed",
            );
        } else if config.policy == Policy::L4
            && let Some(at) = ports_offset(self.words.proto)
            && (self.words.sport == 0 || self.words.dport == 0)
        {
            let what = match (self.words.proto, at) {
                (protocol::ESP | protocol::AH, _) => {
                    "no packet was named (--pcap, --hex), and its SPI is hashed"
                }
                _ => "not both ports were named (sport, dport), and they are hashed",
            };
            self.confidence.unknown(what);
        }
    }

    /// A flow that comes in is a router's, and policies 2 and 3 tell packets from sockets' questions.
    fn hashed(&self, config: &HashConfig, key: HashKey) -> Result<Explanation, Reason> {
        if let Some(packet) = self.packet {
            let hashed = explain_packet(config, key, packet.family, &packet.l3);
            return hashed.map_err(|error| match error {
                KeyError::NoHeader { .. } => Reason::BadHeader,
                KeyError::NoAddresses => Reason::HashPolicy,
            });
        }
        let flow = self.words.flow().ok_or(Reason::HashPolicy)?;
        Ok(match self.is_local() {
            false => explain_plain_packet(config, key, &flow),
            true => explain_flow(config, key, &flow),
        })
    }

    /// Step 6.
    fn fields(&mut self, hashed: &Explanation) {
        // Policies 2 and 3 take the label from the dissector, in host order, but for sockets.
        let dissected = matches!(hashed.policy, Policy::Inner | Policy::Custom);
        let loaded = self.is_local() || !dissected;
        let texts: Vec<String> = hashed
            .keys
            .iter()
            .map(|key| key_text(key, loaded))
            .collect();
        let text = match texts.is_empty() {
            true => "none of this flow".to_owned(),
            false => texts.join("; and "),
        };
        let mut data = hashed.keys.first().map_or(json!({}), key_json);
        if let [_, inner] = hashed.keys.as_slice() {
            data["inner"] = key_json(inner);
        }
        data["input"] = json!(hashed.input);
        let mut details = Vec::new();
        if let Some(packet) = self.packet {
            let rules = key_rules(hashed);
            data["rule"] = json!(rules.first().map(|(rule, _)| rule));
            for (rule, name) in rules {
                let policy = hashed.policy as u8;
                details.push(format!("rule {rule} of policy {policy}: {name}"));
            }
            details.extend(why_key(packet, hashed));
        }
        let bytes = hashed.keys.iter().map(bytes_text);
        details.extend(bytes.map(|bytes| format!("hashed bytes {bytes}")));
        let function = match hashed.input {
            Input::Dissected => "__skb_flow_dissect",
            Input::Outer | Input::IcmpInner => {
                self.by_family("ip_multipath_l3_keys", "ip6_multipath_l3_keys")
            }
            Input::Flow => self.by_family("fib_multipath_hash", "rt6_multipath_hash"),
        };
        self.add(6, "fields", function, text, data).details = details;
    }

    /// Step 8.
    fn sum(&mut self, hashed: &Explanation) {
        let function = "__flow_hash_from_keys";
        if self.is_secret() {
            let text = "SipHash-2-4 of the fields, not shown: it would give the kernel's own key away \
                        (--show-key)";
            let data = json!({ "combined": hashed.combined });
            self.add(8, "hash", function, text.to_owned(), data);
            return;
        }
        let of_keys: Vec<String> = hashed
            .keys
            .iter()
            .map(|key| {
                format!(
                    "SipHash-2-4 {:#018x}, low 32 bits {:#010x}",
                    key.hash64, key.hash32
                )
            })
            .collect();
        let mut text = of_keys.join("; ");
        if hashed.combined {
            text += &format!("; hashed again (jhash_2words) {:#010x}", hashed.hash32);
        } else if hashed.keys.is_empty() {
            text = "no field is hashed: 0".to_owned();
        }
        text += &format!(", without the lowest bit {}", hashed.hash31);
        let hash64 = |key: &HashedKey| format!("{:#018x}", key.hash64);
        let data = json!({
            "hash64": hashed.keys.first().map(hash64),
            "combined": hashed.combined,
            "hash32": hashed.hash32,
            "hash31": hashed.hash31,
        });
        self.add(8, "hash", function, text, data);
    }

    /// What makes the kernel hash something else.
    fn hash_doubts(&mut self, hashed: &Explanation) {
        if self.is_local() {
            let ports = |key: &HashedKey| key.fields.contains(&Field::SrcPort);
            let label = |key: &HashedKey| key.fields.contains(&Field::FlowLabel);
            return self
                .local_hash_doubts(hashed.keys.iter().any(ports), hashed.keys.iter().any(label));
        }
        let proto = hashed.keys.first().map_or(0, |key| key.key.ip_proto);
        let iif = self.words.iif.as_deref().unwrap_or_default();
        // Routes with an mp-algo never look at it.
        if matches!(hashed.policy, Policy::L4)
            && self.algo.is_none()
            && let Some(link) = self.view.rib.link_named(iif)
        {
            let marks = self.view.around.marks(link);
            let ports = ports_offset(proto).is_some();
            let brought = self.of_brings(&marks.brings(link));
            let steerable = self.is_steerable();
            // What raddle itself passes over is no doubt about it.
            if !self.passed_over {
                l4_hash_doubts(
                    link,
                    &marks,
                    brought,
                    (ports, steerable),
                    "policy 1",
                    &mut self.confidence,
                );
            }
        }
        let mut doubts = Confidence::default();
        self.cut_off(&mut doubts);
        if hashed.policy != Policy::L3 {
            self.dissector_doubts(&mut doubts);
        }
        self.confidence.merge(&doubts);
    }

    /// Whether the kernel gives the packet a hash over ports where it steers it, whatever its key.
    pub(super) fn is_steerable(&self) -> bool {
        let by_any_key = Brings {
            nic: None,
            software: Some(HashKey::new(0, 0)),
        };
        self.of_brings(&by_any_key) != Brought::Nothing
    }

    /// The capture may have cut off what is hashed.
    pub(super) fn cut_off(&self, confidence: &mut Confidence) {
        if let Some(packet) = self.packet.filter(|packet| packet.missing > 0) {
            confidence.unless(format!(
                "what the capture cut off matters ({} bytes)",
                packet.missing
            ));
        }
    }

    /// A BPF program may dissect in place of the kernel.
    pub(super) fn dissector_doubts(&self, confidence: &mut Confidence) {
        match self.view.around.dissector() {
            Some(true) => confidence.unknown(
                "a BPF flow dissector is attached to the network namespace: it says what the \
                 fields are",
            ),
            None if self.view.around.is_live() => confidence.unless(
                "a BPF flow dissector is attached to the network namespace (only root may ask)",
            ),
            Some(false) | None => {}
        }
    }
}

/// The fields of a key with their values, and what was swapped. The key has the flow label in the byte
/// order that its policy hashes; `loaded` says that this is the order of the packet.
fn key_text(hashed: &HashedKey, loaded: bool) -> String {
    let key = &hashed.key;
    let (src, dst) = key.addresses.ends();
    let has = |field| hashed.fields.contains(&field);
    let both = |a, b, values: [String; 2]| match (has(a), has(b)) {
        (true, true) => Some(values.join(" and ")),
        (true, false) => Some(values[0].clone()),
        (false, true) => Some(values[1].clone()),
        (false, false) => None,
    };
    let mut parts = Vec::new();
    parts.extend(both(
        Field::SrcIp,
        Field::DstIp,
        [src.to_string(), dst.to_string()],
    ));
    if has(Field::IpProto) {
        let name = if src.is_ipv4() || has(Field::SrcPort) {
            "protocol"
        } else {
            "next header"
        };
        parts.push(format!("{name} {}", key.ip_proto));
    }
    let ports = [key.sport.to_string(), key.dport.to_string()];
    let plural = has(Field::SrcPort) && has(Field::DstPort);
    let name = if plural { "ports" } else { "port" };
    parts.extend(both(Field::SrcPort, Field::DstPort, ports).map(|p| format!("{name} {p}")));
    if has(Field::FlowLabel) {
        let word = key.flow_label_word;
        let label = if loaded { word.swap_bytes() } else { word };
        parts.push(format!("flow label {label:#x}"));
    }
    let swapped = match (hashed.addresses_swapped, hashed.ports_swapped) {
        (false, false) => "in the order of the packet",
        (true, false) => "addresses swapped",
        (false, true) => "ports swapped",
        (true, true) => "addresses and ports swapped",
    };
    let of = match hashed.of {
        Part::Packet => "",
        Part::Innermost => "of the innermost packet ",
    };
    format!("{of}{}; {swapped}", parts.join(", "))
}

fn bytes_text(hashed: &HashedKey) -> String {
    hashed.bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn key_json(hashed: &HashedKey) -> Value {
    json!({
        "fields": hashed.fields,
        "addresses_swapped": hashed.addresses_swapped,
        "ports_swapped": hashed.ports_swapped,
        "bytes": bytes_text(hashed),
    })
}

/// The numbers and the names of the rules of [`raddle_select::keys_of_packet`] that gave the keys.
fn key_rules(hashed: &Explanation) -> Vec<(u8, &'static str)> {
    let name = |key: &HashedKey| match (hashed.policy, key.rule) {
        (Policy::Custom, 1) => "selected fields of the packet, up to a packet inside",
        (Policy::Custom, _) => "selected fields of the innermost packet",
        (_, 2) => "the header of the packet that the ICMP error is about",
        (Policy::L4, _) => "as the flow dissector finds them, up to a packet inside",
        (Policy::Inner, _) => "as the flow dissector finds them in the innermost packet",
        (Policy::L3, _) => "the packet's own header",
    };
    let keys = hashed.keys.iter();
    keys.map(|key| (key.rule, name(key))).collect()
}

/// Why a packet's key is what it is, where that is not plain.
fn why_key(packet: &Packet, hashed: &Explanation) -> Option<String> {
    let policy = hashed.policy as u8;
    let seen = dissect(&packet.l3, packet.family, Stop::AtEncap);
    let proto = seen.ip_proto;
    let why = match (packet.icmp_error(), hashed.input) {
        (Some(kind), Input::IcmpInner) => format!(
            "ICMP type {kind} is an error and holds that header whole, so it takes the path of \
             that packet's flow, whichever way it went"
        ),
        (Some(kind), Input::Outer) => format!(
            "ICMP type {kind} is an error, but it is a later fragment or too short to hold the \
             header of the packet that it is about"
        ),
        (Some(_), _) => format!(
            "policy {policy} does not look into ICMP errors: protocol and addresses are their \
             own, and their path need not be that of the flow that they are about (policy 0 keeps \
             them together)"
        ),
        (None, _) if policy == 0 => return None,
        (None, _) if seen.fragment => {
            "a fragment: no ports, not even of the first one, so that all take one path".to_owned()
        }
        (None, _) if seen.encapsulated && hashed.policy == Policy::L4 => {
            format!("protocol {proto} carries a packet: policy 1 stops in front of it, ports are 0")
        }
        (None, _) if seen.encapsulated && hashed.policy == Policy::Inner => {
            format!("protocol {proto} carries a packet: that one counts, the outer one does not")
        }
        (None, _) if matches!(proto, 50 | 51) && hashed.policy != Policy::Inner => {
            "the security parameter index stands for the ports".to_owned()
        }
        (None, _) => return None,
    };
    Some(why)
}

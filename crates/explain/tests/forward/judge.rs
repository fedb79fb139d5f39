//! What it is for an answer to be what the engine did.

use std::net::IpAddr;

use raddle_explain::{Answer, Engine, Level, What};
use raddle_forward::Verdict;
use raddle_image::Reason;

/// What the engine did with a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) verdict: Verdict,
    /// The neighbour that it was sent to.
    pub(crate) via: Option<IpAddr>,
}

impl Seen {
    pub(crate) fn name(&self) -> String {
        match self.verdict {
            Verdict::Forward { .. } => "forwarded".to_owned(),
            Verdict::Kernel(reason) => format!("punted: {reason}"),
            Verdict::Drop(reason) if reason.is_drop() => format!("dropped: {reason}"),
            Verdict::Drop(_) => "dropped, as raddle's own".to_owned(),
        }
    }
}

/// What has to be met. Not met are `not-enabled` and `held` (all links are, and no daemon holds the image), `image-full`,
/// `deep-headers` and `redirect-failed` (the XDP engine's), `headroom` (there is room), `bucket-activity` (asked again) and
/// `hmac-check` (headers that the generator seldom draws).
pub(crate) const REACHED: [&str; 45] = [
    "forwarded",
    "dropped, as raddle's own",
    "dropped: blackhole",
    "dropped: no-srh",
    "dropped: segments-left",
    "dropped: bad-srh",
    "dropped: hmac",
    "dropped: payload",
    "dropped: segment-link",
    "punted: not-ip",
    "punted: vlan",
    "punted: other-mac",
    "punted: truncated",
    "punted: bad-header",
    "punted: bad-checksum",
    "punted: bad-length",
    "punted: options",
    "punted: ttl-exceeded",
    "punted: martian-source",
    "punted: martian-destination",
    "punted: local-source",
    "punted: rp-filter",
    "punted: forwarding-off",
    "punted: local",
    "punted: broadcast",
    "punted: multicast",
    "punted: anycast",
    "punted: link-local",
    "punted: no-route",
    "punted: unreachable",
    "punted: prohibit",
    "punted: throw",
    "punted: unresolved",
    "punted: out-link",
    "punted: same-link",
    "punted: mtu",
    "punted: seed-unknown",
    "punted: hash-policy",
    "punted: rules",
    "punted: encap",
    "punted: route-feature",
    "punted: resilient",
    "punted: sid-chain",
    "punted: source-check",
    "punted: expiring",
];

/// Doubts that an answer may have about a packet that the engine forwards: each is about what the engine does not see
/// either, or about the kernel in its place.
const DOUBTS: [&str; 5] = [
    "policy 1 takes that in place of the fields",
    "the kernel has learnt a path MTU below",
    "ignore_routes_with_linkdown was changed",
    "raddle does not forward it",
    "the kernel encapsulates it",
];

/// Holds an answer against what the engine did. `spread` is whether routes are spread otherwise than by the kernel.
///
/// 1. `engine` says what it did: forwarded by the same link to the same neighbour, punted or dropped for the same
///    reason. Where packets are spread round robin, nobody knows which member, and the answer says that.
/// 2. What is forwarded leaves by that link for that neighbour; nothing that the engine could know is in doubt.
/// 3. What is dropped is dropped for that reason.
/// 4. What is punted, and leaves by a link, leaves by the kernel for that reason. What does not leave ends for that
///    reason, or for one that engines look at later: they do not look at everything in the kernel's order. Where routes
///    are spread otherwise, the kernel may choose another nexthop, and another end.
/// 5. Each end has the numbers of its rules.
/// 6. A member is chosen by the rule that its number says.
pub(crate) fn judge(seen: &Seen, answer: &Answer, spread: bool) -> Result<(), String> {
    let engine = answer
        .engine
        .as_ref()
        .ok_or("it does not say what the engine does")?;
    let fate = answer
        .fate
        .as_ref()
        .ok_or("it does not say what becomes of it")?;
    if answer
        .confidence
        .why
        .iter()
        .any(|why| why.contains("please report"))
    {
        return Err("it does not agree with itself".to_owned());
    }
    let same = match (seen.verdict, engine) {
        (verdict, Engine::RoundRobin) => {
            let unknown = answer.confidence.level == Level::Unknown;
            return match (answer.reason, unknown, may_be_a_turn(verdict)) {
                (Some("round-robin"), true, true) => Ok(()),
                _ => Err("it is no round robin".to_owned()),
            };
        }
        (Verdict::Forward { index, .. }, Engine::Forward { link, via }) => {
            *link == format!("l{index}") && *via == seen.via
        }
        (Verdict::Kernel(ours), Engine::Punt { reason }) => ours == *reason,
        (Verdict::Drop(ours), Engine::Drop { reason }) => ours == *reason,
        _ => false,
    };
    if !same {
        return Err("the engine does something else".to_owned());
    }
    members(answer)?;
    segments(answer)?;
    let cause = answer.reason.and_then(named);
    let ends = answer.link.is_none();
    match seen.verdict {
        Verdict::Forward { index, .. } => {
            let link = answer.link.as_deref() == Some(&format!("l{index}"));
            let via = answer.via == seen.via.map(|via| via.to_string());
            if (fate.what, link, via, answer.reason) != (What::Forwarded, true, true, None) {
                return Err("it is forwarded".to_owned());
            }
            let known = |why: &String| DOUBTS.iter().any(|doubt| why.contains(doubt));
            match answer.confidence.level {
                Level::Unknown => Err("it is known".to_owned()),
                _ if !answer.confidence.why.iter().all(known) => Err("it is certain".to_owned()),
                _ => Ok(()),
            }
        }
        Verdict::Drop(reason) => match (fate.what, ends, cause) {
            (What::Dropped, true, Some(said)) if said == reason => Ok(()),
            _ => Err(format!("it is dropped: {reason}")),
        },
        Verdict::Kernel(reason) => match (ends, cause) {
            (_, Some(said)) if said == reason => rule(answer, said),
            (true, Some(said)) if spread || steps_of(reason).0 <= steps_of(said).1 => {
                rule(answer, said)
            }
            _ => Err(format!("it is punted: {reason}")),
        },
    }
}

/// Whether a verdict may come from the member whose turn it is: of the engine's next packet, it may be any.
fn may_be_a_turn(verdict: Verdict) -> bool {
    !matches!(
        verdict,
        Verdict::Kernel(Reason::Vlan | Reason::NotIp | Reason::OtherMac | Reason::RpFilter)
    )
}

fn named(name: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name)
}

/// When engines look at what gives this reason: the first and the last step of the pipeline that does. Group, and
/// address, may be the reason for some; behind a segment most look again.
fn steps_of(reason: Reason) -> (u8, u8) {
    use Reason::*;
    const GROUP: u8 = 19;
    const ADJACENCY: u8 = 22;
    match reason {
        NotIp | Vlan => (4, 4),
        OtherMac => (5, 5),
        Truncated | BadHeader | Options => (11, 11),
        BadChecksum => (12, 12),
        BadLength => (13, 13),
        ForwardingOff | Rules => (14, 14),
        MartianSource | MartianDestination | LinkLocal => (15, 15),
        Multicast | Broadcast => (15, GROUP),
        LocalSource | SourceCheck => (17, 17),
        // At once where an engine does not see the way back.
        RpFilter => (14, 18),
        Local | Anycast | NoRoute | Unreachable | Prohibit | Throw | Blackhole | Encap
        | RouteFeature | Resilient | ImageFull | Expiring => (GROUP, GROUP),
        OutLink | Unresolved => (GROUP, ADJACENCY),
        TtlExceeded => (20, 20),
        SeedUnknown | HashPolicy => (21, 21),
        SameLink | Mtu => (ADJACENCY, ADJACENCY),
        // Of segments.
        _ => (23, 23),
    }
}

/// The end of a packet has the number of a rule that gives this reason.
fn rule(answer: &Answer, reason: Reason) -> Result<(), String> {
    use Reason::*;
    let (Some(fate), true) = (&answer.fate, answer.link.is_none()) else {
        return Ok(());
    };
    if answer.steps.iter().any(|step| step.name == "segment") {
        return Ok(());
    }
    let rules: &[&str] = match reason {
        Truncated => &["K1", "K5"],
        Vlan => &["K2"],
        NotIp => &["K3"],
        OtherMac => &["K4", "K12"],
        BadHeader => &["K5"],
        BadChecksum => &["K6"],
        BadLength => &["K7"],
        Options => &["K8", "K11"],
        MartianSource | MartianDestination | Multicast => &["K8", "K10"],
        TtlExceeded => &["K13"],
        LinkLocal => &["K10", "K14"],
        Mtu => &["K15"],
        OutLink => &["K10", "K16"],
        _ => &["K10"],
    };
    match rules.contains(&fate.rule) {
        true => Ok(()),
        false => Err(format!("{} is not the rule of {reason}", fate.rule)),
    }
}

/// A segment that does not carry the packet on does so by a rule that gives its reason.
fn segments(answer: &Answer) -> Result<(), String> {
    for step in answer.steps.iter().filter(|step| step.name == "behaviour") {
        let Some(reason) = step.data["reason"].as_str() else {
            continue;
        };
        let rules: &[&str] = match reason {
            "no-srh" => &["S3.1", "S3.2", "S3.5", "S5.4"],
            "bad-srh" => &["S3.3", "S4.2", "S4.3", "S5.1"],
            "hmac" => &["S3.4", "S9.5"],
            "hmac-check" => &["S3.4"],
            "segments-left" => &["S6.2"],
            "payload" => &["S5.4", "S6.3", "S8.1", "S8.2"],
            "segment-link" => &["S8.3"],
            "mtu" | "headroom" => &["S9.5"],
            "encap" => &["S1.2", "S2.1", "S4.3", "S9.5"],
            "seed-unknown" | "hash-policy" => &["S9.3"],
            _ => &[],
        };
        let rule = step.data["rules"][0].as_str().unwrap_or_default();
        if !rules.contains(&rule) {
            return Err(format!("{rule} is not the rule of {reason}"));
        }
    }
    Ok(())
}

/// Step 9 against step 4 and step 8, by a linear look at the members.
fn members(answer: &Answer) -> Result<(), String> {
    let step = |look_up, number| {
        let mut steps = answer.steps.iter();
        steps.find(|step| (step.look_up, step.step) == (look_up, number))
    };
    for chosen in answer.steps.iter().filter(|step| step.step == 9) {
        let Some(rule) = chosen.data["rule"].as_u64() else {
            continue;
        };
        let group = step(chosen.look_up, 4).ok_or("a member of no group")?;
        let hash = step(chosen.look_up, 8).map_or(0, |hash| {
            let spread = &hash.data["spread"]["hash31"];
            spread
                .as_u64()
                .or(hash.data["hash31"].as_u64())
                .unwrap_or(0)
        });
        let members = group.data["members"].as_array().ok_or("no members")?;
        let bound = |i: usize| members[i]["upper_bound"].as_u64();
        let eligible = |i: usize| members[i]["eligible"] == true && bound(i).is_some();
        let mut all = 0..members.len();
        let wanted = match all
            .clone()
            .find(|i| eligible(*i) && bound(*i) >= Some(hash))
        {
            Some(first) => (first, 1),
            None => match all.clone().find(|i| eligible(*i)) {
                Some(first) => (first, 2),
                None => (all.find(|i| bound(*i).is_some()).unwrap_or(0), 3),
            },
        };
        let said = (chosen.data["member"].as_u64(), rule);
        if said != (Some(wanted.0 as u64), wanted.1) {
            return Err(format!("member and rule are {wanted:?}, not {said:?}"));
        }
    }
    Ok(())
}

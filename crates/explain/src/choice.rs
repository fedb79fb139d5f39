//! Steps 4 and 9: the members that there are, and the one that the hash chooses.

use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use raddle_rib::Hop;
use raddle_select::{Choice, bucket_of, choose_group, choose_plain};
use serde_json::{Value, json};

use super::confidence::{batch_doubt, version_doubt};
use super::steps::Walk;

impl Walk<'_> {
    pub(super) fn group(&mut self, hops: &[Hop], group: Option<u32>, scope: u8) {
        let what = match group {
            Some(id) => format!("nexthop group {id}"),
            None => "multipath route".to_owned(),
        };
        let text = format!("{what}, hash-threshold over {} nexthops", hops.len());
        let members: Vec<Value> = hops.iter().map(|hop| self.member_json(hop)).collect();
        let sources = self.member_sources(hops, group, scope);
        let details = hops
            .iter()
            .enumerate()
            .map(|(i, hop)| {
                self.member_line(i, hop, sources.get(i).copied().flatten(), &share(hop))
            })
            .collect();
        let data = json!({ "group": group, "type": "hash-threshold", "members": members });
        let function = match group {
            Some(_) => "nh_hthr_group_rebalance",
            None => self.by_family("fib_rebalance", "rt6_multipath_rebalance"),
        };
        self.add(4, "group", function, text, data).details = details;
        self.group_doubts(hops, group);
    }

    /// What makes the bounds other than they seem.
    fn group_doubts(&mut self, hops: &[Hop], group: Option<u32>) {
        if let Some(why) = version_doubt(self.view.around.kernel) {
            self.confidence.unless(why);
        }
        if !self.is_local()
            && let Some(why) = batch_doubt(self.view.around.kernel)
        {
            self.confidence.unless(why);
        }
        let rib = self.view.rib;
        let silent = |hop: &&Hop| {
            rib.link(hop.index)
                .is_some_and(|link| link.is_up() && !link.has_carrier())
        };
        if group.is_none()
            && let Some(hop) = hops.iter().find(silent)
        {
            let dev = self.link_name(hop.index);
            self.confidence.unless(format!(
                "ignore_routes_with_linkdown was changed since {dev} lost its carrier: the bounds \
                 then stay as they were until the next event of a link"
            ));
        }
    }

    pub(super) fn member_json(&self, hop: &Hop) -> Value {
        json!({
            "id": hop.object,
            "gateway": hop.gateway.map(|g| g.to_string()),
            "dev": self.link_name(hop.index),
            "weight": hop.weight,
            "upper_bound": hop.upper,
            "eligible": hop.eligible,
        })
    }

    fn member_line(&self, i: usize, hop: &Hop, source: Option<Ipv4Addr>, share: &str) -> String {
        let id = hop.object.map_or(String::new(), |id| format!("id {id} "));
        let via = hop.gateway.map_or(String::new(), |g| format!("via {g} "));
        let src = source.map_or(String::new(), |s| format!(" source {s}"));
        let (dev, weight) = (self.link_name(hop.index), hop.weight);
        // Raddle's own segment lists need no link.
        let out = match &hop.segment {
            Some(what) if hop.index == 0 => super::words::name_of(what),
            _ => format!("dev {dev}"),
        };
        format!("{i}: {id}{via}{out}{src} weight {weight}: {share}")
    }

    pub(super) fn resilient_group(&mut self, group: u32, hops: &[Hop], buckets: &[u16]) {
        let text = format!(
            "nexthop group {group}, resilient, {} buckets over {} nexthops",
            buckets.len(),
            hops.len()
        );
        let owned = |i: usize| buckets.iter().filter(|b| usize::from(**b) == i).count();
        let details = hops
            .iter()
            .enumerate()
            .map(|(i, hop)| self.member_line(i, hop, None, &format!("owns {} buckets", owned(i))))
            .collect();
        let members: Vec<Value> = hops.iter().map(|hop| self.member_json(hop)).collect();
        let data = json!({
            "group": group, "type": "resilient", "buckets": buckets.len(), "members": members,
        });
        self.add(4, "group", "nh_res_group_rebalance", text, data)
            .details = details;
        self.group_doubts(hops, Some(group));
    }

    /// Step 9 of a resilient group ([`bucket_of`]); none without a bucket.
    pub(super) fn bucket(&mut self, hops: &[Hop], buckets: &[u16], hash31: u32) -> Option<Hop> {
        let count = NonZeroU16::new(u16::try_from(buckets.len()).ok()?)?;
        let bucket = bucket_of(hash31, count);
        let index = usize::from(*buckets.get(usize::from(bucket))?);
        let hop = hops.get(index)?.clone();
        let (text, data) = match self.is_secret() {
            true => (
                format!("{index}: owns the bucket of the hash, one of {count}"),
                json!({ "member": index, "id": hop.object }),
            ),
            false => (
                format!("{index}: owns bucket {bucket} = {hash31} % {count}"),
                json!({ "member": index, "id": hop.object, "bucket": bucket }),
            ),
        };
        self.add(9, "member", "nexthop_select_path_res", text, data);
        Some(hop)
    }

    /// Step 9: by [`choose_group`], [`choose_plain`] or, of this machine's own packets, what
    /// [`Walk::local_member`] says. None where no member has a bound.
    pub(super) fn member(
        &mut self,
        hops: &[Hop],
        group: Option<u32>,
        scope: u8,
        hash31: u32,
    ) -> Option<Hop> {
        if self.is_local()
            && group.is_none()
            && let Some(hop) = self.local_member(hops, scope, hash31)
        {
            return Some(hop);
        }
        let choice = chosen(hops, group, hash31)?;
        let upper = hops[choice.member].upper.unwrap_or(0);
        let hash31 = self.shown(hash31);
        let why = match choice.rule {
            1 => format!("{hash31} <= {upper}, the first bound that holds"),
            2 => format!("no valid member's bound holds {hash31}, it is the first valid"),
            _ => "no member is valid, it is the first".to_owned(),
        };
        Some(self.taken(hops, group, choice, &why))
    }

    /// Step 9 where all hashes lead to one member, and so does the one that is not known.
    pub(super) fn only_member(&mut self, hops: &[Hop], group: Option<u32>) -> Option<Hop> {
        let choice = chosen(hops, group, 0)?;
        let why = match choice.rule {
            3 => "no member is valid, it is the first",
            _ => "the only one that can be chosen, whatever the hash",
        };
        Some(self.taken(hops, group, choice, why))
    }

    fn taken(&mut self, hops: &[Hop], group: Option<u32>, choice: Choice, why: &str) -> Hop {
        let Choice { member, rule } = choice;
        let hop = hops[member].clone();
        let function = match group {
            Some(_) => "nexthop_select_path_hthr",
            None => self.by_family("fib_select_multipath", "fib6_select_path"),
        };
        let data = json!({
            "member": member, "id": hop.object, "upper_bound": hop.upper, "rule": rule,
        });
        self.add(9, "member", function, format!("{member}: {why}"), data);
        hop
    }
}

/// The kernel's choice for a forwarded packet, and the rule of [`choose_group`] or [`choose_plain`] that made it.
fn chosen(hops: &[Hop], group: Option<u32>, hash31: u32) -> Option<Choice> {
    let good = |i: usize| hops[i].eligible;
    if group.is_none() {
        let uppers: Vec<_> = hops.iter().map(|hop| hop.upper).collect();
        return choose_plain(&uppers, good, hash31);
    }
    // Every member of a group has a bound; a snapshot may have some without a weight.
    let members = (0..).zip(hops);
    let bounded: Vec<(usize, u32)> = members
        .filter_map(|(i, hop)| Some((i, hop.upper?)))
        .collect();
    let uppers: Vec<u32> = bounded.iter().map(|(_, upper)| *upper).collect();
    let choice = choose_group(&uppers, |i| good(bounded[i].0), hash31)?;
    Some(Choice {
        member: bounded[choice.member].0,
        ..choice
    })
}

/// The share of the hash that a member of a hash-threshold group has.
fn share(hop: &Hop) -> String {
    match (hop.upper, hop.eligible) {
        (Some(upper), true) => format!("hash <= {upper}"),
        (Some(upper), false) => {
            format!("hash <= {upper}, passed over: its neighbour is not valid")
        }
        (None, _) => "no share: its link is down".to_owned(),
    }
}

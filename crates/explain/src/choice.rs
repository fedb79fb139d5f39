//! Steps 4 and 9: the members that there are, and the one that the hash chooses.

use std::net::Ipv4Addr;

use raddle_rib::Hop;
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

    /// Step 9 of a resilient group, which has a bucket at least.
    pub(super) fn bucket(&mut self, hops: &[Hop], buckets: &[u16], hash31: u32) -> Hop {
        let count = buckets.len();
        let bucket = hash31 as usize % count;
        let index = usize::from(buckets[bucket]);
        let hop = hops[index].clone();
        let text = format!("{index}: owns bucket {bucket} = {hash31} % {count}");
        let data = json!({ "member": index, "id": hop.object, "bucket": bucket });
        self.add(9, "member", "nexthop_select_path_res", text, data);
        hop
    }

    /// Step 9.
    pub(super) fn member(
        &mut self,
        hops: &[Hop],
        ranges: &[(u32, usize)],
        group: Option<u32>,
        scope: u8,
        hash31: u32,
    ) -> Hop {
        if self.is_local()
            && group.is_none()
            && let Some(hop) = self.local_member(hops, scope, hash31)
        {
            return hop;
        }
        // The last bound is the largest hash, so there is always one.
        let place = ranges
            .partition_point(|(upper, _)| *upper < hash31)
            .min(ranges.len() - 1);
        let index = ranges[place].1;
        let hop = hops[index].clone();
        let upper = hop.upper.unwrap_or(0);
        let rule = match hop.eligible {
            true if hash31 <= upper => 1,
            true => 2,
            false => 3,
        };
        let text = match rule {
            1 => format!("{index}: {hash31} <= {upper}, the first bound that holds"),
            2 => format!("{index}: no valid member's bound holds {hash31}, it is the first valid"),
            _ => format!("{index}: no member is valid, it is the first"),
        };
        let (model, function) = match group {
            Some(_) => ("choose_group", "nexthop_select_path_hthr"),
            None => (
                "choose_plain",
                self.by_family("fib_select_multipath", "fib6_select_path"),
            ),
        };
        let data = json!({
            "member": index, "id": hop.object, "upper_bound": upper,
            "rule": rule, "rules": model,
        });
        self.add(9, "member", function, text, data);
        hop
    }
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

//! What is printed, as text and JSON, for a router with faults of all severities.

use super::checks::made_up::*;
use super::*;
use raddle_select::KernelVersion;

fn faulty() -> Facts {
    let mut facts = multipath();
    facts.kernel = Some(KernelVersion::new(6, 18, 44));
    facts.links.get_mut(&2).unwrap().flags = 1;
    facts.devices.get_mut(&2).unwrap().ignore_linkdown4 = false;
    facts.settings.hash_seed = 0;
    facts.not_seen.insert(Need::Xdp, "may not ask".into());
    facts
        .not_seen
        .insert(Need::Namespaces, "may not enter".into());
    facts
}

fn checks(only: &[&str]) -> Vec<&'static Check> {
    let only: Vec<String> = only.iter().map(|id| (*id).to_owned()).collect();
    chosen(&only).unwrap()
}

const SOME: [&str; 4] = [
    "linkdown-weighted",
    "seed-unset",
    "objects-go-with-carrier",
    "xdp-loss",
];

#[test]
fn the_text_is_grouped_by_severity() {
    let answer = examine(&faulty(), &checks(&SOME));
    assert_eq!(text::render(&answer), include_str!("golden/faulty.txt"));
}

#[test]
fn the_json_has_the_same() {
    let answer = examine(&faulty(), &checks(&SOME));
    let value: serde_json::Value = serde_json::to_value(&answer).unwrap();
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("golden/faulty.json")).unwrap();
    assert_eq!(value, golden, "{value:#}");
}

#[test]
fn a_router_without_faults_has_two_lines() {
    let answer = examine(&healthy(), &checks(&[]));
    let expected = format!(
        "0 serious, 0 warnings, 0 notes\n{} checks on Linux 6.18.44, 3 links, 0 routes with several \
         paths\n",
        checks(&[]).len()
    );
    assert_eq!(text::render(&answer), expected);
}

#[test]
fn checks_are_chosen_by_name() {
    let names = |checks: Vec<&Check>| checks.iter().map(|c| c.id).collect::<Vec<_>>();
    // In the order in which they run, not in that of the names.
    assert_eq!(
        names(checks(&["seed-unset", "l3-policy"])),
        ["l3-policy", "seed-unset"]
    );
    let e = chosen(&["l3-policy".into(), "l4-policy".into()]).unwrap_err();
    assert!(e.to_string().contains("'l4-policy'") && e.to_string().contains("--list"));
}

#[test]
fn the_list_names_all() {
    let text = list(&checks(&[]));
    assert_eq!(text.lines().count(), checks(&[]).len());
    let value: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&checks(&SOME)).unwrap()).unwrap();
    assert_eq!(value[0]["id"], "seed-unset");
}

#[test]
fn what_was_not_seen_is_told_where_it_matters() {
    let mut facts = healthy();
    facts.not_seen.insert(Need::Kernel, "hidden".into());
    let answer = examine(&facts, &checks(&["l3-policy"]));
    assert!(answer.not_seen.is_empty());
    let answer = examine(&facts, &checks(&["l3-policy", "kernel-dst-hint"]));
    assert_eq!(answer.not_seen[0].checks, ["kernel-dst-hint"]);
}

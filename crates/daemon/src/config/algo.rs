//! `[[mp-algo]]`: routes that are spread otherwise than by the namespace's hash policy.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use raddle_config::{At, Spanned};
use raddle_rib::{AlgoError, AlgoRules, MpAlgo};
use serde::Deserialize;

/// How some routes are spread: those to destinations inside of a prefix, or by a nexthop group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlgoRule {
    /// Which routes.
    pub what: Target,
    /// How.
    pub algo: MpAlgo,
}

/// Which routes an [`AlgoRule`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Those to destinations inside of this prefix.
    Prefix(IpNet),
    /// Those by this nexthop group.
    Group(u32),
}

/// Why there is no such rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlgoRuleError {
    /// Neither of the two forms of an option.
    #[error("'{0}' is not PREFIX=ALGO or nhid:ID=ALGO")]
    Form(String),
    /// The id of a group is a number.
    #[error("'{0}' is not the id of a nexthop group")]
    Group(String),
    /// Not a prefix.
    #[error("'{0}' is not a prefix such as 10.9.0.0/16")]
    Prefix(String),
    /// A prefix with bits behind its length.
    #[error("'{0}' has bits beyond its length: use {trunc}", trunc = .0.trunc())]
    HostBits(IpNet),
    /// Both, or none.
    #[error("an mp-algo wants either a prefix or a group")]
    PrefixOrGroup,
    /// No such way to spread.
    #[error("{0}")]
    Algo(#[from] AlgoError),
}

/// An [`AlgoRule`] as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table of its own: [[mp-algo]] with prefix or group, and algo"
)]
pub(super) struct RawAlgoRule {
    prefix: Option<Spanned<String>>,
    group: Option<u32>,
    algo: MpAlgo,
}

impl AlgoRule {
    /// What a table of the file says.
    pub(super) fn of(raw: &Spanned<RawAlgoRule>) -> Result<AlgoRule, At<AlgoRuleError>> {
        let RawAlgoRule {
            prefix,
            group,
            algo,
        } = raw.get_ref();
        let what = match (prefix, *group) {
            (Some(text), None) => {
                let prefix = prefix_of(text.get_ref()).map_err(|e| At::new(text, e))?;
                Target::Prefix(prefix)
            }
            (None, Some(group)) => Target::Group(group),
            _ => return Err(At::new(raw, AlgoRuleError::PrefixOrGroup)),
        };
        Ok(AlgoRule { what, algo: *algo })
    }
}

fn prefix_of(text: &str) -> Result<IpNet, AlgoRuleError> {
    let prefix: IpNet = text
        .parse()
        .map_err(|_| AlgoRuleError::Prefix(text.to_owned()))?;
    match prefix.trunc() == prefix {
        true => Ok(prefix),
        false => Err(AlgoRuleError::HostBits(prefix)),
    }
}

impl FromStr for AlgoRule {
    type Err = AlgoRuleError;

    /// `PREFIX=ALGO` or `nhid:ID=ALGO`.
    fn from_str(text: &str) -> Result<AlgoRule, AlgoRuleError> {
        let (what, algo) = text
            .split_once('=')
            .ok_or_else(|| AlgoRuleError::Form(text.to_owned()))?;
        let what = match what.strip_prefix("nhid:") {
            Some(id) => {
                let number = id.parse();
                Target::Group(number.map_err(|_| AlgoRuleError::Group(id.to_owned()))?)
            }
            None => Target::Prefix(prefix_of(what)?),
        };
        let algo = algo.parse()?;
        Ok(AlgoRule { what, algo })
    }
}

impl fmt::Display for AlgoRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            Target::Prefix(prefix) => write!(f, "{prefix}={}", self.algo),
            Target::Group(id) => write!(f, "nhid:{id}={}", self.algo),
        }
    }
}

/// The rules as the mirror wants them; of two for one group the last counts.
pub fn algo_rules(list: &[AlgoRule]) -> AlgoRules {
    let mut rules = AlgoRules::default();
    for rule in list {
        match &rule.what {
            Target::Prefix(prefix) => rules.prefixes.push((*prefix, rule.algo)),
            Target::Group(id) => {
                rules.groups.insert(*id, rule.algo);
            }
        }
    }
    rules
}

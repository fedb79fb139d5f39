//! What has to be known of this machine before anything is attached.
use super::links::Plan;
use crate::config::Config;
use crate::error::Failure;
use raddle_rib::Rib;
use std::collections::BTreeMap;
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Finding {
    pub text: String,
}
impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}
#[derive(Default)]
pub(super) struct Survey {
    pub findings: Vec<Finding>,
    pub rejected: BTreeMap<String, String>,
    pub shaped: BTreeMap<String, String>,
}
impl Survey {
    pub(super) fn refusals(&self) -> Vec<Finding> {
        Vec::new()
    }
}
pub(super) fn survey(_r: &Rib, _c: &Config, _m: bool) -> Result<Survey, Failure> {
    Ok(Survey::default())
}
pub(super) fn bypass(_r: &Rib, _p: &Plan) -> Result<Vec<Finding>, Failure> {
    Ok(Vec::new())
}

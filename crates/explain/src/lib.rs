#![doc = include_str!("../README.md")]

mod answer;
mod around;
mod below;
#[cfg(test)]
mod below_test;
mod bond;
#[cfg(test)]
mod bond_test;
mod both;
mod choice;
mod confidence;
mod doubts;
#[cfg(test)]
mod doubts_test;
mod engine;
#[cfg(test)]
mod engine_test;
mod error;
mod fate;
mod flow;
mod hash;
mod image;
mod local;
mod made;
mod members;
mod onward;
mod options;
mod packet;
mod received;
mod refused;
#[cfg(test)]
mod resilient_test;
mod route;
mod seen;
mod segments;
#[cfg(test)]
mod segments_test;
mod sources;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod tunnel;
#[cfg(test)]
mod tunnel_test;
mod words;

pub use answer::{Answer, answer};
pub use around::{Machine, Marks, Surroundings};
pub use bond::OfBond;
pub use both::{Symmetry, both};
pub use confidence::{Confidence, Level};
pub use engine::Engine;
pub use error::Error;
pub use fate::{Fate, IcmpError, What};
pub use flow::{FlowWords, protocol_number};
pub use image::Images;
pub use made::Carried;
pub use members::{Sending, active_members, can_send, is_bond, parts, sending_members};
pub use packet::{Framing, Packet};
pub use segments::Outcome;
pub use sources::{hop_source, source_of};
pub use steps::{Names, Question, Step, View, link_name};
pub use text::render;

//! Which path flows and packets take, one by one or many at a time.

use raddle_packet::Family;
use raddle_select::{
    Brings, Flow, HashConfig, HashKey, Hasher, KeyError, Keys, Policy, Seed, keys_of_flow,
    keys_of_packet, keys_of_plain_packet,
};
use thiserror::Error;

use crate::layout::{Layout, Path};

/// Why hashes cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HashingError {
    /// There is no such policy.
    #[error(
        "there is no hash policy {0}: 0 is L3, 1 is L4, 2 is L3 of the innermost packet, 3 is custom"
    )]
    Policy(u8),
    /// No seed is set, and the kernel's own key is not known.
    #[error(
        "the hash key is unknown: no seed is set (net.ipv4.fib_multipath_hash_seed is 0), and the kernel's own key has not \
         been read, which needs root on the machine itself; from Linux 6.11 on, raddle key find finds it there without"
    )]
    SeedUnknown,
}

/// Who asks for a path: under policies 2 and 3 a router hashes otherwise than a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A socket of this machine; the flow is hashed as it is ([`keys_of_flow`]).
    Sender,
    /// A router; the flow's packets are hashed ([`keys_of_plain_packet`]).
    Router,
}

/// What turns a flow or a packet into a hash: policy, fields and seed, of one family.
#[derive(Clone, Debug)]
pub struct Hashing {
    config: HashConfig,
    asker: Asker,
    hasher: Hasher,
    brings: Brings,
}

impl Hashing {
    /// From the sysctls' numbers: `fib_multipath_hash_policy`, `_fields` and `_seed`. Costs about 10
    /// microseconds.
    pub fn new(policy: u8, fields: u32, seed: u32, asker: Asker) -> Result<Hashing, HashingError> {
        let key = Seed::new(seed).map(HashKey::from);
        Hashing::with_key(policy, fields, key, asker)
    }

    /// The same with a key, which may be the kernel's own.
    pub fn with_key(
        policy: u8,
        fields: u32,
        key: Option<HashKey>,
        asker: Asker,
    ) -> Result<Hashing, HashingError> {
        let config = HashConfig::kernel(policy, fields).ok_or(HashingError::Policy(policy))?;
        let key = key.ok_or(HashingError::SeedUnknown)?;
        Ok(Hashing {
            config,
            asker,
            hasher: Hasher::new(key),
            brings: Brings::default(),
        })
    }

    /// The same, with ICMP errors hashed by the packet that they are about
    /// ([`HashConfig::icmp_follows_flow`]), which Linux does not do.
    pub fn with_icmp_following(mut self) -> Hashing {
        self.config.icmp_follows_flow = true;
        self
    }

    /// The same for packets that bring a hash along: with policy 1 a router takes that, where it is one over ports.
    pub fn with_brings(mut self, brings: Brings) -> Hashing {
        self.brings = brings;
        self
    }

    /// Whether packets may bring a hash along that is made by a key of the kernel.
    pub fn is_steered(&self) -> bool {
        self.takes_brought() && self.brings.software.is_some()
    }

    /// Whether packets of this flow bring a hash along that counts, in place of key and fields.
    pub fn is_brought(&self, flow: &Flow) -> bool {
        self.takes_brought() && self.brings.of_flow(flow).hash31().is_some()
    }

    #[inline]
    fn takes_brought(&self) -> bool {
        !self.brings.is_nothing() && self.asker == Asker::Router && self.config.policy == Policy::L4
    }

    /// Who asks.
    pub fn asker(&self) -> Asker {
        self.asker
    }

    /// The same for another asker.
    pub fn asked_by(&self, asker: Asker) -> Hashing {
        Hashing {
            asker,
            ..self.clone()
        }
    }

    /// The 31-bit hash of a flow.
    #[inline]
    pub fn flow(&self, flow: &Flow) -> u32 {
        if self.takes_brought()
            && let Some(hash31) = self.brings.of_flow(flow).hash31()
        {
            return hash31;
        }
        self.hasher.hash31(&self.keys(flow))
    }

    #[inline]
    fn keys(&self, flow: &Flow) -> Keys {
        match self.asker {
            Asker::Sender => keys_of_flow(&self.config, flow),
            Asker::Router => keys_of_plain_packet(&self.config, flow),
        }
    }

    /// The 31-bit hash of a packet that is forwarded; `l3` is the packet from its IP header on.
    pub fn packet(&self, family: Family, l3: &[u8]) -> Result<u32, KeyError> {
        if self.takes_brought()
            && let Some(hash31) = self.brings.of_packet(family, l3).hash31()
        {
            return Ok(hash31);
        }
        Ok(self
            .hasher
            .hash31(&keys_of_packet(&self.config, family, l3)?))
    }
}

/// A hash and a layout: predicts paths.
#[derive(Clone, Debug)]
pub struct Predictor {
    hashing: Hashing,
    layout: Layout,
}

impl Predictor {
    /// For flows hashed so, over this layout.
    pub fn new(hashing: Hashing, layout: Layout) -> Predictor {
        Predictor { hashing, layout }
    }

    /// The hash.
    pub fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The path of a flow.
    #[inline]
    pub fn flow(&self, flow: &Flow) -> Path {
        self.layout.path(self.hashing.flow(flow))
    }

    /// The paths of many flows, in their order, into `paths`, which is emptied first. 20 to 40 ns a
    /// flow; `cargo bench -p raddle-sim` measures it.
    pub fn flows(&self, flows: &[Flow], paths: &mut Vec<Path>) {
        paths.clear();
        paths.extend(flows.iter().map(|flow| self.flow(flow)));
    }

    /// The path of a packet that is forwarded, from its IP header on.
    pub fn packet(&self, family: Family, l3: &[u8]) -> Result<Path, KeyError> {
        Ok(self.layout.path(self.hashing.packet(family, l3)?))
    }
}

#[cfg(test)]
mod tests {
    use raddle_select::{choose_plain, compile_threshold, explain_flow, upper_bounds};

    use super::*;
    use crate::sample;

    #[test]
    fn predicts_what_selection_chooses() {
        let weights: Vec<_> = [3, 1, 7, 2].map(Some).to_vec();
        let uppers = upper_bounds(&weights);
        let layout = Layout::ranges(compile_threshold(&uppers, |i| i != 2));
        let seed = Seed::new(77).unwrap();
        for policy in 0..4 {
            let config = HashConfig::kernel(policy, 0x37).unwrap();
            let hashing = Hashing::new(policy, 0x37, 77, Asker::Sender).unwrap();
            let predictor = Predictor::new(hashing, layout.clone());
            let dst = "198.18.0.1".parse().unwrap();
            let flows =
                sample::synthetic("10.0.0.0/16".parse().unwrap(), Some(dst), 500, 3).unwrap();
            let mut paths = Vec::new();
            predictor.flows(&flows, &mut paths);
            for (flow, path) in flows.iter().zip(paths) {
                let hash = explain_flow(&config, seed, flow).hash31;
                let chosen = choose_plain(&uppers, |i| i != 2, hash).unwrap();
                assert_eq!(path, Some(chosen.member));
            }
        }
    }

    #[test]
    fn a_router_hashes_custom_fields_again() {
        let sender = Hashing::new(3, 0x37, 77, Asker::Sender).unwrap();
        let router = sender.asked_by(Asker::Router);
        let ends = ("10.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let flow = Flow::new(ends.0, ends.1).unwrap().ports(17, 4096, 53);
        assert_ne!(sender.flow(&flow), router.flow(&flow));
        let mut l3 = vec![
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1,
        ];
        l3.extend([0x10, 0, 0, 53, 0, 8, 0, 0]);
        assert_eq!(router.packet(Family::V4, &l3), Ok(router.flow(&flow)));
    }

    #[test]
    fn what_cannot_be_known_is_said() {
        let unknown = Hashing::new(1, 7, 0, Asker::Router).unwrap_err();
        assert_eq!(unknown, HashingError::SeedUnknown);
        let none = Hashing::new(9, 7, 1, Asker::Router).unwrap_err();
        assert_eq!(none, HashingError::Policy(9));
    }
}

//! Links that are lost, as a notification tells before anybody has looked at the rest of it.

use std::sync::{Arc, OnceLock};

use crate::codec::Messages;
use crate::codec::number::rtm::{RTM_DELLINK, RTM_NEWLINK};

/// `IFF_UP`, and what tells of a carrier: `IFF_RUNNING`, `IFF_LOWER_UP`.
const UP: u32 = 0x1;
const CARRIER: u32 = 0x40 | 0x1_0000;

type Callback = Box<dyn Fn(u32) + Send + Sync>;

/// Whom the thread that receives notifications tells, once somebody has asked for it.
#[derive(Clone, Default)]
pub(super) struct OnLost(Arc<OnceLock<Callback>>);

impl std::fmt::Debug for OnLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnLost")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl OnLost {
    /// The first that asks is told.
    pub(super) fn set(&self, callback: Callback) {
        let _ = self.0.set(callback);
    }

    /// Tells of all links that these notifications say are lost.
    pub(super) fn tell(&self, notifications: &[u8]) {
        if let Some(callback) = self.0.get() {
            lost(notifications).for_each(callback);
        }
    }
}

/// The links that are lost after these notifications: gone, down, or without carrier. What a bridge says of its ports
/// is about something else, and what cannot be read is left to those who read all of it.
fn lost(notifications: &[u8]) -> impl Iterator<Item = u32> {
    Messages::new(notifications).filter_map(|message| {
        let message = message.ok()?;
        if !matches!(message.kind, RTM_NEWLINK | RTM_DELLINK) {
            return None;
        }
        // struct ifinfomsg: family, a byte, type, index, flags.
        let [family, _, _, _, index @ .., f0, f1, f2, f3] = message.payload.first_chunk::<12>()?;
        let index = u32::from_ne_bytes(*index);
        let flags = u32::from_ne_bytes([*f0, *f1, *f2, *f3]);
        let is_lost = message.kind == RTM_DELLINK || flags & UP == 0 || flags & CARRIER == 0;
        (*family == 0 && is_lost).then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn message(kind: u16, family: u8, index: u32, flags: u32) -> Vec<u8> {
        let mut bytes = 32u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([family, 0, 1, 0]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn links_that_go_or_go_down_or_lose_their_carrier() {
        let up = 0x1_0043;
        let told = [
            message(RTM_NEWLINK, 0, 1, up),
            message(RTM_NEWLINK, 0, 2, up & !UP),
            message(RTM_NEWLINK, 0, 3, up & !CARRIER),
            message(RTM_DELLINK, 0, 4, up),
            // A port leaves a bridge.
            message(RTM_DELLINK, 7, 5, up),
            // A route.
            message(24, 0, 6, 0),
            message(RTM_NEWLINK, 0, 7, up & !0x40),
            message(RTM_NEWLINK, 0, 8, 0),
        ];
        let on_lost = OnLost::default();
        // Nobody asked yet.
        on_lost.tell(&told.concat());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&seen);
        on_lost.set(Box::new(move |index| list.lock().unwrap().push(index)));
        on_lost.tell(&told.concat());
        assert_eq!(*seen.lock().unwrap(), [2, 3, 4, 8]);
        // Cut short: what is whole counts.
        seen.lock().unwrap().clear();
        let mut cut = told[1].clone();
        cut.extend(&told[2][..20]);
        on_lost.tell(&cut);
        assert_eq!(*seen.lock().unwrap(), [2]);
    }
}

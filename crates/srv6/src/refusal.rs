//! Why a segment does not carry a packet on, and by which rule.

use raddle_image::Reason;

macro_rules! rules {
    ($($variant:ident = $name:literal, $means:literal;)*) => {
        /// The rule by which a segment does not carry a packet on: those of the crate's documentation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $means] $variant,)*
        }

        impl Rule {
            /// Its number, as the crate's documentation has it: `S3.1`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$variant => $name,)*
                }
            }
        }
    };
}

rules! {
    S1_2 = "S1.2", "It is the kernel's.";
    S2_1 = "S2.1", "It wants IPv6.";
    S3_1 = "S3.1", "No routing header with segments left.";
    S3_2 = "S3.2", "No routing header at all.";
    S3_3 = "S3.3", "The routing header is no sound SRH.";
    S3_4 = "S3.4", "The HMAC.";
    S3_5 = "S3.5", "No segments left.";
    S4_2 = "S4.2", "The list of compressed SIDs ends too early.";
    S4_3 = "S4.3", "The index of a compressed SID leads beyond its entry.";
    S5_1 = "S5.1", "The next segment is not there.";
    S5_4 = "S5.4", "The upper layer has been reached.";
    S6_2 = "S6.2", "Segments are left where the path ends.";
    S6_3 = "S6.3", "What is inside is not what is to be taken out.";
    S8_1 = "S8.1", "What is inside is no Ethernet II frame.";
    S8_2 = "S8.2", "The frame's VLAN has no link.";
    S8_3 = "S8.3", "The out-link is not there, or does not take the frame.";
    S9_2 = "S9.2", "There is no packet to put a header around.";
    S9_3 = "S9.3", "The flow label wants a hash.";
    S9_4 = "S9.4", "There is no packet to put a header in.";
    S9_5 = "S9.5", "Too long, no room, no template, or no key.";
}

/// Why a segment does not carry a packet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The rule that says so.
    pub rule: Rule,
}

impl Rule {
    /// For this reason, by this rule.
    #[inline]
    pub(crate) const fn gives(self, reason: Reason) -> Refusal {
        Refusal { reason, rule: self }
    }
}

impl From<Refusal> for Reason {
    #[inline]
    fn from(refusal: Refusal) -> Reason {
        refusal.reason
    }
}

//! The hash that a device's driver gives with a packet, for the program to read.
//!
//! With policy 1 the kernel takes such a hash, where it is one over ports, in place of seed and fields
//! (`fib_multipath_hash`: `skb->l4_hash`). A program can ask the driver for it
//! (`bpf_xdp_metadata_rx_hash`) if it is bound to the device, so each such link has a program of its
//! own: a variant compiled from the same source (`-DRX_HASH`), over the same maps. Such programs
//! run in the driver only.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use aya::include_bytes_aligned;
use aya_obj::btf::{Btf, BtfKind};
use aya_obj::generated::bpf_insn;

use crate::attach::AttachedMode;
use crate::engine::{Engine, plan};
use crate::error::verdict;
use crate::object::{Kind, chain};
use crate::{Error, NoRxHash, Result, sys};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/raddle_rx_hash.o"));
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// The number that the program calls; no helper has it (`bpf/rx_hash.h`).
const PLACEHOLDER: i32 = 0x7278;
/// `BPF_PSEUDO_KFUNC_CALL`: the number called is that of a function in the kernel's BTF.
const KERNEL_FUNCTION: u8 = 2;

/// A program's device, and the kernel's function that asks the device's driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceBound {
    /// Interface index in this network namespace.
    pub(crate) index: u32,
    /// The function's number in the kernel's BTF.
    function: i32,
}

impl DeviceBound {
    /// Puts the kernel's function where the placeholder is called.
    pub(crate) fn call_kernel(self, instructions: &mut [bpf_insn]) {
        for call in instructions {
            if (call.code, call.src_reg(), call.imm) == (CALL, 0, PLACEHOLDER) {
                call.set_src_reg(KERNEL_FUNCTION);
                call.imm = self.function;
            }
        }
    }
}

/// The number of `bpf_xdp_metadata_rx_hash`, or why there is none. Reading the kernel's BTF takes some
/// 0.1 s, so this is done once.
fn function() -> Result<i32, NoRxHash> {
    static FUNCTION: OnceLock<Result<i32, NoRxHash>> = OnceLock::new();
    let found = FUNCTION.get_or_init(|| {
        let btf = Btf::from_sys_fs().map_err(|error| NoRxHash::Btf(chain(&error)))?;
        let id = btf
            .id_by_type_name_kind("bpf_xdp_metadata_rx_hash", BtfKind::Func)
            .map_err(|_| NoRxHash::NoFunction)?;
        i32::try_from(id).map_err(|_| NoRxHash::NoFunction)
    });
    found.clone()
}

impl Engine {
    /// Has the program of an attached link read the hash that the driver gives, from the next
    /// packet on, or no longer. Nothing happens where it is so already. Reading takes loading another
    /// program, as long as [`Engine::load`] takes.
    ///
    /// [`crate::offers_rx_hash`] says whether the driver gives one; of one that does not, the program
    /// learns for each packet that there is none.
    ///
    /// # Errors
    /// [`Error::NotAttached`]; [`Error::RxHash`] where the kernel refuses. The link then goes on as it was.
    ///
    /// # Minimum kernel version
    /// 6.16, and stable kernels since 6.6 that let programs of a device redirect through maps; with BTF.
    pub fn set_rx_hash(&mut self, index: u32, read: bool) -> Result<()> {
        let at = self.links.iter().position(|link| link.index == index);
        let at = at.ok_or(Error::NotAttached { index })?;
        let refused = |why: NoRxHash| Error::RxHash { index, why };
        if self.links[at].rx_hash == read {
            return Ok(());
        }
        if read && self.links[at].mode == AttachedMode::Generic {
            return Err(refused(NoRxHash::Generic));
        }
        let variant = match read {
            true => Some(self.variant(index).map_err(refused)?),
            false => None,
        };
        let program = variant.as_ref().unwrap_or(self.program());
        sys::link_update(self.links[at].link.as_fd(), program.as_fd())
            .map_err(|error| refused(NoRxHash::Exchange(error.to_string())))?;
        self.links[at].rx_hash = read;
        Ok(())
    }

    /// Whether the kernel takes the program that reads the hash of this link, which need not be attached.
    /// Loads it, and lets it go.
    ///
    /// # Errors
    /// [`Error::RxHash`], as [`Engine::set_rx_hash`].
    pub fn try_rx_hash(&self, index: u32) -> Result<()> {
        self.variant(index)
            .map(drop)
            .map_err(|why| Error::RxHash { index, why })
    }

    /// Whether the program of a link reads the hash that the driver gives.
    pub fn reads_rx_hash(&self, index: u32) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.index == index && link.rx_hash)
    }

    /// Loads the variant for a device, over the maps that are there.
    fn variant(&self, index: u32) -> Result<std::os::fd::OwnedFd, NoRxHash> {
        let function = function()?;
        let maps = self
            .maps()
            .try_clone()
            .map_err(|error| NoRxHash::Load(chain(&error)))?;
        let capacity = self.memory().capacity();
        let load = || {
            let mut plan = plan(OBJECT, &capacity, maps)?;
            plan.kind = Kind::Xdp(Some(DeviceBound { index, function }));
            plan.load()
        };
        let loaded = load().map_err(|error| match error {
            Error::Verifier { source, log } => NoRxHash::Refused(verdict(&source, &log)),
            error => NoRxHash::Load(error.to_string()),
        })?;
        Ok(loaded.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(src: u8, imm: i32) -> bpf_insn {
        // SAFETY: an instruction is plain numbers, for which all zeroes are valid.
        let mut call: bpf_insn = unsafe { std::mem::zeroed() };
        call.code = CALL;
        call.set_src_reg(src);
        call.imm = imm;
        call
    }

    #[test]
    fn only_the_placeholder_becomes_the_kernels_function() {
        // A helper, a function of the program that lies as far away, the placeholder.
        let mut calls = [call(0, 44), call(1, PLACEHOLDER), call(0, PLACEHOLDER)];
        let bound = DeviceBound {
            index: 3,
            function: 66147,
        };
        bound.call_kernel(&mut calls);
        let seen = calls.map(|call| (call.src_reg(), call.imm));
        assert_eq!(seen, [(0, 44), (1, PLACEHOLDER), (KERNEL_FUNCTION, 66147)]);
    }

    #[test]
    fn the_object_calls_it_and_the_ordinary_one_does_not() {
        let calls = |object: &[u8]| {
            let object = aya_obj::Object::parse(object).unwrap();
            let all = object.functions.values().flat_map(|f| &f.instructions);
            all.filter(|i| (i.code, i.src_reg(), i.imm) == (CALL, 0, PLACEHOLDER))
                .count()
        };
        // IPv4, IPv6 and resilient groups.
        assert_eq!(calls(OBJECT), 3);
        assert_eq!(calls(crate::engine::OBJECT), 0);
    }
}

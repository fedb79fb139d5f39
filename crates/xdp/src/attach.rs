//! The program on links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use raddle_image::MAX_LINKS;

use crate::engine::Engine;
use crate::sys::{self, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE};
use crate::{Error, Result, features};

/// Where in the kernel the program is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver where it can, else behind it.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// Behind the driver, on socket buffers: works everywhere, and is slower.
    Generic,
}

/// Where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachedMode {
    /// In the driver.
    Native,
    /// Behind the driver.
    Generic,
}

impl std::fmt::Display for AttachedMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AttachedMode::Native => "native",
            AttachedMode::Generic => "generic",
        })
    }
}

/// A link that has the program.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) index: u32,
    pub(crate) mode: AttachedMode,
    pub(crate) link: OwnedFd,
    /// The program is the variant that reads the hash of the driver, see [`crate::rx_hash`].
    pub(crate) rx_hash: bool,
}

impl Engine {
    /// Attaches the program to a link of this network namespace and says how.
    ///
    /// The link keeps the program until [`Engine::detach`], or until the engine is dropped or the
    /// process dies, unless it is pinned. Another XDP program is never replaced. A link that has
    /// our program already stays as it is.
    ///
    /// # Errors
    /// After an error nothing is attached that was not before.
    ///
    /// # Minimum kernel version
    /// 5.9
    pub fn attach(&mut self, index: u32, mode: Mode) -> Result<AttachedMode> {
        if index as usize >= MAX_LINKS {
            return Err(Error::LinkIndex {
                index,
                limit: MAX_LINKS,
            });
        }
        self.forget_detached();
        if let Some(attached) = self.links.iter().find(|attached| attached.index == index) {
            return Ok(attached.mode);
        }
        let create =
            |mode| create_link(self.program().as_fd(), index, mode).map(|link| (link, mode));
        let (link, mode) = match mode {
            Mode::Native => create(AttachedMode::Native)?,
            Mode::Generic => create(AttachedMode::Generic)?,
            Mode::Auto => match create(AttachedMode::Native) {
                Err(error @ (Error::NativeUnsupported { .. } | Error::Attach { .. })) => {
                    tracing::info!(index, %error, "falling back to generic XDP");
                    create(AttachedMode::Generic)?
                }
                other => other?,
            },
        };
        if let Some(pins) = &self.pins {
            pins.pin_link(index, mode, &link)?;
        }
        self.links.push(Attached {
            index,
            mode,
            link,
            rx_hash: false,
        });
        Ok(mode)
    }

    /// Takes the program off a link; the kernel forwards what comes in there from now on.
    ///
    /// # Errors
    /// [`Error::NotAttached`] where it is not attached.
    pub fn detach(&mut self, index: u32) -> Result<()> {
        let at = self
            .links
            .iter()
            .position(|attached| attached.index == index)
            .ok_or(Error::NotAttached { index })?;
        if let Some(pins) = &self.pins {
            pins.unpin_link(index)?;
        }
        // Closing the last descriptor of a link detaches it.
        self.links.swap_remove(at);
        Ok(())
    }

    /// Forgets links that have lost the program without [`Engine::detach`]: their device has gone, and another one may have its index
    /// by now; or somebody has detached it by force. Says which.
    pub fn forget_detached(&mut self) -> Vec<u32> {
        let is_there = |attached: &Attached| {
            sys::link_index(attached.link.as_fd()).is_ok_and(|index| index == attached.index)
        };
        let lost = self.links.iter().filter(|attached| !is_there(attached));
        let lost: Vec<u32> = lost.map(|attached| attached.index).collect();
        for index in &lost {
            // What cannot be unpinned is gone all the same.
            if let Some(pins) = &self.pins {
                let _ = pins.unpin_link(*index);
            }
            let _ = self.remove_out_link(*index);
        }
        self.links
            .retain(|attached| !lost.contains(&attached.index));
        lost
    }

    /// Links that have the program, in no particular order.
    pub fn attached(&self) -> impl Iterator<Item = (u32, AttachedMode)> + '_ {
        self.links.iter().map(|link| (link.index, link.mode))
    }
}

/// Attaches a program to a link for as long as the descriptor lives.
pub(crate) fn create_link(
    program: BorrowedFd<'_>,
    index: u32,
    mode: AttachedMode,
) -> Result<OwnedFd> {
    let flags = match mode {
        AttachedMode::Native => XDP_FLAGS_DRV_MODE,
        AttachedMode::Generic => XDP_FLAGS_SKB_MODE,
    };
    sys::link_create(program, index, flags).map_err(|source| attach_error(index, mode, source))
}

fn attach_error(index: u32, mode: AttachedMode, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted {
            action: "attach an XDP program",
        },
        // EBUSY: a program in the same mode; EEXIST: one in the other mode.
        Some(libc::EBUSY | libc::EEXIST) => Error::AlreadyAttached {
            index,
            program: features::attached_program(index)
                .map(|(id, name)| format!(" ({name}, id {id})")),
        },
        // The kernel says EINVAL to a device that does not exist.
        Some(libc::ENODEV | libc::EINVAL) if !features::link_exists(index) => {
            Error::NoSuchLink { index }
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOTSUP)
            if mode == AttachedMode::Native =>
        {
            Error::NativeUnsupported { index, source }
        }
        _ => Error::Attach { index, source },
    }
}

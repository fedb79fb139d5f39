//! Offload features of a network device, through the ethtool ioctl.
//!
//! The kernel names features by strings whose positions differ from version to version: the names
//! are read first, then the positions of those to change are set.

use std::{io, mem};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::os::fd::{AsRawFd, OwnedFd};

// include/uapi/linux/ethtool.h
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;

/// Sets features of devices in the network namespace of the thread that made it.
pub(crate) struct Ethtool {
    socket: OwnedFd,
    names: Vec<String>,
}

impl Ethtool {
    /// Reads the names of the features, by way of any device: they are the kernel's, not the device's.
    pub(crate) fn new(dev: &str) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        let mut ethtool = Self {
            socket,
            names: Vec::new(),
        };
        ethtool.names = ethtool.read_names(dev)?;
        Ok(ethtool)
    }

    /// Turns features on or off: `want` says which, by name, `None` being "leave it".
    ///
    /// Features that the device cannot change are left as they are.
    pub(crate) fn set(&self, dev: &str, want: impl Fn(&str) -> Option<bool>) -> io::Result<()> {
        let blocks = self.names.len().div_ceil(32);
        // struct ethtool_sfeatures: cmd, size, then per 32 features: valid, requested.
        let mut request = vec![0u32; 2 + 2 * blocks];
        request[0] = ETHTOOL_SFEATURES;
        request[1] = blocks as u32;
        for (i, name) in self.names.iter().enumerate() {
            if let Some(on) = want(name) {
                request[2 + 2 * (i / 32)] |= 1 << (i % 32);
                request[3 + 2 * (i / 32)] |= u32::from(on) << (i % 32);
            }
        }
        self.call(dev, &mut request)
    }

    fn read_names(&self, dev: &str) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: cmd, reserved, sset_mask (u64), one length for each bit of it.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
        self.call(dev, &mut info)?;
        let count = info[4] as usize;
        // struct ethtool_gstrings: cmd, string_set, len, then the strings.
        let mut strings = vec![0u32; 3 + count * ETH_GSTRING_LEN / 4];
        strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        self.call(dev, &mut strings)?;
        let bytes: Vec<u8> = strings[3..].iter().flat_map(|w| w.to_ne_bytes()).collect();
        let name = |raw: &[u8]| {
            let end = raw.iter().position(|b| *b == 0).unwrap_or(raw.len());
            String::from_utf8_lossy(&raw[..end]).into_owned()
        };
        Ok(bytes.chunks_exact(ETH_GSTRING_LEN).map(name).collect())
    }

    /// One ioctl. `data` begins with the command, and is as long as the command and its counts say.
    fn call(&self, dev: &str, data: &mut [u32]) -> io::Result<()> {
        // SAFETY: an all-zero ifreq is valid: it is a C structure of integers, arrays and pointers.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        if dev.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(dev.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        // SAFETY: `request` and the `data` that it points to live through the call, and the callers
        // size `data` for what the kernel writes by the command and counts within it.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &request) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

//! Any bytes as the kernel's answers to the questions of `doctor` and of the checks before XDP is
//! attached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raddle_netlink::probe::decode_any;

fuzz_target!(|data: &[u8]| {
    std::hint::black_box(decode_any(data));
});

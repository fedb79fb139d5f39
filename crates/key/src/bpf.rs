//! Small BPF programs that run once, at the call: reading the kernel's memory, and its hash of a frame.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::Error;
use crate::privilege;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_SYSCALL: u32 = 31;
const BPF_F_SLEEPABLE: u32 = 1 << 4;

const GET_HASH_RECALC: i32 = 34;
const GET_CURRENT_TASK: i32 = 35;
const PROBE_READ_KERNEL: i32 = 113;

/// `bpf_probe_read_kernel` is for programs under the GPL.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// Room for `union bpf_attr` as far as these commands use it; the rest is zero, as the kernel demands.
type Attr = [u64; 10];

fn bpf(command: libc::c_long, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: `attr` is initialised and as long as the size given with it; what its pointers point to lives through the
    // call, see the callers.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<Attr>()) };
    match result {
        ..0 => Err(io::Error::last_os_error()),
        value => Ok(value as i32),
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// An instruction as the kernel reads it.
const fn insn(code: u8, dst: u8, src: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | (dst as u64) << 8
        | (src as u64) << 12
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R6: u8 = 6;
/// The frame pointer.
const FP: u8 = 10;

const fn mov(dst: u8, src: u8) -> u64 {
    insn(0xbf, dst, src, 0, 0)
}

const fn mov_number(dst: u8, value: i32) -> u64 {
    insn(0xb7, dst, 0, 0, value)
}

const fn add_number(dst: u8, value: i32) -> u64 {
    insn(0x07, dst, 0, 0, value)
}

const fn load64(dst: u8, src: u8, offset: i16) -> u64 {
    insn(0x79, dst, src, offset, 0)
}

const fn store64(dst: u8, offset: i16, src: u8) -> u64 {
    insn(0x7b, dst, src, offset, 0)
}

const fn call(helper: i32) -> u64 {
    insn(0x85, 0, 0, 0, helper)
}

const fn exit() -> u64 {
    insn(0x95, 0, 0, 0, 0)
}

fn load(kind: u32, flags: u32, program: &[u64]) -> Result<OwnedFd, Error> {
    let mut attr = Attr::default();
    attr[0] = pair(kind, program.len() as u32);
    attr[1] = program.as_ptr().expose_provenance() as u64;
    attr[2] = LICENSE.as_ptr().expose_provenance() as u64;
    // kern_version, prog_flags.
    attr[5] = pair(0, flags);
    let fd = loop {
        match bpf(BPF_PROG_LOAD, &mut attr) {
            // The verifier gives up at any signal.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                return Err(Error::NotPermitted("CAP_BPF or CAP_PERFMON".into()));
            }
            // The helper is not there then: the program is one that makes no sense.
            Err(_) if privilege::locked_down() => return Err(Error::Lockdown),
            Err(e) => return Err(Error::system("load a BPF program")(e)),
            Ok(fd) => break fd,
        }
    };
    // SAFETY: the kernel has made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a program in the calling thread, as one that gets `words` and may write to them. What it returns.
fn run(program: &OwnedFd, words: &mut [u64]) -> Result<u32, Error> {
    let mut attr = Attr::default();
    attr[0] = program.as_raw_fd() as u64;
    attr[5] = size_of_val(words) as u64;
    attr[6] = words.as_mut_ptr().expose_provenance() as u64;
    bpf(BPF_PROG_TEST_RUN, &mut attr).map_err(Error::system("run a BPF program"))?;
    Ok((attr[0] >> 32) as u32)
}

/// Reads `N` words of the kernel's memory: from `start`, or from the calling thread's `task_struct` where there is none; each
/// offset but the last leads to a pointer that is followed.
///
/// # Errors
/// [`Error::Lockdown`], [`Error::NotPermitted`]; [`Error::System`] also where a pointer leads nowhere.
pub(crate) fn read<const N: usize>(start: Option<u64>, offsets: &[u32]) -> Result<[u64; N], Error> {
    let Some((last, pointers)) = offsets.split_last() else {
        return Ok([0; N]);
    };
    let size = (8 * N) as i32;
    let mut program = vec![mov(R6, R1)];
    program.push(match start {
        Some(_) => load64(R0, R6, 0),
        None => call(GET_CURRENT_TASK),
    });
    let mut failures = Vec::new();
    let mut fetch = |program: &mut Vec<u64>, offset: u32, size: i32| {
        program.extend([
            mov(R3, R0),
            add_number(R3, offset as i32),
            mov(R1, FP),
            add_number(R1, -size),
            mov_number(R2, size),
            call(PROBE_READ_KERNEL),
        ]);
        failures.push(program.len());
        program.push(0);
    };
    for offset in pointers {
        fetch(&mut program, *offset, 8);
        program.push(load64(R0, FP, -8));
    }
    fetch(&mut program, *last, size);
    for i in 0..N {
        let at = 8 * i as i16;
        program.extend([load64(R1, FP, at - size as i16), store64(R6, at, R1)]);
    }
    program.extend([mov_number(R0, 0), exit()]);
    let refused = program.len();
    program.extend([mov_number(R0, 1), exit()]);
    for at in failures {
        // To where 1 is returned, if the helper has not returned 0.
        program[at] = insn(0x55, R0, 0, (refused - at - 1) as i16, 0);
    }
    let program = load(BPF_PROG_TYPE_SYSCALL, BPF_F_SLEEPABLE, &program)?;
    let mut words = [0; N];
    words[0] = start.unwrap_or(0);
    match run(&program, &mut words)? {
        0 => Ok(words),
        _ => Err(Error::system("read the kernel's memory")(
            io::Error::from_raw_os_error(libc::EFAULT),
        )),
    }
}

/// A program that tells the kernel's flow hash of a frame.
pub(crate) struct FlowHash(OwnedFd);

impl FlowHash {
    /// # Errors
    /// [`Error::NotPermitted`], also without `CAP_NET_ADMIN`.
    pub(crate) fn load() -> Result<FlowHash, Error> {
        let program = [call(GET_HASH_RECALC), exit()];
        load(BPF_PROG_TYPE_SCHED_CLS, 0, &program).map(FlowHash)
    }

    /// The hash of a frame, as `skb_get_hash` gives it.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(crate) fn of(&self, frame: &[u8]) -> Result<u32, Error> {
        let mut attr = Attr::default();
        attr[0] = self.0.as_raw_fd() as u64;
        attr[1] = pair(frame.len() as u32, 0);
        attr[2] = frame.as_ptr().expose_provenance() as u64;
        bpf(BPF_PROG_TEST_RUN, &mut attr).map_err(Error::system("run a BPF program"))?;
        Ok((attr[0] >> 32) as u32)
    }
}

//! How much may be kept at once: who would exceed it waits before reading more.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// A number of bytes that may be kept.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    used: Cell<usize>,
    freed: Notify,
}

impl Memory {
    pub(super) fn new(most: usize) -> Rc<Memory> {
        Rc::new(Memory {
            most,
            used: Cell::new(0),
            freed: Notify::new(),
        })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used.get()
    }

    /// Waits until another record may begin.
    pub(super) async fn room(&self) {
        while self.used.get() >= self.most {
            self.freed.notified().await;
        }
        // Who waits behind us may find room, too.
        self.freed.notify_one();
    }

    /// Takes bytes, whether there is room or not.
    pub(super) fn charge(self: &Rc<Memory>, bytes: usize) -> Charge {
        self.used.set(self.used.get() + bytes);
        Charge {
            memory: Rc::clone(self),
            bytes: Cell::new(bytes),
        }
    }
}

/// Bytes in use; given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Rc<Memory>,
    bytes: Cell<usize>,
}

impl Charge {
    /// More bytes.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        self.memory.used.set(self.memory.used.get() + bytes);
    }

    /// Gives all of them back.
    pub(super) fn release(&self) {
        let memory = &self.memory;
        memory.used.set(memory.used.get() - self.bytes.take());
        if memory.used.get() < memory.most {
            memory.freed.notify_one();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}

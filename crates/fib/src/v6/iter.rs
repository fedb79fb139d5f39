//! The routes of a table in order.

use std::collections::btree_map::Iter;
use std::iter::Peekable;

use super::control::{Control, Local, SpanId};
use crate::{Prefix6, Value};

/// Routes in the order of their prefixes: by address, then by length.
#[derive(Debug)]
pub struct Routes6<'a> {
    control: &'a Control,
    /// The spans that are open, from the root down.
    open: Vec<Open<'a>>,
}

#[derive(Debug)]
struct Open<'a> {
    addr: u128,
    /// Bits of `addr` that count.
    len: u8,
    prefixes: Peekable<Iter<'a, Local, Value>>,
    children: Peekable<Iter<'a, u16, SpanId>>,
}

impl<'a> Routes6<'a> {
    pub(super) fn new(control: &'a Control, root: Option<SpanId>) -> Routes6<'a> {
        let mut routes = Routes6 {
            control,
            open: Vec::new(),
        };
        if let Some(root) = root {
            routes.enter(root, 0, 0);
        }
        routes
    }

    fn enter(&mut self, id: SpanId, addr: u128, len: u8) {
        let span = self.control.span(id);
        self.open.push(Open {
            addr,
            len,
            prefixes: span.prefixes.iter().peekable(),
            children: span.children.iter().peekable(),
        });
    }
}

impl Iterator for Routes6<'_> {
    type Item = (Prefix6, Value);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let span = self.open.last_mut()?;
            // What is below a key comes after the prefixes that begin with it.
            let child = span.children.peek().map(|(key, _)| **key);
            let ahead = |(local, _): &(&Local, &Value)| child.is_none_or(|key| local.key() <= key);
            let (addr, len) = (span.addr, span.len);
            let at = |key: u16| addr | u128::from(key) << (112 - u32::from(len));
            if let Some((local, value)) = span.prefixes.next_if(ahead) {
                let prefix = Prefix6::truncated(at(local.key()), len + local.len());
                return Some((prefix, *value));
            }
            match span.children.next() {
                Some((key, child)) => self.enter(*child, at(*key), len + 16),
                None => {
                    self.open.pop();
                }
            }
        }
    }
}

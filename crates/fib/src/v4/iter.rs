//! The routes of a table in order.

use super::control::{BlockId, Control, Node, covers};
use crate::{Prefix4, Value};

/// Routes in the order of their prefixes: by address, then by length.
#[derive(Debug)]
pub struct Routes4<'a> {
    control: &'a Control,
    /// What is still to be visited, the next on top: a walk through the binary tree of prefixes.
    todo: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    block: BlockId,
    /// The number is one of this node, not of the block's upper prefixes.
    node: Option<Node>,
    number: u32,
    addr: u32,
    len: u8,
}

impl<'a> Routes4<'a> {
    pub(super) fn new(control: &'a Control, root: Option<BlockId>) -> Routes4<'a> {
        let first = root.map(|block| Step {
            block,
            node: None,
            number: 1,
            addr: 0,
            len: 0,
        });
        Routes4 {
            control,
            todo: Vec::from_iter(first),
        }
    }

    fn push_halves(&mut self, step: Step) {
        for half in [1, 0] {
            let step = Step {
                number: 2 * step.number + half,
                addr: step.addr | half << (31 - step.len),
                len: step.len + 1,
                ..step
            };
            if step.node.is_none_or(|node| holds(node, step.number)) {
                self.todo.push(step);
            }
        }
    }

    /// Pushes what follows a step, and gives the value of its own prefix.
    fn visit(&mut self, step: Step) -> Value {
        let block = self.control.block(step.block);
        let Some(node) = step.node else {
            match step.number.checked_sub(1 << block.width) {
                None => self.push_halves(step),
                Some(at) => {
                    let node = block.nodes[at as usize];
                    if !node.is_empty() {
                        self.push_halves(Step {
                            node: Some(node),
                            number: 1,
                            ..step
                        });
                    }
                }
            }
            return block.upper[step.number as usize];
        };
        match step.number.checked_sub(32) {
            None => self.push_halves(step),
            Some(slot) => {
                self.todo
                    .extend(self.control.child(node, slot).map(|block| Step {
                        block,
                        node: None,
                        number: 1,
                        ..step
                    }));
            }
        }
        self.control.own(node, step.number)
    }
}

/// Whether a node has anything at or below prefix `number`.
fn holds(node: Node, number: u32) -> bool {
    let (mut first, mut width, mut all) = (number, 1u32, 0u64);
    while first < 64 {
        all |= (u64::MAX >> (64 - width)) << first;
        first *= 2;
        width *= 2;
    }
    node.prefixes & all != 0 || node.children & covers(number) != 0
}

impl Iterator for Routes4<'_> {
    type Item = (Prefix4, Value);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(step) = self.todo.pop() {
            let value = self.visit(step);
            if value != 0 {
                return Some((Prefix4::truncated(step.addr, step.len), value));
            }
        }
        None
    }
}

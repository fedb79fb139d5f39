//! Things by number, where a number that was given back is never taken for another thing's.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// The number of a `T`, which no other one ever has.
pub struct Id<T> {
    index: u32,
    /// How often the place was used before.
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Id<T> {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Id<T>) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Id<T> {}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (u64::from(self.index) << 32 | u64::from(self.generation)).hash(state);
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

struct Slot<T> {
    generation: u32,
    /// By itself, so that its memory is given back.
    of: Option<Box<T>>,
}

/// Things by number.
pub(super) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Arena<T> {
    /// Takes one in. O(1), spread over all.
    pub(super) fn insert(&mut self, value: T) -> Id<T> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                of: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.of = Some(Box::new(value));
        Id {
            index,
            generation: slot.generation,
            of: PhantomData,
        }
    }

    /// The one with this number, if it is still there.
    pub(super) fn get(&self, id: Id<T>) -> Option<&T> {
        let slot = self.slots.get(id.index as usize)?;
        let of = slot.of.as_deref();
        of.filter(|_| slot.generation == id.generation)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let is = slot.generation == id.generation;
        slot.of.as_deref_mut().filter(|_| is)
    }

    /// Takes it out; its number is nobody's from then on.
    pub(super) fn remove(&mut self, id: Id<T>) -> Option<Box<T>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let of = slot.of.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(of)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let id = Id {
                index,
                generation: slot.generation,
                of: PhantomData,
            };
            Some((id, slot.of.as_deref()?))
        })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_back_is_nobodys() {
        let mut arena = Arena::default();
        let first = arena.insert('a');
        assert_eq!(arena.remove(first).as_deref(), Some(&'a'));
        let second = arena.insert('b');
        assert_eq!((first.index, arena.len()), (second.index, 1));
        assert_ne!(first, second);
        assert_eq!(arena.get(first), None);
        assert_eq!(arena.remove(first), None);
        assert_eq!(arena.get_mut(second), Some(&mut 'b'));
        assert_eq!(arena.iter().collect::<Vec<_>>(), [(second, &'b')]);
    }
}

//! The reference model: the contents of one writer's directory, and the allowed variations.
//!
//! Names, tags and dims have one state. Each row of an object (a thousand bytes of one value) has a stored
//! value and the values of writes that were not synced; each of its bytes may be any of these.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes in a row.
pub(super) const ROW: usize = 1000;
/// The most rows of an array, and of a plain file.
pub(super) const ROWS: usize = 16;

/// The node that a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    Symlink(String),
    /// An object, by number: its hard links have the same number.
    Object(u64),
}

/// The known values of the bytes of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) stored: Vec<u8>,
    /// Values of writes that were not synced, and the last of them.
    pub(super) pending: BTreeSet<u8>,
    pub(super) last: Option<u8>,
}

/// An object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) tags: BTreeMap<String, String>,
    /// Rows of an array; none for a plain file.
    pub(super) dims: Option<u64>,
    /// Whether it may grow again after it shrank.
    pub(super) elastic: bool,
    /// Whether anything was ever written to it.
    pub(super) touched: bool,
    /// The least number of rows of a plain file.
    pub(super) rows: usize,
    /// The most rows that it may have, including writes that were not synced.
    pub(super) reach: usize,
    pub(super) content: Vec<Row>,
}

impl Object {
    pub(super) fn new() -> Object {
        Object {
            content: vec![Row::default(); ROWS],
            ..Object::default()
        }
    }

    /// A write of a row that may or may not have happened.
    pub(super) fn write(&mut self, row: usize, byte: u8) {
        self.touched = true;
        self.content[row].pending.insert(byte);
        self.content[row].last = Some(byte);
        if self.dims.is_none() {
            self.reach = self.reach.max(row + 1);
        }
    }

    /// New dims of fewer rows that did not return: the rows to be removed may be fill already.
    pub(super) fn cut_short(&mut self, rows: u64) {
        for row in self.content.iter_mut().skip(rows as usize) {
            row.pending.insert(0);
        }
    }

    /// A sync that returned.
    pub(super) fn synced(&mut self) {
        self.rows = self.rows.max(self.reach);
        for row in &mut self.content {
            row.pending.clear();
            if let Some(byte) = row.last.take() {
                row.stored = vec![byte; ROW];
            }
        }
    }

    /// Truncated to 0: all fill, and the dims stay.
    pub(super) fn empty(&mut self) {
        self.content = vec![Row::default(); ROWS];
        self.rows = 0;
        self.reach = 0;
    }

    /// New dims: data outside is gone.
    pub(super) fn resize(&mut self, rows: u64) {
        for row in &mut self.content[rows as usize..] {
            *row = Row::default();
        }
        self.dims = Some(rows);
        self.rows = 0;
        self.reach = 0;
    }
}

/// A writer's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    /// By path below the writer's directory.
    pub(super) names: BTreeMap<String, Node>,
    pub(super) objects: BTreeMap<u64, Object>,
    pub(super) next: u64,
}

impl Model {
    pub(super) fn object(&mut self, name: &str) -> Option<&mut Object> {
        match self.names.get(name) {
            Some(Node::Object(number)) => self.objects.get_mut(number),
            _ => None,
        }
    }

    pub(super) fn create(&mut self, name: &str) {
        let number = self.next;
        self.next += 1;
        self.objects.insert(number, Object::new());
        self.names.insert(name.to_owned(), Node::Object(number));
    }

    pub(super) fn link(&mut self, from: &str, to: &str) {
        let node = self.names[from].clone();
        self.names.insert(to.to_owned(), node);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.names.remove(name);
        self.forget_unnamed();
    }

    /// As rename(2): replaces the target, and moves everything below a directory.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if self.names.get(from) == self.names.get(to)
            && matches!(self.names.get(from), Some(Node::Object(_)))
        {
            return;
        }
        let below = format!("{from}/");
        let moved: Vec<String> = self
            .names
            .keys()
            .filter(|name| *name == from || name.starts_with(&below))
            .cloned()
            .collect();
        for name in moved {
            if let Some(node) = self.names.remove(&name) {
                self.names
                    .insert(format!("{to}{}", &name[from.len()..]), node);
            }
        }
        self.forget_unnamed();
    }

    /// Exchanges two names.
    pub(super) fn exchange(&mut self, a: &str, b: &str) {
        self.rename(a, "\0");
        self.rename(b, a);
        self.rename("\0", b);
    }

    fn forget_unnamed(&mut self) {
        let named: BTreeSet<u64> = self
            .names
            .values()
            .filter_map(|node| match node {
                Node::Object(number) => Some(*number),
                _ => None,
            })
            .collect();
        self.objects.retain(|number, _| named.contains(number));
    }

    /// Names of one kind.
    pub(super) fn names_of(&self, wanted: impl Fn(&Node) -> bool) -> Vec<String> {
        self.names
            .iter()
            .filter(|(_, node)| wanted(node))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

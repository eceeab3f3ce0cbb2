//! The inode numbers that a mount shows.
//!
//! Inodes of the metadata service have the same number here, below [`FIRST_VIRTUAL`], and need no entry in the table.
//! Nodes that exist only on the mount, selections and hidden files, get numbers from there up, which are never reused
//! within a mount. There is one number per object and selection, so that two programs that open `temp@[0:10]` share an
//! inode in the kernel, however they spell it.
//!
//! A selection refers to the object, not to its name: after a rename or an unlink of the object, a node that the kernel
//! still holds refers to the same object. A node exists while the kernel remembers it: lookups count up,
//! [`Nodes::forget`] counts down. Counting up happens under the same lock as the search, so that a node is never handed
//! out while it is being dropped.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use parking_lot::RwLock;
use slabfs_mdserver::api::{Ino, ROOT};
use slabfs_model::Selection;

use super::hidden::Hidden;
use super::made::{ChunkDirectory, Made};

/// The first number that is not an inode of the metadata service.
pub const FIRST_VIRTUAL: u64 = 1 << 62;

/// The meaning of an inode number of the mount.
#[derive(Debug, Clone)]
pub enum Node {
    /// An inode of the metadata service.
    Plain(Ino),
    /// Some elements of an object.
    Selection(Arc<SelectionNode>),
    /// A file or directory under `.slabfs`.
    Hidden(Hidden),
    /// The directory of a query's results.
    Search(Arc<str>),
    /// A link in such a directory, with its target.
    Found(Arc<[u8]>),
    /// A file of a view in another format.
    Made(Arc<Made>),
    /// A directory of chunks of such a view.
    Chunks(Arc<ChunkDirectory>),
}

/// Some elements of an object, as a separate file.
#[derive(Debug)]
pub struct SelectionNode {
    /// The object.
    pub object: Ino,
    /// The selected elements; resolved against the current dims at each use.
    pub selection: Selection,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Selection(Ino, Selection),
    Hidden(Hidden),
    Search(Arc<str>),
    Found(Arc<[u8]>),
    Made(Arc<Made>),
    Chunks(Arc<ChunkDirectory>),
}

#[derive(Debug)]
struct Known {
    node: Node,
    key: Key,
    lookups: u64,
}

#[derive(Debug)]
struct Table {
    by_number: HashMap<u64, Known>,
    by_key: HashMap<Key, u64>,
    next: u64,
}

/// The numbers of a mount; see the module documentation.
#[derive(Debug)]
pub struct Nodes {
    table: RwLock<Table>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            table: RwLock::new(Table {
                by_number: HashMap::new(),
                by_key: HashMap::new(),
                next: FIRST_VIRTUAL,
            }),
        }
    }
}

impl Nodes {
    /// The node of a number; `None` for one that the kernel has forgotten.
    pub fn get(&self, number: u64) -> Option<Node> {
        if number < FIRST_VIRTUAL {
            return Some(Node::Plain(slabfs_model::ObjectId(number)));
        }
        let table = self.table.read();
        table.by_number.get(&number).map(|known| known.node.clone())
    }

    /// The inode of the metadata service that a number is, or whose data it shows; the root for what has no data.
    pub fn about(&self, number: u64) -> Ino {
        match self.get(number) {
            Some(Node::Plain(ino)) => ino,
            Some(Node::Selection(selection)) => selection.object,
            Some(Node::Made(made)) => made.of,
            Some(Node::Chunks(chunks)) => chunks.of,
            Some(Node::Hidden(hidden)) => hidden.repeats().unwrap_or(ROOT),
            Some(Node::Search(_) | Node::Found(_)) | None => ROOT,
        }
    }

    /// The number of a selection; counts a lookup.
    pub fn look_up_selection(
        &self,
        object: Ino,
        selection: Selection,
    ) -> (u64, Arc<SelectionNode>) {
        let key = Key::Selection(object, selection.clone());
        let node = Arc::new(SelectionNode { object, selection });
        let (number, known) = self.look_up(key, Node::Selection(node.clone()));
        match known {
            Node::Selection(known) => (number, known),
            _ => (number, node),
        }
    }

    /// The number of a hidden file or directory; counts a lookup.
    pub fn look_up_hidden(&self, hidden: Hidden) -> u64 {
        self.look_up(Key::Hidden(hidden), Node::Hidden(hidden)).0
    }

    /// The number of the directory of a query; counts a lookup.
    pub fn look_up_search(&self, query: Arc<str>) -> u64 {
        self.look_up(Key::Search(Arc::clone(&query)), Node::Search(query))
            .0
    }

    /// The number of a link to `target`; counts a lookup.
    pub fn look_up_found(&self, target: Arc<[u8]>) -> u64 {
        self.look_up(Key::Found(Arc::clone(&target)), Node::Found(target))
            .0
    }

    /// The number of a file of a view; counts a lookup. A file with other bytes is another one: what a program has open
    /// does not change.
    pub fn look_up_made(&self, made: Arc<Made>) -> u64 {
        self.look_up(Key::Made(Arc::clone(&made)), Node::Made(made))
            .0
    }

    /// The number of a directory of chunks; counts a lookup.
    pub fn look_up_chunks(&self, chunks: Arc<ChunkDirectory>) -> u64 {
        self.look_up(Key::Chunks(Arc::clone(&chunks)), Node::Chunks(chunks))
            .0
    }

    fn look_up(&self, key: Key, node: Node) -> (u64, Node) {
        let mut table = self.table.write();
        let Table {
            by_number,
            by_key,
            next,
        } = &mut *table;
        let number = match by_key.entry(key.clone()) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(free) => {
                let number = *next;
                *next += 1;
                *free.insert(number)
            }
        };
        let known = by_number.entry(number).or_insert(Known {
            node,
            key,
            lookups: 0,
        });
        known.lookups += 1;
        (number, known.node.clone())
    }

    /// Subtracts `lookups` from the count of a number; the node is removed at 0.
    pub fn forget(&self, number: u64, lookups: u64) {
        if number < FIRST_VIRTUAL {
            return;
        }
        let mut table = self.table.write();
        let Some(known) = table.by_number.get_mut(&number) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return;
        }
        if let Some(known) = table.by_number.remove(&number) {
            table.by_key.remove(&known.key);
        }
    }

    /// How many virtual nodes the kernel remembers.
    pub fn len(&self) -> usize {
        self.table.read().by_number.len()
    }

    /// Whether the kernel remembers none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    fn selection(nodes: &Nodes, object: u64, text: &str) -> u64 {
        nodes
            .look_up_selection(ObjectId(object), text.parse().unwrap())
            .0
    }

    #[test]
    fn real_inodes_have_the_same_numbers() {
        let nodes = Nodes::default();
        assert!(matches!(nodes.get(1), Some(Node::Plain(ObjectId(1)))));
        nodes.forget(1, 100);
        assert!(nodes.is_empty());
    }

    #[test]
    fn an_object_and_selection_have_one_number() {
        let nodes = Nodes::default();
        let first = selection(&nodes, 7, "[0:10]");
        assert!(first >= FIRST_VIRTUAL);
        assert_eq!(selection(&nodes, 7, "[0:10]"), first);
        assert_eq!(
            selection(&nodes, 7, "[:10:1, ...]"),
            selection(&nodes, 7, "[:10]")
        );
        assert_ne!(selection(&nodes, 7, "[0:11]"), first);
        assert_ne!(selection(&nodes, 8, "[0:10]"), first);
        let Some(Node::Selection(node)) = nodes.get(first) else {
            panic!()
        };
        assert_eq!(node.object, ObjectId(7));
        assert_eq!(node.selection.to_string(), "[0:10]");
    }

    #[test]
    fn a_node_and_its_number_go_with_the_last_lookup() {
        let nodes = Nodes::default();
        let first = selection(&nodes, 7, "[0:10]");
        selection(&nodes, 7, "[0:10]");
        nodes.forget(first, 1);
        assert!(nodes.get(first).is_some());
        nodes.forget(first, 1);
        assert!(nodes.get(first).is_none());
        assert_ne!(selection(&nodes, 7, "[0:10]"), first);
        assert_eq!(nodes.len(), 1);
        nodes.forget(first, 1);
        assert_eq!(nodes.len(), 1);
    }

    #[test]
    fn hidden_nodes_have_numbers() {
        let nodes = Nodes::default();
        let stats = nodes.look_up_hidden(Hidden::Stats);
        assert!(matches!(
            nodes.get(stats),
            Some(Node::Hidden(Hidden::Stats))
        ));
        assert_ne!(nodes.look_up_hidden(Hidden::Status), stats);
        assert_eq!(nodes.look_up_hidden(Hidden::Stats), stats);
    }
}

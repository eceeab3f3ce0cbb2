//! The inode numbers a mount shows.
//!
//! Inodes of the metadata service keep their numbers, which stay below [`FIRST_VIRTUAL`], and need no
//! entry here. What only the mount knows, selections and hidden files, gets numbers from there up, counted
//! and never used again within a mount: one for each object and selection, so that two programs that open
//! `temp@[0:10]` share an inode in the kernel, however they spell it.
//!
//! A selection means the object, not its name: after a rename or an unlink of the object a node the kernel
//! still holds means the object it always meant. A node lives while the kernel remembers it: lookups count
//! up, [`Nodes::forget`] counts down, and counting up happens under the same lock as the search, so that a
//! node is never handed out while it is being dropped.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use parking_lot::RwLock;
use slabfs_mdserver::api::Ino;
use slabfs_model::Selection;

use super::hidden::Hidden;

/// The first number that is no inode of the metadata service.
pub const FIRST_VIRTUAL: u64 = 1 << 62;

/// What an inode number of the mount stands for.
#[derive(Debug, Clone)]
pub enum Node {
    /// An inode of the metadata service.
    Plain(Ino),
    /// Some elements of an object.
    Selection(Arc<SelectionNode>),
    /// Something under `.slabfs`.
    Hidden(Hidden),
    /// A folder of what a query finds.
    Search(Arc<str>),
    /// A link in such a folder, and where it leads.
    Found(Arc<[u8]>),
}

/// Some elements of an object, as a file of their own.
#[derive(Debug)]
pub struct SelectionNode {
    /// The object.
    pub object: Ino,
    /// Which of its elements; resolved against the dims of the moment whenever it is used.
    pub selection: Selection,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Selection(Ino, Selection),
    Hidden(Hidden),
    Search(Arc<str>),
    Found(Arc<[u8]>),
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

/// The numbers of a mount; see the module's head.
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
    /// What a number stands for; `None` for one the kernel has forgotten.
    pub fn get(&self, number: u64) -> Option<Node> {
        if number < FIRST_VIRTUAL {
            return Some(Node::Plain(slabfs_model::ObjectId(number)));
        }
        let table = self.table.read();
        table.by_number.get(&number).map(|known| known.node.clone())
    }

    /// The number of a selection, and one lookup more of it.
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

    /// The number of something hidden, and one lookup more of it.
    pub fn look_up_hidden(&self, hidden: Hidden) -> u64 {
        self.look_up(Key::Hidden(hidden), Node::Hidden(hidden)).0
    }

    /// The number of the folder of a query.
    pub fn look_up_search(&self, query: Arc<str>) -> u64 {
        self.look_up(Key::Search(Arc::clone(&query)), Node::Search(query))
            .0
    }

    /// The number of a link that leads to `target`.
    pub fn look_up_found(&self, target: Arc<[u8]>) -> u64 {
        self.look_up(Key::Found(Arc::clone(&target)), Node::Found(target))
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

    /// Takes back `lookups` of a number; the node goes with the last.
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
    fn real_inodes_keep_their_numbers() {
        let nodes = Nodes::default();
        assert!(matches!(nodes.get(1), Some(Node::Plain(ObjectId(1)))));
        nodes.forget(1, 100);
        assert!(nodes.is_empty());
    }

    #[test]
    fn one_number_an_object_and_text() {
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
    fn a_node_goes_with_its_last_lookup_and_its_number_with_it() {
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
    fn hidden_nodes_have_numbers_too() {
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

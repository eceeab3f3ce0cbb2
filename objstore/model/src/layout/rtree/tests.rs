//! Tests of the tree against a list, and of its invariants after each change.

use super::super::flat::{self, Boxes, Flat};
use super::{CAPACITY, LEAST, RTree};
use proptest::prelude::*;

impl RTree {
    /// Checks the invariants of the module; returns the number of boxes.
    fn check(&self, filled_by_insertion: bool) -> usize {
        let mut seen = vec![false; self.nodes.len()];
        let count = self.root.map_or(0, |root| {
            let least = if self.level(root) == 0 { 1 } else { 2 };
            assert!(self.len(root) >= least);
            self.check_node(root, filled_by_insertion, &mut seen)
        });
        for &node in &self.free {
            assert!(!seen[node as usize]);
            seen[node as usize] = true;
        }
        assert!(seen.into_iter().all(|seen| seen), "a node is lost");
        count
    }

    fn check_node(&self, node: u32, by_insertion: bool, seen: &mut [bool]) -> usize {
        assert!(!std::mem::replace(&mut seen[node as usize], true));
        assert!(!by_insertion || Some(node) == self.root || self.len(node) >= LEAST);
        if self.level(node) == 0 {
            return self.len(node);
        }
        let (mut stored, mut exact) = (Flat::new(), Flat::new());
        let below = |place| {
            let child = self.entry(node, place);
            assert_eq!(self.level(child) + 1, self.level(node));
            self.load(node, place, &mut stored);
            self.bounds_of(child, &mut exact);
            assert_eq!(stored, exact);
            self.check_node(child, by_insertion, seen)
        };
        (0..self.len(node)).map(below).sum()
    }

    fn found(&self, place: &[u64]) -> Vec<u32> {
        let mut ids = Vec::new();
        self.overlapping(place, &mut |id| {
            ids.push(id);
            true
        });
        ids.sort_unstable();
        ids
    }
}

type List = Vec<(Flat, u32)>;

fn naive(list: &List, place: &[u64]) -> Vec<u32> {
    let mut ids: Vec<u32> = list
        .iter()
        .filter(|(flat, _)| flat::overlaps(flat, place))
        .map(|&(_, id)| id)
        .collect();
    ids.sort_unstable();
    ids
}

fn a_box(rank: usize) -> impl Strategy<Value = Flat> {
    prop::collection::vec((0..100u64, prop_oneof![1..4u64, 1..60u64]), rank).prop_map(|axes| {
        let mut flat: Flat = axes.iter().map(|axis| axis.0).collect();
        flat.extend(axes.iter().map(|axis| axis.0 + axis.1));
        flat
    })
}

fn boxes() -> impl Strategy<Value = (usize, Vec<Flat>, Vec<Flat>)> {
    prop_oneof![Just(0usize), Just(1), Just(2), Just(2), Just(3), Just(32)].prop_flat_map(|rank| {
        let most = if rank > 3 { 60 } else { 400 };
        let boxes = prop::collection::vec(a_box(rank), 0..most);
        (Just(rank), boxes, prop::collection::vec(a_box(rank), 1..6))
    })
}

fn check_against(tree: &RTree, list: &List, places: &[Flat]) {
    for place in places {
        assert_eq!(tree.found(place), naive(list, place));
        let mut beyond = Vec::new();
        tree.not_inside(place, &mut |id| beyond.push(id));
        beyond.sort_unstable();
        let mut expected: Vec<u32> = (list.iter().filter(|(flat, _)| !flat::contains(place, flat)))
            .map(|&(_, id)| id)
            .collect();
        expected.sort_unstable();
        assert_eq!(beyond, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn it_finds_what_a_list_finds((rank, boxes, places) in boxes(), remove: Vec<u16>) {
        let mut tree = RTree::new(rank);
        let mut list = List::new();
        for (id, flat) in boxes.into_iter().enumerate() {
            tree.insert(&flat, id as u32);
            list.push((flat, id as u32));
        }
        prop_assert_eq!(tree.check(true), list.len());
        check_against(&tree, &list, &places);
        for pick in remove {
            if list.is_empty() {
                break;
            }
            let at = usize::from(pick) % list.len();
            let (flat, id) = list.swap_remove(at);
            prop_assert!(tree.remove(&flat, id));
            prop_assert!(!tree.remove(&flat, id));
            prop_assert_eq!(tree.check(true), list.len());
        }
        check_against(&tree, &list, &places);
    }

    #[test]
    fn loaded_at_once_it_can_be_changed((rank, boxes, places) in boxes(), order: u64) {
        let mut flats = Boxes::new(rank);
        let mut list = List::new();
        for (id, flat) in boxes.iter().enumerate() {
            flats.push(flat);
            list.push((flat.clone(), id as u32));
        }
        let mut tree = RTree::bulk(flats, (0..boxes.len() as u32).collect());
        prop_assert_eq!(tree.check(false), list.len());
        prop_assert_eq!(tree.nodes.iter().filter(|node| node.level == 0).count(),
            boxes.len().div_ceil(CAPACITY));
        check_against(&tree, &list, &places);
        for (id, flat) in places.iter().enumerate() {
            tree.insert(flat, 1000 + id as u32);
            list.push((flat.clone(), 1000 + id as u32));
        }
        check_against(&tree, &list, &places);
        // Down to empty, in some order.
        list.sort_by_key(|&(_, id)| (u64::from(id) + 1).wrapping_mul(order | 1));
        while let Some((flat, id)) = list.pop() {
            prop_assert!(tree.remove(&flat, id));
            prop_assert_eq!(tree.check(false), list.len());
        }
        prop_assert!(tree.root.is_none());
    }
}

#[test]
fn a_search_ends_when_the_callback_returns_false() {
    let mut tree = RTree::new(1);
    (0..100).for_each(|id| tree.insert(&[u64::from(id), u64::from(id) + 1], id));
    let mut calls = 0;
    tree.overlapping(&[0, 100], &mut |_| {
        calls += 1;
        calls < 3
    });
    assert_eq!(calls, 3);
}

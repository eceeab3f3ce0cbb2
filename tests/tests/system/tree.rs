//! Random changes of a tree of names against a model of it: creating, linking, renaming, exchanging, removing,
//! attributes; with restarts and kills.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use slabfs_tests::file::{self, errno};
use slabfs_tests::{Random, Up, needs_mount};

/// The node that a name refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Dir(BTreeMap<String, Node>),
    /// The file number: names with the same number are links to one file.
    File(usize),
    Link(String),
}

/// A model of a tree: directories, and the contents of its files.
struct Model {
    root: Node,
    contents: Vec<Vec<u8>>,
}

type Entries = BTreeMap<String, Node>;

impl Model {
    fn entries(&mut self, dir: &[String]) -> Option<&mut Entries> {
        let Node::Dir(entries) = &mut self.root else {
            return None;
        };
        let mut entries = entries;
        for name in dir {
            entries = match entries.get_mut(name) {
                Some(Node::Dir(inner)) => inner,
                _ => return None,
            };
        }
        Some(entries)
    }

    fn get(&mut self, at: &(Vec<String>, String)) -> Option<Node> {
        self.entries(&at.0)?.get(&at.1).cloned()
    }

    /// All directories, as the names on the path to them.
    fn dirs(&self) -> Vec<Vec<String>> {
        fn walk(node: &Node, at: &[String], out: &mut Vec<Vec<String>>) {
            if let Node::Dir(entries) = node {
                out.push(at.to_vec());
                for (name, inner) in entries {
                    walk(inner, &[at, std::slice::from_ref(name)].concat(), out);
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.root, &[], &mut out);
        out
    }
}

fn path(base: &Path, at: &(Vec<String>, String)) -> PathBuf {
    at.0.iter()
        .fold(base.to_owned(), |path, name| path.join(name))
        .join(&at.1)
}

/// Compares a directory with the model, recursively.
fn compare(base: &Path, node: &Node, contents: &[Vec<u8>], when: &str) {
    let Node::Dir(entries) = node else {
        panic!("a directory")
    };
    let mut found: Vec<String> = std::fs::read_dir(base)
        .unwrap_or_else(|error| panic!("{when}: {}: {error}", base.display()))
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    found.sort();
    let wanted: Vec<&String> = entries.keys().collect();
    assert!(
        found.iter().eq(wanted.iter().copied()),
        "{when}: {}: {found:?} for {wanted:?}",
        base.display()
    );
    for (name, inner) in entries {
        let path = base.join(name);
        match inner {
            Node::Dir(_) => compare(&path, inner, contents, when),
            Node::File(number) => assert!(
                file::read(&path) == contents[*number],
                "{when}: {}",
                path.display()
            ),
            Node::Link(target) => assert_eq!(
                std::fs::read_link(&path).expect("a link"),
                Path::new(target),
                "{when}"
            ),
        }
    }
}

struct Walker {
    model: Model,
    random: Random,
}

impl Walker {
    /// An existing directory, and one of few names in it.
    fn place(&mut self) -> (Vec<String>, String) {
        let dirs = self.model.dirs();
        let dir = self.random.pick(&dirs).clone();
        (dir, format!("n{}", self.random.range(0, 6)))
    }

    fn step(&mut self, base: &Path) -> String {
        let (at, to) = (self.place(), self.place());
        let (here, there) = (path(base, &at), path(base, &to));
        let now = self.model.get(&at);
        match self.random.range(0, 10) {
            0 | 1 => {
                let result = std::fs::create_dir(&here);
                match now {
                    Some(_) => assert_eq!(errno(result), Errno::EEXIST),
                    None => {
                        result.expect("a directory");
                        self.put(&at, Node::Dir(Entries::new()));
                    }
                }
                format!("mkdir {at:?}")
            }
            2..5 => {
                self.write(&at, &here, now);
                format!("write {at:?}")
            }
            5 => {
                let result = std::fs::hard_link(&here, &there);
                match (now, self.model.get(&to)) {
                    (None, _) => assert_eq!(errno(result), Errno::ENOENT),
                    (Some(_), Some(_)) => assert_eq!(errno(result), Errno::EEXIST),
                    (Some(Node::Dir(_)), None) => assert_eq!(errno(result), Errno::EPERM),
                    (Some(node), None) => {
                        result.expect("a link");
                        self.put(&to, node);
                    }
                }
                format!("link {at:?} {to:?}")
            }
            6 => {
                // A target of its own: symbolic links with the same target are names of one link.
                let target = format!("to/{}", self.random.number());
                let result = std::os::unix::fs::symlink(&target, &here);
                match now {
                    Some(_) => assert_eq!(errno(result), Errno::EEXIST),
                    None => {
                        result.expect("a symbolic link");
                        self.put(&at, Node::Link(target));
                    }
                }
                format!("symlink {at:?}")
            }
            7 => {
                self.remove(&at, &here, now);
                format!("remove {at:?}")
            }
            _ => {
                self.rename(&at, &to, &here, &there);
                format!("rename {at:?} {to:?}")
            }
        }
    }

    fn put(&mut self, at: &(Vec<String>, String), node: Node) {
        self.model
            .entries(&at.0)
            .expect("a directory")
            .insert(at.1.clone(), node);
    }

    fn write(&mut self, at: &(Vec<String>, String), here: &Path, now: Option<Node>) {
        let len = if self.random.one_in(10) {
            300_000
        } else {
            self.random.range(0, 3000)
        };
        let bytes = self.random.bytes(len as usize);
        match now {
            Some(Node::Dir(_)) => assert_eq!(errno(std::fs::write(here, &bytes)), Errno::EISDIR),
            // The link refers to a missing directory.
            Some(Node::Link(_)) => assert_eq!(errno(std::fs::write(here, &bytes)), Errno::ENOENT),
            Some(Node::File(number)) => {
                file::write(here, &bytes);
                self.model.contents[number] = bytes;
            }
            None => {
                file::write(here, &bytes);
                self.model.contents.push(bytes);
                let number = self.model.contents.len() - 1;
                self.put(at, Node::File(number));
            }
        }
    }

    fn remove(&mut self, at: &(Vec<String>, String), here: &Path, now: Option<Node>) {
        let result = match now {
            Some(Node::Dir(_)) => std::fs::remove_dir(here),
            _ => std::fs::remove_file(here),
        };
        match now {
            None => assert_eq!(errno(result), Errno::ENOENT),
            Some(Node::Dir(entries)) if !entries.is_empty() => {
                assert_eq!(errno(result), Errno::ENOTEMPTY)
            }
            Some(_) => {
                result.expect("removed");
                self.model
                    .entries(&at.0)
                    .expect("a directory")
                    .remove(&at.1);
            }
        }
    }

    fn rename(
        &mut self,
        at: &(Vec<String>, String),
        to: &(Vec<String>, String),
        here: &Path,
        there: &Path,
    ) {
        let exchange = self.random.one_in(4);
        let flags = if exchange {
            RenameFlags::RENAME_EXCHANGE
        } else {
            RenameFlags::empty()
        };
        let result = renameat2(AT_FDCWD, here, AT_FDCWD, there, flags);
        let (from, over) = (self.model.get(at), self.model.get(to));
        let full =
            |place: &(Vec<String>, String)| [&place.0[..], std::slice::from_ref(&place.1)].concat();
        // A directory cannot be moved into itself, nor, exchanged, out of the one that replaces it.
        let into = to.0.starts_with(&full(at)) || exchange && at.0.starts_with(&full(to));
        let wanted = match (&from, &over) {
            (None, _) => Err(Errno::ENOENT),
            (_, None) if exchange => Err(Errno::ENOENT),
            _ if into => Err(Errno::EINVAL),
            // A directory above the old name exists and is not empty.
            (Some(_), Some(_)) if !exchange && at.0.starts_with(&full(to)) => Err(Errno::ENOTEMPTY),
            (Some(_), Some(_)) if exchange => Ok(()),
            (Some(Node::Dir(_)), Some(Node::Dir(inner)))
                if !inner.is_empty() && full(at) != full(to) =>
            {
                Err(Errno::ENOTEMPTY)
            }
            (Some(Node::Dir(_)), Some(Node::Dir(_)) | None) => Ok(()),
            (Some(Node::Dir(_)), Some(_)) => Err(Errno::ENOTDIR),
            (Some(_), Some(Node::Dir(_))) => Err(Errno::EISDIR),
            (Some(_), _) => Ok(()),
        };
        match (result, wanted) {
            (Ok(()), Ok(())) => {}
            // The order of several errors is unspecified.
            (Err(_), Err(_)) => return,
            (result, wanted) => {
                panic!("rename {at:?} {to:?} ({flags:?}): {result:?} for {wanted:?}")
            }
        }
        let (Some(from), over) = (from, over) else {
            return;
        };
        if exchange {
            self.put(at, over.expect("there is one"));
            self.put(to, from);
        } else if !(same_file(&from, over.as_ref()) || full(at) == full(to)) {
            self.model
                .entries(&at.0)
                .expect("a directory")
                .remove(&at.1);
            self.put(to, from);
        }
    }
}

/// Whether two names are of one file or symbolic link: then a rename does nothing.
fn same_file(a: &Node, b: Option<&Node>) -> bool {
    !matches!(a, Node::Dir(_)) && Some(a) == b
}

fn play(seed: u64) {
    let mut up = Up::start();
    let root = Node::Dir(Entries::new());
    let mut walker = Walker {
        model: Model {
            root,
            contents: Vec::new(),
        },
        random: Random::new(seed),
    };
    for round in 0..5 {
        let mut last = String::new();
        for _ in 0..160 {
            last = walker.step(up.mnt());
        }
        let when = format!("round {round} of seed {seed}, last {last}");
        compare(up.mnt(), &walker.model.root, &walker.model.contents, &when);
        if round % 2 == 0 {
            up.restart();
        } else {
            // Everything that has a name is synced, then the process is killed.
            slabfs_tests::tool::shell(up.mnt(), "find . -type f -exec sync {} +; sync .").ok();
            up.kill9();
            up.start_again();
        }
        compare(
            up.mnt(),
            &walker.model.root,
            &walker.model.contents,
            &format!("{when}, started again"),
        );
    }
}

#[test]
fn random_trees() {
    needs_mount!();
    play(501);
}

#[test]
fn more_random_trees() {
    needs_mount!();
    play(502);
}

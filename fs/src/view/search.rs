//! Names in `.slabfs/find`: `.slabfs/find/QUERY/` has a symbolic link for each object that the query finds.
//!
//! A directory's name is the query; a link's name is the path of the object from the root of the mount. Neither can
//! contain a slash, so both write `%2F` for it, and `%25` for a per cent sign. A path that is too long for a name is
//! written as `%i` and the inode number. A link's target is relative and leads out of `.slabfs`, so it works wherever
//! the filesystem is mounted.

use std::borrow::Cow;

use slabfs_mdserver::api::{Ino, MAX_NAME};
use slabfs_model::ObjectId;

/// The relative path from a directory of links to the root of the mount.
const UP: &[u8] = b"../../..";

/// The query in the name of a directory; `None` if it is not UTF-8.
pub fn query(name: &[u8]) -> Option<String> {
    String::from_utf8(plain(name)?.into_owned()).ok()
}

/// The object that a link names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The object at this path, in stored names.
    Path(Vec<Vec<u8>>),
    /// The object with this inode number.
    Ino(Ino),
}

/// The name of an object's link, given its path in stored names, with a slash before each.
pub fn link_name(path: &[u8], ino: Ino) -> Vec<u8> {
    let mut name = Vec::with_capacity(path.len() + 16);
    for &byte in &path[1.min(path.len())..] {
        match byte {
            b'/' => name.extend_from_slice(b"%2F"),
            b'%' => name.extend_from_slice(b"%25"),
            other => name.push(other),
        }
    }
    if name.len() > MAX_NAME || name.is_empty() {
        return format!("%i{}", ino.0).into_bytes();
    }
    name
}

/// The object that a link of this name denotes; `None` if no link can have such a name.
pub fn target(name: &[u8]) -> Option<Target> {
    if let Some(number) = name.strip_prefix(b"%i") {
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        return Some(Target::Ino(ObjectId(number)));
    }
    let path = plain(name)?;
    let names = path.split(|&byte| byte == b'/').map(|name| {
        let dots = matches!(name, b"" | b"." | b"..");
        (!dots).then(|| name.to_vec())
    });
    names.collect::<Option<_>>().map(Target::Path)
}

/// The target of an object's link, given its path in stored names, with a slash before each.
pub fn link_target(path: &[u8]) -> Vec<u8> {
    [UP, path].concat()
}

/// Decodes the escapes of a name; `None` if they are invalid.
fn plain(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !name.contains(&b'%') {
        return Some(Cow::Borrowed(name));
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let (code, after) = rest.split_at_checked(2)?;
        plain.push(match code {
            b"2F" | b"2f" => b'/',
            b"25" => b'%',
            _ => return None,
        });
        rest = after;
    }
    Some(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_round_trip() {
        for path in [&b"/a"[..], b"/d/e/f", b"/50%/a%2Fb", b"/x@[0]", b"/\xff/y"] {
            let name = link_name(path, ObjectId(7));
            assert!(!name.contains(&b'/'));
            let names = path[1..].split(|&byte| byte == b'/').map(<[u8]>::to_vec);
            assert_eq!(target(&name), Some(Target::Path(names.collect())));
        }
        assert_eq!(link_name(b"/d/x@[0]", ObjectId(7)), b"d%2Fx@[0]");
        assert_eq!(link_target(b"/d/x@[0]"), b"../../../d/x@[0]");
    }

    #[test]
    fn long_paths_are_named_by_inode_number() {
        let path = [b"/".as_slice(), &[b'x'; 255], b"/y"].concat();
        let name = link_name(&path, ObjectId(7));
        assert_eq!(name, b"%i7");
        assert_eq!(target(&name), Some(Target::Ino(ObjectId(7))));
        assert_eq!(link_name(b"/", ObjectId(1)), b"%i1");
    }

    #[test]
    fn invalid_names_are_none() {
        for name in [&b"a%2"[..], b"%zz", b"a%2F%2Fb", b"..%2Fa", b"%ix"] {
            assert_eq!(target(name), None);
        }
        assert_eq!(
            query(b"path = %2Fa* and x = 5%25").unwrap(),
            "path = /a* and x = 5%"
        );
        assert_eq!(query(b"\xff"), None);
    }
}

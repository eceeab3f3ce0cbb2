//! Executes operations: one system call or one request each, and the change of the model.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::json;
use slabfs_tests::file::{self, named};
use slabfs_tests::tool::call;

use super::dice::Step;
use super::load::Worker;
use super::model::{Node, ROW, ROWS};

/// The most open files without names.
const HELD: usize = 4;

impl Worker {
    /// Executes the operation, and applies it to the model, also when it fails.
    pub(super) fn play(&mut self, step: &Step) -> std::io::Result<()> {
        let at = |name: &str| self.dir.join(name);
        let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
        match step {
            Step::Create(name) => {
                self.model.create(name);
                let options = &mut std::fs::OpenOptions::new();
                file::close(options.write(true).create_new(true).open(at(name))?)
            }
            Step::Mkdir(name) => {
                self.model.names.insert(name.clone(), Node::Directory);
                std::fs::create_dir(at(name))
            }
            Step::Symlink(name, target) => {
                let node = Node::Symlink(target.clone());
                self.model.names.insert(name.clone(), node);
                std::os::unix::fs::symlink(target, at(name))
            }
            Step::Elastic(name) => {
                if let Some(object) = self.model.object(name) {
                    object.elastic = true;
                }
                let max = format!("{ROWS},{ROW}");
                file::set_xattr(&at(name), "user.slabfs.max_dims", max, 0)
            }
            Step::Layout(name, layout) => {
                file::set_xattr(&at(name), "user.slabfs.layout", layout, 0)
            }
            Step::Dims(name, rows) => {
                let mut how = "user.slabfs.dims";
                if let Some(object) = self.model.object(name) {
                    if object.dims.is_some() {
                        how = "user.slabfs.resize";
                    }
                    object.resize(*rows);
                }
                file::set_xattr(&at(name), how, format!("{rows},{ROW}"), 0)
            }
            Step::Write { .. } => self.write(step),
            Step::Sync(name) => {
                File::open(at(name))?.sync_all()?;
                if let Some(object) = self.model.object(name) {
                    object.synced();
                }
                Ok(())
            }
            Step::Empty(name) => {
                if let Some(object) = self.model.object(name) {
                    object.empty();
                }
                file::close(File::create(at(name))?)
            }
            Step::Tag(name, tag, value) => {
                if let Some(object) = self.model.object(name) {
                    object.tags.insert(tag.clone(), value.clone());
                }
                file::set_xattr(&at(name), &format!("user.t{tag}"), value, 0)
            }
            Step::Untag(name, tag) => {
                if let Some(object) = self.model.object(name) {
                    object.tags.remove(tag);
                }
                file::remove_xattr(&at(name), &format!("user.t{tag}"))
            }
            Step::Rename(from, to) => {
                self.model.rename(from, to);
                std::fs::rename(at(from), at(to))
            }
            Step::Exchange(a, b) => {
                self.model.exchange(a, b);
                let here = nix::fcntl::AT_FDCWD;
                Ok(nix::fcntl::renameat2(here, &at(a), here, &at(b), flags)?)
            }
            Step::Link(from, to) => {
                self.model.link(from, to);
                std::fs::hard_link(at(from), at(to))
            }
            Step::Unlink(name) => {
                self.model.remove(name);
                std::fs::remove_file(at(name))
            }
            Step::UnlinkOpen(name) => {
                let file = std::fs::OpenOptions::new().write(true).open(at(name))?;
                self.model.remove(name);
                std::fs::remove_file(at(name))?;
                if self.held.len() >= HELD {
                    self.held.remove(0);
                }
                self.held.push(file);
                Ok(())
            }
            Step::Rmdir(name) => {
                self.model.names.remove(name);
                std::fs::remove_dir(at(name))
            }
            Step::SyncDir => file::sync_dir(&self.dir),
            Step::TagMany(changes) => self.tag_many(changes),
            Step::CreateMany(made) => self.create_many(made),
        }
    }

    /// A row, through the file or through a selection of it.
    fn write(&mut self, step: &Step) -> std::io::Result<()> {
        let Step::Write {
            name,
            row,
            byte,
            selected,
            sync,
        } = step
        else {
            return Ok(());
        };
        let path = self.dir.join(name);
        if let Some(object) = self.model.object(name) {
            object.write(*row, *byte);
        }
        let (path, offset) = if *selected {
            (named(&path, &format!("@[{row}]")), 0)
        } else {
            (path, (row * ROW) as u64)
        };
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&[*byte; ROW], offset)?;
        if *sync {
            file.sync_all()?;
            if let Some(object) = self.model.object(name) {
                object.synced();
            }
        }
        file::close(file)
    }

    /// Tags of several objects in one request.
    fn tag_many(&mut self, changes: &[(String, String, u32)]) -> std::io::Result<()> {
        let mut all = Vec::new();
        for (name, tag, value) in changes {
            let mut set = serde_json::Map::new();
            set.insert(format!("t{tag}"), json!(value));
            all.push(json!({"path": format!("w{}/{name}", self.number), "set": set}));
            if let Some(object) = self.model.object(name) {
                object.tags.insert(tag.clone(), value.to_string());
            }
        }
        call(&self.mnt, &json!({"op": "tag", "changes": all})).map(drop)
    }

    /// Several files in one request.
    fn create_many(&mut self, made: &[(String, u32)]) -> std::io::Result<()> {
        let mut all = Vec::new();
        for (name, value) in made {
            let path = format!("w{}/{name}", self.number);
            all.push(json!({"path": path, "tags": {"t1": value}}));
            self.model.create(name);
            if let Some(object) = self.model.object(name) {
                object.tags.insert("1".to_owned(), value.to_string());
            }
        }
        call(&self.mnt, &json!({"op": "create", "objects": all})).map(drop)
    }
}

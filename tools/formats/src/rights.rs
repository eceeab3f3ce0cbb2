//! The rights of copies: who cannot read the original cannot read the copy either.

use rustix::fs::Mode;
use rustix::process::umask;

/// While there is one, new files and directories have no rights for groups and others that a mode does not have.
#[derive(Debug)]
pub(crate) struct Narrowed {
    before: Mode,
}

impl Narrowed {
    /// Narrows the process's umask to a mode.
    pub(crate) fn to(mode: u32) -> Narrowed {
        let mut mask = 0;
        for class in [0o10, 0o1] {
            // Who cannot read a file cannot enter a directory either.
            match (mode / class) & 0o6 {
                0o4 => mask |= 0o2 * class,
                0o6 => {}
                _ => mask |= 0o7 * class,
            }
        }
        let before = umask(Mode::empty());
        umask(before | Mode::from_raw_mode(mask));
        Narrowed { before }
    }
}

/// The mode of a new file. No other thread may make files at that time.
pub(crate) fn of_new_files() -> u32 {
    let mask = umask(Mode::empty());
    umask(mask);
    0o666 & !mask.as_raw_mode()
}

impl Drop for Narrowed {
    fn drop(&mut self) {
        umask(self.before);
    }
}

use std::fmt::Display;
use std::fmt::Formatter;

use bitflags::bitflags;

bitflags! {
    /// Flags of [`getlk`](crate::Filesystem::getlk) and [`setlk`](crate::Filesystem::setlk).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct LkFlags: u32 {
        /// The lock is a BSD lock (`flock(2)`), not a POSIX record lock or an open file
        /// description lock (`fcntl(2)`).
        const FUSE_LK_FLOCK = 1 << 0;
    }
}

impl Display for LkFlags {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Display::fmt(&self.bits(), f)
    }
}

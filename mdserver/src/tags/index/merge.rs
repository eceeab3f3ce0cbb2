//! Many ordered sources as one: where two have the same entry, the newer one speaks.

use super::IndexError;
use super::memtable::MemCursor;
use super::run::RunCursor;

/// A place in one source.
#[derive(Debug)]
pub(super) enum Cursor {
    /// In memory.
    Mem(MemCursor),
    /// In a file.
    Run(RunCursor),
}

impl Cursor {
    #[inline]
    fn valid(&self) -> bool {
        match self {
            Self::Mem(cursor) => cursor.valid(),
            Self::Run(cursor) => cursor.valid(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Self::Mem(cursor) => cursor.key(),
            Self::Run(cursor) => cursor.key(),
        }
    }

    #[inline]
    fn gone(&self) -> bool {
        match self {
            Self::Mem(cursor) => cursor.gone(),
            Self::Run(cursor) => cursor.gone(),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<(), IndexError> {
        match self {
            Self::Mem(cursor) => {
                cursor.advance();
                Ok(())
            }
            Self::Run(cursor) => cursor.advance(),
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        match self {
            Self::Mem(cursor) => {
                cursor.seek(key);
                Ok(())
            }
            Self::Run(cursor) => cursor.seek(key),
        }
    }
}

/// Where the merge stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The sources must be compared.
    Compare,
    /// The entry of source `lead` was given out; `rival`, if any, has the least entry of the others.
    Given {
        /// Whose entry it was.
        lead: usize,
        /// Who comes next at the latest.
        rival: Option<usize>,
    },
    /// Nothing is left.
    End,
}

/// Several sources, newest first, as one.
#[derive(Debug)]
pub(super) struct Merge {
    sources: Vec<Cursor>,
    state: State,
}

impl Merge {
    /// All of `sources`, which stand where reading begins.
    pub(super) fn new(sources: Vec<Cursor>) -> Self {
        Self {
            sources,
            state: State::Compare,
        }
    }

    /// Steps to the next entry; false at the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<bool, IndexError> {
        if let State::Given { lead, rival } = self.state {
            self.sources[lead].advance()?;
            // While one source is alone in front, nobody else has to be asked.
            let first = &self.sources[lead];
            let alone = match rival {
                None => first.valid(),
                Some(rival) => first.valid() && first.key() < self.sources[rival].key(),
            };
            if alone {
                return Ok(true);
            }
        }
        self.compare()
    }

    /// Finds the least entry, steps the older sources with the same one over it.
    fn compare(&mut self) -> Result<bool, IndexError> {
        let mut lead: Option<usize> = None;
        for (at, source) in self.sources.iter().enumerate() {
            if source.valid() && lead.is_none_or(|lead| source.key() < self.sources[lead].key()) {
                lead = Some(at);
            }
        }
        let Some(lead) = lead else {
            self.state = State::End;
            return Ok(false);
        };
        let mut rival: Option<usize> = None;
        for at in 0..self.sources.len() {
            if at == lead || !self.sources[at].valid() {
                continue;
            }
            if self.sources[at].key() == self.sources[lead].key() {
                self.sources[at].advance()?;
                if !self.sources[at].valid() {
                    continue;
                }
            }
            if rival.is_none_or(|rival| self.sources[at].key() < self.sources[rival].key()) {
                rival = Some(at);
            }
        }
        self.state = State::Given { lead, rival };
        Ok(true)
    }

    /// The entry given out last; nothing before the first and behind the last.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        match self.state {
            State::Given { lead, .. } => self.sources[lead].key(),
            State::Compare | State::End => &[],
        }
    }

    /// Whether the entry given out last is gone.
    #[inline]
    pub(super) fn gone(&self) -> bool {
        match self.state {
            State::Given { lead, .. } => self.sources[lead].gone(),
            State::Compare | State::End => false,
        }
    }

    /// Goes forward so that the next entry given out is the first one not less than `key`.
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        if let State::Given { lead, .. } = self.state
            && self.sources[lead].key() >= key
        {
            return Ok(());
        }
        for source in &mut self.sources {
            if source.valid() && source.key() < key {
                source.seek(key)?;
            }
        }
        self.state = State::Compare;
        Ok(())
    }
}

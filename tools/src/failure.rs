//! How a subcommand ends badly: wrong usage (status 2) apart from everything else (status 1), but for a program that
//! it was to run and could not (126 and 127).
//!
//! Usage is what can be seen to be wrong in the command line itself, or in the config, key or list file
//! that it names: unknown, unreadable or missing flags and values, and such as exclude each other. What
//! depends on what a directory or a filesystem holds, or on what somebody may do, is not.

use std::process::ExitCode;

use crate::onmount::Refused;

/// Exit status of a command line or config that asks for something that cannot be.
pub(crate) const USAGE: u8 = 2;
/// Exit status of a right request that did not work.
const FAILURE: u8 = 1;
/// Exit status where a program that was to be run is there and does not start, as of `env` and shells.
pub(crate) const NOT_STARTED: u8 = 126;
/// The same where there is none of that name.
pub(crate) const NO_PROGRAM: u8 = 127;

/// A request that was wrong in itself; its text says what is allowed.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A failure with a status of its own.
#[derive(Debug)]
struct Ending {
    status: u8,
    text: String,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Ending {}

/// An `anyhow` error that ends the process with this status.
pub(crate) fn ending(status: u8, text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Ending {
        status,
        text: text.into(),
    })
}

/// An `anyhow` error that ends the process with the usage status.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(text.into()))
}

/// What a mount said of a text that stands in the command line as it is: a query, a request.
pub(crate) fn of_text(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Refused>() {
        Some(refused) if refused.errno == libc::EINVAL => usage(refused.text.clone()),
        _ => error,
    }
}

/// The exit status that `error` stands for.
pub(crate) fn status(error: &anyhow::Error) -> u8 {
    if let Some(ending) = error.downcast_ref::<Ending>() {
        ending.status
    } else if error.chain().any(|cause| cause.is::<Usage>()) {
        USAGE
    } else {
        FAILURE
    }
}

/// Prints `error` with its causes and gives the exit status; tells a waiting parent as well.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let text = format!("{error:#}");
    crate::daemon::tell_parent(&crate::daemon::Outcome::Failed {
        status: status(error),
        text: text.clone(),
    });
    crate::output::tell(&format!("slabfs: {text}"));
    ExitCode::from(status(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn usage_is_found_under_context() {
        let wrong: anyhow::Result<()> = Err(usage("no")).context("while starting");
        assert_eq!(status(&wrong.expect_err("an error")), USAGE);
        assert_eq!(status(&anyhow::anyhow!("other")), FAILURE);
        // What a mount calls invalid is wrong usage only where it is about the text that was typed.
        let refused = || {
            anyhow::Error::new(Refused {
                errno: libc::EINVAL,
                text: "no".to_owned(),
                index: None,
            })
        };
        assert_eq!(status(&refused()), FAILURE);
        assert_eq!(status(&of_text(refused())), USAGE);
    }
}

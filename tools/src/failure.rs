//! Errors of subcommands and their exit status: 2 for wrong usage, 1 for everything else, 3 for a failed journal, and
//! 126 and 127 when the program to run could not be run.
//!
//! An error is wrong usage if the command line itself shows it, or the config, key or list file that it names:
//! unknown, unreadable or missing flags and values, and flags that exclude each other. Errors that depend on
//! the contents of a directory or filesystem, or on permissions, are not.

use std::process::ExitCode;

use crate::onmount::Refused;

/// Exit status of an invalid command line or config.
pub(crate) const USAGE: u8 = 2;
/// Exit status of a valid request that failed.
const FAILURE: u8 = 1;
/// Exit status of a service that ends because its journal cannot be synced (`--on-journal-error exit`).
pub(crate) const JOURNAL: u8 = 3;
/// Exit status where the program to run exists and does not start, as with `env` and shells.
pub(crate) const NOT_STARTED: u8 = 126;
/// Exit status where the program to run does not exist.
pub(crate) const NO_PROGRAM: u8 = 127;

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

/// An invalid request; its text says what is allowed.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    ending(USAGE, text)
}

/// Converts a mount's error about a text copied from the command line, such as a query or a request, to a usage
/// error.
pub(crate) fn of_text(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Refused>() {
        Some(refused) if refused.errno == libc::EINVAL => usage(refused.text.clone()),
        _ => error,
    }
}

/// The exit status that `error` stands for.
pub(crate) fn status(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<Ending>()
        .map_or(FAILURE, |ending| ending.status)
}

/// Prints `error` with its causes and returns the exit status; reports it to a waiting parent as well.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let text = format!("{error:#}");
    crate::daemon::notify_parent(&crate::daemon::Outcome::Failed {
        status: status(error),
        text: text.clone(),
    });
    crate::output::error_line(&format!("slabfs: {text}"));
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
        // EINVAL from a mount is wrong usage only if it concerns the text that was typed.
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

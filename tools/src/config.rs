//! The config file: TOML whose keys are the names of the subcommand's flags.
//!
//! It is converted to flags that precede those of the command line, and a later flag overrides an earlier one.
//! So flags override the file, and every value goes through the same parser and gets the same messages. Pure
//! except for reading the file, for which the caller passes a function.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, Command};

/// Flags that a config file cannot contain.
const NOT_KEYS: [&str; 3] = ["config", "help", "version"];

/// Returns `argv` with the flags of its `--config FILE` inserted after the subcommand's name.
///
/// `command` must be built (`Command::build`). Without `--config` the arguments are returned unchanged.
pub(crate) fn merge(
    command: &Command,
    argv: Vec<OsString>,
    read: &dyn Fn(&Path) -> std::io::Result<String>,
) -> Result<Vec<OsString>, String> {
    let Some(at) = argv
        .iter()
        .skip(1)
        .position(|arg| !starts_with_dash(arg))
        .map(|i| i + 1)
    else {
        return Ok(argv);
    };
    let Some(subcommand) = command.find_subcommand(&argv[at]) else {
        return Ok(argv);
    };
    let has_config = subcommand
        .get_arguments()
        .any(|arg| arg.get_long() == Some("config"));
    let Some(file) = config_of(&argv[at + 1..]).filter(|_| has_config) else {
        return Ok(argv);
    };
    let path = Path::new(&file);
    let text = read(path)
        .map_err(|error| format!("cannot read the config file {}: {error}", path.display()))?;
    let flags = flags_of(subcommand, &text)
        .map_err(|error| format!("config file {}: {error}", path.display()))?;
    let mut merged = argv;
    merged.splice(at + 1..at + 1, flags);
    Ok(merged)
}

fn starts_with_dash(arg: &OsString) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

/// The value of the last `--config` before a `--`.
fn config_of(args: &[OsString]) -> Option<OsString> {
    let mut found = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            break;
        }
        if arg == "--config" {
            found = args.next().cloned();
        } else if let Some(value) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            found = Some(value.into());
        }
    }
    found
}

/// The flags that a config text is equivalent to.
fn flags_of(subcommand: &Command, text: &str) -> Result<Vec<OsString>, String> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("not TOML: {}", error.to_string().trim_end()))?;
    let known: Vec<&Arg> = subcommand
        .get_arguments()
        .filter(|arg| arg.get_long().is_some_and(|name| !NOT_KEYS.contains(&name)))
        .collect();
    let mut flags = Vec::new();
    for (key, value) in &table {
        let Some(arg) = known.iter().find(|arg| arg.get_long() == Some(key)) else {
            let mut names: Vec<&str> = known.iter().filter_map(|arg| arg.get_long()).collect();
            names.sort_unstable();
            return Err(format!(
                "unknown key {key:?}; `slabfs {}` knows: {}",
                subcommand.get_name(),
                names.join(", ")
            ));
        };
        push_flag(arg, key, value, &mut flags)?;
    }
    Ok(flags)
}

fn push_flag(
    arg: &Arg,
    key: &str,
    value: &toml::Value,
    flags: &mut Vec<OsString>,
) -> Result<(), String> {
    let flag = format!("--{key}");
    match arg.get_action() {
        ArgAction::SetTrue => match value {
            toml::Value::Boolean(true) => flags.push(flag.into()),
            toml::Value::Boolean(false) => {}
            _ => return Err(format!("{key} must be true or false, not {value}")),
        },
        ArgAction::Count => match value {
            toml::Value::Integer(times @ 0..=9) => {
                flags.extend((0..*times).map(|_| OsString::from(&flag)));
            }
            _ => return Err(format!("{key} must be a number from 0 to 9, not {value}")),
        },
        _ => {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(_) | toml::Value::Float(_) => value.to_string(),
                _ => return Err(format!("{key} must be a text or a number, not {value}")),
            };
            // One word, so that a value that begins with a dash is not taken for a flag.
            flags.push(format!("{flag}={text}").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let mut command = Command::new("slabfs").arg(
            Arg::new("verbose")
                .short('v')
                .long("verbose")
                .global(true)
                .action(ArgAction::Count),
        );
        command = command.subcommand(
            Command::new("up")
                .arg(Arg::new("config").long("config"))
                .arg(Arg::new("data").long("data"))
                .arg(Arg::new("servers").long("servers"))
                .arg(
                    Arg::new("read-only")
                        .long("read-only")
                        .action(ArgAction::SetTrue),
                )
                .arg(Arg::new("mountpoint")),
        );
        command = command.subcommand(Command::new("info").arg(Arg::new("path")));
        command.build();
        command
    }

    fn merged(text: &'static str, argv: &[&str]) -> Result<Vec<String>, String> {
        let argv = argv.iter().map(OsString::from).collect();
        let merged = merge(&command(), argv, &|_| Ok(text.to_owned()))?;
        Ok(merged
            .into_iter()
            .map(|arg| arg.into_string().expect("text"))
            .collect())
    }

    #[test]
    fn keys_become_flags_before_the_command_line() {
        let argv = [
            "slabfs", "-v", "up", "--data", "b", "--config", "c.toml", "mnt",
        ];
        let text = "data = 'a'\nservers = 3\nread-only = true\nverbose = 2";
        let merged = merged(text, &argv).expect("merged");
        assert_eq!(merged[..3], ["slabfs", "-v", "up"]);
        for flag in ["--data=a", "--servers=3", "--read-only"] {
            assert!(
                merged[3..8].contains(&flag.to_owned()),
                "{flag} in {merged:?}"
            );
        }
        assert_eq!(merged[8..], argv[3..]);
    }

    #[test]
    fn without_config_nothing_changes() {
        for argv in [
            &["slabfs", "up", "mnt"][..],
            &["slabfs", "up", "--", "--config", "x"],
            &["slabfs", "info", "--config", "x"],
            &["slabfs"],
            &["slabfs", "nonsense", "--config", "x"],
        ] {
            assert_eq!(merged("data = 'a'", argv).expect("merged"), argv);
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_the_known_ones() {
        let error = merged("dta = 'a'", &["slabfs", "up", "--config=c.toml"]).expect_err("unknown");
        assert!(
            error.contains("c.toml") && error.contains("\"dta\""),
            "{error}"
        );
        assert!(
            error.contains("data, read-only, servers, verbose"),
            "{error}"
        );
    }

    #[test]
    fn wrong_values_are_refused() {
        let argv = ["slabfs", "up", "--config", "c.toml"];
        for text in [
            "read-only = 1",
            "data = [1]",
            "verbose = true",
            "data = ",
            "config = 'x'",
        ] {
            assert!(merged(text, &argv).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let argv = ["slabfs", "up", "--config", "gone.toml"]
            .iter()
            .map(OsString::from)
            .collect();
        let read = |_: &Path| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        assert!(
            merge(&command(), argv, &read)
                .expect_err("missing")
                .contains("gone.toml")
        );
    }
}

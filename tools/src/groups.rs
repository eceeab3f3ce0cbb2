//! The list of commands in `slabfs --help`: one line each, by what they are for.

use clap::Command;

/// The groups, with the names of their commands.
pub(crate) const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Run it",
        &["up", "mount", "umount", "mdserver", "objserver", "stop"],
    ),
    (
        "Data and tags",
        &[
            "create", "info", "set", "layout", "view", "import", "export", "collate", "couple",
            "tag", "untag", "tags", "find",
        ],
    ),
    ("Watch it", &["status", "stats", "servers", "locks"]),
    (
        "Look after it",
        &[
            "fsck",
            "drain",
            "meta",
            "call",
            "completions",
            "man",
            "demo",
        ],
    ),
];

/// Shows the commands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<12} {about}\n"));
        }
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\nOptions:\n{{options}}{{after-help}}"
    ))
}

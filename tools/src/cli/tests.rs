//! The command line as users type it: what is accepted, what is refused, and with which message.

use super::*;

fn parsed(args: &[&str]) -> Result<Cli, clap::Error> {
    parse(
        std::iter::once("slabfs")
            .chain(args.iter().copied())
            .map(OsString::from)
            .collect(),
    )
}

fn refused(args: &[&str]) -> String {
    match parsed(args) {
        Ok(_) => panic!("{args:?} was understood"),
        Err(error) => {
            assert_eq!(error.exit_code(), 2, "{args:?}");
            error.to_string()
        }
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_help_with_examples() {
    let mut command = Cli::command();
    command.build();
    for sub in command.get_subcommands_mut() {
        if sub.is_hide_set() || ["help", "demo"].contains(&sub.get_name()) {
            continue;
        }
        let name = sub.get_name().to_owned();
        let help = sub.render_long_help().to_string();
        assert!(help.contains("Example"), "{name} has no examples");
        for arg in sub.get_arguments().filter(|arg| !arg.is_hide_set()) {
            assert!(
                arg.get_help().is_some(),
                "{name}: {} has no help",
                arg.get_id()
            );
        }
    }
}

#[test]
fn each_command_is_in_one_group_and_the_list_fits_a_screen() {
    let mut command = groups::grouped(Cli::command());
    let listed: Vec<&str> = (groups::GROUPS.iter())
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let times = listed
            .iter()
            .filter(|name| **name == sub.get_name())
            .count();
        assert_eq!(times, 1, "{}", sub.get_name());
    }
    let known: Vec<&str> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    assert!(listed.iter().all(|name| known.contains(name)));
    let help = command.render_help().to_string();
    assert!(help.lines().count() <= 53, "{help}");
    let wide = help.lines().find(|line| line.chars().count() > 90);
    assert_eq!(wide, None);
}

#[test]
fn every_command_has_a_manual_page_and_is_completed() {
    let dir = tempfile::tempdir().expect("dir");
    clap_mangen::generate_to(Cli::command(), dir.path()).expect("pages");
    let mut script = Vec::new();
    let shell = clap_complete::Shell::Bash;
    clap_complete::generate(shell, &mut Cli::command(), "slabfs", &mut script);
    let script = String::from_utf8(script).expect("text");
    for sub in Cli::command()
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
    {
        let name = sub.get_name();
        let page = dir.path().join(format!("slabfs-{name}.1"));
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(name == "demo" || page.contains("Example"), "{name}");
        assert!(script.contains(&format!("slabfs,{name})")), "{name}");
    }
}

#[test]
fn the_commands_of_the_readme_are_understood() {
    for line in [
        "up mnt",
        "up --data data --servers 2 --daemon mnt",
        "up --data data --listen unix:md.sock mnt -v",
        "mdserver --listen unix:md.sock --data md",
        "objserver --listen unix:os1.sock --md unix:md.sock --data os1",
        "mount --md unix:md.sock mnt",
        "mount --md tcp:node7:7070 --key-file key --io-timeout 5s --read-only mnt",
        "umount mnt",
        "stop --data md",
        "create mnt/temp --dims 16,16 --dtype f4",
        "create mnt/t --dims 0,4 --dtype f8 --max-dims unlimited,4 --fill -1 --codec lz4",
        "info mnt/temp --json",
        "set mnt/temp --dims 32,16",
        "layout mnt/temp --svg temp.svg --axes 0,2 --at 3",
        "stats mnt --json",
        "servers mnt",
        "fsck --data data --deep",
        "fsck --data md --chunks os1 --chunks os2 --json",
        "demo table",
        "demo table --mount mnt",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        if let Err(error) = parsed(&args) {
            panic!("slabfs {line}: {error}");
        }
    }
}

#[test]
fn wrong_lines_are_refused_with_advice() {
    assert!(refused(&["up", "--dta", "x", "mnt"]).contains("--data"));
    assert!(refused(&["up"]).contains("MOUNTPOINT"));
    assert!(refused(&["mount", "mnt"]).contains("--md"));
    assert!(refused(&["mdserver", "--listen", "md.sock", "--data", "md"]).contains("unix:PATH"));
    assert!(refused(&["up", "--servers", "0", "mnt"]).contains("--servers"));
    assert!(refused(&["mount", "--md", "unix:a", "--io-timeout", "soon", "m"]).contains("30s"));
    assert!(refused(&["crate", "x"]).contains("create"));
    assert!(refused(&["layout", "x", "--axes", "1"]).contains("axes"));
}

#[test]
fn a_config_file_fills_in_and_flags_win() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("slabfs.toml");
    std::fs::write(&file, "data = '/srv/a'\nservers = 3\nread-only = true\n").expect("file");
    let file = file.to_str().expect("text");
    let cli = parsed(&["up", "--config", file, "--servers", "5", "mnt"]).expect("understood");
    let Command::Up(args) = cli.command else {
        panic!("another command")
    };
    let text = format!("{args:?}");
    assert!(
        text.contains("/srv/a") && text.contains("read_only: true"),
        "{text}"
    );
    assert!(text.contains("servers: Some(5)"), "{text}");
}

#[test]
fn daemon_and_foreground_override_each_other() {
    let cli = parsed(&["up", "--daemon", "--foreground", "mnt"]).expect("understood");
    let Command::Up(args) = cli.command else {
        panic!("another command")
    };
    assert!(format!("{args:?}").contains("daemon: false"));
}

#[test]
fn a_bad_config_is_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("slabfs.toml");
    std::fs::write(&file, "dims = 3\n").expect("file");
    let text = refused(&["up", "--config", file.to_str().expect("text"), "mnt"]);
    assert!(
        text.contains("unknown key \"dims\"") && text.contains("data"),
        "{text}"
    );
    std::fs::write(&file, "io-timeout = 'soon'\n").expect("file");
    let text = refused(&[
        "mount",
        "--config",
        file.to_str().expect("text"),
        "--md",
        "unix:a",
        "m",
    ]);
    assert!(text.contains("soon"), "{text}");
}

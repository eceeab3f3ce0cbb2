//! What an installation gives to shells and readers: completions that bash, zsh and fish find by themselves, and manual
//! pages. Installed as `tools/library` does it; the shells come with `tools/setup --tests`.

use std::process::Command;

use slabfs_tests::library::prefix;
use slabfs_tests::tool::{Outcome, run};
use slabfs_tests::{Area, slabfs};

/// Runs a program that finds what is installed, for a user who has no files.
fn installed(program: &str, args: &[&str]) -> Outcome {
    let (prefix, user) = (prefix(), Area::new());
    let path = std::env::var("PATH").unwrap_or_default();
    run(Command::new(program)
        .args(args)
        .env("PATH", format!("{}:{path}", prefix.join("bin").display()))
        .env(
            "XDG_DATA_DIRS",
            format!("{}:/usr/share", prefix.join("share").display()),
        )
        .env("MANPATH", prefix.join("share/man"))
        .env("HOME", user.path())
        .env("LC_ALL", "C.UTF-8")
        .env("SITE", prefix.join("share/zsh/site-functions"))
        .current_dir(user.path()))
}

/// What a shell makes of what was typed before the Tab key.
const COMPLETED: [(&str, &str); 4] = [
    ("slabfs lay", "slabfs layout"),
    ("slabfs create --dty", "slabfs create --dtype"),
    ("slabfs meta du", "slabfs meta dump"),
    // A hidden command begins with this, too.
    ("slabfs dem", "slabfs demo"),
];

#[test]
fn bash_completes() {
    let script = r#"
        . /usr/share/bash-completion/bash_completion
        complete -p slabfs && exit 3      # only the lookup may define it
        _completion_loader slabfs
        function=$(complete -p slabfs | sed 's/.* -F \([^ ]*\) .*/\1/')
        for line in "$@"; do
            COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
            $function slabfs "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMP_WORDS[*]:0:COMP_CWORD} ${COMPREPLY[*]}"
        done"#;
    let typed = COMPLETED.map(|(typed, _)| typed);
    let said = installed(
        "bash",
        &[&["--norc", "-c", script, "bash"][..], &typed].concat(),
    )
    .ok();
    let lines: Vec<&str> = said.text().lines().collect();
    assert_eq!(lines, COMPLETED.map(|(_, line)| line), "{}", said.report());
}

/// On a terminal, with the Tab key; a function in place of the command prints what it was given.
#[test]
fn zsh_completes() {
    let script = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell 'PS1=; fpath=($SITE $fpath); autoload -Uz compinit; compinit -u -D'
        zpty -w shell 'slabfs() { print "given"": slabfs $* :end" }; print "rea""dy"'
        zpty -r -m shell said '*ready*'
        for line in "$@"; do
            zpty -w shell "$line"$'\t'
            zpty -r -m shell said '*given: *:end*'
            print -r -- "${${said##*given: }%% :end*}"
        done"#;
    let typed = COMPLETED.map(|(typed, _)| typed);
    let said = installed("zsh", &[&["-f", "-c", script, "zsh"][..], &typed].concat()).ok();
    let lines: Vec<&str> = said.text().lines().collect();
    assert_eq!(lines, COMPLETED.map(|(_, line)| line), "{}", said.report());
}

#[test]
fn fish_completes() {
    let script = r#"for line in $argv; complete --do-complete="$line"; end"#;
    let typed = COMPLETED.map(|(typed, _)| typed);
    let said = installed("fish", &[&["-c", script][..], &typed].concat()).ok();
    let words: Vec<&str> = said
        .text()
        .lines()
        .map(|line| line.split('\t').next().expect("a word"))
        .collect();
    let last = |line: &'static str| line.rsplit(' ').next().expect("a word");
    assert_eq!(
        words,
        COMPLETED.map(|(_, line)| last(line)),
        "{}",
        said.report()
    );
}

#[test]
fn a_shell_that_is_not_known_is_refused() {
    slabfs(["completions", "tcsh"]).fails(2, &["bash", "zsh", "fish"]);
}

/// Examples can be copied from a page as they can from the help.
#[test]
fn manual_pages_open() {
    for (page, words) in [
        (
            "slabfs",
            &["N-dimensional arrays as files", "slabfs-find(1)"][..],
        ),
        (
            "slabfs-find",
            &[
                "Find objects by tags",
                "EXAMPLES",
                "slabfs find 'dtype = f4' --in mnt --paths0 | xargs -0 ls -l",
            ],
        ),
        ("slabfs-meta-load", &["EXAMPLES", "--data new/md"]),
        ("slabfs_read_box", &["slabfs_read_box"]),
    ] {
        let shown = installed("man", &["-P", "cat", page]).ok();
        for word in words {
            assert!(
                shown.text().contains(word),
                "{page}: {word}:\n{}",
                shown.text()
            );
        }
    }
}

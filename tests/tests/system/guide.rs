//! The guide (`docs/guide.md`), line by line: its `console` blocks are run by one shell in a new directory, and
//! the output of every line is compared with that on the page.
//!
//! In a block a line that begins with `$ ` is a command, lines with `>` continue it, and the others are its
//! output, on stdout or stderr. `…` stands for any text within a line, alone on a line for any lines. The
//! directory that the page calls `/tmp/try` is the test's own, and its ports are free ones. A command may fail
//! only where the page shows its error.

use slabfs_tests::{Service, Workdir, needs_mount, poll};

/// The directory the page works in.
const DIR: &str = "/tmp/try";
/// The ports it uses.
const PORTS: [&str; 2] = ["7070", "7071"];
/// Marks the end of one command's output.
const MARK: &str = "@@guide";

/// One command of the page and the output that the page shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    /// Its line in the page, from 1.
    line: usize,
    command: String,
    shown: Vec<String>,
}

#[test]
fn the_guide_is_true() {
    needs_mount!();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide.md");
    let page = std::fs::read_to_string(page).expect("the guide");
    let run = Run(Workdir::new());
    let steps = steps(&run.adapt(&page));
    assert!(steps.len() > 100, "only {} lines to try", steps.len());
    let mut wrong = String::new();
    for (step, (said, status)) in steps.iter().zip(run.answers(&steps)) {
        let fits = all_match(&step.shown, &said);
        if !fits || (status != 0 && step.shown.is_empty()) {
            wrong += &format!(
                "docs/guide.md:{}: {}\n--- shown:\n{}\n--- said (status {status}):\n{}\n\n",
                step.line,
                step.command,
                step.shown.join("\n"),
                said.join("\n")
            );
        }
    }
    assert!(wrong.is_empty(), "the guide is not true:\n{wrong}");
}

/// The `console` blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                line: number + 1,
                command: command.to_owned(),
                shown: Vec::new(),
            });
        } else {
            let step = steps.last_mut().expect("a block begins with a command");
            let more = line.strip_prefix("> ").or((line == ">").then_some(""));
            match more {
                Some(more) if step.shown.is_empty() => step.command += &format!("\n{more}"),
                _ => step.shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// Whether `said` matches the output on the page, line by line.
fn all_match(shown: &[String], said: &[String]) -> bool {
    match (shown.split_first(), said.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "…" => {
            (0..=said.len()).any(|skipped| all_match(rest, &said[skipped..]))
        }
        (Some((shown, rest)), Some((line, more))) => matches(shown, line) && all_match(rest, more),
        _ => false,
    }
}

/// Whether `line` matches `shown`, in which `…` stands for any text.
fn matches(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

/// A directory in which the page is run.
struct Run(Workdir);

impl Run {
    /// The page with this directory and these ports.
    fn adapt(&self, page: &str) -> String {
        let mut page = page.replace(DIR, &self.0.path().display().to_string());
        for (name, port) in PORTS.iter().zip(self.0.ports()) {
            page = page.replace(name, &port.to_string());
        }
        page
    }

    /// Runs all commands in one shell; returns the output lines and the status of each.
    fn answers(&self, steps: &[Step]) -> Vec<(Vec<String>, i32)> {
        let mut script = String::from("exec 2>&1\n");
        for (number, step) in steps.iter().enumerate() {
            script += &format!("{}\nprintf '\\n{MARK} {number} %d\\n' $?\n", step.command);
        }
        let script = self.0.write_outside("guide.sh", script);
        let mut bash = self.0.bash();
        bash.arg(&script);
        let shell = Service::start_command(&self.0.path(), "guide", bash);
        let mut answers = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let mark = format!("\n{MARK} {number} ");
            let what = format!("docs/guide.md:{}: {}", step.line, step.command);
            let said = poll::until(&what, || {
                // Query the end first, so that the output read afterwards is complete.
                let ended = shell.ended().is_some();
                let all = shell.out();
                let found = all.contains(&mark);
                assert!(found || !ended, "the shell ended in {what}\n{all}");
                found.then_some(all)
            });
            answers.push(answer(&said, number, &mark));
        }
        assert_eq!(shell.wait(), 0, "{}", shell.out());
        answers
    }
}

/// The output between the previous mark and `mark`, and the status behind it.
fn answer(all: &str, number: usize, mark: &str) -> (Vec<String>, i32) {
    let (said, rest) = all.split_once(mark).expect("the mark");
    let said = match number.checked_sub(1) {
        None => said,
        Some(before) => {
            let before = format!("\n{MARK} {before} ");
            let (_, said) = said.split_once(&before).expect("the mark before");
            said.split_once('\n').map_or("", |(_, said)| said)
        }
    };
    let status = rest.lines().next().and_then(|line| line.parse().ok());
    let lines = said.trim_end_matches('\n').lines().map(str::to_owned);
    (lines.collect(), status.expect("a status"))
}

#[test]
fn pages_are_read_by_blocks() {
    let page = "text\n$ no\n```sh\n$ no\n```\n```console\n$ a\n> b\nsaid\n> said\n$ c\n```\nend\n";
    let found = steps(page);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].line, found[0].command.as_str()),
        (7, "a\nb"),
        "{found:?}"
    );
    assert_eq!(found[0].shown, ["said", "> said"]);
    assert_eq!(
        (
            found[1].line,
            found[1].command.as_str(),
            found[1].shown.len()
        ),
        (11, "c", 0)
    );
    assert!(matches("a … c…", "a b c d") && matches("…", "") && matches("x…x", "xx"));
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let all = |shown: &str, said: &str| all_match(&lines(shown), &lines(said));
    assert!(all("a\n…\nd\n…", "a\nb\nc\nd") && all("…", "") && all("", "") && all("…\nb", "b\nb"));
    assert!(!all("a\n…", "b") && !all("a", "a\nb") && !all("a\nb", "a") && !all("…\na", "a\nb"));
    assert!(!matches("a … c", "a b c d") && !matches("a", "ab") && !matches("x…x", "x"));
}

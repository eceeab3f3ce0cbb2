//! docs/structure.md names files that exist, and the two paths it shows are paths of calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The top-level folders.
const FOLDERS: [&str; 6] = ["objstore", "mdserver", "fs", "tools", "tests", "docs"];
/// The most files that a request meets.
const MOST: usize = 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/structure.md")).expect("the page")
}

/// The texts between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `a/{b,c}` as `a/b` and `a/c`.
fn expanded(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (all, tail) = rest.split_once('}').expect("a closing brace");
    all.split(',')
        .map(|one| format!("{head}{one}{tail}"))
        .collect()
}

#[test]
fn named_files_exist() {
    let page = page();
    let named: BTreeSet<String> = page
        .lines()
        .flat_map(quoted)
        .filter(|name| {
            FOLDERS
                .iter()
                .any(|folder| name.starts_with(&format!("{folder}/")))
        })
        .flat_map(expanded)
        .collect();
    assert!(named.len() > 50, "{named:?}");
    let missing: Vec<&String> = named
        .iter()
        .filter(|name| !root().join(name).exists())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The rows of the table below a heading: a file, and a function in it.
fn path_of(page: &str, heading: &str) -> Vec<(String, String)> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let rows = lines.take_while(|line| !line.starts_with('#'));
    rows.filter(|line| line.starts_with("| ") && line.contains(".rs`"))
        .map(|line| {
            let mut names = quoted(line).map(str::to_owned);
            let (file, function) = (names.next(), names.next());
            (file.expect("a file"), function.expect("a function"))
        })
        .collect()
}

#[test]
fn each_step_of_a_path_calls_the_next() {
    let page = page();
    for heading in ["## A write", "## A read"] {
        let path = path_of(&page, heading);
        assert!((5..=MOST).contains(&path.len()), "{heading}: {path:?}");
        for (at, (file, function)) in path.iter().enumerate() {
            let text = std::fs::read_to_string(root().join(file)).expect("a file");
            let defined = [format!("fn {function}("), format!("fn {function}<")];
            assert!(
                defined.iter().any(|defined| text.contains(defined)),
                "{heading}: {file} has no function {function}"
            );
            let Some((_, next)) = path.get(at + 1) else {
                continue;
            };
            let called = [
                format!(".{next}("),
                format!("::{next}("),
                format!(" {next}("),
            ];
            assert!(
                called.iter().any(|called| text.contains(called)),
                "{heading}: {file} does not call {next}"
            );
        }
    }
}

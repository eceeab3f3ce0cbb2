//! Tests that `include/slabfs.h` and `symbols` match the sources, and that the man pages name every call.
//! `SLABFS_BLESS=1` regenerates the header, and adds new calls to `symbols`, under the version being developed.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The header that cbindgen generates from the sources.
fn made() -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut sources: Vec<_> = std::fs::read_dir(here.join("src"))
        .expect("the sources")
        .map(|entry| entry.expect("a source").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        // The header of `gfs` is written by hand.
        .filter(|path| {
            !["tests.rs", "lib.rs", "gfs.rs"]
                .iter()
                .any(|name| path.ends_with(name))
        })
        .collect();
    sources.sort();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    // The safety section is a plain paragraph there, without Rust's heading.
    header.replace(" # Safety\n", "")
}

/// The version of new symbols.
const VERSION: &str = "SLABFS_0.1";

fn is_call(name: &str) -> bool {
    name.starts_with("slabfs_") || name.starts_with("gfs_")
}

/// The functions that a header declares, in order.
fn functions(header: &str) -> Vec<&str> {
    let mut names: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '}']) && !line.starts_with("static "))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| is_call(name))
        .collect();
    names.sort_unstable();
    names
}

fn compare(file: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("SLABFS_BLESS").is_some() {
        std::fs::write(&path, made).expect("writing it");
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "fs/capi/{file} does not match the sources; check the difference, and regenerate it with \
         SLABFS_BLESS=1 cargo test -p slabfs-capi --test header"
    );
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn the_header_and_the_symbols_match_the_sources() {
    let header = made();
    compare("include/slabfs.h", &header);
    // Each symbol keeps the version that introduced it.
    let symbols = read("symbols");
    let versions: HashMap<&str, &str> = symbols
        .lines()
        .filter_map(|line| line.split_once("@@"))
        .collect();
    let gfs = read("include/gfs_compat.h");
    let mut names = functions(&header);
    names.extend(functions(&gfs));
    names.sort_unstable();
    let lines: String = names
        .iter()
        .map(|name| format!("{name}@@{}\n", versions.get(name).unwrap_or(&VERSION)))
        .collect();
    assert!(lines.lines().count() > 30, "{lines}");
    compare("symbols", &lines);
}

#[test]
fn every_call_has_a_man_page() {
    let header = read("include/slabfs.h");
    let mut pages = String::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("man")).expect("man")
    {
        let text = std::fs::read_to_string(entry.expect("a page").path()).expect("a page");
        // The names are in the second section, before the dash.
        let names = text
            .split(".SH")
            .nth(1)
            .and_then(|name| name.split("\\-").next());
        pages.push_str(names.unwrap_or_default());
        pages.push(',');
    }
    let named: HashSet<&str> = pages
        .split([',', '\n', ' '])
        .map(str::trim)
        .filter(|word| is_call(word))
        .collect();
    let mut declared: HashSet<&str> = functions(&header).into_iter().collect();
    let gfs = read("include/gfs_compat.h");
    declared.extend(functions(&gfs));
    // Inline functions of the header; names with two underscores are private.
    let inline = read("include/slabfs_ioctl.h");
    let inline = inline
        .lines()
        .filter(|line| line.starts_with("static inline "))
        .filter_map(|line| line.split_once('(')?.0.split([' ', '*']).next_back())
        .filter(|name| !name.starts_with("slabfs__"));
    declared.extend(inline);
    assert_eq!(named, declared);
}

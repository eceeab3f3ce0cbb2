//! The library for programs: in C, C++, Fortran and of the book, against a metadata server and data servers.

use std::process::Command;

use slabfs_tests::library::{Program, prefix, source};
use slabfs_tests::{Cluster, Up, needs_mount, tool};

const WARNINGS: [&str; 6] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"];

/// A code block of a language on a page of the book, counted from 0.
fn block(page: &str, language: &str, number: usize) -> String {
    let path = format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the page");
    let begin = format!("```{language}\n");
    let block = text.split(&begin).nth(number + 1).expect("a block");
    block[..block.find("```").expect("its end")].to_owned()
}

#[test]
fn exported_symbols_are_those_of_the_list() {
    let library = prefix().join("lib/libslabfs.so");
    let said = tool::run(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    )
    .ok();
    let mut symbols: Vec<&str> = said
        .text()
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| name.contains("@@"))
        .collect();
    symbols.sort_unstable();
    let listed = concat!(env!("CARGO_MANIFEST_DIR"), "/../fs/capi/symbols");
    let listed = std::fs::read_to_string(listed).expect("the list");
    assert_eq!(symbols, listed.lines().collect::<Vec<_>>());
    // The other symbols are only the names of the versions.
    let others: Vec<&str> = said
        .text()
        .lines()
        .filter(|line| !line.contains("@@") && !line.contains(" A SLABFS_"))
        .collect();
    assert_eq!(others, [] as [&str; 0]);
}

#[test]
fn every_call_from_c() {
    let cluster = Cluster::start(2, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("calls.c"));
    program.run([cluster.md_addr()]).ok();
}

#[test]
fn every_call_from_c_is_clean_under_valgrind() {
    let cluster = Cluster::start(2, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("calls.c"));
    program.run_checked([cluster.md_addr()]).ok();
}

#[test]
fn transfers_and_batches_from_c() {
    let cluster = Cluster::start(3, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("transfers.c"));
    program.run([cluster.md_addr()]).ok();
}

#[test]
fn transfers_and_batches_from_c_are_clean_under_valgrind() {
    let cluster = Cluster::start(3, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("transfers.c"));
    program.run_checked([cluster.md_addr()]).ok();
}

#[test]
fn a_program_for_galley() {
    let cluster = Cluster::start(3, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("gfs.c"));
    program.run_checked([cluster.md_addr()]).ok();
}

#[test]
fn threads_share_a_session_and_an_object() {
    let cluster = Cluster::start(2, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("threads.c"));
    program.run_checked([cluster.md_addr()]).ok();
}

#[test]
fn a_child_has_no_handle_of_its_parent() {
    let mut cluster = Cluster::start(2, 0);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("fork.c"));
    program.run([cluster.md_addr()]).ok();
    cluster.stop_and_fsck().ok();
}

#[test]
fn a_program_in_cplusplus_and_a_static_one() {
    let cluster = Cluster::start(1, 0);
    let area = cluster.area();
    let flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror"];
    let program = Program::compile_static(area, "c++", &flags, &source("plusplus.cpp"));
    program.run([cluster.md_addr()]).ok();
}

#[test]
fn the_programs_of_the_book() {
    let cluster = Cluster::start(2, 0);
    let area = cluster.area();
    let programs = [
        ("temp", "2 5 0"),
        ("more", "1 2 7 8"),
        ("fork", "abc def ghi"),
    ];
    for (number, (name, says)) in programs.into_iter().enumerate() {
        let c = area.write(&format!("{name}.c"), block("library.md", "c", number));
        let said = Program::compile(area, "cc", &["-Wall", "-Werror"], &c);
        assert_eq!(said.run([cluster.md_addr()]).ok().text().trim(), says);
    }
    let programs = [("temp", "1. 4. 2. 5. 3. 6."), ("rows", "1. 2. 7. 8.")];
    for (number, (name, says)) in programs.into_iter().enumerate() {
        let fortran = area.write(
            &format!("{name}.f90"),
            block("library.md", "fortran", number),
        );
        let said = Program::compile(area, "gfortran", &["-Wall"], &fortran);
        let said = said.run([cluster.md_addr()]).ok();
        assert_eq!(said.text().trim(), says);
    }
}

#[test]
fn a_program_finds_the_services_through_a_mount() {
    needs_mount!();
    let cluster = Cluster::start(1, 1);
    let program = Program::compile(cluster.area(), "cc", &WARNINGS, &source("calls.c"));
    program.run([cluster.mnt(0)]).ok();
    // The program's object is there, as the mount reports it.
    assert_eq!(
        tool::info(&cluster.at(0, "array"))["dims"],
        serde_json::json!([5, 8])
    );
    let bytes = std::fs::read(cluster.at(0, "bytes@[1,0:3]")).expect("the elements");
    assert_eq!(bytes, [1, 2, 3].map(i32::to_le_bytes).concat());

    let alone = Up::start();
    let said = program.run([alone.mnt()]);
    said.fails(1, &["--listen"]);
}

#[test]
fn a_program_that_just_exits_leaves_a_consistent_filesystem() {
    let mut cluster = Cluster::start(1, 0);
    let source = cluster.area().write(
        "leaves.c",
        r#"
#include <slabfs.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    struct slabfs_session session;
    struct slabfs_spec spec;
    struct slabfs_object object;
    const char bytes[4] = {1, 2, 3, 4};
    (void)argc;
    if (slabfs_connect(argv[1], NULL, &session) || slabfs_spec_new(&spec)
        || slabfs_spec_set(spec, "dims", "4") || slabfs_spec_set(spec, "dtype", "u1")
        || slabfs_create(session, "left", spec, &object)
        || slabfs_write_text(object, "[0:4]", bytes, 4) || slabfs_object_sync(object))
        return 1;
    _Exit(0);
}
"#,
    );
    let program = Program::compile(cluster.area(), "cc", &["-Wall", "-Werror"], &source);
    program.run([cluster.md_addr()]).ok();
    cluster.stop_and_fsck().ok();
}

#[test]
fn the_man_pages_lead_from_every_call() {
    let man = prefix().join("share/man/man3");
    let listed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../fs/capi/symbols"));
    for line in listed.expect("the list").lines() {
        let name = line.split("@@").next().expect("a name");
        assert!(man.join(format!("{name}.3")).exists(), "{name}");
    }
}

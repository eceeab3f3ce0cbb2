//! `slabfs view` and `slabfs layout` draw arrays, in files and in terminals.

use std::process::Command;

use slabfs_tests::tool::{create, run, slabfs};
use slabfs_tests::{Up, binary, inputs, needs_mount};

#[track_caller]
fn script(what: &str) {
    let up = Up::start();
    let mut command = Command::new(inputs::python());
    command.arg(inputs::script("pictures.py")).arg(what);
    command.arg(up.mnt()).env("SLABFS", binary::path());
    run(&mut command).ok();
}

#[test]
fn have_the_colours_of_matplotlib() {
    needs_mount!();
    script("colours");
}

#[test]
fn of_terminals() {
    needs_mount!();
    script("terminal");
}

#[test]
fn of_large_arrays_read_what_they_show() {
    needs_mount!();
    script("large");
}

#[test]
fn what_cannot_be_drawn_is_named() {
    needs_mount!();
    let up = Up::start();
    let array = up.at("array");
    let text = array.to_str().expect("text");
    create(&array, "4,6", "f4", &[]);
    let svg = up.at("a.svg").display().to_string();
    for (args, status, wanted) in [
        (vec!["view", text, "-o", "picture.gif"], 2, ".png or .svg"),
        (vec!["view", text, "[9]"], 1, "index 9 is outside axis 0"),
        (vec!["view", text, "0:3"], 2, "write it in brackets"),
        (vec!["view", text, "[0, 0]", "-o", &svg], 2, "one element"),
        (vec!["view", text, "[2:2]"], 1, "selects no elements"),
        (vec!["view", text, "[0]", "--", "cat"], 2, "slabfs view '"),
        (vec!["view", text, "--range", "5,2"], 2, "the smaller first"),
        (vec!["view", text, "--size", "3x3"], 2, "300 to 8000"),
        (vec!["view", text, "--write"], 2, "COMMAND"),
        (vec!["view", "/etc/passwd"], 1, "not on a slabfs mount"),
        (
            vec!["view", up.mnt().to_str().expect("text")],
            1,
            "is a directory",
        ),
    ] {
        slabfs(args).fails(status, &[wanted]);
    }
    let words = up.at("words");
    create(&words, "3", "S4", &[]);
    slabfs(["view", words.to_str().expect("text")]).fails(1, &["are no numbers"]);
    // A drawing onto the array itself, by a link with another name.
    let link = up.at("link.png");
    std::os::unix::fs::symlink(&array, &link).expect("a link");
    let link = link.to_str().expect("text");
    slabfs(["view", text, "-o", link]).fails(1, &["would overwrite the array", ".png"]);
    let part = format!("{text}@[0:2]");
    slabfs(["view", &part, "-o", link]).fails(1, &["would overwrite the array"]);
    assert_eq!(array.metadata().expect("there").len(), 96);
}

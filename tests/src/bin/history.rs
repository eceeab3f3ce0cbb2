//! A worker of `slabfs_tests::history`: its task is the only argument, as JSON. Or a check of a stored history:
//! `history --check FILE strict|commit|atomic` prints what is wrong, and exits with 1 if anything is.

use std::path::Path;

use slabfs_tests::history::{Promise, check, check_atomic, log, work};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [task] => work::work(serde_json::from_str(task).expect("a task")),
        ["--check", file, promise @ ("strict" | "commit" | "atomic")] => {
            let ops = log::load(Path::new(file)).expect("a history");
            let found = match promise {
                "strict" => check(&ops, Promise::Strict),
                "commit" => check(&ops, Promise::Commit),
                _ => check_atomic(&ops),
            };
            found.iter().for_each(|violation| println!("{violation}"));
            std::process::exit(i32::from(!found.is_empty()));
        }
        _ => {
            eprintln!("history TASK | history --check FILE strict|commit|atomic");
            std::process::exit(2);
        }
    }
}

//! A worker of `slabfs_tests::history`: its task is the only argument, as JSON.

fn main() {
    let task = std::env::args().nth(1).expect("a task");
    slabfs_tests::history::work::work(serde_json::from_str(&task).expect("a task"));
}

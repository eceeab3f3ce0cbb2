//! Coupled objects: reads wait for what other programs write, on the same mount and on others.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slabfs_tests::mpi::Mpi;
use slabfs_tests::tool::{self, create};
use slabfs_tests::{Cluster, Random, Up, file, needs_mount, poll, slabfs};

mod faults;
mod queues;

/// A read of a part of a file, on a thread of its own.
struct Reading(thread::JoinHandle<std::io::Result<Vec<u8>>>);

impl Reading {
    fn of(path: PathBuf, offset: u64, len: usize) -> Reading {
        Reading(thread::spawn(move || {
            let file = std::fs::File::open(path)?;
            let mut bytes = vec![0; len];
            let mut at = 0;
            while at < len {
                match file.read_at(&mut bytes[at..], offset + at as u64)? {
                    0 => break,
                    more => at += more,
                }
            }
            bytes.truncate(at);
            Ok(bytes)
        }))
    }

    fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    #[track_caller]
    fn bytes(self) -> Vec<u8> {
        self.result().expect("the bytes")
    }

    #[track_caller]
    fn result(self) -> std::io::Result<Vec<u8>> {
        self.0.join().expect("a thread that reads")
    }
}

#[track_caller]
fn couple(path: &Path, flags: &[&str]) {
    let path = path.display().to_string();
    slabfs(["couple", &path].iter().chain(flags)).ok();
}

#[track_caller]
fn status(path: &Path) -> serde_json::Value {
    let path = path.display().to_string();
    serde_json::from_str(slabfs(["couple", "status", &path, "--json"]).ok().text()).expect("JSON")
}

/// Waits until this many reads of the object wait.
#[track_caller]
fn await_reads(path: &Path, count: usize) {
    poll::until_true("reads wait", || {
        status(path)["reads"]
            .as_array()
            .is_some_and(|reads| reads.len() == count)
    });
}

fn writer(path: &Path) -> std::fs::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("open")
}

fn reader(path: &Path) -> std::fs::File {
    std::fs::File::open(path).expect("open")
}

/// A cluster of one data server, and a coupled array of 8 rows of 16 bytes on it.
fn array(mounts: usize, flags: &[&str]) -> (Cluster, PathBuf) {
    let cluster = Cluster::start(1, mounts);
    let path = cluster.at(0, "a");
    create(&path, "8,2", "f8", &[]);
    couple(&path, flags);
    (cluster, path)
}

/// One read, answered from three writers on two mounts, whatever the pieces and their order.
#[test]
fn a_read_takes_from_several_writers() {
    needs_mount!();
    let (cluster, path) = array(2, &[]);
    let other = cluster.at(1, "a");
    let bytes = Random::new(1).bytes(128);
    let writers = [writer(&path), writer(&path), writer(&other)];
    let reading = Reading::of(other.clone(), 20, 90);
    await_reads(&path, 1);
    for (of, at, len) in [(2, 96, 32), (0, 0, 40), (1, 41, 30), (2, 71, 25)] {
        assert!(!reading.is_over());
        writers[of]
            .write_all_at(&bytes[at..at + len], at as u64)
            .expect("write");
    }
    // One byte is missing.
    poll::until_true("the status names it", || {
        status(&path)["reads"][0]["missing"]
            == serde_json::json!([{"offset": [2, 8], "shape": [1, 1]}])
    });
    assert!(!reading.is_over());
    let held = status(&path)["held"].clone();
    let memory = held.as_array().into_iter().flatten();
    let memory = memory.filter(|server| server["memory"] == true);
    let bytes_held = memory.map(|server| server["bytes"].as_u64().expect("bytes"));
    assert_eq!(bytes_held.sum::<u64>(), 127, "two mounts hold it: {held}");
    let svg = cluster.area().at("status.svg");
    let [array, drawing] = [&path, &svg].map(|path| path.display().to_string());
    slabfs(["couple", "status", &array, "--svg", &drawing]).ok();
    let picture = file::read(&svg);
    let picture = String::from_utf8_lossy(&picture);
    for part in ["not written: 1 boxes", "<title>missing [2:3,1:2]"] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    writers[0].write_all_at(&bytes[40..41], 40).expect("write");
    assert!(reading.bytes() == bytes[20..110]);
    drop(writers);
    assert!(file::read(&other) == bytes && file::read(&path) == bytes);
}

/// Nothing goes to a disk.
#[test]
fn data_stays_in_memory() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 2);
    let directory = cluster.at(0, "run");
    std::fs::create_dir(&directory).expect("mkdir");
    couple(
        &directory,
        &["--match", "out_%.dat", "--exclude", "out_0.dat"],
    );
    let bytes = Random::new(2).bytes(5 << 20);
    let path = cluster.at(0, "run/out_1.dat");
    file::write(&path, &bytes);
    assert!(file::read(&cluster.at(1, "run/out_1.dat")) == bytes);
    let servers = tool::servers(&cluster.mnt(0));
    let on = |memory: bool| {
        let servers = servers.iter().filter(|server| server["memory"] == memory);
        servers
            .map(|server| server["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!((on(false).len(), on(true).len()), (1, 1));
    let chunks = tool::layout(&path)["chunks"]
        .as_array()
        .expect("chunks")
        .clone();
    assert!(
        chunks.iter().all(|chunk| chunk["server"] == on(true)[0]),
        "{chunks:?}"
    );
    for name in ["run/out_0.dat", "run/other"] {
        file::write(&cluster.at(0, name), b"x");
        assert_eq!(tool::info(&cluster.at(0, name))["couple"], "off", "{name}");
    }
    // The mount takes its memory with it.
    cluster.stop_mount(0);
    let error = std::fs::read(cluster.at(1, "run/out_1.dat")).expect_err("it is gone");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
    assert!(
        cluster.mount_log(1).contains("is not there any more"),
        "{}",
        cluster.mount_log(1)
    );
}

#[test]
fn the_end_of_the_stream_is_the_end_of_the_file() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let directory = cluster.at(0, "run");
    std::fs::create_dir(&directory).expect("mkdir");
    couple(&directory, &[]);
    let path = cluster.at(0, "run/f");
    let mut growing = std::fs::File::create(&path).expect("create");
    let mut seen = std::fs::File::open(cluster.at(1, "run/f")).expect("open");
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        seen.read_to_end(&mut all).map(|_| all)
    });
    let bytes = Random::new(3).bytes(300_000);
    for part in bytes.chunks(100_000) {
        std::io::Write::write_all(&mut growing, part).expect("write");
    }
    await_reads(&path, 1);
    assert!(!reader.is_finished());
    // A hole of it is fill once no writer is left.
    growing.set_len(300_010).expect("grow");
    drop(growing);
    let all = reader.join().expect("a reader").expect("all bytes");
    assert!(all[..300_000] == bytes && all[300_000..] == [0; 10]);
    // A late reader gets the same.
    assert!(file::read(&cluster.at(1, "run/f")) == all);
}

#[test]
fn a_read_without_a_writer_times_out() {
    needs_mount!();
    let (cluster, path) = array(1, &["--timeout", "700ms"]);
    let begun = Instant::now();
    let error = Reading::of(path.clone(), 0, 8)
        .result()
        .expect_err("no writer");
    assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(700));
    let held = writer(&path);
    held.write_all_at(&[1; 16], 0).expect("write");
    let error = Reading::of(path, 8, 24)
        .result()
        .expect_err("a part is missing");
    assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT), "{error}");
    let log = cluster.mount_log(0);
    assert!(
        log.contains("a (object") && log.contains("[1:2,0:16]"),
        "{log}"
    );
}

/// A mount that is killed takes its writers with it: what it had is missing, and another writer may bring it.
#[test]
fn a_killed_writer_is_replaced() {
    needs_mount!();
    let (mut cluster, path) = array(3, &["--timeout", "60s"]);
    let other = cluster.at(1, "a");
    let bytes = Random::new(4).bytes(128);
    let mut child = Command::new("sh")
        .args([
            "-c",
            "exec 3<>\"$1\"; head -c 64 /dev/zero >&3; read end",
            "sh",
        ])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    let first = Reading::of(other.clone(), 0, 64);
    assert!(first.bytes() == [0; 64]);
    let reading = Reading::of(other.clone(), 0, 128);
    await_reads(&other, 1);
    cluster.kill_mount(0);
    drop(child.stdin.take());
    child.wait().expect("wait");
    // The read of what was there waits, too, once the mount counts as gone.
    let again = writer(&cluster.at(2, "a"));
    again.write_all_at(&bytes, 0).expect("write");
    assert!(reading.bytes() == bytes);
    drop(again);
    assert!(file::read(&other) == bytes);
}

#[test]
fn the_service_is_restarted_while_reads_wait() {
    needs_mount!();
    let (mut cluster, path) = array(2, &[]);
    let other = cluster.at(1, "a");
    let bytes = Random::new(5).bytes(128);
    let held = writer(&path);
    held.write_all_at(&bytes[..64], 0).expect("write");
    let reading = Reading::of(other.clone(), 0, 128);
    await_reads(&other, 1);
    for restart in 0..2 {
        match restart {
            0 => cluster.kill_md(),
            _ => cluster.stop_md(),
        }
        cluster.start_md();
    }
    assert!(!reading.is_over());
    held.write_all_at(&bytes[64..], 64).expect("write");
    assert!(reading.bytes() == bytes);
    assert_eq!(status(&path)["ended"], false);
    drop(held);
    poll::until_true("the stream ends", || status(&other)["ended"] == true);
}

#[test]
fn a_stream_may_be_ended_by_request() {
    needs_mount!();
    let (_cluster, path) = array(1, &["--end", "never"]);
    file::write_at(&path, 0, &[7; 64]);
    let reading = Reading::of(path.clone(), 0, 128);
    await_reads(&path, 1);
    slabfs(["couple", "end", &path.display().to_string()]).ok();
    let bytes = reading.bytes();
    assert!(bytes[..64] == [7; 64] && bytes[64..] == [0; 64]);
}

#[test]
fn files_are_read_when_all_writers_have_closed_them() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let directory = cluster.at(0, "run");
    std::fs::create_dir(&directory).expect("mkdir");
    couple(&directory, &["--keep", "file", "--timeout", "30s"]);
    let path = cluster.at(0, "run/f");
    let held = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("create");
    let reading = Reading::of(cluster.at(1, "run/f"), 0, 100);
    await_reads(&path, 1);
    held.write_all_at(b"one and", 0).expect("write");
    assert!(!reading.is_over());
    held.write_all_at(b" two", 7).expect("write");
    drop(held);
    assert!(reading.bytes() == b"one and two");
    couple(&path, &["--keep", "file", "--timeout", "300ms"]);
    let held = writer(&path);
    let error = std::fs::File::open(cluster.at(1, "run/f")).expect_err("a writer has it open");
    assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    drop(held);
}

/// Libraries read before they write: they get what is there.
#[test]
fn a_writer_does_not_wait_for_itself() {
    needs_mount!();
    let (cluster, path) = array(2, &[]);
    let (one, two) = (writer(&path), writer(&cluster.at(1, "a")));
    one.write_all_at(&[1; 16], 0).expect("write");
    one.sync_all().expect("announced");
    let mut bytes = [9; 48];
    two.read_exact_at(&mut bytes, 0).expect("read");
    assert!(bytes[..16] == [1; 16] && bytes[16..] == [0; 32]);
    two.write_all_at(&[2; 16], 8).expect("write");
    two.sync_all().expect("announced");
    one.read_exact_at(&mut bytes, 0).expect("read");
    assert!(bytes[..8] == [1; 8] && bytes[8..24] == [2; 16]);
}

#[test]
fn one_mount_is_enough() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("a");
    create(&path, "4,4", "f4", &[]);
    couple(&path, &[]);
    let readings: Vec<Reading> = (0..40).map(|_| Reading::of(path.clone(), 0, 64)).collect();
    await_reads(&path, 40);
    let bytes = Random::new(6).bytes(64);
    let held = writer(&path);
    for (at, part) in bytes.chunks(5).enumerate() {
        held.write_all_at(part, at as u64 * 5).expect("write");
    }
    for reading in readings {
        assert!(reading.bytes() == bytes);
    }
}

/// Two programs of MPI over two mounts, of which the reading one starts first: a model with PnetCDF in uneven rows, an ensemble
/// filter with PnetCDF in blocks. The results equal those through plain files.
#[test]
fn programs_exchange_data_as_through_files() {
    needs_mount!();
    let mut cluster = Cluster::new(1, &[], false);
    let area = cluster.area();
    let model = Mpi::OpenRomio
        .linked(area, "shallow", Some("pnetcdf"))
        .ranks(3);
    let filter = Mpi::OpenRomio
        .another(area, "filter", Some("pnetcdf"))
        .ranks(2);
    let [plain, results] = ["plain", "results"].map(|name| area.mkdir(name));
    cluster.start_all(1);
    cluster.add_mount_with(&["--await-names"]);
    let in_dir = |dir: &Path, name: &str| dir.join(name).display().to_string();
    let model_in = |dir: &Path| model.run([&in_dir(dir, "out_"), "61", "83", "5"]).ok();
    let filter_in = |dir: &Path, to: &Path| {
        let args = [in_dir(dir, "out_"), in_dir(to, "mean_"), "5".to_owned()];
        filter.run(args).ok()
    };
    model_in(&plain);
    filter_in(&plain, &plain);
    let written = cluster.at(0, "run");
    let read = cluster.at(1, "run");
    std::fs::create_dir(&written).expect("mkdir");
    couple(
        &written,
        &[
            "--timeout",
            "60s",
            "--match",
            "out_%.nc",
            "--header",
            "early",
        ],
    );
    thread::scope(|scope| {
        let reader = scope.spawn(|| filter_in(&read, &results));
        model_in(&written);
        reader.join().expect("the filter");
    });
    for step in 1..=5 {
        let name = format!("mean_{step:04}.nc");
        assert!(
            file::read(&plain.join(&name)) == file::read(&results.join(&name)),
            "{name}"
        );
        let name = format!("out_{step:04}.nc");
        assert!(
            file::read(&plain.join(&name)) == file::read(&read.join(&name)),
            "{name}"
        );
    }
}

/// Interrupted readers go away at once.
#[test]
fn a_waiting_reader_is_killed() {
    needs_mount!();
    let (_cluster, path) = array(1, &["--timeout", "10m"]);
    let mut child = Command::new("cat").arg(&path).spawn().expect("cat");
    await_reads(&path, 1);
    child.kill().expect("kill");
    child.wait().expect("wait");
    let nonblocking = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path);
    nonblocking.expect("an open does not wait");
}

/// A signal with a handler ends a read that waits: Ctrl-C in Python.
#[test]
fn a_waiting_reader_is_interrupted() {
    needs_mount!();
    let (_cluster, path) = array(1, &["--timeout", "10m"]);
    let mut child = Command::new("python3")
        // A shell that starts the tests in the background has them ignore the signal.
        .args(["-c", "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); open(sys.argv[1], 'rb').read()"])
        .arg(&path)
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3");
    await_reads(&path, 1);
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("a signal");
    poll::until_true("it ends", || child.try_wait().expect("wait").is_some());
    let output = child.wait_with_output().expect("its output");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("KeyboardInterrupt"), "{said}");
}

/// Once an object is read again and again its reader is notified of what is written, and asks nothing. What `fsync` has returned for is
/// what it reads, also where it replaces what was read before.
#[test]
fn steps_of_a_known_object_cost_no_request() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let path = cluster.at(0, "a");
    create(&path, "0,4,4", "f4", &["--max-dims", "unlimited,4,4"]);
    couple(&path, &[]);
    let held = writer(&path);
    let step = |number: u8| [number; 64];
    held.write_all_at(&step(0), 0).expect("write");
    let other = std::fs::File::open(cluster.at(1, "a")).expect("open");
    let read = |number: u64| {
        let mut bytes = [0; 64];
        other.read_exact_at(&mut bytes, number * 64).expect("read");
        bytes
    };
    let matches = |mount: usize| tool::stats(&cluster.mnt(mount))["coupled_matches"].as_u64();
    poll::until_true("the reader is notified", || {
        let before = matches(1);
        read(0) == step(0) && matches(1) == before
    });
    for number in 1..=20u8 {
        let before = (matches(1), tool::stats(&cluster.mnt(0))["commits"].as_u64());
        held.write_all_at(&step(number), u64::from(number) * 64)
            .expect("write");
        held.sync_all().expect("announced");
        let commits = tool::stats(&cluster.mnt(0))["commits"].as_u64();
        assert_eq!(
            commits,
            before.1.map(|commits| commits + 1),
            "a write is one announcement"
        );
        // A write over step 0 is announced when its readers know of it.
        held.write_all_at(&step(100 + number), 0).expect("write");
        held.sync_all().expect("announced");
        assert!(read(u64::from(number)) == step(number));
        assert!(read(0) == step(100 + number), "{number}");
        assert_eq!(matches(1), before.0, "a known step asks nothing");
    }
    // The next step is waited for, and the end is seen.
    let reading = Reading::of(cluster.at(1, "a"), 21 * 64, 64);
    await_reads(&path, 1);
    held.write_all_at(&step(21), 21 * 64).expect("write");
    assert!(reading.bytes() == step(21));
    let reading = Reading::of(cluster.at(1, "a"), 22 * 64, 64);
    drop(held);
    assert!(reading.bytes().is_empty());
}

/// Writers and readers with parts of different sizes, as fast as they can: each byte is that of its step.
#[test]
fn many_steps_stream_through() {
    needs_mount!();
    const STEP: u64 = 3 << 20;
    const STEPS: u64 = 40;
    let cluster = Cluster::start(1, 2);
    let path = cluster.at(0, "f");
    file::write(&path, b"");
    couple(&path, &[]);
    let bytes: Vec<u8> = (0..STEP * STEPS)
        .map(|place| (place / STEP * 7 + place / 4096) as u8)
        .collect();
    let bytes = bytes.as_slice();
    let part = |from: u64, to: u64, step: u64| {
        let at = step * STEP + from;
        (at, &bytes[at as usize..(step * STEP + to) as usize])
    };
    let writing = |from: u64, to: u64| {
        let file = writer(&path);
        move || {
            for step in 0..STEPS {
                let (at, part) = part(from, to, step);
                file.write_all_at(part, at).expect("write");
            }
        }
    };
    let reading = |mount: usize, from: u64, to: u64| {
        let file = std::fs::File::open(cluster.at(mount, "f")).expect("open");
        move || {
            let mut found = vec![0; (to - from) as usize];
            for step in 0..STEPS {
                let (at, part) = part(from, to, step);
                file.read_exact_at(&mut found, at)
                    .expect("the bytes of a step");
                assert!(found == part, "step {step}, from {at}");
            }
        }
    };
    let writers = [writing(0, STEP / 2), writing(STEP / 2, STEP)];
    let readers = [
        reading(1, 0, STEP / 3),
        reading(1, STEP / 3, STEP),
        reading(0, 4096, STEP),
    ];
    thread::scope(|scope| {
        writers.into_iter().for_each(|run| drop(scope.spawn(run)));
        readers.into_iter().for_each(|run| drop(scope.spawn(run)));
    });
}

/// Of two programs that wait for each other, one at least gets an error, long before the timeout.
#[test]
fn programs_that_wait_for_each_other_get_an_error() {
    needs_mount!();
    let (cluster, one) = array(2, &["--timeout", "10m"]);
    let two = cluster.at(0, "b");
    create(&two, "8,2", "f8", &[]);
    couple(&two, &["--timeout", "10m"]);
    // Each opens its own file for writing, says so, and reads the other's: `read` is of the shell's thread.
    let script =
        "exec 3<>\"$1\" 4<\"$2\"; printf x >&3; echo ready; read go; read -r -N 9 <&4 line";
    let program = |mount: usize, writes: &str, reads: &str| {
        let mut child = Command::new("bash")
            .args(["-c", script, "bash"])
            .args([cluster.at(mount, writes), cluster.at(mount, reads)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut ready = [0; 6];
        let out = child.stdout.as_mut().expect("its output");
        out.read_exact(&mut ready).expect("it is ready");
        child
    };
    let mut both = [program(0, "a", "b"), program(1, "b", "a")];
    for child in &mut both {
        std::io::Write::write_all(child.stdin.as_mut().expect("its input"), b"\n").expect("go");
    }
    let mut first = None;
    poll::until_true("one gets an error", || {
        let over = |child: &mut Child| child.try_wait().expect("a state").is_some();
        first = both.iter_mut().position(over);
        first.is_some()
    });
    let [one_said, two_said] = both.map(|child| {
        // The error of one ends its wait; the other waits on, since another program may write what it reads.
        [&one, &two]
            .iter()
            .for_each(|path| file::write_at(path, 0, &[b'x'; 128]));
        child.wait_with_output().expect("its end")
    });
    let deadlock =
        |said: &Output| String::from_utf8_lossy(&said.stderr).contains("deadlock avoided");
    let said = [one_said, two_said];
    let first = first.expect("one has ended");
    assert!(
        deadlock(&said[first]) && !said[first].status.success(),
        "{said:?}"
    );
    assert!(
        deadlock(&said[1 - first]) || said[1 - first].status.success(),
        "{said:?}"
    );
}

/// A mount that is killed may take data with it that was not announced: what is missing is no fill.
#[test]
fn a_killed_mount_leaves_no_fill() {
    needs_mount!();
    let (mut cluster, path) = array(2, &["--timeout", "60s"]);
    let other = cluster.at(1, "a");
    let mut child = Command::new("sh")
        .args([
            "-c",
            "exec 3<>\"$1\"; head -c 16 /dev/zero >&3; read end",
            "sh",
        ])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    assert!(Reading::of(other.clone(), 0, 16).bytes() == [0; 16]);
    let reading = Reading::of(other.clone(), 64, 16);
    await_reads(&other, 1);
    cluster.kill_mount(0);
    drop(child.stdin.take());
    child.wait().expect("wait");
    let error = reading.result().expect_err("it was never written");
    assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
}

/// Streams that begin again while they are read: a read returns bytes of one of them, and never fill.
#[test]
fn a_stream_that_begins_again_is_not_read_as_fill() {
    const LEN: usize = 64 << 10;
    const ROUNDS: u8 = 150;
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let directory = cluster.at(0, "run");
    std::fs::create_dir(&directory).expect("mkdir");
    couple(&directory, &[]);
    let path = cluster.at(0, "run/field");
    file::write(&path, [1; LEN]);
    let writing = {
        let path = path.clone();
        thread::spawn(move || {
            for round in 2..=ROUNDS {
                let file = OpenOptions::new()
                    .write(true)
                    .truncate(true)
                    .open(&path)
                    .expect("open");
                for at in (0..LEN).step_by(LEN / 4) {
                    file.write_all_at(&[round; LEN / 4], at as u64)
                        .expect("write");
                }
            }
        })
    };
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let path = cluster.at(reader % 2, "run/field");
            thread::spawn(move || {
                let mut reads = 0;
                loop {
                    let bytes = file::read(&path);
                    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
                    assert_eq!((bytes.len(), zeros), (LEN, 0), "read {reads}");
                    reads += 1;
                    if bytes.iter().all(|byte| *byte == ROUNDS) {
                        return;
                    }
                }
            })
        })
        .collect();
    writing.join().expect("the writer");
    for reader in readers {
        reader.join().expect("a reader");
    }
}

/// Behind the end of an array that does not grow nothing can come: a read there does not wait.
#[test]
fn the_end_of_a_fixed_array_is_known() {
    needs_mount!();
    let (cluster, path) = array(2, &["--timeout", "2s"]);
    let other = cluster.at(1, "a");
    let writes = writer(&path);
    writes.write_all_at(&[7; 128], 0).expect("write");
    // Up to the end of the file, which is read, too: an error if that waits.
    assert_eq!(file::read(&other), [7; 128]);
    drop(writes);
}

/// What does not fit into the memory of a mount goes to the data servers, if the object may spill.
#[test]
fn memory_is_bounded() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    cluster.add_mount_with(&["--coupled-memory", "4M"]);
    let small = 1;
    let bytes = Random::new(9).bytes(12 << 20);
    for (name, spill) in [("spills", "yes"), ("fails", "no")] {
        let path = cluster.at(small, name);
        file::write(&path, b"");
        couple(&path, &["--spill", spill, "--timeout", "5s"]);
        let file = writer(&path);
        let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
        match spill {
            "yes" => {
                written.expect("write");
                let reading = Reading::of(cluster.at(0, name), 0, bytes.len());
                assert!(reading.bytes() == bytes);
                let servers = tool::layout(&path);
                let servers = servers["chunks"].as_array().expect("chunks").iter();
                let servers: std::collections::BTreeSet<_> =
                    servers.map(|chunk| chunk["server"].as_u64()).collect();
                let ordinary = tool::servers(&cluster.mnt(0));
                let mut ordinary = ordinary.iter().filter(|server| server["memory"] == false);
                let has = |id: Option<u64>| servers.contains(&id);
                assert!(
                    ordinary.any(|server| has(server["id"].as_u64())),
                    "{servers:?}"
                );
                std::fs::remove_file(&path).expect("rm");
            }
            _ => {
                let full = written.expect_err("no room");
                assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
            }
        }
    }
}

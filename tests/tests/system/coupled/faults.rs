//! Each component of a coupled run is killed, at each of its stages: reads end with the right bytes, or with an error, and
//! no program hangs.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};

use super::*;

/// How far the writer is when something is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opened,
    Half,
    All,
    Closed,
}

const STAGES: [Stage; 4] = [Stage::Opened, Stage::Half, Stage::All, Stage::Closed];

/// A program that has a file open for writing, and writes what it is asked to.
struct Writer {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

const PROGRAM: &str = r#"
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
print("opened", flush=True)
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "write":
        start, end = map(int, numbers)
        os.pwrite(file, bytes(range(1 + start, 1 + end)), start)
        os.fsync(file)
    else:
        os.close(file)
    print("done", flush=True)
"#;

impl Writer {
    fn start(path: &Path) -> Writer {
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let asks = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        let mut writer = Writer {
            child,
            asks,
            answers,
        };
        writer.await_answer();
        writer
    }

    fn ask(&mut self, what: &str) {
        writeln!(self.asks, "{what}").expect("ask");
        self.await_answer();
    }

    fn await_answer(&mut self) {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).expect("an answer");
        assert!(read > 0, "the writer has ended");
    }

    fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may have been killed.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Its bytes are 1, 2, … 128.
fn expected() -> Vec<u8> {
    (1..=128).collect()
}

/// A run on three mounts that has come so far: the writer is on the first one, a read waits on the second one.
struct Run {
    cluster: Cluster,
    writer: Writer,
    reading: Option<Reading>,
    stage: Stage,
}

impl Run {
    fn at(stage: Stage, timeout: &str) -> Run {
        let (cluster, path) = array(3, &["--timeout", timeout]);
        let mut writer = Writer::start(&path);
        let reading = Reading::of(cluster.at(1, "a"), 0, 128);
        await_reads(&path, 1);
        match stage {
            Stage::Opened => {}
            Stage::Half => writer.ask("write 0 64"),
            Stage::All | Stage::Closed => writer.ask("write 0 128"),
        }
        if stage == Stage::Closed {
            writer.ask("close");
        }
        Run {
            cluster,
            writer,
            reading: Some(reading),
            stage,
        }
    }

    /// The result of the read that has waited.
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        self.reading.take().expect("one read").result()
    }

    /// The writer writes what is missing, and closes the file.
    fn finish(&mut self) {
        match self.stage {
            Stage::Opened => self.writer.ask("write 0 128"),
            Stage::Half => self.writer.ask("write 64 128"),
            Stage::All | Stage::Closed => {}
        }
        if self.stage != Stage::Closed {
            self.writer.ask("close");
        }
    }

    /// Reads all on a mount, from its beginning.
    fn read_on(&self, mount: usize) -> std::io::Result<Vec<u8>> {
        Reading::of(self.cluster.at(mount, "a"), 0, 128).result()
    }
}

#[track_caller]
fn is_error(result: &std::io::Result<Vec<u8>>, wanted: &[i32]) {
    let errno = result.as_ref().err().and_then(std::io::Error::raw_os_error);
    let fits = errno.is_some_and(|errno| wanted.contains(&errno));
    assert!(fits, "{result:?} and not one of {wanted:?}");
}

/// The kernel closes its files: what it has written is there, and the rest is fill.
#[test]
fn a_writer_is_killed() {
    needs_mount!();
    for stage in STAGES {
        let mut run = Run::at(stage, "2s");
        run.writer.kill();
        let found = run.read();
        match stage {
            Stage::Opened => is_error(&found, &[libc::ETIMEDOUT]),
            Stage::Half => {
                let mut half = expected();
                half[64..].fill(0);
                assert_eq!(found.expect("the bytes"), half);
            }
            Stage::All | Stage::Closed => assert_eq!(found.expect("the bytes"), expected()),
        }
    }
}

/// Its data is gone: an error, and never fill. Another writer may bring it.
#[test]
fn the_mount_of_a_writer_is_killed() {
    needs_mount!();
    // Some twenty seconds each: the service waits for the mount before it is gone.
    for stage in [Stage::Half, Stage::Closed] {
        let mut run = Run::at(stage, "4s");
        let has_all = matches!(stage, Stage::All | Stage::Closed);
        if has_all {
            assert_eq!(run.read().expect("the bytes"), expected());
        }
        run.cluster.kill_mount(0);
        run.writer.kill();
        let found = match has_all {
            true => run.read_on(2),
            false => run.read(),
        };
        is_error(&found, &[libc::EIO, libc::ETIMEDOUT]);
        let again = Writer::start(&run.cluster.at(2, "a"));
        run.writer = again;
        run.stage = Stage::Opened;
        run.finish();
        assert_eq!(run.read_on(1).expect("the bytes"), expected());
    }
}

/// Its reads fail; the writer and other readers go on.
#[test]
fn the_mount_of_a_reader_is_killed() {
    needs_mount!();
    for stage in STAGES {
        let mut run = Run::at(stage, "20s");
        run.cluster.kill_mount(1);
        let found = run.read();
        assert!(found.is_err() || found.is_ok_and(|bytes| bytes == expected()));
        run.finish();
        assert_eq!(run.read_on(2).expect("the bytes"), expected());
    }
}

/// It is started again: no program notices.
#[test]
fn the_service_is_killed() {
    needs_mount!();
    for stage in STAGES {
        let mut run = Run::at(stage, "25s");
        run.cluster.kill_md();
        run.cluster.start_md();
        run.finish();
        assert_eq!(run.read().expect("the bytes"), expected());
        assert_eq!(run.read_on(2).expect("the bytes"), expected());
    }
}

/// Data in memory needs no data server.
#[test]
fn the_data_server_is_killed() {
    needs_mount!();
    for stage in STAGES {
        let mut run = Run::at(stage, "20s");
        run.cluster.kill_server(0);
        run.finish();
        assert_eq!(run.read().expect("the bytes"), expected());
        assert_eq!(run.read_on(2).expect("the bytes"), expected());
    }
}

/// Another mount empties an object that this one has open for writing: what is announced after that is in it.
#[test]
fn a_mount_writes_what_another_one_has_emptied() {
    needs_mount!();
    let cluster = Cluster::start(1, 3);
    for (name, len) in [("to-nothing", 0), ("to-less", 100)] {
        let paths = [0, 1, 2].map(|mount| cluster.at(mount, name));
        file::write(&paths[0], b"");
        couple(&paths[0], &["--timeout", "5s"]);
        let one = writer(&paths[0]);
        one.write_all_at(&[1; 8000], 0).expect("write");
        one.sync_all().expect("fsync");
        let other = writer(&paths[1]);
        other.write_all_at(&[1; 8000], 8000).expect("write");
        other.sync_all().expect("fsync");
        one.set_len(len).expect("truncate");
        one.sync_all().expect("fsync");
        other.write_all_at(&[2; 4000], len).expect("write");
        other.sync_all().expect("fsync");
        drop(other);
        one.write_all_at(&[3; 4000], len + 4000).expect("write");
        drop(one);
        let expected = [vec![1; len as usize], vec![2; 4000], vec![3; 4000]].concat();
        assert!(file::read(&paths[2]) == expected, "{name}");
    }
}

/// Appends of several mounts, each after the other is announced.
#[test]
fn mounts_append_one_after_the_other() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let paths = [0, 1].map(|mount| cluster.at(mount, "log"));
    file::write(&paths[0], b"");
    couple(&paths[0], &["--timeout", "5s"]);
    let append = |path: &Path| {
        let file = OpenOptions::new().append(true).open(path);
        file.expect("open")
    };
    let mut files = paths.each_ref().map(|path| append(path));
    let mut expected = Vec::new();
    for number in 0..12u8 {
        let file = &mut files[usize::from(number) % 2];
        file.write_all(&[number; 8]).expect("append");
        file.sync_all().expect("fsync");
        expected.extend([number; 8]);
    }
    drop(files);
    assert_eq!(file::read(&paths[1]), expected);
}

/// What a writer could not store is no fill, and no end of the file.
#[test]
fn data_for_which_there_was_no_room_is_an_error() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    cluster.add_mount_with(&["--coupled-memory", "4M"]);
    let path = cluster.at(1, "large");
    file::write(&path, b"");
    couple(&path, &["--timeout", "30s"]);
    let held = writer(&path);
    held.write_all_at(&vec![7; 12 << 20], 0).expect("write");
    let full = held.sync_all().expect_err("no room");
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    drop(held);
    let end = Reading::of(cluster.at(0, "large"), 11 << 20, 1000).result();
    is_error(&end, &[libc::EIO]);
}

/// The memory of what is removed is there for the next write.
#[test]
fn removed_data_makes_room() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 0);
    cluster.add_mount_with(&["--coupled-memory", "8M"]);
    let directory = cluster.at(0, "run");
    std::fs::create_dir(&directory).expect("mkdir");
    couple(&directory, &[]);
    for round in 0..4u8 {
        let path = cluster.at(0, format!("run/{round}"));
        let file = std::fs::File::create(&path).expect("create");
        file.write_all_at(&vec![round; 6 << 20], 0).expect("write");
        file.sync_all().expect("there is room");
        drop(file);
        std::fs::remove_file(&path).expect("rm");
    }
}

/// A page of a mapping that is not written yet does not block the program that would write it.
#[test]
fn a_mapping_does_not_block_its_writer() {
    const MAPS: &str = "import mmap, sys\nfile = open(sys.argv[1], 'rb')\nprint('opened', flush=True)\nsys.stdin.readline()\n\
        memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\nprint(memory[5000])";
    needs_mount!();
    let (cluster, path) = array(1, &[]);
    let large = path.with_file_name("large");
    create(&large, "4,4096", "u1", &[]);
    couple(&large, &["--timeout", "20s"]);
    let mut maps = Command::new("python3")
        .args(["-c", MAPS])
        .arg(&large)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut answers = BufReader::new(maps.stdout.take().expect("its output"));
    answers.read_line(&mut String::new()).expect("opened");
    let held = writer(&large);
    held.write_all_at(&[1; 4096], 0).expect("write");
    writeln!(maps.stdin.take().expect("its input")).expect("ask");
    let ended = maps.wait().expect("wait");
    assert!(!ended.success(), "the page is not written: SIGBUS");
    held.write_all_at(&[2; 4096], 4096).expect("write");
    held.sync_all().expect("fsync");
    assert!(cluster.mount_log(0).contains("would block the writer"));
}

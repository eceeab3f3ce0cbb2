//! Programs that wait for a service that is away can be killed, whatever they wait for; nothing of them is left
//! behind, and their earlier requests are executed. And reports about a mount do not wait.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use slabfs_tests::file::{self, named};
use slabfs_tests::tool::{self, create, slabfs, stats};
use slabfs_tests::{Cluster, Service, inputs, needs_mount, poll};

/// A cluster whose requests wait for far longer than any test.
fn cluster(mounts: usize) -> Cluster {
    let cluster = Cluster::with(2, mounts, &["--io-timeout", "10m"]);
    for mount in 0..mounts {
        poll::until_true("the end of being alone", || {
            mounts == 1 || stats(&cluster.mnt(mount))["alone"] == false
        });
    }
    cluster
}

/// Runs a program with default signal handling, also if the test runner ignores signals, as a process does that
/// a script starts in the background.
fn mortal() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal");
    command
}

/// A program; killed when dropped, so that a failed test leaves none.
struct Program {
    name: String,
    child: Child,
}

impl Program {
    /// Runs `words` in a directory, after [`Program::go`]: entering the directory may block already.
    fn ready(dir: &Path, words: &[&str]) -> Program {
        let child = mortal()
            .args(["sh", "-c", "ulimit -c 0; read line; exec \"$@\"", "sh"])
            .args(words)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        Program {
            name: words.join(" "),
            child,
        }
    }

    /// A Python script, with an argument, that has reached the point where it writes a byte and waits for
    /// input.
    fn script(dir: &Path, script: &str, arg: &str) -> Program {
        let child = mortal()
            .args([inputs::PYTHON, "-I", "-c", script, arg])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut program = Program {
            name: format!("a script {arg}"),
            child,
        };
        said(&mut program.child);
        program
    }

    fn go(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"\n").expect("sent");
    }

    /// Waits until it blocks on a reply of the mount.
    fn waits(&self) {
        until_it_waits(&self.name, self.child.id());
    }

    fn signal(&self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).expect("signalled");
    }

    /// Waits until it has ended.
    fn ends(&mut self) -> ExitStatus {
        let name = self.name.clone();
        poll::until(&format!("{name} ends"), || {
            self.child.try_wait().expect("its status")
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill() {
            eprintln!("{} cannot be killed: {error}", self.name);
        }
    }
}

/// The state of a thread, from its `stat`.
fn state(stat: &str) -> Option<char> {
    stat.rsplit(") ").next()?.chars().next()
}

/// Waits until a process blocks on a reply of a mount.
fn until_it_waits(name: &str, process: u32) {
    poll::until_true(&format!("{name} waits"), || {
        let of = |what: &str| fs::read_to_string(format!("/proc/{process}/{what}"));
        let stat = of("stat").expect("it is there");
        assert!(state(&stat) != Some('Z'), "{name} did not wait");
        // A read through pages waits for a page that read-ahead has requested.
        let waits = |at: &String| {
            let places = ["request_wait_answer", "folio_wait_bit"];
            places.iter().any(|place| at.starts_with(place))
        };
        of("wchan").is_ok_and(|at| waits(&at))
    });
}

/// A service that is stopped until this is dropped.
struct Stopped<'a>(Vec<&'a Service>);

impl<'a> Stopped<'a> {
    fn now(services: Vec<&'a Service>) -> Stopped<'a> {
        for service in &services {
            service.signal(Signal::SIGSTOP);
            poll::until_true("all its threads are stopped", || {
                let tasks = fs::read_dir(format!("/proc/{}/task", service.pid()));
                tasks.expect("its threads").flatten().all(|task| {
                    let stat = fs::read_to_string(task.path().join("stat"));
                    stat.is_ok_and(|stat| state(&stat) == Some('T'))
                })
            });
        }
        Stopped(services)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        for it in &self.0 {
            if it.ended().is_none() {
                it.signal(Signal::SIGCONT);
            }
        }
    }
}

/// Checks that dead processes leave nothing open, locked or unwritten.
fn nothing_is_open(cluster: &Cluster, mounts: usize) {
    for mount in 0..mounts {
        poll::until_true("nothing is open", || {
            let stats = stats(&cluster.mnt(mount));
            ["open_objects", "dirty_bytes", "locks_held", "locks_waiting"]
                .iter()
                .all(|&what| stats[what] == 0)
        });
    }
}

/// The same, and fsck finds nothing.
fn nothing_is_left(cluster: &mut Cluster, mounts: usize) {
    nothing_is_open(cluster, mounts);
    cluster.stop_and_fsck().ok();
}

fn asking_for_names(mounts: usize) {
    let mut cluster = cluster(mounts);
    let asked: &[&[&str]] = &[
        &["stat", "nothing"],
        &["cat", "file"],
        &["cat", "array@[0:2]"],
        &["ls", "-l"],
        &["ls", ".."],
        &["touch", "new"],
        &["mkdir", "new"],
        &["ln", "-s", "x", "new"],
        &["ln", "file", "new"],
        &["mv", "file", "new"],
        &["rm", "file"],
        &["rmdir", "sub"],
        &["chmod", "600", "file"],
        &["truncate", "-s", "5", "file"],
        &["setfattr", "-n", "user.a", "-v", "1", "file"],
        &["getfattr", "-n", "user.a", "file"],
        &["flock", "file", "true"],
        &["df", "."],
    ];
    let dir = |number: usize| cluster.at(0, format!("d{number}"));
    for number in 0..asked.len() {
        fs::create_dir_all(dir(number).join("sub")).expect("made");
        file::write(&dir(number).join("file"), "text");
        create(&dir(number).join("array"), "4", "u1", &[]);
    }
    let mut programs: Vec<Program> = (0..asked.len())
        .map(|number| Program::ready(&dir(number), asked[number]))
        .collect();
    {
        let _stopped = Stopped::now(vec![cluster.md()]);
        programs.iter_mut().for_each(Program::go);
        programs.iter().for_each(Program::waits);
        // Half of them by SIGINT, half by SIGKILL.
        for (number, program) in programs.iter().enumerate() {
            program.signal([Signal::SIGINT, Signal::SIGKILL][number % 2]);
        }
        for (number, program) in programs.iter_mut().enumerate() {
            let by = [Signal::SIGINT, Signal::SIGKILL][number % 2];
            assert_eq!(program.ends().signal(), Some(by as i32), "{}", program.name);
        }
    }
    // The operation is done or not, as with a lost reply.
    for (number, words) in asked.iter().enumerate() {
        let text = fs::read_to_string(dir(number).join("file"));
        match words[0] {
            "mv" | "rm" | "truncate" => {}
            _ => assert_eq!(text.expect("there"), "text", "{words:?}"),
        }
        fs::remove_dir_all(dir(number)).expect("removed");
    }
    nothing_is_left(&mut cluster, mounts);
}

#[test]
fn name_requests_on_one_mount() {
    needs_mount!();
    asking_for_names(1);
}

#[test]
fn name_requests_on_one_of_two_mounts() {
    needs_mount!();
    asking_for_names(2);
}

/// A signal that does not kill comes first: the kernel interrupts the request only once.
#[test]
fn a_caught_signal_before_sigkill() {
    needs_mount!();
    let mut cluster = cluster(1);
    {
        // It says when it has a handler: what an interpreter asks of the mount at its start is no wait of this test.
        let script = "import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
os.write(1, b'.')
sys.stdin.read(1)
os.mkdir('new')";
        let mut program = Program::script(&cluster.mnt(0), script, "");
        let _stopped = Stopped::now(vec![cluster.md()]);
        program.go();
        program.waits();
        program.signal(Signal::SIGUSR1);
        program.waits();
        program.signal(Signal::SIGKILL);
        assert_eq!(program.ends().signal(), Some(Signal::SIGKILL as i32));
    }
    nothing_is_left(&mut cluster, 1);
}

/// Another signal is pending that does not end it: the kernel does not convert the following one to SIGKILL.
#[test]
fn a_stopped_or_dumping_process() {
    needs_mount!();
    let mut cluster = cluster(1);
    let ways: &[&[Signal]] = &[
        &[Signal::SIGTSTP, Signal::SIGINT],
        &[Signal::SIGTSTP, Signal::SIGCONT, Signal::SIGTERM],
        &[Signal::SIGQUIT],
    ];
    let dir = cluster.at(0, "d");
    fs::create_dir(&dir).expect("made");
    {
        let mut programs: Vec<Program> = (0..ways.len())
            .map(|_| Program::ready(&dir, &["stat", "nothing"]))
            .collect();
        let _stopped = Stopped::now(vec![cluster.md()]);
        for (program, signals) in programs.iter_mut().zip(ways) {
            program.go();
            program.waits();
            let (last, before) = signals.split_last().expect("a signal");
            for &signal in before {
                program.signal(signal);
                program.waits();
            }
            program.signal(*last);
        }
        for (program, signals) in programs.iter_mut().zip(ways) {
            let last = signals.last().expect("a signal");
            assert_eq!(program.ends().signal(), Some(*last as i32));
        }
    }
    nothing_is_left(&mut cluster, 1);
}

/// A lock of `flock` ends with its holder, also if the lock server learns neither of its close nor of its end.
#[test]
fn a_flock_holder_while_the_lock_server_is_away() {
    needs_mount!();
    let mut cluster = cluster(2);
    let path = cluster.at(0, "file");
    drop(file::open_new(&path));
    {
        let script = "import fcntl, os, sys
fd = os.open('file', os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(1, b'.')
sys.stdin.read(1)";
        let mut holder = Program::script(&cluster.mnt(0), script, "");
        cluster.kill_md();
        holder.signal(Signal::SIGKILL);
        assert_eq!(holder.ends().signal(), Some(Signal::SIGKILL as i32));
        cluster.start_md();
    }
    let mut next = Program::ready(&cluster.mnt(1), &["flock", "file", "true"]);
    next.go();
    assert!(next.ends().success());
    nothing_is_left(&mut cluster, 2);
}

#[test]
fn lock_waiters_while_the_lock_server_is_away() {
    needs_mount!();
    let mut cluster = cluster(2);
    let path = cluster.at(0, "file");
    drop(file::open_new(&path));
    {
        let script =
            "import fcntl, os; fd = os.open('file', os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX)";
        let mut waiters: Vec<Program> = (0..2)
            .map(|mount| {
                let flock: &[&str] = &["flock", "file", "sleep", "1000"];
                let record: &[&str] = &[inputs::PYTHON, "-I", "-c", script];
                Program::ready(&cluster.mnt(mount), [flock, record][mount])
            })
            .collect();
        let _stopped = Stopped::now(vec![cluster.md()]);
        for waiter in &mut waiters {
            waiter.go();
            waiter.waits();
            waiter.signal(Signal::SIGKILL);
        }
        for waiter in &mut waiters {
            assert_eq!(waiter.ends().signal(), Some(Signal::SIGKILL as i32));
        }
    }
    for mount in [1, 0] {
        let mut next = Program::ready(&cluster.mnt(mount), &["flock", "file", "true"]);
        next.go();
        assert!(next.ends().success());
    }
    nothing_is_left(&mut cluster, 2);
}

/// Reads and writes of bytes, and the closes of a process that is killed with many written files open.
#[test]
fn readers_writers_and_closes() {
    needs_mount!();
    let mut cluster = cluster(1);
    let root = cluster.mnt(0);
    for name in ["read", "write", "sync"] {
        create(&root.join(name), "4096,1024", "u1", &[]);
        file::write(&root.join(name), vec![1; 4 << 20]);
    }
    // A mount without cached data.
    cluster.stop_mount(0);
    cluster.start_mount(0);
    let script = "
import os, sys, mmap, time
what = sys.argv[1]
if what == 'read':
    fd = os.open('read', os.O_RDONLY)
    os.write(1, b'.')
    sys.stdin.read(1)
    while True: os.pread(fd, 4 << 20, 0)
if what == 'write':
    fd = os.open('write', os.O_WRONLY)
    os.write(1, b'.')
    sys.stdin.read(1)
    while True: os.pwrite(fd, bytes([2]) * (4 << 20), 0)
if what == 'sync':
    fd = os.open('sync', os.O_RDWR)
    os.write(1, b'.')
    sys.stdin.read(1)
    os.pwrite(fd, bytes([2]) * 1024, 0)
    os.fsync(fd)
if what == 'closes':
    fds = [os.open('c%d' % i, os.O_RDWR | os.O_CREAT) for i in range(40)]
    os.write(1, b'.')
    sys.stdin.read(1)
    for fd in fds: os.pwrite(fd, b'written', 0)
    os.write(1, b'.')
    sys.stdin.read(1)
";
    let start = |what: &str| Program::script(&root, script, what);
    let mut programs: Vec<Program> = ["read", "write", "sync", "closes"].map(start).into();
    {
        let _stopped = Stopped::now(vec![cluster.server(0), cluster.server(1)]);
        for program in &mut programs {
            let stdin = program.child.stdin.as_mut().expect("a pipe");
            stdin.write_all(b".").expect("sent");
        }
        let closes = programs.last_mut().expect("there");
        said(&mut closes.child);
        programs[..3].iter().for_each(Program::waits);
        for program in &programs {
            program.signal(Signal::SIGKILL);
        }
        for program in &mut programs {
            assert_eq!(program.ends().signal(), Some(Signal::SIGKILL as i32));
        }
    }
    // The mount had accepted its writes.
    for number in 0..40 {
        assert_eq!(file::read(&root.join(format!("c{number}"))), b"written");
    }
    let read = file::read(&named(&root.join("sync"), "@[0]"));
    assert!(read == [1; 1024] || read == [2; 1024]);
    nothing_is_left(&mut cluster, 1);
}

/// Waits until a program has written a byte.
fn said(child: &mut Child) {
    let mut byte = [0];
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut byte).expect("a byte");
}

/// A process that is not killed waits, and gets its reply.
#[test]
fn a_process_that_is_not_killed_gets_its_reply() {
    needs_mount!();
    let mut cluster = cluster(1);
    let mut programs = {
        let mut made = Program::ready(&cluster.mnt(0), &["mkdir", "one"]);
        let ignores =
            "import signal, os; signal.signal(signal.SIGINT, signal.SIG_IGN); os.mkdir('two')";
        let mut ignoring = Program::ready(&cluster.mnt(0), &[inputs::PYTHON, "-I", "-c", ignores]);
        let _stopped = Stopped::now(vec![cluster.md()]);
        made.go();
        made.waits();
        ignoring.go();
        poll::until_true("it runs", || {
            let status = fs::read_to_string(format!("/proc/{}/status", ignoring.child.id()));
            let ignored = status.ok().and_then(|text| {
                let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
                u64::from_str_radix(line.trim(), 16).ok()
            });
            ignored.is_some_and(|set| set & 1 << (Signal::SIGINT as u32 - 1) != 0)
        });
        ignoring.signal(Signal::SIGINT);
        // Longer than killed processes are waited for.
        std::thread::sleep(Duration::from_secs(2));
        [made, ignoring]
    };
    for program in &mut programs {
        assert!(program.ends().success(), "{}", program.name);
    }
    for name in ["one", "two"] {
        assert!(cluster.at(0, name).is_dir(), "{name}");
    }
    nothing_is_left(&mut cluster, 1);
}

/// `stats` works also while the metadata service is away, `servers` reports that it is.
#[test]
fn reports_about_a_mount_do_not_wait() {
    needs_mount!();
    let mut cluster = cluster(1);
    let root = cluster.mnt(0);
    assert!(root.is_dir());
    cluster.kill_md();
    poll::until_true("it has lapsed", || stats(&root)["lapsed"] == true);
    assert_eq!(tool::stats(&root)["lapsed"], true);
    slabfs(["servers".as_ref(), root.as_os_str()]).fails(1, &["does not answer the mount"]);
    drop(File::open(root.join(".slabfs/stats")).expect("opened"));
    cluster.start_md();
    poll::until_true("it continues", || stats(&root)["lapsed"] == false);
    assert!(!tool::servers(&root).is_empty());
    nothing_is_left(&mut cluster, 1);
}

/// The kernel releases the file of a killed writer before its last write is done, which is flushed all the
/// same.
#[test]
fn a_writer_waiting_for_a_right() {
    needs_mount!();
    let mut cluster = cluster(2);
    file::write(&cluster.at(1, "file"), vec![1; 1000]);
    {
        let script = "import os, sys
fd = os.open('file', os.O_WRONLY)
os.write(1, b'.')
sys.stdin.read(1)
os.pwrite(fd, b'written', 0)";
        let mut program = Program::script(&cluster.mnt(0), script, "");
        // The other mount has the right now.
        file::write(&cluster.at(1, "file"), vec![1; 1000]);
        let _stopped = Stopped::now(vec![cluster.md()]);
        program.go();
        program.waits();
        program.signal(Signal::SIGKILL);
        assert_eq!(program.ends().signal(), Some(Signal::SIGKILL as i32));
    }
    nothing_is_open(&cluster, 2);
    let found = file::read(&cluster.at(1, "file"));
    let written = [&b"written"[..], &[1; 993]].concat();
    assert!(found == written || found == [1; 1000], "{found:?}");
    nothing_is_left(&mut cluster, 2);
}

/// A child that shares the open file requests the lock that its parent holds, and is killed while the lock
/// server is away.
#[test]
fn a_lock_shared_with_a_killed_process_is_not_lost() {
    needs_mount!();
    let mut cluster = cluster(2);
    for how in ["flock", "ofd"] {
        let script = "import fcntl, os, struct, sys
fd = os.open('file', os.O_RDWR | os.O_CREAT)
def lock():
    if sys.argv[1] == 'flock': fcntl.flock(fd, fcntl.LOCK_EX)
    else: fcntl.fcntl(fd, 38, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))
lock()
os.write(1, b'.')
sys.stdin.read(1)
pid = os.fork()
if pid == 0:
    lock()
    os._exit(0)
os.write(1, b'%8d' % pid)
os.waitpid(pid, 0)
os.write(1, b'.')
sys.stdin.read(1)";
        let mut parent = Program::script(&cluster.mnt(0), script, how);
        {
            let _stopped = Stopped::now(vec![cluster.md()]);
            parent.go();
            let number = number(&mut parent.child);
            until_it_waits("the child", number);
            let pid = nix::unistd::Pid::from_raw(number as i32);
            nix::sys::signal::kill(pid, Signal::SIGKILL).expect("killed");
            said(&mut parent.child);
        }
        // After the lock server has processed everything of the child.
        for mount in [0, 1] {
            let path = cluster.at(mount, "file");
            for _ in 0..20 {
                let tried = slabfs_tests::tool::run(
                    Command::new("flock")
                        .arg("--nonblock")
                        .arg(&path)
                        .arg("true"),
                );
                match how {
                    "flock" => assert_eq!(tried.status, 1, "{}", tried.report()),
                    _ => assert_eq!(tried.status, 0, "{}", tried.report()),
                }
            }
        }
        assert_eq!(stats(&cluster.mnt(0))["locks_held"], 1, "{how}");
        parent.go();
        assert!(parent.ends().success());
    }
    nothing_is_left(&mut cluster, 2);
}

/// The kernel assigns the process number of a killed lock holder to a new process, while the release of the old
/// locks is still on its way to the lock server.
#[test]
fn a_reused_process_number_does_not_lose_its_locks() {
    needs_mount!();
    let mut cluster = cluster(2);
    let script = "import fcntl, os, signal, sys
fd = os.open('file', os.O_RDWR | os.O_CREAT)
alive, parent = os.pipe()
def holder(byte):
    pid = os.fork()
    if pid == 0:
        os.close(parent)
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, byte)
        os.write(1, b'.')
        os.read(alive, 1)
        os._exit(0)
    return pid
def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
for _ in range(int(sys.argv[1])):
    first = holder(0)
    sys.stdin.read(1)
    end(first)
    others = [holder(byte) for byte in range(1, 5)]
    for pid in others: os.write(1, b'%8d' % pid)
    sys.stdin.read(1)
    for pid in others: end(pid)";
    let tries = "import fcntl, sys
fcntl.lockf(open('file', 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[1]))";
    let other = |byte: u32| {
        let words = ["-I", "-c", tries, &byte.to_string()];
        let mut python = Command::new(inputs::PYTHON);
        slabfs_tests::tool::run(python.args(words).current_dir(cluster.mnt(1)))
    };
    let rounds = 6;
    let mut parent = Program::script(&cluster.mnt(0), script, &rounds.to_string());
    for round in 0..rounds {
        if round > 0 {
            said(&mut parent.child);
        }
        {
            let _stopped = Stopped::now(vec![cluster.md()]);
            parent.go();
            for _ in 0..4 {
                until_it_waits("a holder", number(&mut parent.child));
            }
        }
        for _ in 0..4 {
            said(&mut parent.child);
        }
        other(0).ok();
        for byte in 1..5 {
            let tried = other(byte);
            let refused = tried.stderr.contains("BlockingIOError");
            assert!(refused, "{byte} in round {round}: {}", tried.report());
        }
        assert_eq!(stats(&cluster.mnt(0))["locks_held"], 4);
        parent.go();
    }
    assert!(parent.ends().success());
    nothing_is_left(&mut cluster, 2);
}

/// Reads a process number that a program has written.
fn number(child: &mut Child) -> u32 {
    let mut number = [0; 8];
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut number).expect("a number");
    let number = String::from_utf8_lossy(&number);
    number.trim().parse().expect("a number")
}

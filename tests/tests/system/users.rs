//! Other users on a mount: modes, owners, the sticky bit, set-uid bits. Root plays them.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use slabfs_tests::{Area, Outcome, Up, file, needs_root, tool};

use crate::views::set_view;

/// Runs a shell command as another user, who is in one group.
fn as_user(uid: u32, dir: &Path, line: &str) -> Outcome {
    let id = uid.to_string();
    let user = [
        "--reuid",
        &id,
        "--regid",
        &id,
        "--clear-groups",
        "sh",
        "-e",
        "-c",
        line,
    ];
    tool::run(Command::new("setpriv").args(user).current_dir(dir))
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn permissions() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    mode(up.mnt(), 0o777);
    file::write(&up.at("private"), "secret");
    mode(&up.at("private"), 0o600);
    file::write(&up.at("public"), "shown");
    mode(&up.at("public"), 0o644);
    let line = |line: &str| as_user(4001, up.mnt(), line);
    line("cat public").ok();
    line("cat private").fails(1, &["Permission denied"]);
    line("echo x >> public").fails(2, &["Permission denied"]);
    line("touch own; test $(stat -c %u:%g own) = 4001:4001; chmod 600 own").ok();
    as_user(4002, up.mnt(), "cat own").fails(1, &["Permission denied"]);
    line("chown 4002 own").fails(1, &["not permitted"]);
    line("chmod 777 public").fails(1, &["not permitted"]);
    line("setfattr -n user.slabfs.dims -v 4 public 2>/dev/null || /usr/bin/python3 -c \"import os; os.setxattr('public','user.note',b'x')\"").fails(1, &["Permission denied"]);
    line("truncate -s 0 public").fails(1, &["Permission denied"]);
    // A selection has the owner and the mode of its object.
    line("cat 'public@[0:2]'").ok();
    line("cat 'private@[0:2]'").fails(1, &["Permission denied"]);
    line("echo xx > 'public@[0:2]'").fails(2, &["Permission denied"]);
    line("cat .slabfs/layout/private").fails(1, &["Permission denied"]);
    assert_eq!(file::read(&up.at("public")), b"shown");
}

/// A user who opens all allowed calls blocks only this user.
#[test]
fn calls_have_a_limit_a_user() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    mode(up.mnt(), 0o777);
    let hold = "import os, sys, time
held = []
try:
    for _ in range(100):
        held.append(os.open('.slabfs/call', os.O_RDWR))
except BlockingIOError:
    pass
print(len(held), flush=True)
sys.stdin.read()";
    let mut holder = Command::new("setpriv")
        .args(["--reuid", "4001", "--regid", "4001", "--clear-groups"])
        .args(["/usr/bin/python3", "-c", hold])
        .current_dir(up.mnt())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut held = String::new();
    let mut out = BufReader::new(holder.stdout.take().expect("piped"));
    out.read_line(&mut held).expect("a number");
    let ask = "import os
fd = os.open('.slabfs/call', os.O_RDWR)
os.pwrite(fd, b'{\"op\": \"servers\"}', 0)
assert b'ok' in os.pread(fd, 8 << 20, 0)";
    let python = format!("/usr/bin/python3 -c '{}'", ask.replace('\'', "'\\''"));
    as_user(4002, up.mnt(), &python).ok();
    tool::run(
        Command::new("/usr/bin/python3")
            .args(["-c", ask])
            .current_dir(up.mnt()),
    )
    .ok();
    assert_eq!(held.trim(), "16");
    drop(holder.stdin.take());
    assert!(holder.wait().expect("waited for").success());
}

#[test]
fn the_sticky_bit() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    let dir = up.at("tmp");
    std::fs::create_dir(&dir).expect("made");
    mode(&dir, 0o1777);
    as_user(4001, &dir, "echo mine > a").ok();
    as_user(4002, &dir, "rm -f a").fails(1, &["not permitted"]);
    as_user(4002, &dir, "mv a b").fails(1, &["not permitted"]);
    as_user(4001, &dir, "mv a b; rm b").ok();
}

#[test]
fn set_id_bits_are_cleared_when_another_user_writes() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    mode(up.mnt(), 0o777);
    let path = up.at("tool");
    file::write(&path, "#!/bin/sh\n");
    mode(&path, 0o6777);
    as_user(4001, up.mnt(), "echo exit >> tool").ok();
    assert_eq!(
        path.metadata().expect("metadata").mode() & 0o7777,
        0o777,
        "a write"
    );
    mode(&path, 0o6777);
    chown(&path, Some(4001), Some(4001)).expect("chown");
    assert_eq!(
        path.metadata().expect("metadata").mode() & 0o6000,
        0,
        "a change of owner"
    );
    mode(&path, 0o6777);
    as_user(4002, up.mnt(), "truncate -s 3 tool").ok();
    assert_eq!(
        path.metadata().expect("metadata").mode() & 0o6000,
        0,
        "a truncate"
    );
    mode(&path, 0o6777);
    let viewed = file::open(&path);
    set_view(&Area::new(), &viewed, 1, 2);
    let write = Command::new("setpriv")
        .args(["--reuid", "4002", "--regid", "4002", "--clear-groups"])
        .args(["printf", "XY"])
        .stdout(viewed)
        .status();
    assert!(write.expect("started").success());
    assert_eq!(file::read(&path), b"#XY");
    assert_eq!(
        path.metadata().expect("metadata").mode() & 0o6000,
        0,
        "a write through a view"
    );
}

/// Set-group-id without group execute permission is cleared when a user outside the group writes.
#[test]
fn set_group_id_without_execution_goes_when_a_stranger_writes() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    mode(up.mnt(), 0o777);
    let (path, other) = (up.at("f"), up.at("other"));
    file::write(&other, "z".repeat(8192));
    mode(&other, 0o644);
    let writes = [
        "echo x >> f",
        "truncate -s 3 f",
        "fallocate -l 100000 f",
        "fallocate -p -o 0 -l 4096 f",
        "/usr/bin/python3 -c 'import os
os.copy_file_range(os.open(\"other\", os.O_RDONLY), os.open(\"f\", os.O_WRONLY), 100)'",
        "printf x | dd of=f conv=notrunc oflag=sync status=none",
    ];
    let after = || path.metadata().expect("metadata").mode() & 0o7777;
    for write in writes {
        for (before, stranger, member) in [(0o2666, 0o666, 0o2666), (0o6676, 0o676, 0o676)] {
            for (user, left) in [(4001, stranger), (4002, member)] {
                file::write(&path, "b".repeat(65536));
                chown(&path, Some(4003), Some(4002)).expect("chown");
                mode(&path, before);
                as_user(user, up.mnt(), write).ok();
                assert_eq!(after(), left, "{write} by {user}: {before:o}");
            }
        }
        mode(&path, 0o2666);
        tool::run(Command::new("sh").args(["-c", write]).current_dir(up.mnt())).ok();
        assert_eq!(after(), 0o2666, "{write} by root");
    }
}

/// Sockets are private to their owner: another user on the machine cannot talk to the servers.
#[test]
fn unix_sockets_are_for_their_owner() {
    needs_root!();
    let cluster = slabfs_tests::Cluster::start(1, 0);
    let socket = cluster.md_addr().trim_start_matches("unix:").to_owned();
    let meta = std::fs::metadata(&socket).expect("the socket");
    assert_eq!(meta.mode() & 0o777, 0o600);
    // Even with an open mode, the peer's uid is checked.
    mode(Path::new(&socket), 0o777);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(20)\ns.connect(sys.argv[1])\n\
                  import struct,os\nbody=struct.pack('<HH',1,65535)+os.urandom(32)\n\
                  def crc(b):\n    c=0xffffffff\n    for x in b:\n        c^=x\n        for _ in range(8):\n            c=(c>>1)^(0x82f63b78 if c&1 else 0)\n    return c^0xffffffff\n\
                  head=b'SLBW'+struct.pack('<HHQIII',0,1,0,len(body),0,0)\n\
                  s.sendall(head+struct.pack('<I',crc(head+body))+body)\n\
                  got=s.recv(4096)\nprint(got[6:8].hex() if got else 'closed')\n";
    let said = tool::program(
        "setpriv",
        [
            "--reuid",
            "4001",
            "--regid",
            "4001",
            "--clear-groups",
            "/usr/bin/python3",
            "-c",
            script,
            &socket,
        ],
    );
    let said = said.ok();
    assert_ne!(
        said.text().trim(),
        "0200",
        "a stranger got a challenge: {}",
        said.text()
    );
    let said = tool::run(Command::new("/usr/bin/python3").args(["-c", script, &socket])).ok();
    assert_eq!(
        said.text().trim(),
        "0200",
        "the owner gets a challenge: {}",
        said.text()
    );
}

/// A directory that hands its group down makes no user a member of it.
#[test]
fn no_file_is_made_that_runs_as_a_foreign_group() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    let dir = up.at("shared");
    std::fs::create_dir(&dir).expect("made");
    chown(&dir, Some(0), Some(4009)).expect("chown");
    mode(&dir, 0o2777);
    let made = |user: u32, name: &str| {
        let request = format!(
            "{{\"op\": \"create\", \"in\": \"shared\", \"mode\": {}, \"objects\": [{{\"path\": \"{name}\"}}]}}",
            0o6755
        );
        let slabfs = slabfs_tests::binary::path().display();
        as_user(user, up.mnt(), &format!("{slabfs} call . '{request}'")).ok();
        let made = dir.join(name).metadata().expect("metadata");
        (made.mode() & 0o7777, made.uid(), made.gid())
    };
    assert_eq!(made(4001, "a"), (0o4755, 4001, 4009));
    // A member, and root, may.
    assert_eq!(made(4009, "b"), (0o6755, 4009, 4009));
    assert_eq!(made(0, "c"), (0o6755, 0, 4009));
    // As the kernel does.
    as_user(4001, &dir, "touch d; chmod 6755 d").ok();
    assert_eq!(
        dir.join("d").metadata().expect("metadata").mode() & 0o7777,
        0o4755
    );
}

/// Operations that the owner may do, and another user or a member of the group may or may not.
#[test]
fn permissions_of_other_users() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    // Owner, group and mode of a directory and of the file in it; the user; the command; the expected error.
    let denied = "Permission denied";
    let not_owner = "not permitted";
    for (directory, inside, uid, line, error) in [
        (0o755, 0o644, 4002, "cat f", None),
        (0o755, 0o640, 4002, "cat f", Some(denied)),
        (0o755, 0o660, 4003, "cat f && echo x >> f", None),
        (0o755, 0o640, 4003, "cat f", None),
        (0o755, 0o604, 4003, "cat f", Some(denied)),
        (0o755, 0o640, 4003, "echo x 2>&1 >> f", Some(denied)),
        (0o755, 0o044, 4001, "cat f", Some(denied)),
        (0o700, 0o666, 4002, "cat f", Some(denied)),
        (0o711, 0o644, 4002, "cat f", None),
        (0o711, 0o644, 4002, "ls .", Some(denied)),
        (0o744, 0o644, 4002, "ls . && cat f", Some(denied)),
        (0o755, 0o666, 4002, "touch new", Some(denied)),
        (0o755, 0o666, 4002, "mkdir new", Some(denied)),
        (0o755, 0o666, 4002, "ln -s f new", Some(denied)),
        (0o755, 0o666, 4002, "ln f new", Some(denied)),
        (0o755, 0o666, 4002, "mkfifo new", Some(denied)),
        (0o755, 0o666, 4002, "rm -f f", Some(denied)),
        (0o755, 0o666, 4002, "mv f g", Some(denied)),
        (0o755, 0o666, 4002, "rmdir e", Some(denied)),
        (
            0o777,
            0o600,
            4002,
            "mv f g; rm -f g; rmdir e; mkdir e; touch f",
            None,
        ),
        (0o755, 0o644, 4002, "chmod 600 f", Some(not_owner)),
        (0o755, 0o666, 4002, "chgrp 4002 f", Some(not_owner)),
        (0o755, 0o644, 4001, "chgrp 4002 f", Some(not_owner)),
        (0o755, 0o644, 4001, "chown 4002 f", Some(not_owner)),
        (0o755, 0o644, 4001, "chmod 600 f; chgrp 4001 f", None),
        // Writers may set the times to now; only the owner to any other time.
        (0o755, 0o644, 4002, "touch -c f", Some(denied)),
        (0o755, 0o666, 4002, "touch -c f", None),
        (
            0o755,
            0o666,
            4002,
            "touch -c -d 2001-01-01 f",
            Some(not_owner),
        ),
        (0o755, 0o444, 4001, "touch -c -d 2001-01-01 f", None),
        (0o755, 0o644, 4002, "truncate -s 0 f", Some(denied)),
        (
            0o755,
            0o644,
            4002,
            "setfattr -n user.note -v x f",
            Some(denied),
        ),
        (0o755, 0o600, 4002, "getfattr -n user.note f", Some(denied)),
        (0o755, 0o644, 4002, "getfattr -n user.note f", None),
        (
            0o755,
            0o644,
            4001,
            "setfattr -n trusted.note -v x f",
            Some(not_owner),
        ),
        (0o755, 0o666, 4002, "mknod new c 1 3", Some(denied)),
        (0o777, 0o666, 4002, "mknod new c 1 3", Some(not_owner)),
        (0o755, 0o644, 4001, "./f", Some(denied)),
        (0o755, 0o744, 4002, "./f", Some(denied)),
        (0o755, 0o755, 4002, "./f", None),
    ] {
        let dir = up.at("dir");
        std::fs::create_dir(&dir).expect("made");
        file::write(&dir.join("f"), "#!/bin/sh\n");
        file::set_xattr(&dir.join("f"), "user.note", "x", 0).expect("set");
        std::fs::create_dir(dir.join("e")).expect("made");
        for path in [dir.join("f"), dir.join("e"), dir.clone()] {
            chown(path, Some(4001), Some(4009)).expect("chown");
        }
        mode(&dir.join("f"), inside);
        mode(&dir, directory);
        // 4003 is also in the group.
        let groups = if uid == 4003 { "4009" } else { "4001" };
        let id = uid.to_string();
        let begin = format!("cd {}; {line}", dir.display());
        let begin = if directory & 0o001 == 0 {
            line.replace(" f", &format!(" {}/f", dir.display()))
        } else {
            begin
        };
        let user = ["--reuid", &id, "--regid", &id, "--groups", groups];
        let mut command = Command::new("setpriv");
        command.args(user).args(["sh", "-e", "-c", &begin]);
        let said = tool::run(command.env("LC_ALL", "C").current_dir("/"));
        let case = format!("{directory:o} {inside:o} {uid} `{line}`");
        match error {
            None => assert_eq!(said.status, 0, "{case}: {}", said.report()),
            Some(error) => {
                let all = format!("{}{}", String::from_utf8_lossy(&said.stdout), said.stderr);
                assert!(
                    said.status != 0 && all.contains(error),
                    "{case}: {}",
                    said.report()
                );
            }
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}

/// There are no access control lists, and setting one fails; copying continues without.
#[test]
fn access_control_lists_are_refused() {
    needs_root!();
    let up = Up::start();
    file::write(&up.at("f"), "x");
    for line in ["setfacl -m u:4001:rw f", "setfacl -d -m u:4001:rwx ."] {
        tool::shell(up.mnt(), line).fails(1, &["Operation not supported"]);
    }
    let listed = tool::shell(up.mnt(), "getfacl -c f").ok();
    assert_eq!(listed.text(), "user::rw-\ngroup::r--\nother::r--\n\n");
    tool::shell(up.mnt(), "cp -a f g; cmp f g; setfacl -b f").ok();
}

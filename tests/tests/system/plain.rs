//! Plain tools on byte objects, as people and programs use them without knowledge of arrays.

use slabfs_tests::tool::{program, shell};
use slabfs_tests::{Random, Up, file, inputs, needs_mount};

#[test]
fn coreutils() {
    needs_mount!();
    let up = Up::start();
    let out = up.area().mkdir("out");
    let bytes = Random::new(11).bytes(3_000_017);
    file::write(&out.join("src"), &bytes);
    let line = |line: &str| shell(up.mnt(), line).ok();
    line("cp ../out/src a; cmp a ../out/src; cp a b; cmp a b; mv b c; test ! -e b; cmp a c");
    line(
        "mkdir -p d/e/f; mv c d/e/f/g; cmp a d/e/f/g; ln a hard; ln -s d/e soft; cmp soft/f/g hard",
    );
    line("test $(stat -c %h a) = 2; rm a; cmp hard ../out/src; test $(stat -c %h hard) = 1");
    line("touch -d '2001-02-03 04:05:06.123456789' hard");
    assert_eq!(
        line("stat -c '%y' hard").text().split_whitespace().nth(1),
        Some("04:05:06.123456789")
    );
    line(
        "chmod 640 hard; test $(stat -c %a hard) = 640; chmod u+s,g+x hard; test $(stat -c %a hard) = 4650",
    );
    line("dd if=../out/src of=dd bs=1000 count=77 skip=3 seek=5 status=none");
    let mut wanted = vec![0; 5000];
    wanted.extend_from_slice(&bytes[3000..80_000]);
    assert!(file::read(&up.at("dd")) == wanted, "dd");
    line("dd if=/dev/zero of=dd bs=7 count=3 seek=9 conv=notrunc oflag=sync status=none");
    wanted[63..84].fill(0);
    assert!(file::read(&up.at("dd")) == wanted, "dd notrunc");
    line(
        "truncate -s 12345 dd; test $(stat -c %s dd) = 12345; truncate -s 1M dd; test $(stat -c %s dd) = 1048576",
    );
    line("test $(tail -c 1000 dd | tr -d '\\0' | wc -c) = 0");
    line("test \"$(find . -type f | sort | tr '\\n' ' ')\" = './d/e/f/g ./dd ./hard '");
    line("test $(find . -newermt 2010-01-01 -name g | wc -l) = 1; test $(find . -type l) = ./soft");
    line("echo one > log; echo two >> log; sed -i s/one/1/ log; test \"$(cat log)\" = '1\ntwo'");
    line("sort -r log -o log; test \"$(cat log)\" = 'two\n1'; wc -c log | grep -q '^6 '");
    line(
        "cp -a d copy; diff -r d copy; du -s . > /dev/null; df . | grep -q slabfs; ls -laR . > /dev/null",
    );
    line(
        "install -m 755 -d i; install -m 644 log i/log; test $(stat -c %a i/log) = 644; split -b 100000 d/e/f/g part.; cat part.* | cmp - d/e/f/g",
    );
    line("rm -r d copy soft i part.* log dd hard; test -z \"$(ls -A)\"");
}

#[test]
fn tar_and_rsync() {
    needs_mount!();
    let mut up = Up::start();
    let source = up.area().mkdir("tree");
    let mut random = Random::new(12);
    for dir in ["", "x", "x/y", "z z"] {
        std::fs::create_dir_all(source.join(dir)).expect("a directory");
        for i in 0..12 {
            let len = random.range(0, 40_000) as usize;
            std::fs::write(
                source.join(dir).join(format!("file {i}")),
                random.bytes(len),
            )
            .expect("a file");
        }
    }
    shell(&source, "ln -s x/y link; ln 'file 1' hard; chmod 751 x; mkfifo pipe; touch -d 1999-01-01 'x/file 2'; touch @@[0]").ok();
    let line = |line: &str| shell(up.area().path(), line).ok();
    line(
        "tar -C tree -cf m/t.tar .; mkdir m/untar; tar -C m/untar -xpf m/t.tar; tar -C m/untar -df m/t.tar",
    );
    line(
        "test $(stat -c %h 'm/untar/hard') = 2; test -p m/untar/pipe; test $(stat -c %a m/untar/x) = 751",
    );
    line("rsync -aH --checksum tree/ m/sync/");
    let again = line("rsync -aH --checksum --itemize-changes --stats tree/ m/sync/");
    assert!(
        again
            .text()
            .contains("Number of regular files transferred: 0"),
        "{}",
        again.text()
    );
    assert!(
        !again
            .text()
            .lines()
            .any(|line| line.starts_with(['>', '<', 'c', '.', '*'])),
        "{}",
        again.text()
    );
    up.restart();
    let back = shell(
        up.area().path(),
        "rsync -aH --checksum --itemize-changes --stats m/sync/ tree/",
    )
    .ok();
    assert!(
        back.text()
            .contains("Number of regular files transferred: 0"),
        "{}",
        back.text()
    );
    shell(
        up.area().path(),
        "diff -r --no-dereference -x pipe tree m/sync; rsync -a --inplace --append tree/ m/sync/",
    )
    .ok();
}

#[test]
fn git() {
    needs_mount!();
    let mut up = Up::start();
    let git = "git -c user.name=t -c user.email=t@example.org -c init.defaultBranch=main -c core.fsync=all";
    let line =
        |up: &Up, line: &str| shell(up.mnt(), &line.replace("git ", &format!("{git} "))).ok();
    line(&up, "git init -q repo");
    let mut random = Random::new(13);
    for commit in 0..4 {
        for i in 0..8 {
            let text: String = (0..random.range(1, 400))
                .map(|n| format!("line {n} of {commit}\n"))
                .collect();
            file::write(&up.at(format!("repo/f{i}.txt")), text);
        }
        line(
            &up,
            &format!("cd repo; git add -A; git commit -q -m 'commit {commit}'"),
        );
    }
    line(
        &up,
        "git clone -q --local repo clone; cd clone; git fsck --full --strict; git log --oneline | wc -l | grep -q 4",
    );
    line(
        &up,
        "cd repo; git gc -q --prune=now; git fsck --full --strict; git status --porcelain | wc -l | grep -qx 0",
    );
    up.restart();
    line(
        &up,
        "cd clone; git fsck --full --strict; git pull -q; git status --porcelain | wc -l | grep -qx 0; git diff --quiet HEAD",
    );
}

#[test]
fn sqlite() {
    needs_mount!();
    let mut up = Up::start();
    for (name, mode) in [("delete", "DELETE"), ("wal", "WAL")] {
        let database = up.at(name).display().to_string();
        let script = format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<4000)
             INSERT INTO t SELECT i, 'row '||i, randomblob(i%300) FROM n;
             CREATE INDEX t_a ON t(a); DELETE FROM t WHERE id%3=0; UPDATE t SET a=a||'x' WHERE id%5=0; VACUUM;
             PRAGMA integrity_check;"
        );
        let said = program("sqlite3", [database.as_str(), script.as_str()]).ok();
        assert!(said.text().ends_with("ok\n"), "{}", said.report());
    }
    up.restart();
    for name in ["delete", "wal"] {
        let database = up.at(name).display().to_string();
        let said = program(
            "sqlite3",
            [
                database.as_str(),
                "PRAGMA integrity_check; SELECT count(*), sum(id) FROM t;",
            ],
        )
        .ok();
        assert_eq!(said.text(), "ok\n2667|5334667\n", "{}", said.report());
    }
}

/// bzip2: small, in C, with a test of its own that compares its results.
#[test]
fn a_c_project_from_a_debian_source_package() {
    needs_mount!();
    let up = Up::start();
    let archive = inputs::bzip2_source();
    let line = format!(
        "tar -xf '{}'; cd bzip2-*; make -j2; make test; ./bzip2 -kf sample1.ref; ./bzip2 -t sample1.ref.bz2; make clean",
        archive.display()
    );
    shell(up.mnt(), &line).ok();
}

#[test]
fn scripts_and_programs_run_from_it() {
    needs_mount!();
    let up = Up::start();
    shell(up.mnt(), "printf '#!/bin/sh\\necho ran $1\\n' > s; chmod +x s; test \"$(./s it)\" = 'ran it'; cp /bin/true t; ./t").ok();
    let busy = std::fs::OpenOptions::new().write(true).open(up.at("s"));
    assert!(busy.is_ok());
}

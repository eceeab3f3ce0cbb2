//! Holes: created, found, punched; what they cost; where they are impossible.

use std::os::unix::fs::{FileExt, MetadataExt};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::Whence;
use slabfs_tests::tool::{create, shell};
use slabfs_tests::{Cluster, Random, Up, disk, file, needs_mount, poll};

#[test]
fn holes_cost_nothing_and_are_found() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("f");
    let handle = file::open_new(&path);
    handle.set_len(10 << 30).expect("10 GiB");
    handle.write_all_at(&[7; 65536], 1 << 30).expect("written");
    handle.write_all_at(&[8; 65536], 5 << 30).expect("written");
    handle.sync_all().expect("synced");
    let meta = handle.metadata().expect("metadata");
    assert_eq!(meta.len(), 10 << 30);
    assert!(meta.blocks() * 512 < 8 << 20, "{} blocks", meta.blocks());
    assert!(
        disk::used(up.data()) < 64 << 20,
        "{} bytes",
        disk::used(up.data())
    );
    let data = file::seek(&handle, 0, Whence::SeekData)
        .expect("seek")
        .expect("data");
    assert!(data <= 1 << 30, "{data}");
    let hole = file::seek(&handle, 1 << 30, Whence::SeekHole)
        .expect("seek")
        .expect("a hole");
    assert!(((1 << 30) + 65536..=5 << 30).contains(&hole), "{hole}");
    let next = file::seek(&handle, hole, Whence::SeekData)
        .expect("seek")
        .expect("data");
    assert!(hole < next && next <= 5 << 30, "{next}");
    assert_eq!(
        file::seek(&handle, 10 << 30, Whence::SeekData).expect("seek"),
        None
    );
    drop(handle);
    shell(
        up.mnt(),
        "cp --sparse=always f g; cmp -n 1100000000 f g; test $(stat -c %b g) -lt 20000",
    )
    .ok();
    up.restart();
    let handle = file::open(&path);
    let mut seen = [1; 3];
    handle
        .read_exact_at(&mut seen, (1 << 30) - 2)
        .expect("read");
    assert_eq!(seen, [0, 0, 7]);
}

/// The runs of data of a file, as the kernel reports them.
fn runs(file: &std::fs::File) -> Vec<(u64, u64)> {
    let seek = |from: u64, whence| file::seek(file, from as i64, whence).expect("seek");
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(data) = seek(at, Whence::SeekData) {
        let hole = seek(data as u64, Whence::SeekHole).expect("a hole, be it the end");
        runs.push((data as u64, hole as u64));
        at = hole as u64;
    }
    runs
}

/// Random pages are written and punched; the runs of data are those of a list of pages.
fn pages_of_a_file(at: &dyn Fn(&str) -> std::path::PathBuf) {
    const PAGE: u64 = 4096;
    // Three chunks, the last of them short.
    const PAGES: u64 = (20 << 20) / PAGE;
    let path = at("pages");
    let handle = file::open_new(&path);
    handle.set_len(PAGES * PAGE).expect("its size");
    let mut random = Random::new(5);
    let mut written = vec![false; PAGES as usize];
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let zero = FallocateFlags::FALLOC_FL_ZERO_RANGE;
    for step in 0..60 {
        let long = if random.range(0, 4) == 0 { 2500 } else { 40 };
        let first = random.range(0, PAGES);
        let count = random.range(1, long).min(PAGES - first);
        let (from, len) = (first * PAGE, count * PAGE);
        let data = random.range(0, 5) > 1;
        written[first as usize..(first + count) as usize].fill(data);
        match data {
            true => handle
                .write_all_at(&vec![7; len as usize], from)
                .expect("written"),
            false if step % 2 == 0 => {
                fallocate(&handle, punch, from as i64, len as i64).expect("punched")
            }
            false => fallocate(&handle, zero, from as i64, len as i64).expect("zeroed"),
        }
        let mut expected = Vec::<(u64, u64)>::new();
        for (page, _) in written.iter().enumerate().filter(|(_, written)| **written) {
            let from = page as u64 * PAGE;
            match expected.last_mut() {
                Some((_, upto)) if *upto == from => *upto += PAGE,
                _ => expected.push((from, from + PAGE)),
            }
        }
        assert_eq!(runs(&handle), expected, "step {step}");
    }
    handle.sync_all().expect("synced");
    let data = written.iter().filter(|written| **written).count() as u64 * PAGE;
    assert!(data > 0 && data < PAGES * PAGE);
}

#[test]
fn holes_are_known_to_the_page() {
    needs_mount!();
    let up = Up::start();
    pages_of_a_file(&|name| up.at(name));
    let cluster = Cluster::start(2, 1);
    pages_of_a_file(&|name| cluster.at(0, name));
}

#[test]
fn blocks_are_given_back() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, vec![7; 32 << 20]);
    let handle = file::open(&path);
    let blocks = || handle.metadata().expect("metadata").blocks();
    for _ in 0..3 {
        handle.write_all_at(&vec![8; 4 << 20], 0).expect("written");
        handle.sync_all().expect("synced");
    }
    assert_eq!(blocks(), (32 << 20) / 512, "what is written again");
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&handle, punch, 1 << 20, 20 << 20).expect("punched");
    assert_eq!(blocks(), (12 << 20) / 512);
    fallocate(&handle, punch, 1 << 20, 20 << 20).expect("punched again");
    assert_eq!(blocks(), (12 << 20) / 512);
    fallocate(
        &handle,
        FallocateFlags::FALLOC_FL_ZERO_RANGE,
        24 << 20,
        4 << 20,
    )
    .expect("zeroed");
    assert_eq!(blocks(), (8 << 20) / 512);
    // As programs use it.
    let copy = "cp --sparse=auto f g && cmp f g && test $(stat -c %b g) -le 20000
        tar -cSf t f && test $(stat -c %s t) -lt 10000000 && mkdir x && tar -xSf t -C x && cmp f x/f
        test $(stat -c %b x/f) -le 20000";
    shell(up.mnt(), copy).ok();
}

/// Small pieces far apart, and a punch between them: data occupies blocks, or `tar -S` leaves it out.
#[test]
fn data_occupies_blocks() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    let handle = file::open_new(&path);
    for at in 0..8u64 {
        handle.write_all_at(b"a record", at << 18).expect("written");
        handle.sync_all().expect("synced");
    }
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&handle, punch, 0, 1 << 18).expect("punched");
    handle.sync_all().expect("synced");
    assert!(handle.metadata().expect("metadata").blocks() > 0);
    shell(
        up.mnt(),
        "tar -cSf t f && mkdir x && tar -xSf t -C x && cmp f x/f",
    )
    .ok();
}

#[test]
fn punching_gives_space_back() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, vec![7; 16 << 20]);
    let handle = file::open(&path);
    handle.sync_all().expect("synced");
    let full = disk::used(up.data());
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&handle, punch, 1000, (12 << 20) - 500).expect("punched");
    assert_eq!(handle.metadata().expect("metadata").len(), 16 << 20);
    let bytes = file::read(&path);
    let hole = 1000..1000 + (12 << 20) - 500;
    assert!(
        bytes[..hole.start].iter().all(|&b| b == 7) && bytes[hole.end..].iter().all(|&b| b == 7)
    );
    assert!(bytes[hole].iter().all(|&b| b == 0));
    handle.sync_all().expect("synced");
    poll::until_true("space to be given back", || {
        disk::used(up.data()) + (10 << 20) < full
    });
}

/// Chunks removed just before the end are deleted when all processes have ended, and not only after the next
/// start.
#[test]
fn removed_objects_take_no_space_after_the_end() {
    needs_mount!();
    let mut up = Up::start();
    let chunks = up.data().join("os1");
    let empty = disk::used(&chunks);
    let array = up.at("array");
    slabfs_tests::tool::create(&array, "64,262144", "u1", &[]);
    for path in [up.at("bytes"), array] {
        let handle = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .expect("open");
        handle.write_all_at(&vec![7; 16 << 20], 0).expect("written");
        handle.sync_all().expect("synced");
        drop(handle);
        assert!(disk::used(&chunks) > empty + (12 << 20));
        std::fs::remove_file(&path).expect("removed");
    }
    up.stop();
    let left = disk::used(&chunks).saturating_sub(empty);
    assert!(left < 4 << 20, "{left} bytes of removed objects are left");
}

#[test]
fn allocating() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    let handle = file::open_new(&path);
    handle.write_all_at(b"abc", 0).expect("written");
    fallocate(&handle, FallocateFlags::empty(), 0, 5000).expect("allocated");
    assert_eq!(handle.metadata().expect("metadata").len(), 5000);
    fallocate(&handle, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 9000).expect("allocated");
    assert_eq!(handle.metadata().expect("metadata").len(), 5000);
    fallocate(&handle, FallocateFlags::FALLOC_FL_ZERO_RANGE, 1, 1).expect("zeroed");
    assert_eq!(&file::read(&path)[..4], b"a\0c\0");
    for flags in [
        FallocateFlags::FALLOC_FL_COLLAPSE_RANGE,
        FallocateFlags::FALLOC_FL_INSERT_RANGE,
    ] {
        assert_eq!(fallocate(&handle, flags, 0, 4096), Err(Errno::EOPNOTSUPP));
    }
    assert_eq!(&file::read(&path)[..4], b"a\0c\0");
}

/// Zeros are not the fill value of this array: all of it is data, and nothing can be punched.
#[test]
fn holes_that_are_not_zero_are_data() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("ones");
    create(&object, "100,100", "i2", &["--fill", "-1"]);
    let handle = file::open(&object);
    assert_eq!(
        file::seek(&handle, 0, Whence::SeekData).expect("seek"),
        Some(0)
    );
    assert_eq!(
        file::seek(&handle, 0, Whence::SeekHole).expect("seek"),
        Some(20_000)
    );
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    assert_eq!(fallocate(&handle, punch, 0, 4096), Err(Errno::EOPNOTSUPP));
    shell(up.mnt(), "cp --sparse=auto ones copy; cmp ones copy; test $(od -An -v -tx1 copy | tr -d ' \\nf' | wc -c) = 0").ok();
}

#[test]
fn an_array_is_punched() {
    needs_mount!();
    let mut up = Up::start();
    for layout in ["aligned", "grid:32,32"] {
        let object = up.at(&layout[..4]);
        create(&object, "256,256", "f8", &["--layout", layout]);
        let mut wanted = vec![5; 256 * 256 * 8];
        file::write_at(&object, 0, &wanted);
        let handle = file::open(&object);
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&handle, punch, 10_001, 300_000).expect("punched");
        wanted[10_001..310_001].fill(0);
        assert!(file::read(&object) == wanted, "{layout}");
        handle
            .write_all_at(&[6; 100], 100_000)
            .expect("written into the hole");
        wanted[100_000..100_100].fill(6);
        file::close(handle).expect("closed");
        assert!(file::read(&object) == wanted, "{layout}");
    }
    up.restart();
    assert!(file::read(&up.at("alig")) == file::read(&up.at("grid")));
    assert_eq!(
        up.at("alig").metadata().expect("metadata").size(),
        256 * 256 * 8
    );
}

/// Declaring a sparse file as an array stores its data, not its holes.
#[test]
fn declaring_a_sparse_file() {
    needs_mount!();
    let mut up = Up::start();
    for exponent in [33_u32, 50] {
        let path = up.at(format!("f{exponent}"));
        let handle = file::open_new(&path);
        handle.set_len(1 << exponent).expect("long");
        handle
            .write_all_at(&[7; 5000], (1 << exponent) - 10_000)
            .expect("written");
        handle.write_all_at(&[8; 16], 0).expect("written");
        file::close(handle).expect("closed");
        let spec = format!(r#"{{"dims":"{},4","dtype":"f8"}}"#, 1_u64 << (exponent - 5));
        file::set_xattr(&path, "user.slabfs.spec", spec, 0).expect("declared");
        let row = |row: u64| file::read(&file::named(&path, &format!("@[{row}]")));
        assert_eq!(row(0), [[8; 16], [0; 16]].concat());
        assert_eq!(row((1 << (exponent - 5)) - 300), [7; 32]);
        assert_eq!(row((1 << (exponent - 5)) - 1), [0; 32]);
    }
    up.restart();
    assert!(
        disk::used(up.data()) < 64 << 20,
        "{} bytes",
        disk::used(up.data())
    );
}

//! Shared mappings, next to reads, writes and selections of the same object.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use slabfs_tests::array::same;
use slabfs_tests::tool::{create, program};
use slabfs_tests::{Cluster, Random, Up, file, needs_mount};

#[test]
fn a_shared_mapping_is_written_back() {
    needs_mount!();
    let mut up = Up::start();
    let path = up.at("f");
    let handle = file::open_new(&path);
    handle.set_len(1_000_000).expect("size");
    let mut map = file::map(&handle).expect("mapped");
    map[10..20].copy_from_slice(b"0123456789");
    map[999_990..].copy_from_slice(b"abcdefghij");
    map.flush().expect("msync");
    let mut seen = [0; 10];
    handle.read_exact_at(&mut seen, 10).expect("read");
    assert_eq!(&seen, b"0123456789");
    map[500_000] = 7;
    drop(map);
    file::close(handle).expect("closed");
    up.restart();
    let bytes = file::read(&path);
    assert_eq!(
        (&bytes[10..20], bytes[500_000], &bytes[999_990..]),
        (&b"0123456789"[..], 7, &b"abcdefghij"[..])
    );
    assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 21);
}

/// Stores to mapped pages survive, although the mount is removed under the process.
#[test]
fn mapped_changes_survive_a_mount_that_is_stopped() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    for pages in [1, 1000, 20_000] {
        let name = format!("of {pages} pages");
        let handle = file::open_new(&cluster.at(0, &name));
        handle.set_len(pages as u64 * 4096).expect("size");
        let mut map = file::map(&handle).expect("mapped");
        let stored = |page: usize| (page % 251) as u8 + 1;
        for page in 0..pages {
            map[page * 4096 + page % 4096] = stored(page);
        }
        let (status, log) = cluster.end_mount(0);
        assert_eq!(status, 0, "{log}");
        assert!(!log.contains("may be lost"), "{log}");
        drop(map);
        drop(handle);
        cluster.start_mount(0);
        let bytes = file::read(&cluster.at(0, &name));
        let there = |page: &usize| bytes[page * 4096 + page % 4096] == stored(*page);
        assert_eq!((0..pages).filter(there).count(), pages, "pages are lost");
    }
}

#[test]
fn a_mapping_sees_writes_and_writes_see_a_mapping() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, vec![1; 20_000]);
    let handle = file::open(&path);
    let mut map = file::map(&handle).expect("mapped");
    assert_eq!(map[0], 1);
    let other = file::open(&path);
    other.write_all_at(&[2; 5000], 3000).expect("written");
    assert_eq!(
        (map[2999], map[3000], map[7999], map[8000]),
        (1, 2, 2, 1),
        "the mapping sees the write"
    );
    map[4000] = 3;
    // The page is dirty in the kernel. A read of another handle sees it, as on one machine.
    let mut seen = [0; 3];
    other.read_exact_at(&mut seen, 3999).expect("read");
    assert_eq!(seen, [2, 3, 2], "a read sees the mapping");
    other.write_all_at(&[4], 4001).expect("written");
    assert_eq!(
        (map[4000], map[4001]),
        (3, 4),
        "a write next to a dirty byte keeps both"
    );
    map.flush().expect("msync");
    let bytes = file::read(&path);
    assert_eq!(&bytes[3998..4003], [2, 2, 3, 4, 2]);
}

/// Dirty pages of a mapping and a write through a selection: different inodes over the same bytes.
#[test]
fn a_selection_next_to_dirty_pages() {
    needs_mount!();
    let up = Up::start();
    for layout in ["aligned", "grid:16,16", "canonical"] {
        let object = up.at(layout.replace([':', ','], "-"));
        create(&object, "64,128", "u1", &["--layout", layout]);
        file::write_at(&object, 0, &[1; 64 * 128]);
        let handle = file::open(&object);
        let mut map = file::map(&handle).expect("mapped");
        let mut wanted = vec![1; 64 * 128];
        // Rows 0 and 1 share a page with rows 2 and 3, which the selection writes.
        map[..256].fill(2);
        wanted[..256].fill(2);
        let selection = file::named(&object, "@[2:4,:]");
        file::write(&selection, [3; 256]);
        wanted[256..512].fill(3);
        same(&format!("{layout}: the mapping"), &map[..], &wanted);
        map.flush().expect("msync");
        same(
            &format!("{layout}: after msync"),
            &file::read(&object),
            &wanted,
        );
        same(
            &format!("{layout}: the selection"),
            &file::read(&selection),
            &[3; 256],
        );
        // And vice versa: the selection has been read, then the mapping writes there.
        map[300] = 9;
        wanted[300] = 9;
        map.flush().expect("msync");
        same(
            &format!("{layout}: selection sees the mapping"),
            &file::read(&selection),
            &wanted[256..512],
        );
        drop(map);
        file::close(handle).expect("closed");
        same(
            &format!("{layout}: at the end"),
            &file::read(&object),
            &wanted,
        );
    }
}

#[test]
fn a_private_mapping_and_a_program_run_from_it() {
    needs_mount!();
    let up = Up::start();
    std::fs::copy("/bin/true", up.at("true")).expect("copied");
    program(up.at("true").to_str().expect("text"), [] as [&str; 0]).ok();
}

/// The kernel fetches the page that it copies from, which is the one that it has just dropped.
#[test]
fn a_write_from_a_mapping_onto_its_own_page_is_seen_through_it() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("f");
    file::write(&path, vec![1; 8192]);
    let handle = file::open(&path);
    let mut map = file::map(&handle).expect("mapped");
    for round in 2..20 {
        map[100] = round;
        handle.write_all_at(&map[100..150], 0).expect("written");
        assert_eq!((map[0], map[100]), (round, round));
        map[4000] = round;
        map.flush().expect("msync");
        let mut seen = [0; 2];
        handle.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(seen, [round, 1], "a store next to it restores no old data");
    }
}

/// Dims are set while pages of the object are changed: the remaining part of the object contains the stores,
/// although a page that is written back extends beyond the object by then.
#[test]
fn stores_survive_other_dims() {
    needs_mount!();
    let up = Up::start();
    for layout in ["aligned", "grid:7,64", "canonical"] {
        let object = up.at(layout.replace([':', ','], "-"));
        let max = ["--max-dims", "100,64", "--layout", layout];
        create(&object, "50,64", "i4", &max);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rows = 10;
                while !over.load(Ordering::SeqCst) {
                    rows = 10 + (rows * 7 + 1) % 90;
                    let dims = format!("{rows},64");
                    file::set_xattr(&object, "user.slabfs.resize", &dims, 0).expect("dims set");
                }
            });
            let _over = Ends(&over);
            let handle = file::open(&object);
            let mut map = file::map_some(&handle, 2560).expect("mapped");
            for number in 0..300u64 {
                // Row 3 is always there.
                map[800..808].copy_from_slice(&number.to_le_bytes());
                map.flush().expect("msync");
                let mut seen = [0; 8];
                handle.read_exact_at(&mut seen, 800).expect("read");
                assert_eq!(u64::from_le_bytes(seen), number, "{layout}");
            }
        });
    }
}

/// A file is repeatedly opened for writing while it is mapped for reading, and another mount stores into it:
/// requests made while pages are dropped are neither lost nor waited for in vain.
#[test]
fn openers_with_mapped_readers_and_a_writer_elsewhere() {
    const ROUNDS: u64 = 300;
    const PAGES: usize = 16;
    const PAGE: usize = 4096;
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let (here, there) = (cluster.at(0, "f"), cluster.at(1, "f"));
    file::write(&here, vec![0; PAGES * PAGE]);
    let over = AtomicBool::new(false);
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
    };
    let mut random = Random::new(57);
    // The last value stored into each page by the threads that open and close.
    let mut stored = [0; PAGES];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let handle = std::fs::File::open(&there).expect("open");
                let map = file::map_to_read(&handle).expect("mapped");
                let mut last = [0; PAGES];
                while !over.load(Ordering::SeqCst) {
                    for (page, last) in last.iter_mut().enumerate() {
                        let seen = number(std::hint::black_box(&map), page * PAGE);
                        assert!(seen >= *last, "{seen} after {last}");
                        *last = seen;
                    }
                }
            });
        }
        scope.spawn(|| {
            let handle = file::open(&here);
            let mut map = file::map(&handle).expect("mapped");
            for round in 1u64.. {
                let at = round as usize * 7 % PAGES * PAGE;
                std::hint::black_box(&mut map)[at..at + 8].copy_from_slice(&round.to_le_bytes());
                if over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let _over = Ends(&over);
        for round in 1..=ROUNDS {
            let handle = file::open(&there);
            let mut map = file::map(&handle).expect("mapped");
            for _ in 0..4 {
                let page = random.range(0, PAGES as u64) as usize;
                let at = page * PAGE + PAGE / 2;
                assert_eq!(number(&map, at), stored[page]);
                map[at..at + 8].copy_from_slice(&round.to_le_bytes());
                stored[page] = round;
            }
            drop(map);
            file::close(handle).expect("closed");
        }
    });
    let bytes = file::read(&here);
    for (page, stored) in stored.into_iter().enumerate() {
        assert_eq!(
            number(&bytes, page * PAGE + PAGE / 2),
            stored,
            "page {page}"
        );
    }
}

/// However the thread ends, the other thread ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

//! Extreme numbers: sizes close to 2^63, dims whose product overflows, ranges of more chunks than fit into
//! memory. An error or a result, never a dead process.

use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, program};
use slabfs_tests::{Up, needs_mount};

/// Limits the memory of a mount, so that excessive use ends it and not the machine.
fn bounded() -> Up {
    let mut up = Up::start();
    let pid = up.service().pid().to_string();
    program("prlimit", ["--pid", &pid, "--as=6000000000"]).ok();
    up
}

/// The mount works, and did not need much memory.
fn well(up: &mut Up) {
    file::write(&up.at("well"), "it works");
    assert_eq!(file::read(&up.at("well")), b"it works");
    let (_, most) = up.service().memory();
    assert!(most < 400 << 20, "{most} bytes resident");
    assert!(!up.log().contains("panicked"), "{}", up.log());
}

#[test]
fn cutting_off_a_petabyte() {
    needs_mount!();
    let mut up = bounded();
    for exponent in [40, 50, 62] {
        let handle = file::open_new(&up.at(format!("f{exponent}")));
        handle.set_len(1 << exponent).expect("long");
        handle
            .write_all_at(b"x", (1 << exponent) - 1)
            .expect("written");
        handle.write_all_at(b"y", 5).expect("written");
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&handle, punch, 4096, (1 << exponent) - 8192).expect("punched");
        handle.set_len(10).expect("cut");
        let mut seen = [9; 10];
        handle.read_exact_at(&mut seen, 0).expect("read");
        assert_eq!(&seen, b"\0\0\0\0\0y\0\0\0\0");
        handle.set_len(1 << exponent).expect("long again");
        handle
            .read_exact_at(&mut seen, (1 << exponent) - 10)
            .expect("read");
        assert_eq!(seen, [0; 10], "what was cut off came back");
        well(&mut up);
    }
}

#[test]
fn shrinking_an_enormous_grid() {
    needs_mount!();
    let mut up = bounded();
    let object = up.at("a");
    create(
        &object,
        "1000000000,1000000000",
        "u1",
        &["--layout", "grid:100,100"],
    );
    file::write(&named(&object, "@[999999999,999999998:]"), "zz");
    file::write(&named(&object, "@[0,0:2]"), "aa");
    file::set_xattr(&object, "user.slabfs.resize", "3,4", 0).expect("shrunk");
    assert_eq!(file::read(&object), b"aa\0\0\0\0\0\0\0\0\0\0");
    file::set_xattr(&object, "user.slabfs.resize", "1000000000,1000000000", 0).expect("grown");
    assert_eq!(
        file::read(&named(&object, "@[999999999,999999998:]")),
        [0, 0]
    );
    well(&mut up);
}

#[test]
fn offsets_at_the_end_of_numbers() {
    needs_mount!();
    let mut up = bounded();
    let handle = file::open_new(&up.at("f"));
    let last = i64::MAX as u64;
    assert!(matches!(
        errno(handle.write_at(b"xx", last - 1)),
        Errno::EFBIG | Errno::EINVAL
    ));
    match handle.write_at(b"x", last - 1) {
        Ok(_) => assert_eq!(handle.metadata().expect("metadata").len(), last),
        Err(error) => assert_eq!(errno::<()>(Err(error)), Errno::EFBIG),
    }
    let mut seen = [1; 4];
    assert!(handle.read_at(&mut seen, last - 4).is_ok());
    let log = up.at("log");
    create(&log, "0,1000", "u1", &["--max-dims", "unlimited,1000"]);
    let handle = file::open(&log);
    // The row that contains it ends beyond 2^63.
    assert_eq!(errno(handle.write_at(b"x", last - 1)), Errno::EFBIG);
    assert_eq!(handle.metadata().expect("metadata").len(), 0);
    well(&mut up);
}

#[test]
fn dims_whose_product_is_none() {
    needs_mount!();
    let mut up = bounded();
    let most = "18446744073709551615";
    for (i, spec) in [
        r#"{"dims":"0,4294967296,4294967296","dtype":"u1","max_dims":"unlimited,4294967296,4294967296"}"#.to_owned(),
        format!(r#"{{"dims":"{most},{most},0","dtype":"f4"}}"#),
        format!(r#"{{"dims":"{most}","dtype":"u1"}}"#),
        r#"{"dims":"9223372036854775807","dtype":"u1","layout":"grid:1"}"#.to_owned(),
        format!(r#"{{"dims":"4,4","dtype":"f4","layout":"grid:{most},{most}"}}"#),
        r#"{"dims":"5","dtype":"f4","layout":"grid:9223372036854775807"}"#.to_owned(),
        r#"{"dims":"4,4","dtype":"V65536","layout":"grid:1,1"}"#.to_owned(),
        r#"{"dims":"9223372036854775807","max_dims":"unlimited","dtype":"u1","layout":"canonical"}"#.to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let path = up.at(format!("f{i}"));
        file::write(&path, "");
        match file::set_xattr(&path, "user.slabfs.spec", spec, 0) {
            Err(error) => assert!(matches!(errno::<()>(Err(error)), Errno::EINVAL | Errno::EFBIG), "{spec}"),
            Ok(()) => {
                // The dims were accepted: then the object works.
                let handle = file::open(&path);
                let size = handle.metadata().expect("metadata").len();
                let mut seen = [1; 8];
                let read = handle.read_at(&mut seen, 0).expect("read");
                assert_eq!(read as u64, size.min(8), "{spec}");
                if size >= 8 {
                    handle.write_all_at(b"12345678", 0).expect("written");
                    handle.read_exact_at(&mut seen, 0).expect("read");
                    assert_eq!(&seen, b"12345678", "{spec}");
                }
                assert!(file::get_xattr(&path, "user.slabfs.info").is_ok(), "{spec}");
                file::close(handle).expect("closed");
            }
        }
        well(&mut up);
    }
}

#[test]
fn values_that_are_too_long_or_no_text() {
    needs_mount!();
    let mut up = bounded();
    let object = up.at("a");
    create(&object, "16,16", "f4", &[]);
    file::write(&object, [7; 1024]);
    let values: [&[u8]; 12] = [
        b"",
        b"\xff\xfe",
        b"\0",
        &b"9".repeat(400),
        &b"0,".repeat(30_000),
        &b"[".repeat(60_000),
        &[b"0x".as_slice(), &b"f".repeat(60_000)].concat(),
        b"zstd:99999999999",
        b"U999999999999999999999",
        b"V0",
        b"1e999",
        b"{\"dims\":{\"dims\":[[[[",
    ];
    for name in [
        "dims", "dtype", "max_dims", "layout", "codec", "spec", "resize", "couple", "nonsense",
    ] {
        for value in values {
            // The array has data: the dims of a scalar (the empty text) are refused like the rest.
            let shown: String = String::from_utf8_lossy(value).chars().take(20).collect();
            let result = file::set_xattr(&object, &format!("user.slabfs.{name}"), value, 0);
            assert!(result.is_err(), "{name}={shown:?} was taken");
        }
    }
    for text in [
        "@[::9223372036854775807]",
        "@[0:16:18446744073709551615,...]",
        "@[-9223372036854775808:]",
        "@[::18446744073709551615]",
    ] {
        match std::fs::read(named(&object, text)) {
            Ok(bytes) => assert!(bytes.len() <= 1024, "{text}"),
            Err(error) => assert_eq!(errno::<()>(Err(error)), Errno::EINVAL, "{text}"),
        }
    }
    assert_eq!(file::xattr(&object, "user.slabfs.dims"), "16,16");
    well(&mut up);
}

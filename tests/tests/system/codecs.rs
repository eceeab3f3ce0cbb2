//! Codecs: the data is read back unchanged, and how much space they save, on large and small chunks and parts
//! of them.

use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::tool::{create, slabfs};
use slabfs_tests::{Random, Up, disk, file, needs_mount};

const CODECS: [&str; 7] = [
    "none",
    "lz4",
    "deflate:6",
    "zstd:3",
    "shuffle+zstd:5",
    "shuffle+deflate:1",
    "shuffle+lz4",
];

/// A field like that of a simulation: smooth, so that shuffling helps.
fn smooth(rows: usize, columns: usize) -> Vec<u8> {
    (0..rows * columns)
        .flat_map(|i| {
            (((i / columns) as f32 * 0.01).sin() + ((i % columns) as f32 * 0.003).cos())
                .to_le_bytes()
        })
        .collect()
}

#[test]
fn every_codec_returns_the_data_unchanged() {
    needs_mount!();
    let mut up = Up::start();
    let (rows, columns) = (300, 1000);
    let mut array = Array::new(&[rows as u64, columns as u64], 4, &[]);
    array.bytes = smooth(rows, columns);
    let mut sizes = Vec::new();
    for (i, codec) in CODECS.iter().enumerate() {
        let object = up.at(format!("c{i}"));
        create(&object, "300,1000", "f4", &["--codec", codec]);
        let before = disk::used(up.data());
        file::write(&file::named(&object, "@[0:150]"), &array.bytes[..600_000]);
        file::write_at(&object, 600_000, &array.bytes[600_000..]);
        file::open(&object).sync_all().expect("synced");
        sizes.push((disk::used(up.data()).saturating_sub(before), *codec));
        same(codec, &file::read(&object), &array.bytes);
    }
    let plain = sizes[0].0;
    for (size, codec) in &sizes[1..] {
        // lz4 alone does not compress floats.
        assert!(
            *size < plain || *codec == "lz4",
            "{codec} takes {size} bytes, none {plain}"
        );
    }
    up.restart();
    let mut random = Random::new(21);
    for (i, codec) in CODECS.iter().enumerate() {
        let object = up.at(format!("c{i}"));
        same(codec, &file::read(&object), &array.bytes);
        for _ in 0..15 {
            let select = Select::random(&array.dims, &mut random);
            same(
                &format!("{codec} {}", select.text()),
                &file::read(&select.of(&object)),
                &array.get(&select),
            );
        }
        assert_eq!(file::xattr(&object, "user.slabfs.codec"), *codec);
    }
}

#[test]
fn incompressible_data_is_stored_too() {
    needs_mount!();
    let up = Up::start();
    let bytes = Random::new(22).bytes(1_500_000);
    for (i, codec) in CODECS.iter().enumerate() {
        let object = up.at(format!("r{i}"));
        create(&object, "500000", "V3", &["--codec", codec]);
        file::write(&object, &bytes);
        same(codec, &file::read(&object), &bytes);
        let parts = file::read(&file::named(&object, "@[7::1000]"));
        assert_eq!(parts.len(), 1500);
    }
}

#[test]
fn a_codec_may_change_between_writes() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("a");
    create(&object, "4,1000", "f4", &["--codec", "zstd:1"]);
    let bytes = smooth(4, 1000);
    file::write(&file::named(&object, "@[0:2]"), &bytes[..8000]);
    slabfs(["set", &object.display().to_string(), "--codec", "lz4"]).ok();
    file::write(&file::named(&object, "@[2:4]"), &bytes[8000..]);
    up.restart();
    same("two codecs", &file::read(&object), &bytes);
    slabfs([
        "create",
        &up.at("g").display().to_string(),
        "--dims",
        "8,8",
        "--dtype",
        "f4",
        "--layout",
        "grid:4,4",
        "--codec",
        "lz4",
    ])
    .fails(2, &["layout aligned"]);
    assert!(!up.at("g").exists());
}

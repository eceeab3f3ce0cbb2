//! `slabfs import --append`: records follow those of arrays that exist.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use slabfs_tests::tool::{create, info, shell, slabfs};
use slabfs_tests::{Up, binary, needs_mount};

use crate::formats::{export, import, scripted, text};

/// Files of 3, 2 and 1 records, and one whose latitudes differ.
const DAYS: &str = "
import netCDF4, os
for name, first, count, lat in ('a', 0, 3, 1), ('b', 3, 2, 1), ('c', 5, 1, 1), ('other', 6, 1, 2):
    with netCDF4.Dataset(os.path.join(os.path.dirname(path), f'day-{name}.nc'), 'w') as d:
        d.createDimension('time', None)
        d.createDimension('lat', 2)
        d.createVariable('lat', 'f4', ('lat',))[:] = [0, lat]
        d.createVariable('time', 'f8', ('time',))[:] = range(first, first + count)
        v = d.createVariable('temp', 'i2', ('time', 'lat'), zlib=True)
        v[:] = [[i, -i] for i in range(first, first + count)]
open(path, 'w')";

#[test]
fn records_are_appended() {
    needs_mount!();
    let up = Up::start();
    let dir = scripted(&up, "made", DAYS)
        .parent()
        .expect("a directory")
        .to_owned();
    let day = |name: &str| dir.join(format!("day-{name}.nc"));
    let there = up.at("days");
    import(&day("a"), &there).ok();
    let append = |pattern: &Path| slabfs(["import", "--append", text(pattern), text(&there)]);
    append(&dir.join("day-[bo]*.nc")).fails(1, &["day-other.nc", "lat"]);
    assert_eq!(info(&there.join("temp"))["dims"], serde_json::json!([3, 2]));
    append(&dir.join("day-[bc].nc")).ok();
    assert_eq!(info(&there.join("temp"))["dims"], serde_json::json!([6, 2]));
    export(&there, &dir.join("all.nc")).ok();
    let values = shell(&dir, "ncdump -v time,temp all.nc | tr -d '\\n '").ok();
    for part in ["time=0,1,2,3,4,5;", "temp=0,0,1,-1,2,-2,3,-3,4,-4,5,-5;"] {
        assert!(values.text().contains(part), "{}", values.text());
    }
}

/// Files in which record `k` has the value `k` in all variables; `left out` has no `ice`.
const PARTS: &str = "
import netCDF4, os
def make(name, records, variables, size=1):
    with netCDF4.Dataset(os.path.join(os.path.dirname(path), name + '.nc'), 'w') as d:
        d.createDimension('time', None)
        d.createDimension('x', size)
        d.createVariable('time', 'f8', ('time',))[:] = records
        for v in variables:
            v = d.createVariable(v, 'i4', ('time', 'x'), fill_value=-1)
            for at, value in enumerate(records):
                v[at] = value
for k in range(9):
    make(f'part{k}', [2 * k, 2 * k + 1], ['sst', 'ice'])
make('less', [20], ['sst'])
make('more', [21], ['sst', 'ice'])
make('large', list(range(300)), ['a', 'b'], 50000)
with netCDF4.Dataset(os.path.join(os.path.dirname(path), 'two.nc'), 'w') as d:
    d.createDimension('time', None)
    d.createDimension('lev', None)
    d.createVariable('time', 'f8', ('time',))[:] = [1]
    d.createVariable('lev', 'f8', ('lev',))[:] = [1, 2]
    d.createVariable('m', 'f8', ('time', 'lev'))[:] = [[1, 2]]
open(path, 'w')";

fn parts(up: &Up) -> PathBuf {
    let made = scripted(up, "made", PARTS);
    made.parent().expect("a directory").to_owned()
}

fn append(file: &Path, dest: &Path) -> slabfs_tests::tool::Outcome {
    slabfs(["import", "--append", text(file), text(dest)])
}

/// The values of variables in a container, as `ncdump` prints them without blanks.
fn values(dest: &Path, dir: &Path, names: &str) -> String {
    export(dest, &dir.join("out.nc")).ok();
    let line = format!("ncdump -v {names} out.nc | sed '1,/^data:/d' | tr -d '\\n '");
    shell(dir, &line).ok().text().to_owned()
}

#[test]
fn appends_at_the_same_time_follow_each_other() {
    needs_mount!();
    let up = Up::start();
    let dir = parts(&up);
    let there = up.at("all");
    import(&dir.join("part0.nc"), &there).ok();
    let start = |k: usize| {
        std::process::Command::new(binary::path())
            .args(["import", "--append", text(&dir.join(format!("part{k}.nc")))])
            .arg(&there)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started")
    };
    let children: Vec<_> = (1..9).map(start).collect();
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    let found = values(&there, &dir, "time,sst,ice");
    let list = |name: &str| {
        let from = found.find(&format!("{name}=")).expect("a variable") + name.len() + 1;
        let text = &found[from..];
        let text = &text[..text.find(';').expect("an end")];
        let values = text.split(',').map(|one| one.parse().expect("a number"));
        values.collect::<Vec<u32>>()
    };
    let time = list("time");
    assert_eq!((list("sst"), list("ice")), (time.clone(), time.clone()));
    let mut sorted = time;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..18).collect::<Vec<u32>>());
}

#[test]
fn records_of_a_variable_that_a_file_has_not_are_filled() {
    needs_mount!();
    let up = Up::start();
    let dir = parts(&up);
    let there = up.at("all");
    // DEST is made of the first.
    append(&dir.join("part0.nc"), &there).ok();
    let dry = slabfs([
        "import",
        "--append",
        "--dry-run",
        text(&dir.join("less.nc")),
        text(&there),
    ]);
    let dry = dry.ok().text().to_owned();
    assert!(dry.contains("ice grows from 2 to 3"), "{dry}");
    append(&dir.join("less.nc"), &there).ok();
    append(&dir.join("more.nc"), &there).ok();
    let found = values(&there, &dir, "time,sst,ice");
    for part in ["time=0,1,20,21;", "sst=0,1,20,21;", "ice=0,1,_,21;"] {
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn what_a_killed_append_wrote_is_removed() {
    needs_mount!();
    let up = Up::start();
    let dir = parts(&up);
    let (file, there) = (dir.join("large.nc"), up.at("large"));
    import(&file, &there).ok();
    // Another array, which has a length of an append that was completed and killed then.
    create(
        &there.join("other"),
        "7",
        "u1",
        &["--max-dims", "unlimited", "--dim-names", "n"],
    );
    slabfs(["tag", text(&there.join("other")), "_slabfs_length=1"]).ok();
    let mut child = std::process::Command::new(binary::path())
        .args([
            "import",
            "--append",
            "--in-process",
            text(&file),
            text(&there),
        ])
        .stdin(Stdio::null())
        .spawn()
        .expect("started");
    let is_at_work = || {
        let tags = slabfs(["tags", text(&there)]);
        tags.ok().text().contains("_slabfs_append")
    };
    while !is_at_work() && child.try_wait().expect("a child").is_none() {}
    child.kill().expect("killed");
    child.wait().expect("ended");
    let dims = |name: &str| info(&there.join(name))["dims"][0].as_u64();
    append(&file, &there).ok();
    for name in ["time", "a", "b"] {
        assert_eq!(dims(name), Some(600), "{name}");
    }
    assert_eq!(dims("other"), Some(7));
    let found = values(&there, &dir, "time");
    let twice: Vec<String> = (0..300).chain(0..300).map(|k: u32| k.to_string()).collect();
    assert!(
        found.contains(&format!("time={};", twice.join(","))),
        "{found}"
    );
    let tags = slabfs(["tags", text(&there)]).ok();
    assert!(!tags.text().contains("_slabfs_append"), "{}", tags.text());
}

#[test]
fn one_dimension_grows() {
    needs_mount!();
    let up = Up::start();
    let dir = parts(&up);
    let there = up.at("two");
    import(&dir.join("two.nc"), &there).ok();
    append(&dir.join("two.nc"), &there).fails(1, &["two.nc", "lev", "time"]);
    assert_eq!(info(&there.join("m"))["dims"], serde_json::json!([1, 2]));
}

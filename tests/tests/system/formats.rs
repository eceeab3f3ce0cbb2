//! `slabfs import` and `slabfs export`: what comes out is what went in.

use std::path::{Path, PathBuf};

use slabfs_tests::tool::{Outcome, info, run, shell, slabfs};
use slabfs_tests::{Up, inputs, needs_mount};

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

pub(crate) fn import(file: &Path, dest: &Path) -> Outcome {
    slabfs(["import", "--verify", text(file), text(dest)])
}

pub(crate) fn export(source: &Path, file: &Path) -> Outcome {
    slabfs(["export", text(source), text(file)])
}

/// The entries of a directory.
pub(crate) fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// Compares everything in two files with netCDF4-python: groups, dimensions, variables, values, attributes, types.
#[track_caller]
fn same(one: &Path, other: &Path) {
    let mut command = std::process::Command::new(inputs::PYTHON);
    command.arg(inputs::script("ncsame.py")).args([one, other]);
    run(&mut command).ok();
}

/// The grids of the package `ferret-datasets`.
fn datasets() -> Vec<PathBuf> {
    let dir = Path::new(inputs::FERRET);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("the package ferret-datasets: tools/setup --tests installs it")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "nc" || end == "cdf")
        })
        // The other reliefs are the same at other resolutions, and take long to print.
        .filter(|path| {
            !["etopo5.cdf", "etopo20.cdf"]
                .iter()
                .any(|name| path.ends_with(name))
        })
        .collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    files
}

#[test]
fn datasets_come_back_as_they_went_in() {
    needs_mount!();
    let up = Up::start();
    for file in datasets() {
        let name = file.file_stem().expect("a name");
        let (there, back) = (up.at(name), up.area().path().join("back.nc"));
        import(&file, &there).ok();
        export(&there, &back).ok();
        same(&file, &back);
    }
}

/// A NetCDF-4 file by `ncgen`.
fn made(up: &Up, name: &str, cdl: &str) -> PathBuf {
    let dir = up.area().path();
    let (source, file) = (
        dir.join(format!("{name}.cdl")),
        dir.join(format!("{name}.nc")),
    );
    std::fs::write(&source, cdl).expect("written");
    let line = format!("ncgen -4 -o {} {}", file.display(), source.display());
    shell(dir, &line).ok();
    file
}

const OCEAN: &str = r#"netcdf ocean {
dimensions: time = UNLIMITED ; lat = 2 ; unused = 7 ;
variables:
  double time(time) ; time:units = "days since 2000-01-01" ;
  float temp(time, lat) ; temp:_FillValue = -1.f ; temp:units = "K" ; temp:range = 0s, 300s ;
    temp:_DeflateLevel = 4 ; temp:_Shuffle = "true" ; temp:_ChunkSizes = 1, 2 ;
  int crs ; crs:wide = 7LL ;
  char label(lat) ;
// global attributes:
  :title = "größe" ; :empty = "" ; string :list = "a", "b", "ü" ; :missing = NaNf ; :octet = 255UB ; :one = 1.5 ; :small = -3s ; :bytes = 1b, -2b ;
data:
  time = 1, 2, 3 ; temp = 1, 2, _, 4, 5, 6 ; crs = 9 ; label = "ab" ;
group: below {
  dimensions: z = 3 ;
  variables: int64 deep(lat, z) ; deep:long_name = "deep" ;
  data: deep = 1, 2, 3, 4, 5, 6 ;
}
}
"#;

#[test]
fn types_attributes_groups_and_dims_come_back() {
    needs_mount!();
    let up = Up::start();
    let file = made(&up, "ocean", OCEAN);
    let there = up.at("ocean");
    import(&file, &there).ok();
    assert_eq!(entries(up.mnt()), ["ocean"], "nothing else is left");
    let temp = info(&there.join("temp"));
    assert_eq!(temp["dtype"], "f4");
    assert_eq!(temp["dims"], serde_json::json!([3, 2]));
    assert_eq!(temp["max_dims"], serde_json::json!([null, 2]));
    assert_eq!(temp["codec"], "shuffle+deflate:4");
    assert_eq!(temp["fill"], "-1");
    let found = |query: &str| {
        let outcome = slabfs(["find", "--in", text(up.mnt()), query]).ok();
        outcome
            .text()
            .lines()
            .map(|line| line.rsplit('/').next().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("units = K"), ["temp"]);
    assert_eq!(found("dim_names = z"), ["deep"]);
    assert_eq!(found("title = größe and kind = container"), ["ocean"]);
    let back = up.area().path().join("back.nc");
    export(&there, &back).ok();
    same(&file, &back);
    let dir = up.area().path();
    // One array, with the dims that it uses.
    export(&there.join("temp"), &back).ok();
    let header = shell(dir, "ncdump -h back.nc").ok();
    for part in [
        "time = UNLIMITED",
        "float temp(time, lat)",
        "temp:range = 0s, 300s",
    ] {
        assert!(header.text().contains(part), "{}", header.text());
    }
    assert!(!header.text().contains("unused"), "{}", header.text());
}

#[test]
fn tags_of_users_become_attributes() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("a");
    slabfs(["create", text(&path), "--dims", "2,3", "--dtype", "i2"]).ok();
    let tags = [
        "step=3",
        "temp=2.5",
        "name=x",
        "axes=[1, 2]",
        "texts=[\"a\", \"b\"]",
    ];
    slabfs(std::iter::once("tag").chain([text(&path)]).chain(tags)).ok();
    let back = up.area().path().join("a.nc");
    export(&path, &back).ok();
    let header = shell(up.area().path(), "ncdump -h a.nc").ok();
    for part in [
        "short a(dim_0_2, dim_1_3)",
        "a:step = 3LL",
        "a:temp = 2.5",
        "a:name = \"x\"",
        "a:axes = 1LL, 2LL",
        "string a:texts = \"a\", \"b\"",
    ] {
        assert!(header.text().contains(part), "{part}: {}", header.text());
    }
}

#[test]
fn what_cannot_be_represented_is_refused_by_name() {
    needs_mount!();
    let up = Up::start();
    let text_file = up.area().path().join("text.nc");
    std::fs::write(&text_file, "no NetCDF").expect("written");
    for (name, cdl, word) in [
        (
            "sequences",
            "netcdf sequences { types: int(*) some ; variables: some of ; }",
            "some",
        ),
        (
            "name",
            "netcdf name { variables: int dim ; dim:dim_names = 3 ; }",
            "dim_names",
        ),
    ] {
        let file = made(&up, name, cdl);
        let outcome = import(&file, &up.at(name)).fails(1, &[word]);
        assert!(outcome.stderr.contains(text(&file)), "{}", outcome.stderr);
        assert_eq!(entries(up.mnt()), [""; 0], "{name}: nothing is created");
    }
    import(&text_file, &up.at("a")).fails(1, &["text.nc"]);
    import(Path::new("/nowhere/none.nc"), &up.at("a")).fails(1, &["/nowhere/none.nc"]);
    let good = made(&up, "ocean", OCEAN);
    import(&good, &up.area().path().join("elsewhere")).fails(1, &["not on a slabfs mount"]);
    import(&good, &up.at("ocean")).ok();
    import(&good, &up.at("ocean/temp")).fails(1, &["exists already"]);
    let two = [text(&good), text(&good)];
    slabfs(
        ["import"]
            .into_iter()
            .chain(two)
            .chain([text(&up.at("ocean"))]),
    )
    .fails(1, &["one by one"]);
    // An export that fails leaves the old file, and nothing else.
    let back = up.area().path().join("old/back.nc");
    std::fs::create_dir(up.area().path().join("old")).expect("made");
    std::fs::write(&back, "old").expect("written");
    slabfs(["tag", text(&up.at("ocean/temp")), "mixed=[1, \"a\"]"]).ok();
    export(&up.at("ocean"), &back).fails(1, &["mixed", "temp"]);
    assert_eq!(std::fs::read(&back).expect("there"), b"old");
    assert_eq!(entries(&up.area().path().join("old")), ["back.nc"]);
    export(&up.at("ocean"), &up.area().path().join("back.txt")).fails(1, &[".nc"]);
}

#[test]
fn several_files_and_a_dry_run() {
    needs_mount!();
    let up = Up::start();
    let (one, two) = (made(&up, "one", OCEAN), made(&up, "two", OCEAN));
    let line = [
        "import",
        "--dry-run",
        text(&one),
        text(&two),
        text(up.mnt()),
    ];
    let outcome = slabfs(line).ok();
    assert!(
        outcome
            .text()
            .contains("one/temp f4 [3,2] codec shuffle+deflate:4"),
        "{}",
        outcome.text()
    );
    assert_eq!(entries(up.mnt()), [""; 0]);
    slabfs(["import", text(&one), text(&two), text(up.mnt())]).ok();
    assert_eq!(entries(up.mnt()), ["one", "two"]);
    assert_eq!(entries(&up.at("two/below")), ["deep"]);
}

/// A file by a program of netCDF4-python or h5py; `path` is its name.
pub(crate) fn scripted(up: &Up, name: &str, program: &str) -> PathBuf {
    let file = up.area().path().join(name);
    let program = format!("import sys, numpy as np\npath = sys.argv[1]\n{program}");
    let mut command = std::process::Command::new(inputs::python());
    command.args(["-W", "ignore", "-c", &program]).arg(&file);
    run(&mut command).ok();
    file
}

#[test]
fn many_attributes_and_odd_values_come_back() {
    needs_mount!();
    let mut up = Up::start();
    let program = "
import netCDF4
with netCDF4.Dataset(path, 'w') as d:
    d.createDimension('x', 2)
    v = d.createVariable('v', 'f8', ('x',), fill_value=-0.0)
    v[:] = [-0.0, np.nan]
    for i in range(1000):
        d.setncattr(f'a{i}', np.int16(i))
    v.setncattr('zero', np.float64(-0.0))
    v.setncattr('list', np.array([-0.0, np.nan, np.inf], 'f4'))
    v.setncattr('least', np.int64(-2**63))
    v.setncattr('most', np.uint64(2**64 - 1))
    d.setncattr('long', 'x' * 200000)
    v.setncattr('zeros', b'a\\0b'.decode())
";
    let file = scripted(&up, "odd.nc", program);
    let (there, back) = (up.at("odd"), up.area().path().join("back.nc"));
    import(&file, &there).ok();
    export(&there, &back).ok();
    same(&file, &back);
    // The text of a tag is that tag again, and the store is sound.
    let line = format!(
        "slabfs tags -0 {0} | xargs -0 -n 100 slabfs tag {0}",
        there.join("v").display()
    );
    let path = format!(
        "PATH={}:$PATH; {line}",
        slabfs_tests::binary::path()
            .parent()
            .expect("a folder")
            .display()
    );
    shell(up.mnt(), &path).ok();
    up.stop();
    slabfs(["fsck", "--data", text(up.data())]).ok();
}

/// Runs `tests/scripts/formats.py`, and returns what it prints.
#[track_caller]
fn script(arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(inputs::python());
    // Zarr warns of types that have no specification yet.
    command
        .args(["-W", "ignore"])
        .arg(inputs::script("formats.py"));
    command.args(arguments);
    run(&mut command).ok().text().to_owned()
}

/// What the formats have: `formats.py` makes files of a kind and compares them with what comes back.
#[track_caller]
fn round_trips(kind: &str) {
    needs_mount!();
    let up = Up::start();
    let dir = up.area().path().join("made");
    std::fs::create_dir(&dir).expect("made");
    for file in script(&["make", kind, text(&dir)]).lines() {
        let file = Path::new(file);
        let name = file.file_name().expect("a name");
        let (there, back) = (up.at(name), up.area().path().join(name));
        import(file, &there).ok();
        export(&there, &back).ok();
        script(&["same", text(file), text(&back)]);
    }
    assert!(
        entries(up.mnt()).iter().all(|name| !name.starts_with('.')),
        "nothing is left"
    );
}

#[test]
fn skipped_filters_and_holes_come_back() {
    round_trips("skipped_filters");
}

#[test]
fn attributes_of_all_kinds_come_back() {
    round_trips("attributes");
}

#[test]
fn dimensions_of_groups_come_back() {
    round_trips("groups");
}

#[test]
fn unlimited_dimensions_come_back() {
    round_trips("unlimited");
}

#[test]
fn records_of_classic_files_come_back() {
    round_trips("records");
}

#[test]
fn zarr_directories_come_back() {
    round_trips("zarr_2");
    round_trips("zarr_3");
}

#[test]
fn arrays_of_numpy_come_back() {
    round_trips("arrays");
}

#[test]
fn texts_and_enumerations_come_back() {
    round_trips("texts");
}

#[test]
fn all_programs_read_the_datasets() {
    needs_mount!();
    let up = Up::start();
    let dir = up.area().path();
    for file in datasets() {
        let name = file.file_name().expect("a name");
        let there = up.at(name);
        import(&file, &there).ok();
        for ending in ["nc", "h5", "npz", "zarr"] {
            export(&there, &dir.join(format!("a.{ending}"))).ok();
        }
        script(&["exported", text(&file), text(&dir.join("a"))]);
        let line = format!("cdo -s diffn {} a.nc", file.display());
        shell(dir, &line).ok();
        let header = slabfs(["info", "--cdl", text(&there)]).ok();
        let dumped = shell(dir, "ncdump -h a.nc").ok();
        let lines =
            |text: &str| -> Vec<String> { text.lines().skip(1).map(str::to_owned).collect() };
        assert_eq!(lines(header.text()), lines(dumped.text()), "{name:?}");
    }
}

#[test]
fn objects_that_have_no_counterpart_are_refused_by_name() {
    needs_mount!();
    let up = Up::start();
    for (name, program) in [
        ("reference", "f['it'] = np.array([f.ref], h5py.ref_dtype)"),
        (
            "sequence",
            "f.create_dataset('it', (2,), h5py.vlen_dtype('i4'))",
        ),
        ("elsewhere", "f['it'] = h5py.ExternalLink('other.h5', '/')"),
        ("twice", "f['first'] = [1]; f['it'] = f['first']"),
        ("cycle", "f.create_group('it')['again'] = f['/']"),
        ("attribute", "f.attrs['it'] = f.ref"),
    ] {
        let file = format!("{name}.h5");
        let program = format!("import h5py\nwith h5py.File(path, 'w') as f:\n    {program}");
        let made = scripted(&up, &file, &program);
        import(&made, &up.at(name)).fails(1, &[&file, "it"]);
        assert_eq!(entries(up.mnt()), [""; 0], "{name}");
    }
    let cut = scripted(
        &up,
        "cut.npy",
        "np.save(path, np.arange(9)); open(path, 'r+').truncate(150)",
    );
    import(&cut, &up.at("cut")).fails(1, &["cut.npy", "truncated"]);
    let pickled = scripted(&up, "pickled.npy", "np.save(path, np.array([{}, 1]))");
    import(&pickled, &up.at("pickled")).fails(1, &["pickled.npy"]);
    assert_eq!(entries(up.mnt()), [""; 0]);
}

#[test]
fn a_killed_import_is_continued() {
    needs_mount!();
    let up = Up::start();
    let program = "np.savez(path, **{f'a{i}': np.full((1000, 1000), i) for i in range(80)})";
    let file = scripted(&up, "large.npz", program);
    let there = up.at("large");
    let hidden = up.at(".slabfs-import-large");
    let mut command = std::process::Command::new(slabfs_tests::binary::path());
    command.args(["import", "--in-process", text(&file), text(&there)]);
    let mut child = command
        .stdin(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let stored = || {
        let tags = slabfs(["tags", text(&hidden.join("a0"))]);
        tags.status == 0 && tags.text().contains("_slabfs_done")
    };
    while !stored() && child.try_wait().expect("a child").is_none() {}
    child.kill().expect("killed");
    child.wait().expect("ended");
    import(&file, &there).ok();
    assert_eq!(entries(up.mnt()), ["large"], "no hidden directory is left");
    let back = up.area().path().join("back.npz");
    export(&there, &back).ok();
    script(&["same", text(&file), text(&back)]);
    let tags = slabfs(["tags", text(&there.join("a0"))]).ok();
    assert!(!tags.text().contains("_slabfs"), "{}", tags.text());
}

#[test]
fn a_signal_leaves_nothing() {
    needs_mount!();
    let up = Up::start();
    let file = scripted(&up, "large.npy", "np.save(path, np.ones((60, 1000, 1000)))");
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let line = format!(
            "{} import large.npy {} & while ! [ -e {} ] && kill -0 $!; do :; done; kill -{signal} $!; wait $!",
            slabfs_tests::binary::path().display(),
            up.at("a").display(),
            up.at(".slabfs-import-a").display(),
        );
        shell(up.area().path(), &line).fails(status, &["interrupted"]);
        assert_eq!(entries(up.mnt()), [""; 0], "{signal}");
    }
    import(&file, &up.at("a")).ok();
}

#[test]
fn fill_values_of_arrays_are_exported() {
    needs_mount!();
    let up = Up::start();
    std::fs::create_dir(up.at("run")).expect("made");
    for (name, fill) in [("zero", "0"), ("seven", "-7")] {
        let path = up.at("run").join(name);
        slabfs([
            "create",
            text(&path),
            "--dims",
            "4",
            "--dtype",
            "i4",
            "--fill",
            fill,
        ])
        .ok();
    }
    let file = up.area().path().join("run.nc");
    export(&up.at("run"), &file).ok();
    let header = shell(up.area().path(), "ncdump -h run.nc").ok();
    assert!(
        header.text().contains("seven:_FillValue = -7"),
        "{}",
        header.text()
    );
    // It would make tools mask zeros.
    assert!(
        !header.text().contains("zero:_FillValue"),
        "{}",
        header.text()
    );
    import(&file, &up.at("again")).ok();
    assert_eq!(info(&up.at("again/seven"))["fill"], "-7");
}

#[test]
fn arrays_have_names_of_dimensions() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("sst");
    let line = [
        "create",
        text(&path),
        "--dims",
        "2,3",
        "--dtype",
        "f4",
        "--dim-names",
    ];
    let create = |names| slabfs(line.into_iter().chain([names]));
    create("lat").fails(2, &["1 names", "2 axes"]);
    create("lat,").fails(2, &["axis 1"]);
    create("lat,lon").ok();
    let shown = slabfs(["info", text(&path)]).ok();
    assert!(shown.text().contains("lat,lon"), "{}", shown.text());
    let json = slabfs(["info", "--json", text(&path)]).ok().json();
    assert_eq!(json["dim_names"], serde_json::json!(["lat", "lon"]));
    let found = slabfs(["find", "--in", text(up.mnt()), "dim_names = lon"]).ok();
    assert!(found.text().contains("sst"), "{}", found.text());
    let file = up.area().path().join("sst.nc");
    export(&path, &file).ok();
    let header = shell(up.area().path(), "ncdump -h sst.nc").ok();
    assert!(
        header.text().contains("float sst(lat, lon)"),
        "{}",
        header.text()
    );
}

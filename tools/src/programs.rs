//! `slabfs info --open`: what to type in other programs to open an array or a container, by the views of its mount.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::onmount::{self, Mount};

/// The lines for what a path names.
pub(crate) fn lines(path: &Path) -> anyhow::Result<String> {
    if let Some((array, _)) = onmount::selected(path) {
        bail!(
            "there are no views of selections; open that of {} and slice it",
            array.display()
        );
    }
    let mount = Mount::of(path)?;
    let real = path
        .canonicalize()
        .with_context(|| format!("looking at {}", path.display()))?;
    let root = mount
        .root()
        .canonicalize()
        .with_context(|| format!("looking at {}", mount.root().display()))?;
    let inside = real.strip_prefix(&root).unwrap_or(&real);
    if inside.starts_with(".slabfs") {
        bail!(
            "{} is a view, or another file of the mount itself; give an array or a directory",
            path.display()
        );
    }
    let views = Views {
        root: mount.root().to_owned(),
        inside: inside.to_owned(),
    };
    Ok(match real.is_dir() {
        true => views.container(),
        false => views.array(&real),
    })
}

struct Views {
    root: PathBuf,
    inside: PathBuf,
}

impl Views {
    fn at(&self, kind: &str, ending: &str) -> String {
        if self.inside.as_os_str().is_empty() {
            let name = format!("root{ending}");
            let path = self.root.join(".slabfs").join(name);
            return path.to_string_lossy().into_owned();
        }
        let mut path = self.root.join(".slabfs").join(kind).join(&self.inside);
        path.as_mut_os_string().push(ending);
        path.to_string_lossy().into_owned()
    }

    fn container(&self) -> String {
        let (h5, zarr) = (self.at("h5", ".h5"), self.at("zarr", ".zarr"));
        let (in_python, in_shell) = (python(&h5), shell(&h5));
        shown(&[
            ("xarray", format!("xarray.open_dataset({in_python})")),
            (
                "",
                format!("xarray.open_zarr({}, consolidated=False)", python(&zarr)),
            ),
            ("h5py", format!("h5py.File({in_python}, 'r')")),
            (
                "zarr",
                format!("zarr.open_group({}, mode='r')", python(&zarr)),
            ),
            ("ncdump", format!("ncdump -h {in_shell}")),
            ("h5ls", format!("h5ls -r {in_shell}")),
            ("C", format!("nc_open({}, NC_NOWRITE, &id)", c(&h5))),
            (
                "",
                format!("H5Fopen({}, H5F_ACC_RDONLY, H5P_DEFAULT)", c(&h5)),
            ),
        ])
    }

    fn array(&self, real: &Path) -> String {
        let (npy, h5, zarr) = (
            self.at("npy", ".npy"),
            self.at("h5", ".h5"),
            self.at("zarr", ".zarr"),
        );
        shown(&[
            ("numpy", format!("np.load({}, mmap_mode='r')", python(&npy))),
            ("h5py", format!("h5py.File({}, 'r')['data']", python(&h5))),
            (
                "zarr",
                format!("zarr.open_array({}, mode='r')", python(&zarr)),
            ),
            ("xarray", format!("xarray.open_dataset({})", python(&h5))),
            ("ncdump", format!("ncdump -h {}", shell(&h5))),
            ("h5dump", format!("h5dump -d data {}", shell(&h5))),
            (
                "C",
                format!(
                    "open({}, O_RDONLY)   /* its elements, in row-major order */",
                    c(&real.to_string_lossy())
                ),
            ),
        ])
    }
}

/// The lines with the names of programs in front.
fn shown(lines: &[(&str, String)]) -> String {
    let lines = lines
        .iter()
        .map(|(program, line)| format!("{program:<8} {line}\n"));
    lines.collect()
}

/// A literal of Python.
fn python(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{}'", text.replace('\n', "\\n"))
}

/// A string of C.
fn c(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A word of the shell.
fn shell(text: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte) || byte >= 128;
    match text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(python("a'b\\"), "'a\\'b\\\\'");
        assert_eq!(c("a\"b"), "\"a\\\"b\"");
        assert_eq!(shell("/mnt/a.h5"), "/mnt/a.h5");
        assert_eq!(shell("it's here"), "'it'\\''s here'");
    }
}

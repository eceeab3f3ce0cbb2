//! Everything in one process: `slabfs up`.

use std::path::{Path, PathBuf};

use crate::{Area, Service, mounts};

/// A running, stopped or killed `slabfs up` with its data directory and mount point.
#[derive(Debug)]
pub struct Up {
    // Dropped in this order: first the process, then its directories.
    service: Option<Service>,
    args: Vec<String>,
    mnt: PathBuf,
    data: PathBuf,
    area: Area,
}

impl Up {
    /// Mounts an empty filesystem with one data server.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start() -> Up {
        Up::with(&[])
    }

    /// The same with further flags.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn with(flags: &[&str]) -> Up {
        let mut up = Up::new(Area::new(), flags);
        up.start_again();
        up
    }

    /// One that is not started yet, in an area that may have been prepared.
    pub fn new(area: Area, flags: &[&str]) -> Up {
        let data = area.at("d");
        Up::on(area, data, flags)
    }

    /// One that is not started yet and stores its data elsewhere.
    pub fn on(area: Area, data: PathBuf, flags: &[&str]) -> Up {
        let mnt = area.mkdir("m");
        Up {
            service: None,
            args: flags.iter().map(|&flag| flag.to_owned()).collect(),
            mnt,
            data,
            area,
        }
    }

    /// Starts it on the same data, after a stop or a kill.
    ///
    /// # Panics If it does not start.
    #[track_caller]
    pub fn start_again(&mut self) {
        if let Err(error) = self.try_start(&[]) {
            panic!("{error}");
        }
    }

    /// Starts it with flags for this start only.
    ///
    /// # Errors Its output if it does not start.
    pub fn try_start(&mut self, flags: &[&str]) -> Result<(), String> {
        assert!(self.service.is_none(), "it runs");
        let mut args = vec![
            "up".to_owned(),
            "--data".to_owned(),
            self.data.display().to_string(),
        ];
        args.extend(self.args.iter().cloned());
        args.extend(flags.iter().map(|&flag| flag.to_owned()));
        args.push(self.mnt.display().to_string());
        let mut service = Service::start(self.area.path(), "up", &args);
        let result = service.try_ready();
        if result.is_ok() {
            self.service = Some(service);
        }
        result
    }

    /// Stops it cleanly (SIGTERM).
    ///
    /// # Panics If that fails or leaves the mount.
    pub fn stop(&mut self) {
        let service = self.service.take().expect("it runs");
        service.stop();
        assert!(
            !mounts::is_mounted(&self.mnt),
            "{} is still mounted",
            self.mnt.display()
        );
    }

    /// Ends it with SIGKILL and removes the dead mount.
    pub fn kill9(&mut self) {
        let service = self.service.take().expect("it runs");
        service.kill9();
        mounts::detach(&self.mnt);
    }

    /// Ends it with SIGKILL and leaves the dead mount.
    pub fn kill9_and_leave(&mut self) {
        self.service.take().expect("it runs").kill9();
    }

    /// Marks it as ended by other means.
    pub fn stopped(&mut self) {
        self.service = None;
    }

    /// Stops and starts it.
    ///
    /// # Panics If either fails.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Its process.
    pub fn service(&mut self) -> &mut Service {
        self.service.as_mut().expect("it runs")
    }

    /// The mount point.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// A path on the mount.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mnt.join(name)
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The test's directory around all of it.
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// Its log so far, over restarts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.area.at("up.err")).unwrap_or_default())
            .into_owned()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.service = None;
        mounts::detach(&self.mnt);
    }
}

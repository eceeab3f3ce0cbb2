//! Files that go beside replies, and what a handler keeps between two requests.

use std::fs::File;
use std::os::fd::AsFd;

use super::*;

/// Lends a file of a directory, and counts what is until_next.
struct Files(std::path::PathBuf, Arc<()>);

const FILES: u16 = 0x0210;
/// Answers whether something was until_next.
const KEPT: u16 = 0x0211;

impl Handler for Files {
    fn handle(&self, mut call: Call<'_>) -> WireResult<()> {
        let until_next = call.until_next.take();
        match call.kind {
            FILES => {
                let count = usize::from(call.control[0]);
                *call.keep = Some(Box::new(self.1.clone()));
                let open = |at| File::create(self.0.join(format!("{at}"))).unwrap();
                let files: Vec<File> = (0..count).map(open).collect();
                let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                match call.reply.hands_files() {
                    true => call.reply.send_files(&[1; 10_000], &files),
                    false => call.reply.send(b"none", &[]),
                }
            }
            _ => call.reply.send(&[u8::from(until_next.is_some())], &[]),
        }
    }
}

fn until() -> Until {
    soon().into()
}

/// Asks for files, writes to them, and asks whether something was until_next.
fn exchange(pool: &Pool, count: u8) -> WireResult<(bool, Vec<u8>)> {
    let mut answer = Vec::new();
    let done = pool.exchange(
        FILES,
        &[count],
        until(),
        &mut |control, files| {
            assert_eq!(control, [1; 10_000]);
            assert_eq!(files.len(), usize::from(count));
            for (at, file) in files.into_iter().enumerate() {
                write!(File::from(file), "file {at}").unwrap();
            }
            Ok((KEPT, Vec::new()))
        },
        &mut |control, _| {
            answer = control.to_vec();
            Ok(())
        },
    )?;
    Ok((done, answer))
}

#[test]
fn files_go_with_replies() {
    let (dir, unix) = place();
    for (addr, hands) in [(unix, true), (Addr::Tcp("localhost:0".into()), false)] {
        let handler = Arc::new(Files(dir.path().to_owned(), Arc::default()));
        let listener = Listener::bind(&addr, Some(key(1))).unwrap();
        let serving = serve_with(listener, handler, ServeOptions::default()).unwrap();
        let pool = pool(serving.addr());
        if !hands {
            assert!(!exchange(&pool, 1).unwrap().0);
            let mut back = Vec::new();
            assert_eq!(pool.call(FILES, &[1], &[], &mut back).unwrap(), b"none");
            continue;
        }
        for count in [1u8, 3, MAX_FILES as u8] {
            assert_eq!(exchange(&pool, count).unwrap(), (true, vec![1]));
            for at in 0..count {
                let path = dir.path().join(format!("{at}"));
                assert_eq!(
                    std::fs::read(path).unwrap(),
                    format!("file {at}").as_bytes()
                );
            }
        }
        // More than that are not sent, and the reply is a fault.
        let many = exchange(&pool, MAX_FILES as u8 + 1);
        assert!(matches!(many, Err(WireError::Fault { .. })), "{many:?}");
        assert_eq!(exchange(&pool, 2).unwrap(), (true, vec![1]));
        // Nobody asked for files: they are closed as they come.
        let path = dir.path().join("1");
        let is_it = |fd: &std::fs::DirEntry| fd.path().read_link().is_ok_and(|to| to == path);
        let opened = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            all.filter(|fd| fd.as_ref().is_ok_and(is_it)).count()
        };
        let mut back = Vec::new();
        pool.call(FILES, &[2], &[], &mut back).unwrap();
        // The reply came, and the handler's own may close a moment later: the next request is behind that.
        pool.call(KEPT, b"", &[], &mut back).unwrap();
        assert_eq!(opened(), 0);
    }
}

#[test]
fn what_is_kept_lasts_until_the_next_request_or_not_so_long() {
    let (dir, addr) = place();
    let count = Arc::new(());
    let handler = Arc::new(Files(dir.path().to_owned(), count.clone()));
    let listener = Listener::bind(&addr, None).unwrap();
    let serving = serve_with(listener, handler, short()).unwrap();
    let pool = Pool::new(addr, None, Duration::from_secs(10));
    let before = Arc::strong_count(&count);
    assert_eq!(exchange(&pool, 1).unwrap(), (true, vec![1]));
    let mut back = Vec::new();
    assert_eq!(pool.call(KEPT, b"", &[], &mut back).unwrap(), [0]);
    assert_eq!(Arc::strong_count(&count), before);
    // A peer that says nothing for too long.
    let late = pool.exchange(
        FILES,
        &[1],
        until(),
        &mut |_, _| {
            let end = soon();
            while Arc::strong_count(&count) > before && Instant::now() < end {
                std::thread::yield_now();
            }
            Ok((KEPT, Vec::new()))
        },
        &mut |control, _| {
            assert_eq!(control, [0]);
            Ok(())
        },
    );
    assert!(late.unwrap());
    assert_eq!(Arc::strong_count(&count), before);
    // One that goes.
    let gone = pool.exchange(
        FILES,
        &[1],
        until(),
        &mut |_, _| {
            Err(WireError::Fault {
                addr: String::new(),
                detail: "as asked".into(),
            })
        },
        &mut |_, _| Ok(()),
    );
    assert!(gone.is_err());
    serving.stop();
    assert_eq!(Arc::strong_count(&count), 1);
}

//! Tests of file descriptors sent with replies, and of the state a handler stores between two requests.

use std::fs::File;
use std::os::fd::AsFd;

use super::*;

/// Hands out files of a directory; the count of its `Arc` shows whether the state is still stored.
struct Files(std::path::PathBuf, Arc<()>);

const FILES: u16 = 0x0210;
/// Answers whether state was stored by the request before.
const HAS_STATE: u16 = 0x0211;

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

/// Requests files, writes to them, and returns whether state was stored for the second request.
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
            Ok((HAS_STATE, Vec::new()))
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
        // Files that were not expected are closed as they arrive.
        let path = dir.path().join("1");
        let is_it = |fd: &std::fs::DirEntry| fd.path().read_link().is_ok_and(|to| to == path);
        let opened = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            all.filter(|fd| fd.as_ref().is_ok_and(is_it)).count()
        };
        let mut back = Vec::new();
        pool.call(FILES, &[2], &[], &mut back).unwrap();
        // The reply has come, and the handler may close its own a moment later: the next request is behind that.
        pool.call(HAS_STATE, b"", &[], &mut back).unwrap();
        assert_eq!(opened(), 0);
    }
}

#[test]
fn stored_state_lasts_until_the_next_request_or_its_timeout() {
    let (dir, addr) = place();
    let count = Arc::new(());
    let handler = Arc::new(Files(dir.path().to_owned(), count.clone()));
    let listener = Listener::bind(&addr, None).unwrap();
    let serving = serve_with(listener, handler, short()).unwrap();
    let pool = Pool::new(addr, None, Duration::from_secs(10));
    let before = Arc::strong_count(&count);
    assert_eq!(exchange(&pool, 1).unwrap(), (true, vec![1]));
    let mut back = Vec::new();
    assert_eq!(pool.call(HAS_STATE, b"", &[], &mut back).unwrap(), [0]);
    assert_eq!(Arc::strong_count(&count), before);
    // A peer that stays idle for too long.
    let late = pool.exchange(
        FILES,
        &[1],
        until(),
        &mut |_, _| {
            let end = soon();
            while Arc::strong_count(&count) > before && Instant::now() < end {
                std::thread::yield_now();
            }
            Ok((HAS_STATE, Vec::new()))
        },
        &mut |control, _| {
            assert_eq!(control, [0]);
            Ok(())
        },
    );
    assert!(late.unwrap());
    assert_eq!(Arc::strong_count(&count), before);
    // A peer that closes the connection.
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

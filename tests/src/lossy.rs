//! A proxy in front of a socket that loses replies: the request arrives, its reply does not.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::Random;

/// The proxy; its connections end with it.
#[derive(Debug)]
pub struct Lossy {
    addr: String,
    lost: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    path: PathBuf,
}

impl Lossy {
    /// Listens at `path` and forwards everything to the socket at `to`, except for one in `one_in` of the
    /// pieces of replies: instead of those the connection is closed.
    ///
    /// # Panics If it cannot listen there.
    pub fn start(path: PathBuf, to: &Path, one_in: u64, seed: u64) -> Lossy {
        let listener = UnixListener::bind(&path).expect("a socket");
        let (lost, ended) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let random = Arc::new(Mutex::new(Random::new(seed)));
        let (to, counted, over) = (to.to_owned(), Arc::clone(&lost), Arc::clone(&ended));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                // No server: the client notices that its connection is closed.
                let Ok(server) = UnixStream::connect(&to) else {
                    continue;
                };
                let (random, lost) = (Arc::clone(&random), Arc::clone(&counted));
                let lose = move || {
                    let lose = random.lock().expect("the dice").one_in(one_in);
                    lost.fetch_add(u64::from(lose), Ordering::SeqCst);
                    lose
                };
                forward(&client, &server, || false);
                forward(&server, &client, lose);
            }
        });
        Lossy {
            addr: format!("unix:{}", path.display()),
            lost,
            ended,
            path,
        }
    }

    /// Its address, in the form for `--md`.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// The number of lost pieces so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for connections.
        drop(UnixStream::connect(&self.path));
    }
}

/// Forwards data of one side, until it ends or a piece is to be lost.
fn forward(from: &UnixStream, to: &UnixStream, lose: impl Fn() -> bool + Send + 'static) {
    let (mut from, mut to) = (
        from.try_clone().expect("a descriptor"),
        to.try_clone().expect("a descriptor"),
    );
    thread::spawn(move || {
        let mut bytes = vec![0; 256 << 10];
        while let Ok(len) = from.read(&mut bytes) {
            if len == 0 || lose() || to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        // The other direction ends too; it may have ended already.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

//! A socket in the place of another that holds requests back: they are on their way, for as long as it takes.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The socket. Whoever connected to it stays connected by way of it, also after [`Held::step_aside`].
#[derive(Debug)]
pub struct Held {
    place: PathBuf,
    moved: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    held: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicU64,
    answered: AtomicU64,
    ended: AtomicBool,
}

impl Held {
    /// Takes the place of the socket at `place`, whose server goes on at the side, and passes on to it.
    ///
    /// # Panics
    /// When it cannot.
    pub fn instead_of(place: &Path) -> Held {
        let moved = place.with_extension("moved");
        std::fs::rename(place, &moved).expect("moved");
        let listener = UnixListener::bind(place).expect("a socket");
        let shared = Arc::<Shared>::default();
        let (to, for_thread) = (moved.clone(), Arc::clone(&shared));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if for_thread.ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = UnixStream::connect(&to) else {
                    continue;
                };
                let (there, back) = (Arc::clone(&for_thread), Arc::clone(&for_thread));
                let come = Arc::clone(&there);
                pass(
                    &client,
                    &server,
                    move |len| come.come(len),
                    move || there.wait(),
                );
                let count = move |len| {
                    back.answered.fetch_add(len, Ordering::SeqCst);
                };
                pass(&server, &client, count, || ());
            }
        });
        Held {
            place: place.to_owned(),
            moved,
            shared,
        }
    }

    /// Gives the place back: those that connect from now on come to the server itself.
    ///
    /// # Panics
    /// When it cannot.
    pub fn step_aside(&self) {
        std::fs::rename(&self.moved, &self.place).expect("moved back");
    }

    /// Holds requests back from now on.
    pub fn hold(&self) {
        *self.shared.held.lock().expect("the lock") = true;
    }

    /// Bytes that are held back, as far as they have come here.
    pub fn waiting(&self) -> u64 {
        self.shared.waiting.load(Ordering::SeqCst)
    }

    /// Bytes of answers so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Lets go what was held back.
    pub fn release(&self) {
        *self.shared.held.lock().expect("the lock") = false;
        self.shared.changed.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.release();
        // Wakes the thread that waits for connections, if the place is still its own.
        drop(UnixStream::connect(&self.place));
    }
}

impl Shared {
    /// A piece of a request has come.
    fn come(&self, len: u64) {
        if *self.held.lock().expect("the lock") {
            self.waiting.fetch_add(len, Ordering::SeqCst);
        }
    }

    /// Waits while requests are held.
    fn wait(&self) {
        let mut held = self.held.lock().expect("the lock");
        while *held {
            held = self.changed.wait(held).expect("the lock");
        }
    }
}

/// Passes on what comes from one side until that ends: `come` when a piece has come, `go` before it goes.
fn pass(
    from: &UnixStream,
    to: &UnixStream,
    come: impl Fn(u64) + Send + 'static,
    go: impl Fn() + Send + 'static,
) {
    let (mut from, mut to) = (
        from.try_clone().expect("a descriptor"),
        to.try_clone().expect("a descriptor"),
    );
    let (pieces, arrived) = channel::<Vec<u8>>();
    thread::spawn(move || {
        let mut bytes = vec![0; 256 << 10];
        while let Ok(len) = from.read(&mut bytes) {
            if len == 0 || pieces.send(bytes[..len].to_vec()).is_err() {
                break;
            }
            come(len as u64);
        }
    });
    thread::spawn(move || {
        for piece in arrived {
            go();
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        // What was sent arrives, also when the sender is gone by then.
        let _ = to.shutdown(Shutdown::Write);
    });
}

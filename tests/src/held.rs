//! A proxy in the place of a unix socket that can hold requests back, to keep them in flight.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The proxy. Connections through it stay, also after [`Held::give_way`].
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
    /// Replaces the socket at `place`, whose server continues under another path, and forwards to it.
    ///
    /// # Panics If that fails.
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
                forward(
                    &client,
                    &server,
                    move |len| come.come(len),
                    move || there.wait(),
                );
                let count = move |len| {
                    back.answered.fetch_add(len, Ordering::SeqCst);
                };
                forward(&server, &client, count, || ());
            }
        });
        Held {
            place: place.to_owned(),
            moved,
            shared,
        }
    }

    /// Restores the socket's path: new connections go to the server directly.
    ///
    /// # Panics If that fails.
    pub fn give_way(&self) {
        std::fs::rename(&self.moved, &self.place).expect("moved back");
    }

    /// Starts to hold requests back.
    pub fn hold(&self) {
        *self.shared.held.lock().expect("the lock") = true;
    }

    /// Bytes held back, as far as they have arrived here.
    pub fn waiting(&self) -> u64 {
        self.shared.waiting.load(Ordering::SeqCst)
    }

    /// Bytes of replies so far.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Forwards what was held back.
    pub fn release(&self) {
        *self.shared.held.lock().expect("the lock") = false;
        self.shared.changed.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.release();
        // Wakes the thread that waits for connections, if the path is still the proxy's.
        drop(UnixStream::connect(&self.place));
    }
}

impl Shared {
    /// A piece of a request has arrived.
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

/// Forwards data of one side until it ends. Calls `come` when a piece has arrived, and `go` before it is forwarded.
fn forward(
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
        // Sent data is forwarded, also when the sender has closed its connection.
        let _ = to.shutdown(Shutdown::Write);
    });
}

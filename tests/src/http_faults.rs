//! A proxy in front of an HTTP service that answers with errors, or not at all, if it is set to do so.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the proxy does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Passes them on.
    Pass,
    /// Answers them with this status.
    Answer(u16),
    /// Does not answer.
    Hang,
}

/// The running proxy; its connections are closed when it is dropped.
#[derive(Debug)]
pub struct HttpFaults {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: String,
    mode: Mutex<Mode>,
    open: Mutex<Vec<TcpStream>>,
    /// Requests that were not passed on.
    refused: AtomicU64,
    stopping: AtomicBool,
}

impl HttpFaults {
    /// A proxy on the loopback for the service at `HOST:PORT`.
    ///
    /// # Panics If it cannot listen.
    pub fn start(to: &str) -> HttpFaults {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            to: to.to_owned(),
            mode: Mutex::new(Mode::Pass),
            open: Mutex::default(),
            refused: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), shared) = (client, Arc::clone(&accepting)) else {
                    continue;
                };
                // A connection that breaks is what its client has to expect here.
                thread::spawn(move || drop(shared.serve(client)));
            }
        });
        HttpFaults { addr, shared }
    }

    /// `HOST:PORT` of the proxy.
    pub fn addr(&self) -> String {
        self.addr.to_string()
    }

    /// Changes what it does, from the next request on; open connections are closed.
    pub fn set(&self, mode: Mode) {
        *self.shared.mode.lock().expect("the lock") = mode;
        self.shared.close_all();
    }

    /// Requests that were not passed on.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::SeqCst)
    }
}

impl Drop for HttpFaults {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.close_all();
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.addr));
    }
}

impl Shared {
    fn close_all(&self) {
        for stream in self.open.lock().expect("the lock").drain(..) {
            // One that has ended already is closed.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mode = {
            let mode = self.mode.lock().expect("the lock");
            self.open
                .lock()
                .expect("the lock")
                .push(client.try_clone()?);
            *mode
        };
        match mode {
            Mode::Pass => self.pass(client),
            Mode::Answer(status) => self.answer(client, status),
            Mode::Hang => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                // Until it is closed.
                io::copy(&mut &client, &mut io::sink()).map(drop)
            }
        }
    }

    fn pass(&self, client: TcpStream) -> io::Result<()> {
        let service = TcpStream::connect(&self.to)?;
        self.open
            .lock()
            .expect("the lock")
            .push(service.try_clone()?);
        let (mut from_client, mut to_service) = (client.try_clone()?, service.try_clone()?);
        let forward = thread::spawn(move || {
            let copied = io::copy(&mut from_client, &mut to_service);
            drop(to_service.shutdown(Shutdown::Both));
            copied
        });
        let copied = io::copy(&mut &service, &mut &client);
        drop(client.shutdown(Shutdown::Both));
        let _forwarded = forward.join();
        copied.map(drop)
    }

    fn answer(&self, mut client: TcpStream, status: u16) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut part = [0; 64 << 10];
        loop {
            let ends = bytes.windows(4).position(|end| end == b"\r\n\r\n");
            let Some(head) = ends.map(|at| at + 4) else {
                match client.read(&mut part)? {
                    0 => return Ok(()),
                    len => bytes.extend_from_slice(&part[..len]),
                }
                continue;
            };
            let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|len| len.trim().parse().ok()).unwrap_or(0);
            while bytes.len() < head + length {
                match client.read(&mut part)? {
                    0 => return Ok(()),
                    len => bytes.extend_from_slice(&part[..len]),
                }
            }
            bytes.drain(..head + length);
            self.refused.fetch_add(1, Ordering::SeqCst);
            let code = match status {
                403 => "AccessDenied",
                503 => "SlowDown",
                _ => "InternalError",
            };
            let body = format!("<Error><Code>{code}</Code><Message>as asked</Message></Error>");
            let len = body.len();
            write!(
                client,
                "HTTP/1.1 {status} {code}\r\ncontent-type: application/xml\r\ncontent-length: {len}\r\n\r\n{body}"
            )?;
        }
    }
}

//! An nginx process for a test.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One process per address, so that no other test can have taken its port.
static NEXT: AtomicU8 = AtomicU8::new(1);
const PORT: u16 = 8080;

/// nginx; killed when dropped.
pub struct Nginx {
    pub folder: tempfile::TempDir,
    pub ip: String,
    child: Child,
}

/// A request as nginx has logged it.
#[derive(Debug)]
pub struct Logged {
    pub connection: u64,
    pub status: u16,
    pub body_bytes: u64,
    /// Host, request target, X-A, Content-Type, SNI and ALPN.
    pub fields: Vec<String>,
}

impl Nginx {
    /// Starts nginx with these directives of its server; FOLDER stands for its folder, and LISTEN for its address.
    pub fn start(server: &str) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), Self::next_ip(), server)
    }

    /// Returns an address of the loopback network that no other server of the tests has.
    pub fn next_ip() -> String {
        let [.., high, low] = std::process::id().to_be_bytes();
        format!("127.{}.{high}.{low}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// As [`Self::start`], with files that are already there.
    pub fn start_in(folder: tempfile::TempDir, ip: String, server: &str) -> Self {
        let path = folder.path().display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name};\n"))
            .concat();
        let server = server.replace("FOLDER", &path).replace("LISTEN", &format!("{ip}:{PORT}"));
        // The user of the workers must be able to write where the test can.
        let user = if nix::unistd::geteuid().is_root() { "user root;" } else { "" };
        let text = format!(
            "{user} daemon off; master_process off; pid {path}/pid; error_log stderr notice;
             events {{ worker_connections 1024; }}
             http {{
                 {temporary}
                 log_format fields '$connection|$status|$body_bytes_sent|$http_host|$request_uri|$http_x_a|$content_type|$ssl_server_name|$ssl_alpn_protocol';
                 access_log {path}/access.log fields;
                 server {{ {server} }}
             }}"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).expect("writing");
        let child = Command::new("nginx")
            .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
            .arg("-c")
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .expect("nginx starts (make setup installs it)");
        let mut nginx = Self { folder, ip, child };
        let mut lines = BufReader::new(nginx.child.stderr.take().expect("piped")).lines();
        let mut before = Vec::new();
        // nginx logs this after it has begun to listen.
        while let Some(Ok(line)) = lines.next() {
            if line.contains("event method") {
                std::thread::spawn(move || lines.for_each(drop));
                return nginx;
            }
            before.push(line);
        }
        panic!("nginx: {before:?}");
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}:{PORT}{path}", self.ip)
    }

    pub fn https(&self, path: &str) -> String {
        format!("https://{}:{PORT}{path}", self.ip)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends nginx, and returns its log.
    pub fn log(mut self) -> Vec<Logged> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGQUIT).expect("it runs");
        super::wait(&mut self.child, std::time::Duration::from_secs(20));
        let text = std::fs::read_to_string(self.path("access.log")).expect("a log");
        text.lines().map(parse).collect()
    }
}

fn parse(line: &str) -> Logged {
    let mut fields = line.split('|').map(str::to_owned);
    let mut number = || fields.next().and_then(|text| text.parse().ok()).expect("a number");
    let (connection, status, body_bytes) = (number(), number() as u16, number());
    Logged { connection, status, body_bytes, fields: fields.collect() }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a certificate authority `ca.pem`, and a certificate of it for these names (as in `DNS:localhost`) `cert.pem` with
/// `key.pem`.
pub fn certificate(folder: &Path, names: &str) {
    let file = |name: &str| folder.join(name).display().to_string();
    let (ca, ca_key) = (file("ca.pem"), file("ca-key.pem"));
    let (key, request, cert, extensions) =
        (file("key.pem"), file("request.pem"), file("cert.pem"), file("extensions"));
    std::fs::write(&extensions, format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n"))
        .expect("writing");
    let new = ["req", "-newkey", "rsa:2048", "-nodes", "-batch"];
    super::succeed(
        "openssl",
        &[&new[..], &["-x509", "-days", "2", "-subj", "/CN=Test CA", "-keyout", &ca_key, "-out", &ca]]
            .concat(),
    );
    super::succeed(
        "openssl",
        &[&new[..], &["-subj", "/CN=test", "-keyout", &key, "-out", &request]].concat(),
    );
    let sign =
        ["x509", "-req", "-days", "2", "-CAcreateserial", "-CA", &ca, "-CAkey", &ca_key, "-in", &request];
    super::succeed("openssl", &[&sign[..], &["-extfile", &extensions, "-out", &cert]].concat());
}

//! `roundtrip bench http://...` and `https://...`: one request, repeated, with a connection for each request in flight.

use std::io::Read as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use load::http::{BODY_MAX, Body, Header, HttpRequest, HttpRun, HttpUrl, Method, Scheme, Tls, Trust};
use load::{Arrival, EndpointOptions, Pattern, RunResult};
use record::Writes;
use report::progress::Progress;

use super::output::{Records, finish, were};
use super::{BenchArgs, Combination};
use crate::Failure;
use crate::print::{eprint_line, print_line};

/// Longest file of header fields, bytes.
const HEADERS_MAX: usize = 64 << 10;
/// Most connections of a run.
const CONNECTIONS_MAX: u32 = 1024;

/// Options of HTTP loads only.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct HttpArgs {
    /// HTTP: the request's method; without --rw, POST, PUT and PATCH have a body and count as writes [default: GET for
    /// reads, POST for writes]
    #[arg(long, value_name = "METHOD", help_heading = "HTTP")]
    pub(crate) method: Option<String>,
    /// HTTP: a header field, 'Name: value', in place of the program's own; repeatable. @FILE reads fields from a file, one
    /// on each line: other users can see a command line, with the secrets in it
    #[arg(short = 'H', long, value_name = "FIELD", help_heading = "HTTP")]
    pub(crate) header: Vec<String>,
    /// HTTP: send this file as the body, at most 64 MiB, instead of --bs zero bytes
    #[arg(long, value_name = "FILE", help_heading = "HTTP")]
    pub(crate) body_file: Option<PathBuf>,
    /// HTTP: threads that share the connections
    #[arg(long, value_name = "THREADS", default_value_t = 1, help_heading = "HTTP")]
    pub(crate) threads: u32,
    /// HTTPS: trust the certificate authorities of this PEM file instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "HTTP", conflicts_with = "insecure")]
    pub(crate) ca_file: Option<PathBuf>,
    /// HTTPS: accept any certificate, so that any host on the path can pose as the server
    #[arg(long, help_heading = "HTTP")]
    pub(crate) insecure: bool,
}

impl HttpArgs {
    /// The names of all its options.
    pub(crate) const NAMES: [&str; 6] = ["method", "header", "body_file", "threads", "ca_file", "insecure"];
}

fn usage(why: impl Into<String>) -> Failure {
    Failure::Usage(anyhow!(why.into()))
}

/// The request of all runs, apart from what depends on the block size.
struct Prepared {
    method: Method,
    headers: Vec<Header>,
    /// The access pattern as reported.
    pattern: Pattern,
    file: Option<Arc<[u8]>>,
}

pub(crate) fn run(
    args: &BenchArgs,
    url: &HttpUrl,
    is_given: &dyn Fn(&str) -> bool,
) -> Result<ExitCode, Failure> {
    let prepared = prepare(args, url, is_given)?;
    let tls = tls(args, url)?;
    let mut ops = args.ops.as_deref().map(Records::create).transpose()?;
    let side = EndpointOptions::new(args.writes, args.tcp.options(!args.nagle));
    let server = server(args, url, &side)?;
    let combinations = args.combinations();
    let live = load::Live::default();
    let progress =
        Progress::new(combinations.len() as u64, args.runtime + args.ramp, !args.is_machine_readable())
            .of_load(&live);
    let (mut runs, mut failed) = (Vec::new(), None);
    for combination in combinations {
        progress.step(&combination.to_string());
        let run = prepared.run(args, url, &combination);
        let run = HttpRun { tls: tls.clone(), side: side.clone(), live: live.clone(), ..run };
        match run.run(server).with_context(|| url.to_string()) {
            Ok(recorded) => {
                if let Some(ops) = &mut ops {
                    ops.write(&recorded.ops, recorded.ops_over_limit)?;
                }
                runs.push(recorded.result);
            }
            // The results so far are shown all the same.
            Err(error) => {
                failed = Some(Failure::Work(error));
                break;
            }
        }
    }
    progress.finish();
    // A run that failed leaves an older file as it was.
    if let Some(ops) = ops.filter(|_| failed.is_none()) {
        ops.finish()?;
    }
    let code = if runs.is_empty() { ExitCode::FAILURE } else { finish(args, url, &runs)? };
    if !args.is_machine_readable() {
        print_set_ups(&runs);
    }
    failed.map_or(Ok(code), Err)
}

/// Returns the address of the URL's host that accepts connections.
fn server(args: &BenchArgs, url: &HttpUrl, side: &EndpointOptions) -> Result<SocketAddr, Failure> {
    let addresses: Vec<_> = (&*url.host, url.port)
        .to_socket_addrs()
        .map_err(|error| {
            usage(format!(
                "{url}: the host name does not resolve: {error}; check its spelling and the name server, or write the \
                 server's IP address"
            ))
        })?
        .collect();
    match addresses[..] {
        [one] => Ok(one),
        // Such as both addresses of localhost: the first that accepts connections.
        _ => HttpRun::reachable(&addresses, side, args.timeout)
            .with_context(|| format!("{url}: cannot connect"))
            .map_err(Failure::Work),
    }
}

impl Prepared {
    /// The run of a combination, without the connection's options.
    fn run(&self, args: &BenchArgs, url: &HttpUrl, combination: &Combination) -> HttpRun {
        let bytes = combination.block_bytes;
        let body = match &self.file {
            Some(file) => Body::Bytes(Arc::clone(file)),
            None if self.pattern.writes() => Body::Zeros(bytes as usize),
            None => Body::None,
        };
        let block_bytes = match &body {
            Body::None => url.depends_on_block_size().then_some(bytes),
            body => Some(body.bytes().len() as u64),
        };
        HttpRun {
            request: HttpRequest {
                method: self.method.clone(),
                path: url.path_for(bytes),
                authority: url.authority(),
                headers: self.headers.clone(),
                body,
            },
            tls: None,
            side: EndpointOptions::default(),
            pattern: self.pattern,
            block_bytes,
            connections: combination.queue_depth,
            threads: args.http.threads,
            rate: combination.rate,
            arrival: args.arrival.unwrap_or_default(),
            seed: args.seed,
            ramp: args.ramp,
            runtime: args.runtime,
            record_ops: if args.ops.is_some() { Records::MAX } else { 0 },
            live: load::Live::default(),
            patience: args.timeout,
        }
    }
}

/// Prints what the connections of each run took to set up, which is no part of a request's latency.
fn print_set_ups(runs: &[RunResult]) {
    for run in runs {
        let Some(connections) = &run.connections else { continue };
        let set_up = &connections.setup_us;
        let tls = connections.tls_us.map_or_else(String::new, |tls| {
            format!(", of which TLS mean {:.1} us, p99 {:.1} us", tls.mean, tls.p99)
        });
        let repeated = match connections.retried {
            0 => String::new(),
            count => format!("; {} sent again on a new connection", were(count, "request")),
        };
        print_line(format_args!(
            "queue depth {}: {} set up: mean {:.1} us, p99 {:.1} us{tls}{repeated}",
            run.queue_depth,
            were(connections.opened, "connection"),
            set_up.mean,
            set_up.p99
        ));
    }
}

/// Checks the arguments.
fn prepare(args: &BenchArgs, url: &HttpUrl, is_given: &dyn Fn(&str) -> bool) -> Result<Prepared, Failure> {
    if url.has_credentials {
        return Err(usage(
            "the URL contains credentials, which are not supported: use --header 'Authorization: ...'",
        ));
    }
    let refused = |error: load::http::RequestError| usage(error.to_string());
    let given = args.http.method.as_deref().map(str::parse::<Method>).transpose().map_err(refused)?;
    let pattern = match &given {
        Some(method) if !is_given("rw") && method.has_body() => Pattern::RandWrite,
        _ => args.rw,
    };
    if pattern.is_mixed() || pattern.clears() {
        return Err(usage("HTTP supports only --rw read (GET) and --rw write (POST)"));
    }
    let method = given.unwrap_or_else(|| if pattern.writes() { Method::post() } else { Method::get() });
    if !pattern.writes() && args.http.body_file.is_some() {
        return Err(usage(format!(
            "--body-file: {method} requests have no body; use --rw write or --method POST"
        )));
    }
    let file =
        args.http.body_file.as_deref().map(|path| read_to(path, "--body-file", BODY_MAX)).transpose()?;
    let file = file.map(Arc::from);
    let uses_block_size = url.depends_on_block_size() || (pattern.writes() && file.is_none());
    if is_given("bs") && !uses_block_size {
        return Err(usage(
            "--bs has no effect: the server decides how much it returns. Write {bs} where the URL shall contain the size, \
             such as http://host/{bs} for roundtrip serve",
        ));
    }
    if let Some(bytes) = args.bs.iter().find(|bytes| **bytes > BODY_MAX as u64) {
        return Err(usage(format!("--bs {bytes}: at most {BODY_MAX} B are possible")));
    }
    if let Some(depth) = args.iodepth.iter().find(|depth| !(1..=CONNECTIONS_MAX).contains(*depth)) {
        return Err(usage(format!("--iodepth {depth}: 1 to {CONNECTIONS_MAX} are possible")));
    }
    args.check_arrival()?;
    if is_given("seed") && args.arrival != Some(Arrival::Poisson) {
        return Err(usage("--seed has no effect: only the arrivals of --arrival poisson are random"));
    }
    if args.http.threads == 0 {
        return Err(usage("--threads 0: at least 1 is needed"));
    }
    Ok(Prepared { method, headers: headers(&args.http.header)?, pattern, file })
}

/// Parses header fields, those of files included.
fn headers(given: &[String]) -> Result<Vec<Header>, Failure> {
    let parse = |text: &str| text.parse().map_err(|error: load::http::RequestError| usage(error.to_string()));
    let mut all = Vec::new();
    for text in given {
        let Some(path) = text.strip_prefix('@') else {
            all.push(parse(text)?);
            continue;
        };
        let fields = read_to(Path::new(path), "--header", HEADERS_MAX)?;
        let fields = String::from_utf8(fields).map_err(|_| usage(format!("--header @{path}: not UTF-8")))?;
        for line in fields.lines().filter(|line| !line.is_empty()) {
            all.push(parse(line)?);
        }
    }
    Ok(all)
}

/// Reads a file of at most `most` bytes; more are refused without reading them.
fn read_to(path: &Path, option: &str, most: usize) -> Result<Vec<u8>, Failure> {
    let cannot = || format!("{option} {}", path.display());
    let file = std::fs::File::open(path).with_context(cannot).map_err(Failure::Usage)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).with_context(cannot).map_err(Failure::Usage)?;
    if bytes.len() > most {
        return Err(usage(format!("{}: at most {most} B are possible", cannot())));
    }
    Ok(bytes)
}

fn tls(args: &BenchArgs, url: &HttpUrl) -> Result<Option<Tls>, Failure> {
    let HttpArgs { ca_file, insecure, .. } = &args.http;
    if url.scheme == Scheme::Http {
        return if ca_file.is_some() || *insecure {
            Err(usage("--ca-file and --insecure have no effect without https://"))
        } else {
            Ok(None)
        };
    }
    if args.writes != Writes::One {
        return Err(usage("--writes has no effect on https://: TLS decides how records are written"));
    }
    let trust = match ca_file {
        _ if *insecure => {
            eprint_line(
                "WARNING: --insecure: the server's certificate is NOT verified. Anyone on the path can read and change \
                 what is sent, header fields with secrets included.",
            );
            Trust::Anything
        }
        Some(path) => Trust::File(path.clone()),
        None => Trust::System,
    };
    Tls::new(&url.host, &trust).map(Some).map_err(|error| Failure::Usage(error.into()))
}

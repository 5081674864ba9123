//! `roundtrip ctl`: asks a running target over its control socket.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use control::client::{self, Answer};
use control::request::{
    AccessBody, ApplyBody, DiskBody, DrainBody, LogBody, SendBody, SizeBody, TargetBody, encoded,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Failure;
use crate::args;
use crate::print::{print_json_line, print_line};
use crate::target::default_socket;

/// Control a running target
///
/// Speaks to `roundtrip target --control PATH`. A change is carried out whole or refused with the reason; what is refused has changed
/// nothing. Changes last until the target ends, unless --save writes them to its configuration file. Exit status: 0 done, 1 refused or
/// no target, 2 wrong arguments.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  roundtrip ctl status\n  roundtrip ctl disk add 3 file:/srv/disk3,size=10G --save\n  \
                        roundtrip ctl apply target.toml --dry-run\n  roundtrip ctl events --json"
)]
pub(crate) struct CtlArgs {
    /// The control socket [default: /run/roundtrip/control.sock]
    #[arg(long, value_name = "PATH", global = true)]
    control: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// What the target is and does
    Status,
    /// The targets (IQNs); add and remove one
    #[command(subcommand_required = false)]
    Targets {
        #[command(subcommand)]
        verb: Option<TargetVerb>,
    },
    /// The portals
    Portals,
    /// The disks; add, remove and resize one
    Disk {
        #[command(subcommand)]
        verb: DiskVerb,
    },
    /// The sessions; drop one
    Session {
        #[command(subcommand)]
        verb: SessionVerb,
    },
    /// The connections with their statistics
    Connections,
    /// The reservations; end those of a disk
    Reservations {
        #[command(subcommand)]
        verb: Option<ReservationVerb>,
    },
    /// The access rules, without secrets; replace those of a target
    Access {
        #[command(subcommand)]
        verb: Option<AccessVerb>,
    },
    /// The send policy, or another one
    Send {
        /// auto, nodelay, nagle, batch ... (docs/send-policy.md)
        policy: Option<String>,
        #[command(flatten)]
        save: Save,
    },
    /// The levels of the log, or others
    LogLevel {
        /// As in ROUNDTRIP_LOG, such as info or iscsi_target=debug,warn
        level: Option<String>,
    },
    /// Read the configuration file again
    Reload,
    /// Make the target what a configuration file says
    Apply {
        /// The file
        file: PathBuf,
        /// Print what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        save: Save,
    },
    /// Print the configuration in force as a file
    Config,
    /// Take no more logins, let the initiators log out, and end
    Drain {
        /// How long the initiators have, such as 30s
        #[arg(long, value_parser = args::time, default_value = "30s", value_name = "TIME")]
        patience: Duration,
    },
    /// Print what happens, a line for each event
    Events,
}

#[derive(Clone, Copy, Debug, Args)]
struct Save {
    /// Write the change to the target's configuration file, too
    #[arg(long)]
    save: bool,
}

/// Which target, where there are several.
#[derive(Clone, Debug, Args)]
struct Of {
    /// The target's name; need not be given where there is one
    #[arg(long = "target", value_name = "IQN")]
    iqn: Option<String>,
}

#[derive(Debug, Subcommand)]
enum TargetVerb {
    /// Add a target without disks
    Add {
        /// Its iSCSI name
        iqn: String,
        /// The portal groups through which it is reached; all by default
        #[arg(long = "group", value_delimiter = ',')]
        groups: Option<Vec<u16>>,
        /// Who may use it from the beginning: open or nobody
        #[arg(long, value_parser = ["open", "nobody"])]
        access: Option<String>,
        #[command(flatten)]
        save: Save,
    },
    /// Remove a target; its initiators are asked to log out
    Remove {
        /// Its iSCSI name
        iqn: String,
        #[command(flatten)]
        save: Save,
    },
}

#[derive(Debug, Subcommand)]
enum DiskVerb {
    /// List the disks
    List,
    /// Add a disk
    Add {
        /// Its number
        lun: u16,
        /// Its store, as in --lun
        store: String,
        #[command(flatten)]
        of: Of,
        /// Unit serial number
        #[arg(long)]
        serial: Option<String>,
        /// NAA designator, 16 or 32 hexadecimal digits
        #[arg(long)]
        naa: Option<String>,
        #[command(flatten)]
        save: Save,
    },
    /// Remove a disk
    Remove {
        /// Its number
        lun: u16,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        save: Save,
    },
    /// Resize a disk
    Resize {
        /// Its number
        lun: u16,
        /// Its new size, such as 20G
        size: String,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        save: Save,
    },
}

#[derive(Debug, Subcommand)]
enum SessionVerb {
    /// List the sessions
    List,
    /// Drop a session by its number, or all of an initiator; it may log in again
    Drop {
        /// The number or the InitiatorName
        session: String,
    },
}

#[derive(Debug, Subcommand)]
enum ReservationVerb {
    /// Show the reservations
    Show,
    /// End the reservations of a disk, whoever holds them
    Clear {
        /// The disk's number
        lun: u16,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, Subcommand)]
enum AccessVerb {
    /// Show the rules, without secrets
    Show,
    /// Replace the rules of a target
    Set {
        /// An access file (docs/target.md), or the word open or nobody
        file: PathBuf,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        save: Save,
    },
}

/// A target that can be asked.
struct Asks {
    socket: PathBuf,
}

impl Asks {
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let answer = client::ask(&self.socket, method, path, body).with_context(|| {
            let socket = self.socket.display();
            format!("{socket}: no target answers; is it running with --control {socket}?")
        })?;
        if answer.status == 200 {
            return Ok(answer);
        }
        bail!("refused: {}", answer.json().err().unwrap_or_default())
    }

    fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)?.json().map_err(anyhow::Error::msg)
    }

    fn send(&self, method: &str, path: &str, body: impl Serialize) -> anyhow::Result<Value> {
        self.ask(method, path, Some(&json!(body)))?.json().map_err(anyhow::Error::msg)
    }

    fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("DELETE", path, None)?.json().map_err(anyhow::Error::msg)
    }

    /// The path of a target: the one that is named, or the only one.
    fn target(&self, of: &Of) -> anyhow::Result<String> {
        let iqn = match &of.iqn {
            Some(iqn) => iqn.clone(),
            None => {
                let all = self.get("/v1/targets")?;
                let all: Vec<&str> =
                    all.as_array().into_iter().flatten().filter_map(|one| one["iqn"].as_str()).collect();
                match all[..] {
                    [only] => only.to_owned(),
                    _ => bail!("there are {} targets; name one with --target: {}", all.len(), all.join(", ")),
                }
            }
        };
        Ok(format!("/v1/targets/{}", encoded(&iqn)))
    }

    /// Writes the configuration in force to the target's file, which is replaced as a whole.
    fn save(&self, save: Save) -> anyhow::Result<()> {
        if !save.save {
            return Ok(());
        }
        let status = self.get("/v1/status")?;
        let path = status["config"]
            .as_str()
            .context("the change is in force, but not saved: the target has no --config, or has --lun, --iqn or --access beside it, which the file would repeat")?;
        let text = self.ask("GET", "/v1/config", None)?.text;
        let path = Path::new(path);
        let not_saved = || format!("the change is in force, but not saved: {}", path.display());
        // Whoever answers may have fewer rights than this process: it can name no other file than a target's configuration, and
        // write nothing else into it.
        anyhow::ensure!(
            path.extension().is_some_and(|kind| kind == "toml"),
            "{}: not a .toml file",
            not_saved()
        );
        target_config::file::read(path).with_context(not_saved)?;
        target_config::file::parse(&text).with_context(not_saved)?;
        replace(path, &text).with_context(not_saved)
    }
}

/// Replaces a file as a whole, with its rights and its owner.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

    // The file itself, where the path is a symbolic link.
    let path = path.canonicalize()?;
    let metadata = std::fs::metadata(&path)?;
    let new = path.with_extension("toml.new");
    let _ = std::fs::remove_file(&new);
    let written = (|| {
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid()))?;
        file.set_permissions(metadata.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    Ok(written?)
}

pub(crate) fn run(args: &CtlArgs) -> Result<ExitCode, Failure> {
    let asks = Asks { socket: args.control.clone().unwrap_or_else(default_socket) };
    carry_out(args, &asks).map_err(Failure::Work)?;
    Ok(ExitCode::SUCCESS)
}

fn carry_out(args: &CtlArgs, asks: &Asks) -> anyhow::Result<()> {
    let show = |value: &Value| show(value, args.json);
    match &args.verb {
        Verb::Status => show(&asks.get("/v1/status")?),
        Verb::Targets { verb: None } => show(&asks.get("/v1/targets")?),
        Verb::Targets { verb: Some(TargetVerb::Add { iqn, groups, access, save }) } => {
            let body = TargetBody { groups: groups.clone(), access: access.clone() };
            show(&asks.send("PUT", &format!("/v1/targets/{}", encoded(iqn)), body)?)?;
            asks.save(*save)
        }
        Verb::Targets { verb: Some(TargetVerb::Remove { iqn, save }) } => {
            show(&asks.delete(&format!("/v1/targets/{}", encoded(iqn)))?)?;
            asks.save(*save)
        }
        Verb::Portals => show(&asks.get("/v1/portals")?),
        Verb::Disk { verb: DiskVerb::List } => show(&asks.get("/v1/disks")?),
        Verb::Disk { verb: DiskVerb::Add { lun, store, of, serial, naa, save } } => {
            let (serial, naa) = (serial.clone(), naa.clone());
            let body = DiskBody { store: store.clone(), serial, naa, new: true, ..DiskBody::default() };
            show(&asks.send("PUT", &format!("{}/disks/{lun}", asks.target(of)?), body)?)?;
            asks.save(*save)
        }
        Verb::Disk { verb: DiskVerb::Remove { lun, of, save } } => {
            show(&asks.delete(&format!("{}/disks/{lun}", asks.target(of)?))?)?;
            asks.save(*save)
        }
        Verb::Disk { verb: DiskVerb::Resize { lun, size, of, save } } => {
            let body = SizeBody { size: size.clone() };
            show(&asks.send("PUT", &format!("{}/disks/{lun}/size", asks.target(of)?), body)?)?;
            asks.save(*save)
        }
        Verb::Session { verb: SessionVerb::List } => show(&asks.get("/v1/sessions")?),
        Verb::Session { verb: SessionVerb::Drop { session } } => {
            let kind = if session.parse::<u64>().is_ok() { "sessions" } else { "initiators" };
            show(&asks.delete(&format!("/v1/{kind}/{}", encoded(session)))?)
        }
        Verb::Connections => show(&asks.get("/v1/connections")?),
        Verb::Reservations { verb: None | Some(ReservationVerb::Show) } => {
            show(&asks.get("/v1/reservations")?)
        }
        Verb::Reservations { verb: Some(ReservationVerb::Clear { lun, of }) } => {
            show(&asks.delete(&format!("{}/disks/{lun}/reservations", asks.target(of)?))?)
        }
        Verb::Access { verb: None | Some(AccessVerb::Show) } => show(&asks.get("/v1/access")?),
        Verb::Access { verb: Some(AccessVerb::Set { file, of, save }) } => {
            let word = file.to_str().filter(|word| ["open", "nobody"].contains(word));
            let rules = word.map_or_else(|| target_config::read_text(file), |word| Ok(word.to_owned()))?;
            show(&asks.send("PUT", &format!("{}/access", asks.target(of)?), AccessBody { rules })?)?;
            asks.save(*save)
        }
        Verb::Send { policy: None, .. } => show(&asks.get("/v1/send")?),
        Verb::Send { policy: Some(policy), save } => {
            show(&asks.send("PUT", "/v1/send", SendBody { policy: policy.clone() })?)?;
            asks.save(*save)
        }
        Verb::LogLevel { level: None } => show(&asks.get("/v1/log-level")?),
        Verb::LogLevel { level: Some(level) } => {
            show(&asks.send("PUT", "/v1/log-level", LogBody { level: level.clone() })?)
        }
        Verb::Reload => show(&asks.send("POST", "/v1/reload", json!({}))?),
        Verb::Apply { file, dry_run, save } => {
            let body = ApplyBody { config: target_config::read_text(file)?, dry_run: *dry_run };
            show(&asks.send("POST", "/v1/apply", body)?)?;
            asks.save(Save { save: save.save && !dry_run })
        }
        Verb::Config => {
            asks.ask("GET", "/v1/config", None)?
                .text
                .lines()
                .for_each(|line| print_line(format_args!("{line}")));
            Ok(())
        }
        Verb::Drain { patience } => {
            let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            show(&asks.send("POST", "/v1/drain", DrainBody { patience_ms })?)
        }
        Verb::Events => {
            let socket = asks.socket.display();
            let line = |line: &str| {
                match serde_json::from_str::<Value>(line) {
                    Ok(Value::Object(event)) if !args.json => {
                        let name = event.get("event").and_then(Value::as_str).unwrap_or_default();
                        let rest = event.iter().filter(|(key, _)| *key != "event" && *key != "time");
                        let rest: Vec<String> =
                            rest.map(|(key, value)| format!("{key}={}", plain(value))).collect();
                        print_line(format_args!("{name} {}", rest.join(" ")));
                    }
                    _ => print_line(format_args!("{line}")),
                }
                std::io::Write::flush(&mut std::io::stdout()).is_ok()
            };
            client::follow(&asks.socket, line).with_context(|| format!("{socket}: cannot follow the events"))
        }
    }
}

/// A value in a cell.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Array(all) if all.iter().all(|one| !one.is_object()) => {
            all.iter().map(plain).collect::<Vec<_>>().join(",")
        }
        Value::Array(all) => all.len().to_string(),
        other => other.to_string(),
    }
}

/// The columns of the lists, where not every field has one: the others are in the JSON.
const COLUMNS: [&[&str]; 6] = [
    &["target", "lun", "store", "bytes", "block_bytes", "read_only", "serial"],
    &["iqn", "groups", "disks", "sessions"],
    &["id", "target", "initiator", "user", "portal_group", "connections"],
    &["id", "peer", "target", "initiator_name", "send", "commands", "received_bytes", "sent_bytes", "sends"],
    &["target", "lun", "registrations", "holder", "reserved"],
    &["address", "group"],
];

/// Prints an answer: JSON, a table for a list, or names and values.
fn show(value: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return print_json_line(value).map_err(Failure::into_error);
    }
    match value {
        Value::Array(rows) if rows.is_empty() => print_line(format_args!("none")),
        Value::Array(rows) => {
            let has = |columns: &&&[&str]| columns.iter().all(|column| rows[0].get(column).is_some());
            let columns = COLUMNS.iter().find(has).copied().unwrap_or(&[]);
            let cells = rows.iter().map(|row| columns.iter().map(|column| plain(&row[*column])).collect());
            print_line(format_args!("{}", report::terminal::rows(columns, cells)));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Array(lines) => {
                        lines.iter().for_each(|line| print_line(format_args!("{}", entry(name, line))));
                    }
                    Value::Object(_) => {}
                    _ => print_line(format_args!("{name}: {}", plain(value))),
                }
            }
        }
        _ => print_line(format_args!("{}", plain(value))),
    }
    Ok(())
}

/// An entry of a list within an answer.
fn entry(name: &str, value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect();
            format!("{name}: {}", fields.join(", "))
        }
        _ if name == "changes" => plain(value),
        _ => format!("{name}: {}", plain(value)),
    }
}

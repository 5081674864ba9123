//! Limits by name, as in the file and on the command line.

use std::time::Duration;

use iscsi_target::TargetConfig;
use record::units::{parse_size, parse_time_ns};

/// A limit of a target.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its name.
    pub name: &'static str,
    set: fn(&mut TargetConfig, Value<'_>) -> Result<(), String>,
}

/// All limits.
pub static LIMITS: [Limit; 28] = [
    Limit {
        name: "connections",
        set: |config, value| {
            config.limits.connections = value.count()? as usize;
            Ok(())
        },
    },
    Limit {
        name: "connections_per_address",
        set: |config, value| {
            config.limits.connections_per_address = value.count()? as usize;
            Ok(())
        },
    },
    Limit {
        name: "logins",
        set: |config, value| {
            config.limits.logins = value.count()? as usize;
            Ok(())
        },
    },
    Limit {
        name: "sessions",
        set: |config, value| {
            config.limits.sessions = value.count()? as usize;
            Ok(())
        },
    },
    Limit {
        name: "accepts_per_second",
        set: |config, value| {
            config.limits.accepts_per_second = value.count()?;
            Ok(())
        },
    },
    Limit {
        name: "accepts_per_address",
        set: |config, value| {
            config.limits.accepts_per_address = value.count()?;
            Ok(())
        },
    },
    Limit {
        name: "window",
        set: |config, value| {
            config.limits.window = value.count()?;
            Ok(())
        },
    },
    Limit {
        name: "text_bytes",
        set: |config, value| {
            config.limits.text_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "memory_bytes",
        set: |config, value| {
            config.limits.memory_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "receive_bytes",
        set: |config, value| {
            config.limits.receive_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "gathered_bytes",
        set: |config, value| {
            config.limits.gathered_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "job_bytes",
        set: |config, value| {
            config.limits.job_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "disk_threads",
        set: |config, value| {
            config.limits.disk_threads = value.count()? as usize;
            Ok(())
        },
    },
    Limit {
        name: "abandoned_bytes",
        set: |config, value| {
            config.limits.abandoned_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "replay_bytes",
        set: |config, value| {
            config.limits.replay_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "lost_bytes",
        set: |config, value| {
            config.limits.lost_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "lost_sessions",
        set: |config, value| {
            config.limits.lost_sessions = value.count()? as usize;
            Ok(())
        },
    },
    Limit {
        name: "retain_time",
        set: |config, value| {
            config.limits.retain_time = value.time()?;
            Ok(())
        },
    },
    Limit {
        name: "unsent_bytes",
        set: |config, value| {
            config.limits.unsent_bytes = value.size()?;
            Ok(())
        },
    },
    Limit {
        name: "login_time",
        set: |config, value| {
            config.limits.login_time = value.time()?;
            Ok(())
        },
    },
    Limit {
        name: "ping_after",
        set: |config, value| {
            config.limits.ping_after = value.time()?;
            Ok(())
        },
    },
    Limit {
        name: "ping_answer",
        set: |config, value| {
            config.limits.ping_answer = value.time()?;
            Ok(())
        },
    },
    Limit {
        name: "segment_bytes",
        set: |config, value| {
            config.wishes.max_recv_bytes = value.length()?;
            Ok(())
        },
    },
    Limit {
        name: "burst_bytes",
        set: |config, value| {
            config.wishes.max_burst_bytes = value.length()?;
            Ok(())
        },
    },
    Limit {
        name: "first_burst_bytes",
        set: |config, value| {
            config.wishes.first_burst_bytes = value.length()?;
            Ok(())
        },
    },
    Limit {
        name: "r2ts",
        set: |config, value| {
            config.wishes.max_outstanding_r2t = value.number(1, 32)?;
            Ok(())
        },
    },
    Limit {
        name: "session_connections",
        set: |config, value| {
            config.wishes.max_connections = value.number(1, 64)? as u16;
            Ok(())
        },
    },
    Limit {
        name: "recovery_level",
        set: |config, value| {
            config.wishes.error_recovery_level = value.number(0, 2)? as u8;
            Ok(())
        },
    },
];

/// The text of a value.
#[derive(Clone, Copy)]
struct Value<'a>(&'a str);

impl Value<'_> {
    fn count(self) -> Result<u32, String> {
        let count: u32 = self.0.parse().map_err(|_| "write a whole number".to_owned())?;
        within(count, 1..=1 << 20, || format!("use 1 to {}", 1 << 20))
    }

    fn size(self) -> Result<usize, String> {
        let size = parse_size(self.0).map_err(|error| error.to_string())?;
        within(size as usize, 1 << 10..=1 << 32, || "use 1KiB to 4GiB".to_owned())
    }

    fn time(self) -> Result<Duration, String> {
        parse_time_ns(self.0).map(Duration::from_nanos).map_err(|error| error.to_string())
    }

    /// Parses a length in bytes, within the range of RFC 7143 13.
    fn length(self) -> Result<u32, String> {
        let size = parse_size(self.0).map_err(|error| error.to_string())?;
        within(size, 512..=(1 << 24) - 1, || "use 512 to 16777215".to_owned()).map(|size| size as u32)
    }

    fn number(self, least: u32, most: u32) -> Result<u32, String> {
        let wrong = || format!("use {least} to {most}");
        within(self.0.parse().map_err(|_| wrong())?, least..=most, wrong)
    }
}

fn within<T: PartialOrd>(
    value: T,
    range: std::ops::RangeInclusive<T>,
    wrong: impl Fn() -> String,
) -> Result<T, String> {
    if range.contains(&value) { Ok(value) } else { Err(wrong()) }
}

/// Sets one limit by its name.
///
/// # Errors
/// When the limit does not exist or the value is invalid.
pub fn set(config: &mut TargetConfig, name: &str, value: &str) -> anyhow::Result<()> {
    let Some(limit) = LIMITS.iter().find(|limit| limit.name == name) else {
        let names: Vec<&str> = LIMITS.iter().map(|limit| limit.name).collect();
        anyhow::bail!("'{name}' is not a limit; use {}", names.join(", "));
    };
    (limit.set)(config, Value(value)).map_err(|error| anyhow::anyhow!("limit {name}={value}: {error}"))
}

//! The tables of a model file, as they are written.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    #[serde(default)]
    pub(super) ring: RingTable,
    #[serde(default)]
    pub(super) wire: WireTable,
    #[serde(default)]
    pub(super) stage: Vec<StageTable>,
    pub(super) saturated: Option<SaturatedTable>,
    pub(super) depth_one: Option<DepthOneTable>,
    pub(super) copy: Option<CopyTable>,
    pub(super) post: Option<PostTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct RingTable {
    pub(super) block_size: String,
    pub(super) operation: String,
    pub(super) queue_depth: u32,
    pub(super) sessions: u32,
    pub(super) nagle: bool,
    pub(super) flush: bool,
    pub(super) client_nagle: bool,
    pub(super) sends: u32,
    /// The client's.
    pub(super) ack_delay: String,
    pub(super) server_ack_delay: String,
    pub(super) think: String,
    pub(super) coalescing: String,
    pub(super) slow: String,
}

impl Default for RingTable {
    fn default() -> Self {
        Self {
            block_size: "512".into(),
            operation: "read".into(),
            queue_depth: 1,
            sessions: 1,
            nagle: false,
            flush: false,
            client_nagle: false,
            sends: 1,
            ack_delay: "40ms".into(),
            server_ack_delay: "40ms".into(),
            think: "0us".into(),
            coalescing: "off".into(),
            slow: "off".into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct WireTable {
    pub(super) bandwidth: String,
    pub(super) mtu: u32,
    pub(super) ip: u32,
    pub(super) timestamps: bool,
    pub(super) vlan: bool,
    pub(super) digests: String,
    pub(super) paced: bool,
}

impl Default for WireTable {
    fn default() -> Self {
        Self {
            bandwidth: "1gbit".into(),
            mtu: 9000,
            ip: 4,
            timestamps: true,
            vlan: false,
            digests: "none".into(),
            paced: false,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct StageTable {
    pub(super) name: String,
    pub(super) service: Option<String>,
    pub(super) latency: Option<String>,
    pub(super) resource: Option<String>,
    #[serde(default)]
    pub(super) paced: bool,
    #[serde(default)]
    pub(super) interrupt: bool,
    pub(super) per_packet_received: Option<String>,
    pub(super) per_packet_sent: Option<String>,
}

/// CPU shares (`52%`) with the IOPS at which they were read, or times per operation (`8.3us`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SaturatedTable {
    pub(super) iops: Option<String>,
    pub(super) server_thread: String,
    pub(super) server_softirq: Option<String>,
    pub(super) server_transmit: Option<String>,
    pub(super) client_thread: String,
    pub(super) client_softirq: Option<String>,
    pub(super) client_transmit: Option<String>,
    pub(super) server_packet_received: Option<String>,
    pub(super) server_packet_sent: Option<String>,
    pub(super) client_packet_received: Option<String>,
    pub(super) client_packet_sent: Option<String>,
    #[serde(default)]
    pub(super) cpus: Cpus,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cpus {
    /// Softirq and thread of a side on one CPU.
    #[default]
    Shared,
    /// Softirq and thread on one CPU, transmit work on another.
    TransmitApart,
    /// Each on its own.
    Own,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DepthOneTable {
    pub(super) rtt: String,
    #[serde(rename = "c2-c1")]
    pub(super) outside_client: String,
    #[serde(rename = "s2-s1")]
    pub(super) server: String,
    /// Only where both sides share a clock.
    #[serde(rename = "s1-c1")]
    pub(super) request_path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CopyTable {
    pub(super) unit: String,
    pub(super) measured: Vec<MeasuredTable>,
    #[serde(default)]
    pub(super) predict: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MeasuredTable {
    pub(super) unit: String,
    pub(super) megabytes_per_second: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PostTable {
    pub(super) rest: String,
    pub(super) gap: String,
    pub(super) ack_delay: String,
}

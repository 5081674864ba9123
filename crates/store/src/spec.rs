//! Stores, and layers over them, as people write them: `ram:1G`, `zero:1T,bs=4k,readonly`, `file:/srv/disk,size=10G`,
//! `nbd://host/export`, `rbd:pool/image`.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ::nbd::{Address, AddressError};
use nix::fcntl::OFlag;
use record::units::{UnitError, parse_size, parse_time_ns};
use thiserror::Error;

use crate::claim::{self, Mode};
use crate::file::{Engine, OpenOptions};
use crate::layer::LayerSpec;
use crate::nbd::{CONNECTIONS_MAX, NbdOptions};
use crate::operation::Operation;
use crate::rbd::{ImageAddress, ImageAddressError, RbdOptions};
use crate::{
    Done, Ended, FileStore, NbdStore, Owner, Ram, RbdStore, Request, Store, StoreError, Ticket, Zero,
};

/// The default logical block length, bytes.
pub const BLOCK_BYTES_DEFAULT: u32 = 512;

/// Longest time for which requests are kept without a connection.
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// Which bytes a disk has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Zeros.
    Zero {
        /// Size, bytes.
        size_bytes: u64,
    },
    /// Memory.
    Ram {
        /// Size, bytes.
        size_bytes: u64,
    },
    /// A file, or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// Size, bytes; by default the file's own length (`size=10G`).
        size_bytes: Option<u64>,
        /// Past the page cache (`direct`).
        direct: bool,
        /// It is a block device (`dev:`).
        device: bool,
        /// Who waits for the disk (`engine=ring`, `engine=threads`).
        engine: Engine,
        /// Other disks and processes may use it at the same time (`shared=yes`).
        shared: bool,
    },
    /// An export of an NBD server.
    Nbd {
        /// Where it is (`nbd://HOST[:PORT]/EXPORT`).
        address: Address,
        /// How it is opened (`connections=4`, `hold=20s`).
        how: NbdOptions,
    },
    /// An image of a Ceph cluster.
    Rbd {
        /// Which one (`rbd:POOL/IMAGE`).
        address: ImageAddress,
        /// How it is opened (`conf=/etc/ceph/ceph.conf`, `id=admin`, `shared=yes`).
        how: RbdOptions,
    },
}

/// A store and how its disk presents it: `kind:argument[,option[=value]]...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// Which bytes.
    pub kind: StoreKind,
    /// Refuse writes (`readonly`).
    pub read_only: bool,
    /// The medium can be ejected and loaded (`removable`).
    pub removable: bool,
    /// Logical and physical block length are those of the device beneath, where it has any.
    pub own_blocks: bool,
    /// Logical block length, bytes (`bs=512` or `bs=4k`).
    pub block_bytes: u32,
    /// Physical block length, bytes (`pbs=4k`): what the disk says is best written together.
    pub physical_bytes: u32,
    /// Layers over it, the first one nearest to the store.
    pub layers: Vec<LayerSpec>,
}

/// A store that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Nothing before the colon, or no colon.
    #[error(
        "'{0}' is not a store; write ram:SIZE, zero:SIZE, file:PATH, dev:PATH, nbd://HOST/EXPORT or rbd:POOL/IMAGE, such as ram:1G"
    )]
    Form(String),
    /// A kind that does not exist.
    #[error("'{0}' is not a kind of store; use ram, zero, file, dev, nbd or rbd")]
    Kind(String),
    /// The address of an export cannot be read.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The name of an image cannot be read.
    #[error(transparent)]
    Image(#[from] ImageAddressError),
    /// The size cannot be read.
    #[error("size: {0}")]
    Size(#[from] UnitError),
    /// The size is not possible.
    #[error("size {given} B: {allowed}")]
    SizeRange {
        /// The given size.
        given: u64,
        /// The sizes that are possible.
        allowed: String,
    },
    /// An option that does not exist, or a value that it cannot have.
    #[error(
        "option '{0}' is not known; use readonly, removable, bs=512, bs=4k, pbs=4k, for a file size=10G, for a file or device direct, engine=ring, engine=threads or shared=yes, for nbd connections=1 to 16 or hold=20s, for rbd conf=PATH, id=NAME or shared=yes, \
         or a layer: delay=1ms, work=10us, extra=119us[:every=5|share=0.3|rise=105ms|fall=105ms][:time=1s-2s|ops=1000-2000], iops=500, bandwidth=100M, \
         error=read|write|unmap|flush[:RATE[:FROM-TO[:FAULT]]], stats, log"
    )]
    Option(String),
    /// An option that was given before.
    #[error("option '{0}' is given twice; give it once")]
    Repeated(String),
}

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let form = || SpecError::Form(text.to_owned());
        let (kind, rest) = text.split_once(':').filter(|(kind, _)| !kind.is_empty()).ok_or_else(form)?;
        let mut parts = rest.split(',');
        let first = parts.next().filter(|s| !s.is_empty()).ok_or_else(form)?;
        let is_remote = matches!(kind, "nbd" | "nbds" | "nbd+unix" | "nbds+unix");
        let is_image = kind == "rbd";
        let maximum = match kind {
            "zero" | "null" | "file" | "dev" => i64::MAX as u64,
            _ if is_remote || is_image => i64::MAX as u64,
            "ram" => crate::ram::RAM_BYTES_MAX,
            other => return Err(SpecError::Kind(other.to_owned())),
        };
        let (is_path, mut direct, mut engine) = (matches!(kind, "file" | "dev"), false, None);
        let mut shared = false;
        let address = is_remote.then(|| format!("{kind}:{first}").parse::<Address>()).transpose()?;
        let (mut connections, mut hold) = (None, None);
        let image = is_image.then(|| first.parse::<ImageAddress>()).transpose()?;
        let (mut conf, mut id) = (None, None);
        let mut size_bytes = if is_path || is_remote || is_image { None } else { Some(parse_size(first)?) };
        let (mut read_only, mut removable, mut block_bytes, mut physical_bytes) = (false, false, None, None);
        let mut layers = Vec::new();
        for option in parts {
            match option.split_once('=') {
                // Which of two values was meant is not for us to guess.
                None if (option == "readonly" && read_only) || (option == "removable" && removable) => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("bs", _)) if block_bytes.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("pbs", _)) if physical_bytes.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("size", value)) if kind == "file" => match size_bytes {
                    Some(_) => return Err(SpecError::Repeated(option.to_owned())),
                    None => size_bytes = Some(parse_size(value)?),
                },
                Some(("engine", _)) if is_path && engine.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("engine", "ring")) if is_path => engine = Some(Engine::Ring),
                Some(("engine", "threads")) if is_path => engine = Some(Engine::Threads),
                Some(("conf", _)) if is_image && conf.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("conf", path)) if is_image && !path.is_empty() => conf = Some(path.to_owned()),
                Some(("id", _)) if is_image && id.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("id", name)) if is_image && !name.is_empty() => id = Some(name.to_owned()),
                Some(("shared", "yes")) if (is_path || is_image) && shared => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("shared", "yes")) if is_path || is_image => shared = true,
                Some(("connections", _)) if is_remote && connections.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("connections", value)) if is_remote => match value.parse() {
                    Ok(count @ 1..=CONNECTIONS_MAX) => connections = Some(count),
                    _ => return Err(SpecError::Option(option.to_owned())),
                },
                Some(("hold", _)) if is_remote && hold.is_some() => {
                    return Err(SpecError::Repeated(option.to_owned()));
                }
                Some(("hold", value)) if is_remote => match parse_time_ns(value).map(Duration::from_nanos) {
                    Ok(time) if time <= HOLD_MAX => hold = Some(time),
                    _ => return Err(SpecError::Option(option.to_owned())),
                },
                None if option == "direct" && is_path && !direct => direct = true,
                None if option == "readonly" => read_only = true,
                None if option == "removable" => removable = true,
                Some(("pbs", value)) => match parse_size(value) {
                    Ok(bytes @ (512 | 4096)) => physical_bytes = Some(bytes as u32),
                    _ => return Err(SpecError::Option(option.to_owned())),
                },
                Some(("bs", value)) => match parse_size(value) {
                    Ok(bytes @ (512 | 4096)) => block_bytes = Some(bytes as u32),
                    _ => return Err(SpecError::Option(option.to_owned())),
                },
                _ => layers.push(option.parse().map_err(|()| SpecError::Option(option.to_owned()))?),
            }
        }
        let own_blocks = block_bytes.is_none() && physical_bytes.is_none();
        let block_bytes = block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
        let physical_bytes = physical_bytes.unwrap_or(block_bytes).max(block_bytes);
        if let Some(given) =
            size_bytes.filter(|&n| n == 0 || !n.is_multiple_of(block_bytes.into()) || n > maximum)
        {
            let allowed = format!(
                "a multiple of {block_bytes} B, at least one, at most {maximum} B is possible for {kind}"
            );
            return Err(SpecError::SizeRange { given, allowed });
        }
        if let Some(address) = address {
            let default = NbdOptions::default();
            let how = NbdOptions {
                connections: connections.unwrap_or(default.connections),
                hold: hold.unwrap_or(default.hold),
            };
            let kind = StoreKind::Nbd { address, how };
            return Ok(Self { kind, read_only, removable, own_blocks, block_bytes, physical_bytes, layers });
        }
        if let Some(address) = image {
            let default = RbdOptions::default();
            let how = RbdOptions { conf: conf.unwrap_or(default.conf), id: id.unwrap_or(default.id), shared };
            let kind = StoreKind::Rbd { address, how };
            return Ok(Self { kind, read_only, removable, own_blocks, block_bytes, physical_bytes, layers });
        }
        let kind = match (kind, size_bytes) {
            ("zero" | "null", Some(size_bytes)) => StoreKind::Zero { size_bytes },
            ("ram", Some(size_bytes)) => StoreKind::Ram { size_bytes },
            (_, size_bytes) => {
                let (device, engine) = (kind == "dev", engine.unwrap_or_default());
                StoreKind::File { path: first.into(), size_bytes, direct, device, engine, shared }
            }
        };
        Ok(Self { kind, read_only, removable, own_blocks, block_bytes, physical_bytes, layers })
    }
}

impl StoreSpec {
    /// Its size, bytes, where it says one.
    #[must_use]
    pub fn size_bytes(&self) -> Option<u64> {
        match self.kind {
            StoreKind::Zero { size_bytes } | StoreKind::Ram { size_bytes } => Some(size_bytes),
            StoreKind::File { size_bytes, .. } => size_bytes,
            StoreKind::Nbd { .. } | StoreKind::Rbd { .. } => None,
        }
    }

    /// The same with another size.
    #[must_use]
    pub fn resized(&self, size_bytes: u64) -> Self {
        let kind = match &self.kind {
            // Its server decides.
            StoreKind::Nbd { .. } | StoreKind::Rbd { .. } => self.kind.clone(),
            StoreKind::Zero { .. } => StoreKind::Zero { size_bytes },
            StoreKind::Ram { .. } => StoreKind::Ram { size_bytes },
            StoreKind::File { path, direct, device, engine, shared, .. } => StoreKind::File {
                path: path.clone(),
                size_bytes: Some(size_bytes),
                direct: *direct,
                device: *device,
                engine: *engine,
                shared: *shared,
            },
        };
        Self { kind, ..self.clone() }
    }

    /// Checks that no other process uses its file, and names the one that does. [`StoreSpec::open`] checks that too, but
    /// a process that has dropped its privileges by then cannot see which process uses a file.
    ///
    /// # Errors
    /// When another process uses the file.
    pub fn check_unused(&self) -> Result<(), StoreError> {
        let StoreKind::File { path, shared, .. } = &self.kind else { return Ok(()) };
        let mode = if self.read_only || *shared { Mode::Shared } else { Mode::Exclusive };
        let mut options = std::fs::OpenOptions::new();
        // A file that cannot be opened is reported when the store is opened.
        let Ok(file) = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path) else {
            return Ok(());
        };
        let name = path.display().to_string();
        claim::check(&file, mode).map_err(|error| StoreError::Io { name, error })
    }

    /// Finds the address of its server and reads its certificates, which [`StoreSpec::open`] then uses: a process that is confined
    /// by then cannot.
    ///
    /// # Errors
    /// When the name has no address, or a certificate cannot be read.
    pub fn look_up(&self) -> Result<(), StoreError> {
        match &self.kind {
            StoreKind::Nbd { address, .. } => crate::nbd::look_up(address),
            _ => Ok(()),
        }
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`StoreSpec::open_for`].
    pub fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        self.open_for(&Owner::new("a disk"))
    }

    /// Opens the store for the disk that owns it.
    ///
    /// # Errors
    /// When the file cannot be opened, or is in use.
    pub fn open_for(&self, owner: &Arc<Owner>) -> Result<Arc<dyn Store>, StoreError> {
        let store: Arc<dyn Store> = match &self.kind {
            StoreKind::Zero { size_bytes } => Arc::new(Zero::new(*size_bytes)),
            StoreKind::Ram { size_bytes } => Arc::new(Ram::new(*size_bytes)),
            StoreKind::Nbd { address, how } => Arc::new(NbdStore::open(address, *how)?),
            StoreKind::Rbd { address, how } => Arc::new(RbdStore::open(address, how, self.read_only)?),
            StoreKind::File { path, size_bytes, direct, device, engine, shared } => {
                let how = OpenOptions {
                    size_bytes: *size_bytes,
                    read_only: self.read_only,
                    direct: *direct,
                    device: *device,
                    engine: *engine,
                    shared: *shared,
                };
                Arc::new(FileStore::open_for(path, how, owner)?)
            }
        };
        let store = self.layers.iter().fold(store, |store, layer| {
            let name = store.kind();
            layer.over(store, name)
        });
        Ok(if self.read_only { Arc::new(ReadOnly(store)) } else { store })
    }
}

/// Any store, writes refused.
struct ReadOnly(Arc<dyn Store>);

impl Store for ReadOnly {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn has_volatile_cache(&self) -> bool {
        false
    }
    fn lasting_name(&self) -> Option<String> {
        self.0.lasting_name()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        self.0.read_at(offset, buffer)
    }
    fn foresee(&self, offset: u64, length: usize) {
        self.0.foresee(offset, length);
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }
    fn buffer(&self, length: usize) -> crate::Buffer {
        self.0.buffer(length)
    }
    fn try_buffer(&self, length: usize) -> Result<crate::Buffer, StoreError> {
        self.0.try_buffer(length)
    }
    fn takes(&self, request: &Request) -> bool {
        !request.writes() && self.0.takes(request)
    }
    fn begin(&self, request: Request, done: Done) -> Ticket {
        if request.writes() {
            done(Ended::new(Err(StoreError::ReadOnly), request));
            return Ticket::default();
        }
        self.0.begin(request, done)
    }
    fn may_wait(&self, operation: Operation) -> bool {
        self.0.may_wait(operation)
    }
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        self.0.read_now(offset, buffer)
    }
    fn borrow(&self, offset: u64, length: usize) -> Result<Option<Vec<borrowed::Borrowed>>, StoreError> {
        self.0.borrow(offset, length)
    }
    fn statistics(&self) -> Vec<crate::layer::Passed> {
        self.0.statistics()
    }
    fn geometry(&self) -> Option<crate::Geometry> {
        self.0.geometry()
    }
    fn limits(&self) -> crate::Limits {
        self.0.limits()
    }
    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        self.0.is_mapped(offset)
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }
    fn zero(&self, _: u64, _: u64) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }
    fn compare_and_write(&self, _: u64, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }
    fn can_resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.0.can_resize(size_bytes)
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.0.resize(size_bytes)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_panics_and_parsed_specs_are_valid(
            text in "(zero|ram|disk|)(:|)([0-9]{0,20}[kmgtpxKMGT]?(iB|B|)|.*)(,(readonly|bs=512|bs=4k|bs=4KiB|bs=|.*)){0,3}"
        ) {
            if let Ok(spec) = text.parse::<StoreSpec>() {
                if let StoreKind::File { .. } = spec.kind { return Ok(()); }
                let size = spec.open().unwrap().size_bytes();
                prop_assert!(size > 0 && size.is_multiple_of(spec.block_bytes.into()));
            }
        }
    }

    #[test]
    fn store_specs_round_trip() {
        let spec: StoreSpec = "ram:1G".parse().unwrap();
        assert_eq!(
            spec,
            StoreSpec {
                kind: StoreKind::Ram { size_bytes: 1 << 30 },
                read_only: false,
                removable: false,
                own_blocks: true,
                block_bytes: 512,
                physical_bytes: 512,
                layers: Vec::new(),
            }
        );
        let spec: StoreSpec = "zero:1T,bs=4k,readonly".parse().unwrap();
        assert_eq!((spec.block_bytes, spec.read_only), (4096, true));
        let store = spec.open().unwrap();
        assert_eq!((store.size_bytes(), store.is_read_only()), (1 << 40, true));
        assert_eq!(store.write_at(0, &[1]), Err(StoreError::ReadOnly));
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, named) in [
            ("ram", "'ram' is not a store"),
            (":1G", "is not a store"),
            ("ram:", "is not a store"),
            ("floppy:1M", "'floppy'"),
            ("ram:1Q", "'q'"),
            ("ram:0", "size 0"),
            ("ram:513", "multiple of 512"),
            ("ram:512,bs=4k", "multiple of 4096"),
            ("ram:2T", "at most"),
            ("ram:1G,fast", "'fast'"),
            ("ram:1G,size=1G", "'size=1G'"),
            ("file:", "is not a store"),
            ("file:/a,size=1M,size=2M", "given twice"),
            ("file:/a,size=513", "multiple of 512"),
            ("ram:1G,bs=1k", "'bs=1k'"),
            ("ram:1G,bs", "'bs'"),
            ("ram:1G,", "''"),
            ("ram:1G,readonly=1", "'readonly=1'"),
            ("ram:1G,bs=512,bs=4k", "'bs=4k' is given twice"),
            ("ram:1G,readonly,readonly", "'readonly' is given twice"),
            ("ram:1G,removable,removable", "'removable' is given twice"),
            ("ram:1G,delay=soon", "'delay=soon'"),
            ("ram:1G,shared=yes", "'shared=yes'"),
            ("file:/a,shared=no", "'shared=no'"),
            ("file:/a,shared=yes,shared=yes", "given twice"),
        ] {
            let error = text.parse::<StoreSpec>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}

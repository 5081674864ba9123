//! Names of programs' procedures, of the operations of NFS 4, and of what NFS answers.

use record::{Status, Word};

use super::xdr::Xdr;

/// RPCSEC_GSS, among the flavors of authentication.
pub(super) const GSS: u32 = 6;
/// Callbacks have a number of the client's choice (RFC 5531 8.2).
const TRANSIENT: u32 = 0x4000_0000;
/// Longest name of a file, and of a compound's tag.
const NAME_MAX: u32 = 1024;
/// Longest file handle of NFS 4.
const HANDLE_MAX: u32 = 128;
/// Most words of a set of attributes.
const BITMAP_MAX: u32 = 8;
/// Most operations of a compound that are read.
const OPERATIONS_MAX: u32 = 64;

/// Procedures of NFS 3 (RFC 1813).
const V3: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// Operations of NFS 4 from the third on (RFC 7531, RFC 5662, RFC 7863, RFC 8276), shortened to fifteen letters.
const V4: [&str; 73] = [
    "ACCESS",
    "CLOSE",
    "COMMIT",
    "CREATE",
    "DELEGPURGE",
    "DELEGRETURN",
    "GETATTR",
    "GETFH",
    "LINK",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "LOOKUP",
    "LOOKUPP",
    "NVERIFY",
    "OPEN",
    "OPENATTR",
    "OPEN_CONFIRM",
    "OPEN_DOWNGRADE",
    "PUTFH",
    "PUTPUBFH",
    "PUTROOTFH",
    "READ",
    "READDIR",
    "READLINK",
    "REMOVE",
    "RENAME",
    "RENEW",
    "RESTOREFH",
    "SAVEFH",
    "SECINFO",
    "SETATTR",
    "SETCLIENTID",
    "SETCLIENTID_CFM",
    "VERIFY",
    "WRITE",
    "RELEASE_LOCK",
    "BACKCHANNEL_CTL",
    "BIND_CONN",
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "DESTROY_SESSION",
    "FREE_STATEID",
    "GET_DIR_DELEG",
    "GETDEVICEINFO",
    "GETDEVICELIST",
    "LAYOUTCOMMIT",
    "LAYOUTGET",
    "LAYOUTRETURN",
    "SECINFO_NO_NAME",
    "SEQUENCE",
    "SET_SSV",
    "TEST_STATEID",
    "WANT_DELEGATION",
    "DESTROY_CLIENT",
    "RECLAIM_DONE",
    "ALLOCATE",
    "COPY",
    "COPY_NOTIFY",
    "DEALLOCATE",
    "IO_ADVISE",
    "LAYOUTERROR",
    "LAYOUTSTATS",
    "OFFLOAD_CANCEL",
    "OFFLOAD_STATUS",
    "READ_PLUS",
    "SEEK",
    "WRITE_SAME",
    "CLONE",
    "GETXATTR",
    "SETXATTR",
    "LISTXATTRS",
    "REMOVEXATTR",
];

/// Operations of the callbacks of NFS 4 from the third on.
const CALLBACKS: [&str; 13] = [
    "CB_GETATTR",
    "CB_RECALL",
    "CB_LAYOUTRECALL",
    "CB_NOTIFY",
    "CB_PUSH_DELEG",
    "CB_RECALL_ANY",
    "CB_RECALLABLE",
    "CB_RECALL_SLOT",
    "CB_SEQUENCE",
    "CB_WANTS_GONE",
    "CB_NOTIFY_LOCK",
    "CB_NOTIFY_DEV",
    "CB_OFFLOAD",
];

fn word(text: &str) -> Word {
    Word::new(text.as_bytes())
}

/// The name of a call, whose arguments are given if they can be read.
pub(super) fn name(program: u32, version: u32, procedure: u32, arguments: Option<Xdr<'_>>) -> Word {
    let program_name = match (program, version, procedure) {
        (100_003, 3 | 4, 0) => return word("NULL"),
        (100_003, 3, _) => match V3.get(procedure as usize) {
            Some(name) => return word(name),
            None => "nfs",
        },
        (100_003, 4, 1) => return compound(arguments, &V4, 8).unwrap_or(word("COMPOUND")),
        (TRANSIENT.., _, 0) => return word("CB_NULL"),
        (TRANSIENT.., _, 1) => return compound(arguments, &CALLBACKS, 12).unwrap_or(word("CB_COMPOUND")),
        (100_000, ..) => "portmap",
        (100_003, ..) => "nfs",
        (100_005, ..) => "mount",
        (100_011, ..) => "rquota",
        (100_021, ..) => "nlm",
        (100_024, ..) => "nsm",
        (100_227, ..) => "nfsacl",
        _ => return word(&format!("{program}v{version}/{procedure}")),
    };
    word(&format!("{program_name}{version}/{procedure}"))
}

/// The most significant operation of a compound, of whose header so many bytes are between its tag and its operations' number.
fn compound(arguments: Option<Xdr<'_>>, names: &[&str], header: usize) -> Option<Word> {
    let mut xdr = arguments?;
    xdr.opaque(NAME_MAX)?;
    xdr.skip(header - 4)?;
    let count = xdr.u32()?;
    let mut best: Option<(u8, &str)> = None;
    for _ in 0..count.min(OPERATIONS_MAX) {
        let Some(name) = next(&mut xdr, names) else { break };
        let weight = weight(name);
        if best.is_none_or(|(most, _)| weight >= most) {
            best = Some((weight, name));
        }
        if skip(name, &mut xdr).is_none() {
            break;
        }
    }
    best.map(|(_, name)| word(name))
}

fn next<'a>(xdr: &mut Xdr<'_>, names: &[&'a str]) -> Option<&'a str> {
    names.get(xdr.u32()?.checked_sub(3)? as usize).copied()
}

/// How much an operation says about what is asked for: those that only prepare others say little.
fn weight(name: &str) -> u8 {
    match name {
        "SEQUENCE" | "CB_SEQUENCE" | "PUTFH" | "PUTROOTFH" | "PUTPUBFH" | "SAVEFH" | "RESTOREFH" => 0,
        "GETFH" => 1,
        "GETATTR" => 2,
        "ACCESS" | "LOOKUP" | "LOOKUPP" => 3,
        _ => 4,
    }
}

/// Skips the arguments of an operation, if it is of those that only prepare others; behind others nothing says more.
fn skip(name: &str, xdr: &mut Xdr<'_>) -> Option<()> {
    match name {
        "SEQUENCE" => xdr.skip(32),
        // The calls that it refers to are none, or the name is that of the sequence.
        "CB_SEQUENCE" => {
            xdr.skip(32)?;
            (xdr.u32()? == 0).then_some(())
        }
        "PUTFH" => xdr.opaque(HANDLE_MAX).map(drop),
        "PUTROOTFH" | "PUTPUBFH" | "SAVEFH" | "RESTOREFH" | "GETFH" | "LOOKUPP" => Some(()),
        "GETATTR" => {
            let words = xdr.u32().filter(|&words| words <= BITMAP_MAX)?;
            xdr.skip(words as usize * 4)
        }
        "ACCESS" => xdr.skip(4),
        "LOOKUP" => xdr.opaque(NAME_MAX).map(drop),
        _ => None,
    }
}

/// Whether the results of an operation begin with a status of NFS.
pub(super) fn has_status(operation: Word) -> bool {
    match operation.as_str() {
        "NULL" | "CB_NULL" => false,
        "mount3/1" => true,
        name => name.starts_with(|first: char| first.is_ascii_uppercase()),
    }
}

/// The status of NFS (RFC 1813 2.6, RFC 7530 13).
pub(super) fn status(number: u32) -> Status {
    let name = match number {
        0 => return Status::Good,
        1 => "PERM",
        2 => "NOENT",
        5 => "IO",
        13 => "ACCESS",
        17 => "EXIST",
        20 => "NOTDIR",
        21 => "ISDIR",
        22 => "INVAL",
        27 => "FBIG",
        28 => "NOSPC",
        30 => "ROFS",
        66 => "NOTEMPTY",
        69 => "DQUOT",
        70 => "STALE",
        10_001 => "BADHANDLE",
        10_004 => "NOTSUPP",
        10_006 => "SERVERFAULT",
        10_008 => "DELAY",
        10_010 => "DENIED",
        10_011 => "EXPIRED",
        10_013 => "GRACE",
        10_018 => "RESOURCE",
        other => return Status::Code(other),
    };
    Status::Error(word(name))
}

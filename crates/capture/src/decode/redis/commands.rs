//! The commands of Redis: which there are, and which have a key.

use std::collections::HashSet;
use std::sync::LazyLock;

use record::Word;

use crate::decode::Shown;
use crate::decode::keys::UNKNOWN;

/// Commands whose first argument is a key or a channel.
const WITH_KEY: &str = "
    APPEND BITCOUNT BITFIELD BITFIELD_RO BITPOS BLMOVE BLPOP BRPOP BRPOPLPUSH BZPOPMAX BZPOPMIN COPY DECR DECRBY DEL
    DUMP EXISTS EXPIRE EXPIREAT EXPIRETIME GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEOSEARCH GET GETBIT GETDEL GETEX
    GETRANGE GETSET HDEL HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HRANDFIELD HSCAN HSET HSETNX
    HSTRLEN HVALS INCR INCRBY INCRBYFLOAT LINDEX LINSERT LLEN LMOVE LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MGET
    MOVE MSET MSETNX PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PFCOUNT PFMERGE PSETEX PSUBSCRIBE PTTL PUBLISH
    PUNSUBSCRIBE RENAME RENAMENX RESTORE RPOP RPOPLPUSH RPUSH RPUSHX SADD SCARD SDIFF SDIFFSTORE SET SETBIT SETEX SETNX
    SETRANGE SINTER SINTERSTORE SISMEMBER SMEMBERS SMISMEMBER SMOVE SORT SORT_RO SPOP SPUBLISH SRANDMEMBER SREM SSCAN
    SSUBSCRIBE STRLEN SUBSCRIBE SUBSTR SUNION SUNIONSTORE SUNSUBSCRIBE TOUCH TTL TYPE UNLINK UNSUBSCRIBE WATCH XACK XADD
    XAUTOCLAIM XCLAIM XDEL XLEN XPENDING XRANGE XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZINCRBY ZLEXCOUNT ZMSCORE
    ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK
    ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE
";
/// The others.
const WITHOUT_KEY: &str = "
    ACL AUTH BGREWRITEAOF BGSAVE BLMPOP BZMPOP CLIENT CLUSTER COMMAND CONFIG DBSIZE DEBUG DISCARD ECHO EVAL EVALSHA
    EVALSHA_RO EVAL_RO EXEC FAILOVER FCALL FCALL_RO FLUSHALL FLUSHDB FUNCTION HELLO INFO KEYS LASTSAVE LATENCY LMPOP
    LOLWUT MEMORY MIGRATE MODULE MONITOR MULTI OBJECT PING PSYNC PUBSUB QUIT RANDOMKEY READONLY READWRITE REPLCONF
    REPLICAOF RESET ROLE SAVE SCAN SCRIPT SELECT SHUTDOWN SINTERCARD SLAVEOF SLOWLOG SWAPDB SYNC TIME UNWATCH WAIT
    WAITAOF XGROUP XINFO XREAD XREADGROUP ZDIFF ZINTER ZINTERCARD ZMPOP ZUNION
";
/// Those that are answered when there is something to take, when replicas have acknowledged, or when a time is over.
const BLOCKING: [Word; 10] = [
    Word::new(b"BLMOVE"),
    Word::new(b"BLMPOP"),
    Word::new(b"BLPOP"),
    Word::new(b"BRPOP"),
    Word::new(b"BRPOPLPUSH"),
    Word::new(b"BZMPOP"),
    Word::new(b"BZPOPMAX"),
    Word::new(b"BZPOPMIN"),
    Word::new(b"WAIT"),
    Word::new(b"WAITAOF"),
];
/// Those that do so if one of their options says it.
const BLOCKING_IF_TOLD: [Word; 2] = [Word::new(b"XREAD"), Word::new(b"XREADGROUP")];
/// Those that people and load tools write on a line of their own.
const INLINE: [&str; 12] = [
    "AUTH", "CONFIG", "DBSIZE", "ECHO", "FLUSHALL", "FLUSHDB", "GET", "INCR", "INFO", "PING", "SELECT", "SET",
];

/// Modules, whose commands have the module's name before a dot: JSON.GET.
const MODULES: [&str; 14] =
    ["AI", "BF", "CF", "CMS", "CROARING", "FT", "GEARS", "GRAPH", "JSON", "R", "RG", "TDIGEST", "TOPK", "TS"];

type Words = HashSet<Word, foldhash::fast::FixedState>;

fn words(names: &str) -> Words {
    names.split_whitespace().map(|name| Word::new(name.as_bytes())).collect()
}

static KEYED: LazyLock<Words> = LazyLock::new(|| words(WITH_KEY));
static OTHERS: LazyLock<Words> = LazyLock::new(|| words(WITHOUT_KEY));

/// Whether it is a command of Redis.
pub(super) fn is_known(command: Word) -> bool {
    KEYED.contains(&command) || OTHERS.contains(&command)
}

/// Whether it is a command of a module.
fn is_of_module(command: Word) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'.'))
    };
    command.as_str().split_once('.').is_some_and(|(module, name)| MODULES.contains(&module) && is_name(name))
}

/// A command as it is shown. A word that is none may be a secret in the place of one.
pub(super) fn shown(command: Word, shown: Shown) -> Word {
    let is_shown = shown.verbatim || is_known(command) || is_of_module(command);
    if is_shown { command } else { UNKNOWN }
}

/// Whether the first argument of a command is a key. That of an unknown one may be a secret.
pub(super) fn has_key(command: Word) -> bool {
    KEYED.contains(&command)
}

/// Whether a command is held until an event comes, whatever its arguments.
pub(super) fn is_blocking(command: Word) -> bool {
    BLOCKING.contains(&command)
}

/// Whether a command is, or may be by its arguments, held until an event comes.
pub(super) fn may_block(command: Word) -> bool {
    is_blocking(command) || BLOCKING_IF_TOLD.contains(&command)
}

/// Whether this argument lets a command be held until an event comes.
pub(super) fn is_blocking_by(command: Word, argument: &[u8]) -> bool {
    BLOCKING_IF_TOLD.contains(&command) && argument.eq_ignore_ascii_case(b"BLOCK")
}

/// Whether a connection may begin with this command on a line of its own.
pub(super) fn may_be_inline(command: Word) -> bool {
    INLINE.contains(&command.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_their_words() {
        let word = |name: &str| Word::upper(name.as_bytes());
        assert!(has_key(word("zrevrangebyscore")) && has_key(word("GET")));
        assert!(is_known(word("eval")) && !has_key(word("eval")));
        assert!(!is_known(word("jobs")) && !has_key(word("AUHT")));
        assert!(KEYED.is_disjoint(&OTHERS));
        assert!(BLOCKING.into_iter().chain(BLOCKING_IF_TOLD).all(is_known));
    }
}

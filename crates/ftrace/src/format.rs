//! The description of a tracepoint: tracefs's `events/GROUP/NAME/format`.

/// A field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its place in the event, bytes.
    pub offset: usize,
    /// Its size, bytes.
    pub size: usize,
    /// Whether the field holds the place of a string (`__data_loc`) instead of a value.
    pub is_string: bool,
}

/// A tracepoint's number and fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Its number, which begins each of its events.
    pub id: u16,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Reads a description; `None` if it has no number.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        Some(Self { id, fields: text.lines().filter_map(field).collect() })
    }

    /// A field by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, field)| *field)
    }
}

/// Reads a line such as `field:unsigned int len; offset:16; size:4; signed:0;`.
pub(crate) fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let (mut offset, mut size) = (None, None);
    for part in parts {
        if let Some(value) = part.strip_prefix("offset:") {
            offset = value.parse().ok();
        } else if let Some(value) = part.strip_prefix("size:") {
            size = value.parse().ok();
        }
    }
    let is_string = declaration.starts_with("__data_loc");
    let name = declaration.split_ascii_whitespace().last()?.trim_start_matches('*');
    let name = name.split('[').next()?.to_owned();
    Some((name, Field { offset: offset?, size: size?, is_string }))
}

impl Field {
    /// Its value as an unsigned number; `None` if the event is too short or the field is larger than eight bytes.
    #[must_use]
    pub fn number(&self, event: &[u8]) -> Option<u64> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.size)?)?;
        let mut value = [0; 8];
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_ne_bytes(value))
    }

    /// Its value as a signed number.
    #[must_use]
    pub fn signed(&self, event: &[u8]) -> Option<i64> {
        let unused = 64_u32.checked_sub(u32::try_from(self.size).ok()?.checked_mul(8)?)?;
        let value = self.number(event)?;
        (unused < 64).then(|| (value << unused).cast_signed() >> unused)
    }

    /// Its string, without the terminating zero.
    #[must_use]
    pub fn string<'a>(&self, event: &'a [u8]) -> Option<&'a [u8]> {
        let place = self.number(event)?;
        let (offset, bytes) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
        let text = event.get(offset..offset.checked_add(bytes)?)?;
        text.split(|byte| *byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVE: &str = "name: netif_receive_skb\nID: 2303\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int len;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:20;\tsize:4;\tsigned:0;\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"dev=%s skbaddr=%p len=%u\", __get_str(name), REC->skbaddr, REC->len\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::read(RECEIVE).unwrap();
        assert_eq!(format.id, 2303);
        assert_eq!(format.field("len"), Some(Field { offset: 16, size: 4, is_string: false }));
        assert_eq!(format.field("name"), Some(Field { offset: 20, size: 4, is_string: true }));
        assert_eq!(format.field("prev_comm").map(|f| f.size), Some(16));
        assert_eq!(format.field("skbaddr").map(|f| f.offset), Some(8));
        assert_eq!(format.field("colour"), None);
        assert_eq!(Format::read("format:\n"), None);
    }

    #[test]
    fn values_are_read_with_their_sign_and_never_beyond_the_event() {
        let mut event = vec![0_u8; 32];
        event[16..20].copy_from_slice(&(-11_i32).to_ne_bytes());
        event[20..24].copy_from_slice(&((8_u32 << 16) | 24).to_ne_bytes());
        event[24..32].copy_from_slice(b"server0\0");
        let at = |offset, size| Field { offset, size, is_string: false };
        assert_eq!(at(16, 4).signed(&event), Some(-11));
        assert_eq!(at(16, 4).number(&event), Some(u64::from((-11_i32).cast_unsigned())));
        assert_eq!(at(20, 4).string(&event), Some(&b"server0"[..]));
        assert_eq!(
            (at(30, 4).number(&event), at(0, 9).number(&event), at(0, 0).signed(&event)),
            (None, None, None)
        );
        assert_eq!(at(usize::MAX, 4).number(&event), None);
        assert_eq!(at(20, 4).string(&event[..26]), None);
    }
}

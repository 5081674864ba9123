//! The PDUs, field by field (RFC 7143 11.3 to 11.19).
//!
//! A declaration gives each field's name and place; reading and writing are derived from it. Every bit pattern can be
//! read: values are checked where they are used.

macro_rules! pdu {
    (
        $(#[$doc:meta])*
        $name:ident = $opcode:expr, fixed $fixed:expr,
        flags { $($(#[$flag_doc:meta])* $flag:ident: $flag_at:literal & $mask:literal),* $(,)? }
        fields { $($(#[$field_doc:meta])* $field:ident: $kind:ty = $at:literal),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$flag_doc])* pub $flag: bool,)*
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        impl $name {
            /// The opcode of this PDU.
            pub const OPCODE: u8 = $opcode;

            /// Reads the fields. The caller must have checked the opcode.
            #[must_use]
            #[inline]
            pub fn read(bhs: &$crate::bhs::Bhs) -> Self {
                Self {
                    $($flag: bhs.0[$flag_at] & $mask != 0,)*
                    $($field: <$kind as $crate::bhs::Field>::get(&bhs.0, $at),)*
                }
            }

            /// Writes the header; DataSegmentLength is left at zero.
            #[must_use]
            #[inline]
            pub fn write(&self) -> $crate::bhs::Bhs {
                let mut header = [0_u8; $crate::bhs::BHS_BYTES];
                $($crate::bhs::Field::put(self.$field, &mut header, $at);)*
                header[0] |= $opcode;
                header[1] |= $fixed;
                $(if self.$flag { header[$flag_at] |= $mask; })*
                $crate::bhs::Bhs(header)
            }
        }
    };
}

mod management;
mod negotiation;
mod recovery;
mod scsi;

pub use management::{
    AsyncMessage, LogoutRequest, LogoutResponse, TaskManagementRequest, TaskManagementResponse,
};
pub use negotiation::{LoginRequest, LoginResponse, TextRequest, TextResponse};
pub use recovery::{NopIn, NopOut, Reject, Snack};
pub use scsi::{DataIn, DataOut, R2t, ScsiCommand, ScsiResponse};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bhs::{BHS_BYTES, Bhs};

    /// Reading what was written gives the same PDU, and writing what was read loses nothing that a second
    /// reading would show.
    macro_rules! round_trip {
        ($($name:ident),*) => {
            proptest! {$(
                #[test]
                #[allow(non_snake_case)]
                fn $name(bytes in prop::array::uniform32(any::<u8>()), tail in prop::array::uniform16(any::<u8>())) {
                    let mut header = [0; BHS_BYTES];
                    header[..32].copy_from_slice(&bytes);
                    header[32..].copy_from_slice(&tail);
                    let first = super::$name::read(&Bhs(header)).write();
                    let second = super::$name::read(&first).write();
                    prop_assert_eq!(first, second);
                    prop_assert_eq!(first.opcode(), super::$name::OPCODE);
                }
            )*}
        };
    }
    mod round_trip {
        use super::*;
        round_trip!(
            ScsiCommand,
            ScsiResponse,
            TaskManagementRequest,
            TaskManagementResponse,
            DataOut,
            DataIn,
            R2t,
            Snack,
            AsyncMessage,
            TextRequest,
            TextResponse,
            LoginRequest,
            LoginResponse,
            LogoutRequest,
            LogoutResponse,
            Reject,
            NopOut,
            NopIn
        );
    }

    #[test]
    fn a_read_command_has_the_bytes_of_the_standard() {
        let command = ScsiCommand {
            is_final: true,
            read: true,
            lun: [0, 3, 0, 0, 0, 0, 0, 0],
            tag: 0x0102_0304,
            expected_bytes: 512,
            cmd_sn: 7,
            exp_stat_sn: 9,
            cdb: [0x28, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            ..ScsiCommand::default()
        };
        let bytes = command.write().0;
        assert_eq!(bytes[..4], [0x01, 0xc0, 0, 0]);
        assert_eq!(bytes[8..24], [0, 3, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 2, 0]);
        assert_eq!(bytes[24..32], [0, 0, 0, 7, 0, 0, 0, 9]);
        assert_eq!(bytes[32], 0x28);
        assert_eq!(ScsiCommand::read(&Bhs(bytes)), command);
    }
}

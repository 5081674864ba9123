//! Commands with their fields, decoded once from a command descriptor block (SPC-4 4.3, SBC-3 5).
//!
//! Decoding cannot fail: a field with a bad value is kept as it came, because unit attentions, reservations and
//! port states are reported before it.

use crate::cdb::{Cdb, Extent, be16, be32, be64, opcode};

/// A command. Values that the logical unit has to check are raw; reserved bits are kept only where they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// DESC: the descriptor format.
        descriptor: bool,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// INQUIRY.
    Inquiry(Inquiry),
    /// READ (6), (10), (12) and (16).
    Read(Transfer),
    /// WRITE (6), (10), (12) and (16).
    Write(Transfer),
    /// WRITE AND VERIFY (10), (12) and (16).
    WriteAndVerify {
        /// The blocks.
        transfer: Transfer,
        /// BYTCHK.
        byte_check: u8,
    },
    /// VERIFY (10), (12) and (16).
    Verify {
        /// The blocks.
        transfer: Transfer,
        /// BYTCHK.
        byte_check: u8,
    },
    /// WRITE SAME (10) and (16).
    WriteSame(WriteSame),
    /// UNMAP.
    Unmap {
        /// ANCHOR.
        anchor: bool,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u16,
    },
    /// COMPARE AND WRITE.
    CompareAndWrite(Transfer),
    /// ORWRITE (16).
    OrWrite(Transfer),
    /// WRITE ATOMIC (16).
    WriteAtomic {
        /// The blocks.
        transfer: Transfer,
        /// ATOMIC BOUNDARY.
        boundary: u16,
    },
    /// SANITIZE.
    Sanitize {
        /// SERVICE ACTION.
        action: u8,
        /// ZNR: zones keep their write pointers.
        zones_keep_pointers: bool,
        /// Whether any bit of bytes 2 to 6, which are reserved, is set.
        has_reserved_bits: bool,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u16,
    },
    /// PRE-FETCH (10) and (16).
    PreFetch(Extent),
    /// SYNCHRONIZE CACHE (10) and (16).
    SynchronizeCache(Extent),
    /// MODE SENSE (6) and (10).
    ModeSense(ModeSense),
    /// MODE SELECT (6) and (10).
    ModeSelect(ModeSelect),
    /// LOG SENSE.
    LogSense(LogSense),
    /// SEND DIAGNOSTIC.
    SendDiagnostic {
        /// SELF-TEST CODE: a test other than the default one.
        code: u8,
        /// SELFTEST: the default self-test.
        self_test: bool,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u16,
    },
    /// RESERVE (6) and (10).
    Reserve {
        /// Whether the reservation is for a third party or for an extent; both are obsolete.
        is_partial: bool,
    },
    /// RELEASE (6) and (10).
    Release,
    /// START STOP UNIT.
    StartStopUnit {
        /// POWER CONDITION.
        power_condition: u8,
        /// LOEJ: loads or ejects the medium.
        load_eject: bool,
        /// START.
        start: bool,
        /// `NO_FLUSH`: the cache need not be written to the medium.
        no_flush: bool,
    },
    /// PREVENT ALLOW MEDIUM REMOVAL.
    PreventAllowMediumRemoval {
        /// PREVENT, two bits, of which the upper one is obsolete.
        prevent: u8,
    },
    /// READ CAPACITY (10).
    ReadCapacity10 {
        /// PMI; obsolete.
        partial_medium: bool,
        /// LOGICAL BLOCK ADDRESS; obsolete.
        lba: u32,
    },
    /// READ CAPACITY (16).
    ReadCapacity16 {
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// GET LBA STATUS.
    GetLbaStatus {
        /// STARTING LOGICAL BLOCK ADDRESS.
        lba: u64,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// READ DEFECT DATA (10) and (12).
    ReadDefectData {
        /// Which of the two, as their parameter data differ.
        form: Form,
        /// The requested list and its format.
        list: u8,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// PERSISTENT RESERVE IN.
    PersistentReserveIn {
        /// SERVICE ACTION.
        action: u8,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// PERSISTENT RESERVE OUT.
    PersistentReserveOut(PersistentReserveOut),
    /// EXTENDED COPY.
    ExtendedCopy {
        /// SERVICE ACTION.
        action: u8,
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u32,
    },
    /// RECEIVE COPY RESULTS.
    ReceiveCopyResults {
        /// SERVICE ACTION.
        action: u8,
        /// LIST IDENTIFIER.
        list_identifier: u8,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT.
        select: u8,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// REPORT TARGET PORT GROUPS.
    ReportTargetPortGroups {
        /// The parameter data have the extended header.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// SET TARGET PORT GROUPS.
    SetTargetPortGroups {
        /// PARAMETER LIST LENGTH.
        parameter_bytes: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportSupportedOperationCodes(ReportSupportedOperationCodes),
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
    ReportSupportedTaskManagement {
        /// REPD: the extended parameter data.
        extended: bool,
        /// ALLOCATION LENGTH.
        allocation: usize,
    },
    /// A service action that is not supported, of a supported operation code.
    UnsupportedServiceAction {
        /// OPERATION CODE.
        code: u8,
    },
    /// An operation code that is not supported.
    Unsupported,
}

/// The fields of a command that transfers blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The blocks.
    pub extent: Extent,
    /// RDPROTECT, WRPROTECT or VRPROTECT is not zero: protection information is requested.
    pub protection: bool,
    /// FUA: not to be acknowledged before the data is on stable storage.
    pub fua: bool,
}

/// Which of two forms of a command it is; their CDBs and parameter data differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The form with the shorter CDB.
    Short,
    /// The form with the longer CDB.
    Long,
}

/// INQUIRY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// EVPD: a vital product data page.
    pub vital_product_data: bool,
    /// Whether any other bit of byte 1 is set: CMDDT, which is obsolete, or reserved bits.
    pub has_reserved_bits: bool,
    /// PAGE CODE.
    pub page: u8,
    /// ALLOCATION LENGTH.
    pub allocation: usize,
}

/// WRITE SAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSame {
    /// The blocks.
    pub extent: Extent,
    /// WRPROTECT is not zero.
    pub protection: bool,
    /// ANCHOR.
    pub anchor: bool,
    /// UNMAP.
    pub unmap: bool,
    /// NDOB: no data follows, the block is all zeros.
    pub no_data: bool,
    /// The byte of NUMBER OF LOGICAL BLOCKS, for a field pointer.
    pub count_byte: u16,
}

/// MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// MODE SENSE (6) or (10).
    pub form: Form,
    /// PC.
    pub page_control: u8,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// DBD: no block descriptor is returned.
    pub disable_block_descriptors: bool,
    /// LLBAA, which only the long form has: the block descriptor may be the long one.
    pub long_lba: bool,
    /// ALLOCATION LENGTH.
    pub allocation: usize,
}

/// MODE SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSelect {
    /// MODE SELECT (6) or (10).
    pub form: Form,
    /// PF: the pages have the format of the standard.
    pub page_format: bool,
    /// SP: the values are saved.
    pub save_pages: bool,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u16,
}

/// LOG SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSense {
    /// SP: the values are saved.
    pub save: bool,
    /// PC.
    pub page_control: u8,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// PARAMETER POINTER: the first parameter that is returned.
    pub pointer: u16,
    /// ALLOCATION LENGTH.
    pub allocation: usize,
}

/// PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentReserveOut {
    /// SERVICE ACTION.
    pub action: u8,
    /// SCOPE.
    pub scope: u8,
    /// TYPE.
    pub kind: u8,
    /// PARAMETER LIST LENGTH.
    pub parameter_bytes: u32,
}

/// REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportSupportedOperationCodes {
    /// RCTD: with command timeouts descriptors.
    pub timeouts: bool,
    /// REPORTING OPTIONS.
    pub options: u8,
    /// REQUESTED OPERATION CODE.
    pub code: u8,
    /// REQUESTED SERVICE ACTION.
    pub action: u16,
    /// ALLOCATION LENGTH.
    pub allocation: usize,
}

/// What a command does to what a persistent reservation protects (SPC-4 table 68, SBC-3 table 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// It reads the medium.
    Read,
    /// It changes the medium or the logical unit, or is not known.
    Write,
}

impl Transfer {
    /// Of a command whose byte 1 has the protection field and FUA.
    #[inline]
    fn of(flags: u8, extent: Extent) -> Self {
        Self { extent, protection: has_protection(flags), fua: flags & 0x08 != 0 }
    }

    /// Of READ (6) or WRITE (6), which have address bits in place of flags.
    #[inline]
    fn of_6(cdb: &Cdb) -> Self {
        Self { extent: Extent::of_6(cdb), protection: false, fua: false }
    }
}

#[inline]
fn has_protection(flags: u8) -> bool {
    flags & 0xe0 != 0
}

fn byte_check(cdb: &Cdb) -> u8 {
    cdb[1] >> 1 & 3
}

fn service_action(cdb: &Cdb) -> u8 {
    cdb[1] & 0x1f
}

impl Command {
    /// Decodes a command descriptor block.
    #[must_use]
    #[inline]
    pub fn decode(cdb: &Cdb) -> Self {
        let flags = cdb[1];
        match cdb[0] {
            opcode::READ_10 => Self::Read(Transfer::of(flags, Extent::of_10(cdb))),
            opcode::WRITE_10 => Self::Write(Transfer::of(flags, Extent::of_10(cdb))),
            opcode::READ_16 => Self::Read(Transfer::of(flags, Extent::of_16(cdb))),
            opcode::WRITE_16 => Self::Write(Transfer::of(flags, Extent::of_16(cdb))),
            opcode::READ_6 => Self::Read(Transfer::of_6(cdb)),
            opcode::WRITE_6 => Self::Write(Transfer::of_6(cdb)),
            opcode::READ_12 => Self::Read(Transfer::of(flags, Extent::of_12(cdb))),
            opcode::WRITE_12 => Self::Write(Transfer::of(flags, Extent::of_12(cdb))),
            _ => Self::decode_other(cdb),
        }
    }

    /// Everything but READ and WRITE, out of line.
    fn decode_other(cdb: &Cdb) -> Self {
        match cdb[0] {
            opcode::TEST_UNIT_READY => Self::TestUnitReady,
            opcode::REQUEST_SENSE => {
                Self::RequestSense { descriptor: cdb[1] & 1 != 0, allocation: cdb[4].into() }
            }
            opcode::INQUIRY => Self::Inquiry(Inquiry {
                vital_product_data: cdb[1] & 1 != 0,
                has_reserved_bits: cdb[1] & 0xfe != 0,
                page: cdb[2],
                allocation: be16(cdb, 3).into(),
            }),
            opcode::REPORT_LUNS => Self::ReportLuns { select: cdb[2], allocation: be32(cdb, 6) as usize },
            opcode::RESERVE_6 | opcode::RESERVE_10 => Self::Reserve { is_partial: cdb[1] & 0x11 != 0 },
            opcode::RELEASE_6 | opcode::RELEASE_10 => Self::Release,
            opcode::START_STOP_UNIT => Self::StartStopUnit {
                power_condition: cdb[4] >> 4,
                load_eject: cdb[4] & 0x02 != 0,
                start: cdb[4] & 0x01 != 0,
                no_flush: cdb[4] & 0x04 != 0,
            },
            opcode::PREVENT_ALLOW_MEDIUM_REMOVAL => Self::PreventAllowMediumRemoval { prevent: cdb[4] & 3 },
            opcode::MODE_SENSE_6 => Self::mode_sense(cdb, Form::Short),
            opcode::MODE_SENSE_10 => Self::mode_sense(cdb, Form::Long),
            opcode::MODE_SELECT_6 => Self::mode_select(cdb, Form::Short),
            opcode::MODE_SELECT_10 => Self::mode_select(cdb, Form::Long),
            opcode::LOG_SENSE => Self::LogSense(LogSense {
                save: cdb[1] & 0x01 != 0,
                page_control: cdb[2] >> 6,
                page: cdb[2] & 0x3f,
                subpage: cdb[3],
                pointer: be16(cdb, 5),
                allocation: be16(cdb, 7).into(),
            }),
            opcode::SEND_DIAGNOSTIC => Self::SendDiagnostic {
                code: cdb[1] >> 5,
                self_test: cdb[1] & 0x04 != 0,
                parameter_bytes: be16(cdb, 3),
            },
            opcode::PERSISTENT_RESERVE_IN => {
                Self::PersistentReserveIn { action: service_action(cdb), allocation: be16(cdb, 7).into() }
            }
            opcode::PERSISTENT_RESERVE_OUT => Self::PersistentReserveOut(PersistentReserveOut {
                action: service_action(cdb),
                scope: cdb[2] >> 4,
                kind: cdb[2] & 0x0f,
                parameter_bytes: be32(cdb, 5),
            }),
            opcode::EXTENDED_COPY => {
                Self::ExtendedCopy { action: service_action(cdb), parameter_bytes: be32(cdb, 10) }
            }
            opcode::RECEIVE_COPY_RESULTS => Self::ReceiveCopyResults {
                action: service_action(cdb),
                list_identifier: cdb[2],
                allocation: be32(cdb, 10) as usize,
            },
            opcode::MAINTENANCE_IN | opcode::MAINTENANCE_OUT => Self::maintenance(cdb),
            _ => Self::decode_block(cdb),
        }
    }

    /// The commands of SBC-3 beside READ and WRITE.
    fn decode_block(cdb: &Cdb) -> Self {
        let flags = cdb[1];
        let verify =
            |extent| Self::Verify { transfer: Transfer::of(flags, extent), byte_check: byte_check(cdb) };
        let write_and_verify = |extent| Self::WriteAndVerify {
            transfer: Transfer::of(flags, extent),
            byte_check: byte_check(cdb),
        };
        match cdb[0] {
            opcode::WRITE_AND_VERIFY_10 => write_and_verify(Extent::of_10(cdb)),
            opcode::WRITE_AND_VERIFY_12 => write_and_verify(Extent::of_12(cdb)),
            opcode::WRITE_AND_VERIFY_16 => write_and_verify(Extent::of_16(cdb)),
            opcode::VERIFY_10 => verify(Extent::of_10(cdb)),
            opcode::VERIFY_12 => verify(Extent::of_12(cdb)),
            opcode::VERIFY_16 => verify(Extent::of_16(cdb)),
            opcode::WRITE_SAME_10 => Self::WriteSame(WriteSame {
                extent: Extent::of_10(cdb),
                protection: has_protection(flags),
                anchor: flags & 0x10 != 0,
                unmap: flags & 0x08 != 0,
                no_data: false,
                count_byte: 7,
            }),
            opcode::WRITE_SAME_16 => Self::WriteSame(WriteSame {
                extent: Extent::of_16(cdb),
                protection: has_protection(flags),
                anchor: flags & 0x10 != 0,
                unmap: flags & 0x08 != 0,
                no_data: flags & 0x01 != 0,
                count_byte: 10,
            }),
            opcode::UNMAP => Self::Unmap { anchor: flags & 1 != 0, parameter_bytes: be16(cdb, 7) },
            opcode::COMPARE_AND_WRITE => {
                let extent = Extent { lba: be64(cdb, 2), blocks: cdb[13].into() };
                Self::CompareAndWrite(Transfer::of(flags, extent))
            }
            opcode::OR_WRITE_16 => Self::OrWrite(Transfer::of(flags, Extent::of_16(cdb))),
            opcode::WRITE_ATOMIC_16 => {
                let extent = Extent { lba: be64(cdb, 2), blocks: be16(cdb, 12).into() };
                Self::WriteAtomic { transfer: Transfer::of(flags, extent), boundary: be16(cdb, 10) }
            }
            opcode::SANITIZE => Self::Sanitize {
                action: service_action(cdb),
                zones_keep_pointers: flags & 0x40 != 0,
                has_reserved_bits: cdb[2..7].iter().any(|&byte| byte != 0),
                parameter_bytes: be16(cdb, 7),
            },
            opcode::PRE_FETCH_10 => Self::PreFetch(Extent::of_10(cdb)),
            opcode::PRE_FETCH_16 => Self::PreFetch(Extent::of_16(cdb)),
            opcode::SYNCHRONIZE_CACHE_10 => Self::SynchronizeCache(Extent::of_10(cdb)),
            opcode::SYNCHRONIZE_CACHE_16 => Self::SynchronizeCache(Extent::of_16(cdb)),
            opcode::READ_CAPACITY_10 => {
                Self::ReadCapacity10 { partial_medium: cdb[8] & 1 != 0, lba: be32(cdb, 2) }
            }
            opcode::SERVICE_ACTION_IN_16 => match service_action(cdb) {
                0x10 => Self::ReadCapacity16 { allocation: be32(cdb, 10) as usize },
                0x12 => Self::GetLbaStatus { lba: be64(cdb, 2), allocation: be32(cdb, 10) as usize },
                _ => Self::UnsupportedServiceAction { code: cdb[0] },
            },
            opcode::READ_DEFECT_DATA_10 => Self::ReadDefectData {
                form: Form::Short,
                list: cdb[2] & 0x1f,
                allocation: be16(cdb, 7).into(),
            },
            opcode::READ_DEFECT_DATA_12 => Self::ReadDefectData {
                form: Form::Long,
                list: cdb[1] & 0x1f,
                allocation: be32(cdb, 6) as usize,
            },
            _ => Self::Unsupported,
        }
    }

    fn mode_sense(cdb: &Cdb, form: Form) -> Self {
        Self::ModeSense(ModeSense {
            form,
            page_control: cdb[2] >> 6,
            page: cdb[2] & 0x3f,
            subpage: cdb[3],
            disable_block_descriptors: cdb[1] & 0x08 != 0,
            long_lba: form == Form::Long && cdb[1] & 0x10 != 0,
            allocation: mode_length(cdb, form).into(),
        })
    }

    fn mode_select(cdb: &Cdb, form: Form) -> Self {
        Self::ModeSelect(ModeSelect {
            form,
            page_format: cdb[1] & 0x10 != 0,
            save_pages: cdb[1] & 0x01 != 0,
            parameter_bytes: mode_length(cdb, form),
        })
    }

    /// MAINTENANCE IN and MAINTENANCE OUT.
    fn maintenance(cdb: &Cdb) -> Self {
        let allocation = be32(cdb, 6) as usize;
        match (cdb[0], service_action(cdb)) {
            (opcode::MAINTENANCE_IN, 0x0a) => {
                Self::ReportTargetPortGroups { extended: cdb[1] & 0xe0 == 0x20, allocation }
            }
            (opcode::MAINTENANCE_IN, 0x0c) => {
                Self::ReportSupportedOperationCodes(ReportSupportedOperationCodes {
                    timeouts: cdb[2] & 0x80 != 0,
                    options: cdb[2] & 0x07,
                    code: cdb[3],
                    action: be16(cdb, 4),
                    allocation,
                })
            }
            (opcode::MAINTENANCE_IN, 0x0d) => {
                Self::ReportSupportedTaskManagement { extended: cdb[2] & 0x80 != 0, allocation }
            }
            (opcode::MAINTENANCE_OUT, 0x0a) => Self::SetTargetPortGroups { parameter_bytes: be32(cdb, 6) },
            (code, _) => Self::UnsupportedServiceAction { code },
        }
    }

    /// What it does to what a persistent reservation protects.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Inquiry(_)
            | Self::ReportLuns { .. }
            | Self::RequestSense { .. }
            | Self::TestUnitReady
            | Self::ReadCapacity10 { .. }
            | Self::ReadCapacity16 { .. }
            | Self::PersistentReserveIn { .. }
            // Its own rules decide: only a registered nexus can change anything.
            | Self::PersistentReserveOut(_)
            | Self::ReceiveCopyResults { .. }
            | Self::LogSense(_)
            | Self::ReportTargetPortGroups { .. }
            | Self::ReportSupportedOperationCodes(_)
            | Self::ReportSupportedTaskManagement { .. }
            | Self::UnsupportedServiceAction { code: opcode::MAINTENANCE_IN }
            | Self::PreventAllowMediumRemoval { prevent: 0 }
            | Self::StartStopUnit { start: true, .. } => Access::None,
            Self::Read(_)
            | Self::Verify { .. }
            | Self::PreFetch(_)
            | Self::ReadDefectData { .. }
            | Self::GetLbaStatus { .. }
            | Self::UnsupportedServiceAction { code: opcode::SERVICE_ACTION_IN_16 } => Access::Read,
            _ => Access::Write,
        }
    }

    /// Whether it passes another initiator's reservation by RESERVE (6) or (10) (SPC-2 table 9).
    #[must_use]
    pub fn passes_simple_reservation(&self) -> bool {
        matches!(self, Self::Inquiry(_) | Self::ReportLuns { .. } | Self::RequestSense { .. } | Self::Release)
    }

    /// Whether it reports unit attention conditions: INQUIRY and REPORT LUNS do not, and REQUEST SENSE returns them
    /// as its parameter data (SAM-5 5.14.2).
    #[inline]
    #[must_use]
    pub fn reports_unit_attentions(&self) -> bool {
        !matches!(self, Self::Inquiry(_) | Self::ReportLuns { .. } | Self::RequestSense { .. })
    }

    /// Whether it is served through a port in the unavailable state (SPC-4 5.15.2.4.5).
    #[must_use]
    pub fn passes_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Inquiry(_)
                | Self::ReportLuns { .. }
                | Self::RequestSense { .. }
                | Self::ReportTargetPortGroups { .. }
                | Self::SetTargetPortGroups { .. }
                | Self::ReportSupportedOperationCodes(_)
                | Self::ReportSupportedTaskManagement { .. }
                | Self::UnsupportedServiceAction { code: opcode::MAINTENANCE_IN | opcode::MAINTENANCE_OUT }
        )
    }

    /// Whether it is served through a port in the standby state (SPC-4 5.15.2.4.4).
    #[must_use]
    pub fn passes_standby(&self) -> bool {
        self.passes_unavailable()
            || matches!(
                self,
                Self::ModeSense(_)
                    | Self::ModeSelect(_)
                    | Self::LogSense(_)
                    | Self::PersistentReserveIn { .. }
                    | Self::PersistentReserveOut(_)
            )
    }

    /// Whether it changes what other initiators see or may do, other than by writing.
    #[must_use]
    pub fn changes_for_others(&self) -> bool {
        matches!(
            self,
            Self::ModeSelect(_)
                | Self::Reserve { .. }
                | Self::Release
                | Self::PersistentReserveOut(_)
                | Self::SetTargetPortGroups { .. }
                | Self::StartStopUnit { load_eject: true, .. }
                | Self::PreventAllowMediumRemoval { prevent: 1.. }
        )
    }

    /// Whether it fails without a medium.
    #[must_use]
    pub fn needs_medium(&self) -> bool {
        !(self.passes_standby()
            || matches!(
                self,
                Self::Reserve { .. }
                    | Self::Release
                    | Self::StartStopUnit { .. }
                    | Self::PreventAllowMediumRemoval { .. }
                    | Self::ReceiveCopyResults { .. }
            ))
    }
}

/// ALLOCATION LENGTH or PARAMETER LIST LENGTH of the mode commands.
fn mode_length(cdb: &Cdb, form: Form) -> u16 {
    match form {
        Form::Short => cdb[4].into(),
        Form::Long => be16(cdb, 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Command {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        Command::decode(&cdb)
    }

    #[test]
    fn decodes_flags_where_the_form_has_them() {
        let transfer =
            |lba, blocks, protection, fua| Transfer { extent: Extent { lba, blocks }, protection, fua };
        assert_eq!(decode(&[0x08, 0x0f, 0, 0, 1]), Command::Read(transfer(0x0f_0000, 1, false, false)));
        assert_eq!(decode(&[0x2a, 0x08, 0, 0, 0, 2, 0, 0, 3]), Command::Write(transfer(2, 3, false, true)));
        assert_eq!(decode(&[0x28, 0x20]), Command::Read(transfer(0, 0, true, false)));
        let verify = Command::Verify { transfer: transfer(0, 1, false, false), byte_check: 3 };
        assert_eq!(decode(&[0x2f, 0x06, 0, 0, 0, 0, 0, 0, 1]), verify);
    }

    #[test]
    fn unsupported_service_actions_are_classified_by_their_operation_code() {
        let (data_in, maintenance) = (decode(&[0x9e, 0x1f]), decode(&[0xa3, 0x1f]));
        assert_eq!(data_in, Command::UnsupportedServiceAction { code: 0x9e });
        assert_eq!((data_in.access(), maintenance.access()), (Access::Read, Access::None));
        assert_eq!((data_in.needs_medium(), maintenance.needs_medium()), (true, false));
        assert_eq!((decode(&[0xff]), decode(&[0xff]).access()), (Command::Unsupported, Access::Write));
    }
}

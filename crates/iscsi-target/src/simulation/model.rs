//! The model: the invariants that the target must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::kinds::CommandKind;
use crate::session::Session;

/// Additional sense code and qualifier of a unit attention.
type Attention = (u8, u8);
/// An initiator and its ISID. They identify the nexus, because there is one portal.
type Port = (usize, u8);

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;

/// The kind of a PDU sent to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Command(u32),
    Management(u32),
    Other,
}

/// The properties of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) is_write: bool,
    /// The key that its nexus registers.
    pub(super) key: u64,
    /// The key that it preempts.
    pub(super) victim: u64,
    /// Whether it selects descriptor-format sense data.
    pub(super) has_descriptors: bool,
    pub(super) kind: CommandKind,
}

/// A sent command.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) session: usize,
    pub(super) conn: usize,
    pub(super) tag: u32,
    pub(super) lun: u8,
    cmd_sn: u32,
    fields: Fields,
    is_ordered: bool,
    is_taken: bool,
    /// The step in which its CmdSN was reached.
    entered: Option<usize>,
    answers: Vec<u8>,
    /// A function that aborts it was requested: it may stay unanswered.
    may_vanish: bool,
    /// A retransmission was requested: it may be answered again.
    may_repeat: bool,
    /// Why its writes must not land any more.
    fenced: Option<&'static str>,
    /// The step in which the target took a function that aborts it: it must not be answered after that.
    aborted: Option<usize>,
    /// The connection on which its abort was reported complete.
    silent_on: Option<usize>,
    has_landed: bool,
    /// Its connection is lost.
    pub(super) is_lost: bool,
}

/// Where a task is: its tag, its logical unit and its number in its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskPlace {
    pub(super) tag: u32,
    pub(super) lun: u8,
    pub(super) cmd_sn: u32,
}

impl Command {
    pub(super) fn new(session: usize, conn: usize, place: TaskPlace, fields: Fields, attribute: u8) -> Self {
        let TaskPlace { tag, lun, cmd_sn } = place;
        Self {
            session,
            conn,
            tag,
            lun,
            cmd_sn,
            fields,
            is_ordered: attribute == 2,
            is_taken: false,
            entered: None,
            answers: Vec::new(),
            may_vanish: false,
            may_repeat: false,
            fenced: None,
            aborted: None,
            silent_on: None,
            has_landed: false,
            is_lost: false,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn status(&self) -> Option<u8> {
        self.answers.last().copied()
    }

    pub(super) fn has_entered(&self) -> bool {
        self.entered.is_some()
    }

    fn has_shared_effects(&self) -> bool {
        !matches!(
            self.fields.kind,
            CommandKind::Read
                | CommandKind::BigRead
                | CommandKind::Write
                | CommandKind::WriteAtomic
                | CommandKind::Test
        )
    }
}

/// A session from its initiator's view, and the unit attentions due to it.
#[derive(Debug)]
pub(super) struct SessionModel {
    port: Port,
    pub(super) tsih: u16,
    pub(super) cmd_sn: u32,
    pub(super) recovery: u8,
    target: Option<Arc<Session>>,
    is_alive: bool,
    /// It had ended before this step: its requests are ignored.
    was_closed: bool,
    /// Unit attentions that must be reported, by LUN.
    due: BTreeMap<u8, BTreeSet<Attention>>,
    /// Unit attentions that may be reported, by LUN.
    allowed: BTreeMap<u8, BTreeSet<Attention>>,
}

/// A sent task management function.
#[derive(Debug)]
struct Management {
    function: u8,
    lun: u8,
    referenced: u32,
    session: usize,
    conn: usize,
    is_taken: bool,
    covered: Vec<u32>,
    response: Option<u8>,
    may_repeat: bool,
    is_lost: bool,
}

/// The registrations and the reservation holder of a logical unit.
#[derive(Debug, Default)]
struct Reservations {
    keys: BTreeMap<Port, u64>,
    holder: Option<Port>,
}

/// The model of all sessions, commands and functions.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) step: usize,
    /// Whether events are printed, for the replay of a seed.
    pub(super) traces: bool,
    pub(super) commands: BTreeMap<u32, Command>,
    pub(super) sessions: Vec<SessionModel>,
    managements: BTreeMap<u32, Management>,
    reservations: BTreeMap<u8, Reservations>,
    /// The logical units with descriptor-format sense data.
    has_descriptors: BTreeSet<u8>,
    /// ORDERED writes whose first block landed in this step.
    ordered: Vec<u32>,
    /// All responses in order: tag and status.
    pub(super) answers: Vec<(u32, u8)>,
}

const LUNS: std::ops::Range<u8> = 0..3;

impl Model {
    pub(super) fn session_of(&self, tsih: u16) -> Option<usize> {
        self.sessions.iter().rposition(|session| session.tsih == tsih && session.is_alive)
    }

    /// Begins a session and ends older ones of the same nexus.
    pub(super) fn session_begins(
        &mut self,
        port: Port,
        tsih: u16,
        recovery: u8,
        target: Option<Arc<Session>>,
    ) -> usize {
        for index in 0..self.sessions.len() {
            if self.sessions[index].port == port {
                self.session_ends(index);
            }
        }
        let power_on = || LUNS.map(|lun| (lun, BTreeSet::from([(0x29, 0x00)]))).collect();
        let (due, allowed) = (power_on(), BTreeMap::new());
        let is_alive = true;
        let (cmd_sn, was_closed) = (1, false);
        let session =
            SessionModel { port, tsih, cmd_sn, recovery, target, is_alive, was_closed, due, allowed };
        self.sessions.push(session);
        self.sessions.len() - 1
    }

    fn session_ends(&mut self, index: usize) {
        self.sessions[index].is_alive = false;
        self.commands.values_mut().filter(|cmd| cmd.session == index).for_each(|cmd| cmd.may_vanish = true);
    }

    /// Updates the sessions: `instances` are all that the target has.
    pub(super) fn alive(&mut self, instances: &[u64]) {
        for index in 0..self.sessions.len() {
            let session = &mut self.sessions[index];
            session.was_closed = session.target.as_ref().is_some_and(|target| target.is_closed());
            let instance = session.target.as_ref().map(|target| target.instance);
            if session.is_alive && !instance.is_some_and(|instance| instances.contains(&instance)) {
                self.session_ends(index);
            }
        }
    }

    pub(super) fn connection_ends(&mut self, conn: usize) {
        for command in self.commands.values_mut().filter(|cmd| cmd.conn == conn) {
            command.may_vanish = true;
            command.is_lost = !command.is_answered();
        }
        self.managements.values_mut().filter(|m| m.conn == conn).for_each(|m| m.is_lost = true);
    }

    /// Records a sent logout.
    pub(super) fn logs_out(&mut self, session: usize, conn: usize, whole: bool) {
        let is_affected = |cmd: &&mut Command| if whole { cmd.session == session } else { cmd.conn == conn };
        self.commands.values_mut().filter(is_affected).for_each(|cmd| cmd.may_vanish = true);
    }

    /// Records a successful Logout Response.
    pub(super) fn logged_out(&mut self, session: Option<usize>, whole: bool) {
        for command in self.commands.values_mut() {
            if whole && Some(command.session) == session {
                command.fenced = Some("its session was logged out");
            }
        }
    }

    /// Allows repeated responses in a session.
    pub(super) fn may_repeat(&mut self, session: usize) {
        self.commands.values_mut().filter(|cmd| cmd.session == session).for_each(|cmd| cmd.may_repeat = true);
        self.managements.values_mut().filter(|m| m.session == session).for_each(|m| m.may_repeat = true);
    }

    /// Records a sent task management function.
    pub(super) fn management_sent(
        &mut self,
        tag: u32,
        function: u8,
        lun: u8,
        referenced: u32,
        session: usize,
        conn: usize,
    ) {
        let (is_taken, covered, response, may_repeat, is_lost) = (false, Vec::new(), None, false, false);
        let asked = Management {
            function,
            lun,
            referenced,
            session,
            conn,
            is_taken,
            covered,
            response,
            may_repeat,
            is_lost,
        };
        self.managements.insert(tag, asked);
    }

    /// Records that the target has taken a PDU.
    pub(super) fn taken(&mut self, what: What) {
        if self.traces && what != What::Other {
            eprintln!("{} taken {what:?}", self.step);
        }
        match what {
            What::Command(tag) => {
                if let Some(command) = self.commands.get_mut(&tag) {
                    command.is_taken = true;
                }
            }
            What::Management(tag) => self.management_taken(tag),
            What::Other => {}
        }
    }

    /// Records commands whose CmdSN was reached.
    pub(super) fn commands_entered(&mut self) {
        let expected: Vec<u32> = self
            .sessions
            .iter()
            .map(|session| session.target.as_ref().map_or(0, |target| target.commands.expected()))
            .collect();
        let (step, traces) = (self.step, self.traces);
        let mut entered = Vec::new();
        for command in self.commands.values_mut().filter(|cmd| cmd.is_taken && cmd.entered.is_none()) {
            if (command.cmd_sn.wrapping_sub(expected[command.session]) as i32) < 0 {
                command.entered = Some(step);
                if traces {
                    eprintln!("{step} entered {} of session {}", command.tag, command.session);
                }
                entered.push(command.clone());
            }
        }
        for command in entered {
            if command.fields.kind == CommandKind::PreemptAndAbort {
                self.preempts(&command);
            }
        }
    }

    /// Records that a PREEMPT AND ABORT may take effect from now on.
    fn preempts(&mut self, command: &Command) {
        let victims = self.victims(command);
        for index in 0..self.sessions.len() {
            if victims.contains(&self.sessions[index].port) {
                self.sessions[index].allowed.entry(command.lun).or_default().insert((0x2a, 0x05));
            }
        }
        for other in self.commands.values_mut() {
            if other.lun == command.lun && victims.contains(&self.sessions[other.session].port) {
                other.may_vanish |= other.is_taken;
            }
        }
    }

    /// Returns the nexuses that a command preempts.
    fn victims(&self, command: &Command) -> Vec<Port> {
        let Some(there) = self.reservations.get(&command.lun) else { return Vec::new() };
        let own = self.sessions[command.session].port;
        let victim = command.fields.victim;
        there
            .keys
            .iter()
            .filter(|(port, key)| **key == victim && **port != own)
            .map(|(port, _)| *port)
            .collect()
    }

    fn management_taken(&mut self, tag: u32) {
        let Some(asked) = self.managements.get_mut(&tag) else { return };
        if self.sessions[asked.session].was_closed {
            asked.is_lost = true;
            return;
        }
        asked.is_taken = true;
        let (function, lun, own, conn, referenced) =
            (asked.function, asked.lun, asked.session, asked.conn, asked.referenced);
        let port = self.sessions[own].port;
        let in_scope = |cmd: &Command| match function {
            1 => cmd.tag == referenced && cmd.conn == conn,
            2 => cmd.session == own && cmd.lun == lun,
            4 | 5 => cmd.lun == lun,
            6 | 7 => true,
            _ => false,
        };
        let step = self.step;
        let mut losers = BTreeSet::new();
        let mut covered = Vec::new();
        for command in self.commands.values_mut() {
            // TARGET COLD RESET ends the sessions of its initiator.
            let ends = function == 7 && self.sessions[command.session].port.0 == port.0;
            if ends {
                command.may_vanish = true;
            }
            if !in_scope(command) || !command.is_taken || command.is_answered() {
                continue;
            }
            losers.insert(command.session);
            if function != 1 {
                command.may_vanish = true;
            }
            if command.entered.is_some_and(|entered| entered < step) {
                covered.push(command.tag);
                command.aborted.get_or_insert(step);
            }
        }
        if let Some(asked) = self.managements.get_mut(&tag) {
            asked.covered = covered;
        }
        match function {
            4 => {
                for session in losers.into_iter().filter(|&session| session != own) {
                    self.sessions[session].allowed.entry(lun).or_default().insert((0x2f, 0x00));
                }
            }
            5 => self.owe_attention(lun, (0x29, 0x03), |_| true),
            6 | 7 => LUNS.for_each(|lun| self.owe_attention(lun, (0x29, 0x03), |_| true)),
            _ => {}
        }
    }

    /// Records the response of a task management function.
    pub(super) fn managed(&mut self, tag: u32, response: u8) {
        let Some(asked) = self.managements.get_mut(&tag) else {
            panic!("response to unknown function {tag}")
        };
        assert!(asked.response.is_none() || asked.may_repeat, "function {tag} was answered twice");
        if asked.response.is_some() {
            return;
        }
        asked.response = Some(response);
        let (function, conn, covered) = (asked.function, asked.conn, asked.covered.clone());
        for tag in covered {
            let Some(command) = self.commands.get_mut(&tag) else { continue };
            // Complete, or rejected because the task did not end in time.
            if matches!(response, 0 | 255) {
                command.may_vanish = true;
            }
            if response == 0 && (1..=7).contains(&function) {
                if !command.is_answered() {
                    command.fenced = Some("its abort was complete");
                    command.silent_on = Some(conn);
                } else if function != 1 {
                    command.fenced = Some("it was answered, and then aborted");
                }
            }
        }
    }

    /// Records the response of a command.
    pub(super) fn answered(&mut self, tag: u32, status: u8, sense: &[u8]) {
        self.answers.push((tag, status));
        let Some(command) = self.commands.get_mut(&tag) else { panic!("response to unknown command {tag}") };
        assert!(command.answers.is_empty() || command.may_repeat, "command {tag} was answered twice");
        let is_silent = command.silent_on == Some(command.conn) && !command.may_repeat;
        assert!(!is_silent, "command {tag} was answered after its abort was complete");
        let is_late = command.aborted.is_some_and(|aborted| aborted < self.step) && !command.may_repeat;
        assert!(!is_late, "command {tag} was answered after it was aborted");
        let is_first = command.answers.is_empty();
        command.answers.push(status);
        let command = command.clone();
        if !is_first {
            return;
        }
        if command.fields.is_write && status == GOOD {
            assert!(command.has_landed, "write {tag} was acknowledged before it landed");
        }
        let has_descriptors = self.has_descriptors.contains(&command.lun);
        let (key, code) = if has_descriptors { (1, 2) } else { (2, 12) };
        if status == CHECK_CONDITION && sense.get(key).is_some_and(|key| key & 15 == 6) {
            let format = if has_descriptors { 0x72 } else { 0x70 };
            assert_eq!(sense[0], format, "sense data is not in the format that was selected");
            let attention = (sense[code], sense[code + 1]);
            let session = &mut self.sessions[command.session];
            let is_due = session.due.entry(command.lun).or_default().remove(&attention);
            let is_allowed = session.allowed.entry(command.lun).or_default().remove(&attention);
            assert!(
                is_due || is_allowed,
                "unit attention {attention:02x?} at {} is not for session {} (command {tag})",
                command.lun,
                command.session
            );
            return;
        }
        if status != GOOD {
            return;
        }
        if matches!(
            command.fields.kind,
            CommandKind::Read | CommandKind::BigRead | CommandKind::Write | CommandKind::WriteAtomic
        ) {
            self.successor_served(&command);
        }
        self.has_changed(&command);
    }

    /// Fences older sessions of the same nexus: their writes must not land after a newer session was served.
    fn successor_served(&mut self, command: &Command) {
        let port = self.sessions[command.session].port;
        for older in self.commands.values_mut() {
            if older.session < command.session
                && older.lun == command.lun
                && self.sessions[older.session].port == port
            {
                older.fenced.get_or_insert("the session that took its place was served");
            }
        }
    }

    /// Applies the shared effects of a successful command.
    fn has_changed(&mut self, command: &Command) {
        let (own, lun, session) = (self.sessions[command.session].port, command.lun, command.session);
        let victims = self.victims(command);
        let there = self.reservations.entry(lun).or_default();
        match command.fields.kind {
            CommandKind::ModeSelect => {
                let is_changed = if command.fields.has_descriptors {
                    self.has_descriptors.insert(lun)
                } else {
                    self.has_descriptors.remove(&lun)
                };
                if is_changed {
                    self.owe_attention(lun, (0x2a, 0x01), |other| other != session);
                }
            }
            CommandKind::Register => {
                there.keys.insert(own, command.fields.key);
            }
            CommandKind::Reserve => {
                there.holder.get_or_insert(own);
            }
            CommandKind::Preempt | CommandKind::PreemptAndAbort => {
                there.keys.retain(|port, _| !victims.contains(port));
                if there.holder.is_some_and(|holder| victims.contains(&holder)) {
                    there.holder = Some(own);
                }
                let is_abort = command.fields.kind == CommandKind::PreemptAndAbort;
                for index in 0..self.sessions.len() {
                    let victim = &mut self.sessions[index];
                    if !victim.is_alive || !victims.contains(&victim.port) {
                        continue;
                    }
                    let place = if is_abort { &mut victim.allowed } else { &mut victim.due };
                    place.entry(lun).or_default().insert((0x2a, 0x05));
                }
                for other in self.commands.values_mut().filter(|other| is_abort && other.lun == lun) {
                    if !victims.contains(&self.sessions[other.session].port) || !other.is_taken {
                        continue;
                    }
                    other.may_vanish = true;
                    if other.entered < command.entered && other.entered.is_some() {
                        other.fenced.get_or_insert("its nexus was preempted and aborted");
                    }
                }
            }
            CommandKind::Clear => {
                let others: Vec<Port> = there.keys.keys().copied().filter(|port| *port != own).collect();
                *there = Reservations::default();
                let ports: Vec<Port> = self.sessions.iter().map(|session| session.port).collect();
                self.owe_attention(lun, (0x2a, 0x03), |other| others.contains(&ports[other]));
            }
            _ => {}
        }
    }

    /// Makes a unit attention due at every session that `concerns` selects.
    fn owe_attention(&mut self, lun: u8, attention: Attention, concerns: impl Fn(usize) -> bool) {
        for (index, session) in self.sessions.iter_mut().enumerate() {
            if session.is_alive && concerns(index) {
                session.due.entry(lun).or_default().insert(attention);
            }
        }
    }

    /// Makes a unit attention due at every session for each logical unit.
    pub(super) fn owe_attention_everywhere(&mut self, attention: Attention) {
        LUNS.for_each(|lun| self.owe_attention(lun, attention, |_| true));
    }

    /// Records a Reject of a command.
    pub(super) fn rejected(&mut self, tag: u32, opcode: u8) {
        if opcode == iscsi::opcode::initiator::SCSI_COMMAND {
            self.answered(tag, 0xff, &[]);
        }
    }

    /// Records a written block with the stamp of a command.
    pub(super) fn landed(&mut self, lun: u8, stamp: u64) {
        let Some(command) = u32::try_from(stamp).ok().and_then(|tag| self.commands.get(&tag)) else {
            panic!("a block of no command landed on disk {lun}: stamp {stamp}");
        };
        let tag = command.tag;
        if self.traces {
            eprintln!("{} landed {tag}", self.step);
        }
        assert!(command.fields.is_write && command.lun == lun, "command {tag} landed on the wrong disk");
        if let Some(why) = command.fenced {
            panic!("write {tag} landed although {why}");
        }
        if command.is_ordered && !command.has_landed {
            self.ordered.push(tag);
        }
        if let Some(command) = self.commands.get_mut(&tag) {
            command.has_landed = true;
        }
    }

    /// Checks that commands before each ORDERED write ended before it landed. Called after the responses of the step were
    /// recorded.
    pub(super) fn check_order(&mut self) {
        for tag in std::mem::take(&mut self.ordered) {
            let command = &self.commands[&tag];
            let before = |other: &&Command| {
                other.conn == command.conn && other.lun == command.lun && other.entered < command.entered
            };
            for other in self.commands.values().filter(before).filter(|other| other.entered.is_some()) {
                let has_ended = other.is_answered() || other.may_vanish;
                assert!(has_ended, "ORDERED write {tag} landed before command {} had ended", other.tag);
            }
        }
    }

    /// Returns whether no command or function with shared effects is in progress.
    pub(super) fn is_management_idle(&self) -> bool {
        let is_open = |cmd: &Command| cmd.has_shared_effects() && !cmd.is_answered() && !cmd.is_lost;
        let managed = self.managements.values().all(|asked| asked.response.is_some() || asked.is_lost);
        managed && !self.commands.values().any(is_open)
    }

    /// Returns the tags of unanswered commands.
    pub(super) fn open(&self) -> Vec<u32> {
        self.commands
            .values()
            .filter(|cmd| !cmd.is_answered() && !cmd.may_vanish)
            .map(|cmd| cmd.tag)
            .collect()
    }

    /// Checks that every command and function that the target took was answered.
    pub(super) fn at_rest(&self) {
        for command in self.commands.values() {
            let is_due = command.has_entered() && !command.may_vanish;
            assert!(!is_due || command.is_answered(), "command {} is never answered", command.tag);
        }
        for (tag, asked) in &self.managements {
            let is_due = asked.is_taken && !asked.is_lost;
            assert!(!is_due || asked.response.is_some(), "function {tag} is never answered");
        }
    }

    /// Checks that no due unit attention of a session is left unreported.
    pub(super) fn check_attentions(&self, session: usize) {
        let missing: Vec<_> = self.sessions[session].due.iter().filter(|(_, due)| !due.is_empty()).collect();
        assert!(missing.is_empty(), "unit attention {missing:02x?} was never reported to session {session}");
    }
}

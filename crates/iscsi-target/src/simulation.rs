//! Deterministic simulation of the target's connections: scripted initiators on one thread, with a simulated clock,
//! simulated disks and a pool without threads. A run is a function of its seed, so a failure can be replayed.
//!
//! A model checks everything that the target sends and every block that is written to a disk:
//!
//! - nothing lands of a command after its abort was reported complete, its nexus was preempted and aborted, its session
//!   was logged out, or the session that reinstated it was served;
//! - every command is answered exactly once, unless a requested function aborts it;
//! - an ORDERED command begins after the commands before it;
//! - each unit attention is reported once to every session that it concerns, and to no other;
//! - no buffer or budget is exceeded, and all memory is released.
//!
//! A connection resumes only when its thread would have been woken, so that a missing wake-up shows as a command that is
//! never answered. Violations panic.
//!
//! `ROUNDTRIP_SIM_STEPS` sets the number of steps; `ROUNDTRIP_SIM_SEED` replays a seed with a trace.

mod client;
mod kinds;
mod model;
mod store;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use iscsi::{Bhs, Cut, Framer};

use self::client::{Conn, command_pdu, login_pdu, logout_pdu, management_pdu, nop_pdu};
use self::kinds::CommandKind;
use self::model::{Command, Model, TaskPlace, What};
use self::store::{BLOCK, Kind, Log, SimStore};
use crate::clock::{Clock, Manual};
use crate::config::{Limits, LunConfig, NodeConfig, Portal, TargetConfig};
use crate::core::Accepted;
use crate::core::{Core, Taken};
use crate::effects::SharedEffects;
use crate::error::ConnectionEnd;
use crate::jobs::Pool;
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::node::Nodes;
use crate::planted::{Bug, plant};
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::table::Table;

/// Random steps per seed, before all work must finish.
const STEPS_OF_SEED: usize = 500;
/// Most rounds until all work must be finished.
const SETTLE_CALLS_MAX: usize = 20_000;
const IQN: &str = "iqn.2026-11.example:sim";
const DISKS: [Kind; 3] = [Kind::Memory, Kind::Pool, Kind::Asynchronous];
const DISK_BYTES: u64 = 4 << 20;
const INITIATORS: usize = 4;

/// The state of a run.
struct World {
    random: Rng,
    clock: Manual,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    stores: Vec<Arc<SimStore>>,
    log: Log,
    model: Model,
    conns: Vec<Conn>,
    next_conn: u64,
    next_tag: u32,
    seen_log: usize,
    disk_bytes: u64,
    /// The connection whose initiator does not read at present.
    stalled: Option<usize>,
}

impl World {
    fn new(seed: u64) -> Self {
        let (random, clock, log) = (Rng::with_seed(seed), Manual::new(), Log::default());
        let stores: Vec<_> = (0..)
            .zip(DISKS)
            .map(|(lun, kind)| Arc::new(SimStore::new(lun, kind, DISK_BYTES, &log)))
            .collect();
        let luns = Self::luns(&stores);
        let portal = "127.0.0.1:3260".parse().expect("an address");
        let mut config = TargetConfig::new(portal, IQN, luns.clone());
        config.limits = Limits {
            window: 32,
            unsent_bytes: 64 << 10,
            memory_bytes: 2 << 20,
            job_bytes: 1 << 20,
            gathered_bytes: 1 << 20,
            lost_bytes: 64 << 10,
            lost_sessions: 4,
            sessions: 12,
            ..Limits::default()
        };
        let sessions = Arc::new(Sessions::default());
        let effects = Arc::new(SharedEffects::new(Arc::clone(&sessions) as _, None));
        let nothing = Arc::new(Table::empty(Arc::clone(&effects)));
        let nodes = Nodes::new(&config.nodes, vec![1], effects).expect("nodes");
        let pool = Pool::manual(1 << 20);
        let portals: Vec<Portal> = config.portals.clone();
        let time = Clock::Manual(clock.clone());
        let shared = Arc::new(
            Shared::new(config, portals, nodes, nothing, sessions, Arc::clone(&pool), time)
                .expect("an epoll"),
        );
        let (model, conns) = (Model::default(), Vec::new());
        Self {
            random,
            clock,
            shared,
            pool,
            stores,
            log,
            model,
            conns,
            next_conn: 0,
            next_tag: 1,
            seen_log: 0,
            disk_bytes: DISK_BYTES,
            stalled: None,
        }
    }

    fn luns(stores: &[Arc<SimStore>]) -> Vec<LunConfig> {
        let stores = stores.iter().map(|store| Arc::clone(store) as Arc<dyn ::store::Store>);
        (0..).zip(stores).map(|(number, store)| LunConfig::new(number, store)).collect()
    }

    /// Performs a random event and checks its effects.
    fn step(&mut self) {
        self.model.step += 1;
        match self.random.u8(..100) {
            0..=5 => self.connect(),
            6..=29 => self.issue(),
            30..=34 => self.manage(),
            35..=59 => self.deliver(),
            60..=69 => self.wake_any(),
            70..=79 => self.send_owed(),
            80..=89 => self.disks_work(),
            90..=91 => self.lose_connection(),
            92 => self.log_out(),
            93..=95 => self.pass_time(),
            96 => self.resize(),
            97 => self.stall(),
            _ => self.recover(),
        }
        self.observe();
    }

    fn any_conn(&mut self, chosen: impl Fn(&Conn) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.conns.len()).filter(|&c| chosen(&self.conns[c])).collect();
        (!all.is_empty()).then(|| all[self.random.usize(..all.len())])
    }

    /// Returns a random connection that is in full feature phase from its initiator's view.
    fn any_serving(&mut self) -> Option<usize> {
        self.any_conn(|conn| conn.session.is_some() && !conn.is_closed)
    }

    fn tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Connects an initiator: with a new session, reinstating one, or as a further connection of one.
    fn connect(&mut self) {
        if self.conns.iter().filter(|conn| !conn.is_ended).count() >= 8 {
            return;
        }
        let (mut name, mut isid) = (self.random.usize(..INITIATORS), self.random.u8(1..3));
        // Initiators that lost their connection return while their disks still have work.
        let again = self.any_conn(|conn| conn.session.is_some());
        if let Some(conn) = again.filter(|_| self.random.u8(..3) == 0).map(|c| &self.conns[c]) {
            (name, isid) = (conn.name, conn.isid);
        }
        let mine = |conn: &Conn| conn.name == name && conn.isid == isid;
        let joins = self.random.u8(..3) == 0;
        let there = self.any_conn(|conn| mine(conn) && conn.session.is_some() && conn.recovery > 0);
        let (mut tsih, mut cmd_sn, mut recovery) = (0, 1, self.random.u8(..3));
        if let Some(session) = there.filter(|_| joins).and_then(|conn| self.conns[conn].session) {
            let session = &self.model.sessions[session];
            (tsih, cmd_sn, recovery) = (session.tsih, session.cmd_sn, session.recovery);
        }
        self.next_conn += 1;
        let mailbox = Arc::new(Mailbox::new().expect("a mailbox"));
        let peer = ([127, 0, 0, 1], 40_000).into();
        let address = [127, 0, 0, 1 + name as u8].into();
        if self.shared.sessions.enter(self.next_conn, &mailbox, address, &self.shared.config.limits).is_err()
        {
            return;
        }
        let accepted = Accepted { id: self.next_conn, portal: 0, peer, local: None };
        let core = Core::new(&accepted, Arc::clone(&self.shared), mailbox, None);
        let mut conn = Conn::new(core, name, isid, recovery);
        conn.cid = self.random.u16(..4);
        let initial_r2t = self.random.bool();
        let pdu = login_pdu(name, isid, tsih, conn.cid, cmd_sn, recovery, initial_r2t);
        conn.tsih_asked = tsih;
        conn.initial_r2t = initial_r2t;
        conn.push(pdu, What::Other);
        self.conns.push(conn);
    }

    /// Sends a command.
    fn issue(&mut self) {
        let Some(c) = self.any_serving() else { return };
        let tag = self.tag();
        let Some(session) = self.conns[c].session else { return };
        if self.conns[c].in_flight >= 24 || self.conns[c].is_closing {
            return;
        }
        let stalls = self.stalled.is_some();
        let kind = if self.stalled == Some(c) {
            CommandKind::BigRead
        } else {
            CommandKind::any(&mut self.random, !stalls)
        };
        let attribute = if self.random.u8(..8) == 0 { self.random.u8(2..4) } else { 1 };
        let lun = self.random.u8(..DISKS.len() as u8);
        let session_model = &mut self.model.sessions[session];
        let cmd_sn = session_model.cmd_sn;
        session_model.cmd_sn = cmd_sn.wrapping_add(1);
        let conn = &mut self.conns[c];
        let (pdu, fields) =
            command_pdu(conn, kind, TaskPlace { tag, lun, cmd_sn }, attribute, &mut self.random);
        let command = Command::new(session, c, TaskPlace { tag, lun, cmd_sn }, fields, attribute);
        conn.push(pdu, What::Command(tag));
        conn.in_flight += 1;
        self.model.commands.insert(tag, command);
    }

    /// Sends a task management function or a NOP-Out.
    fn manage(&mut self) {
        let Some(c) = self.any_serving().filter(|_| self.stalled.is_none()) else { return };
        let (Some(session), tag) = (self.conns[c].session, self.tag()) else { return };
        if self.conns[c].is_closing {
            return;
        }
        let cmd_sn = self.model.sessions[session].cmd_sn;
        if self.random.u8(..4) == 0 {
            let pdu = nop_pdu(&self.conns[c], tag, cmd_sn);
            self.conns[c].push(pdu, What::Other);
            return;
        }
        let lun = self.random.u8(..DISKS.len() as u8);
        // Target resets are rarer.
        let function = match self.random.u8(..20) {
            0..=6 => 1,
            7..=10 => 2,
            11..=14 => 4,
            15..=17 => 5,
            18 => 6,
            _ => 7,
        };
        let mine = self.model.commands.values().filter(|cmd| cmd.conn == c && !cmd.is_answered());
        let mine: Vec<u32> = mine.map(|cmd| cmd.tag).collect();
        let referenced = if mine.is_empty() { 0 } else { mine[self.random.usize(..mine.len())] };
        let pdu = management_pdu(&self.conns[c], TaskPlace { tag, lun, cmd_sn }, function, referenced);
        self.model.management_sent(tag, function, lun, referenced, session, c);
        self.conns[c].push(pdu, What::Management(tag));
    }

    /// Delivers bytes to the target and lets it take one PDU.
    fn deliver(&mut self) {
        let Some(c) = self.any_conn(|conn| !conn.is_closed && !conn.is_ended) else { return };
        let some = self.random.usize(1..3);
        self.conns[c].deliver(some, &mut self.random);
        self.frame(c);
    }

    /// Lets the target take the next PDU of a connection; returns whether it did.
    fn frame(&mut self, c: usize) -> bool {
        let taken = self.conns[c].core.next_frame();
        match taken {
            Ok(taken) => taken == Taken::Frame,
            Err(end) => {
                self.end(c, &end);
                false
            }
        }
    }

    /// Wakes a random connection's thread.
    fn wake_any(&mut self) {
        if let Some(c) = self.any_conn(|conn| !conn.is_ended) {
            self.wake(c);
        }
    }

    fn wake(&mut self, c: usize) {
        if self.conns[c].is_closed {
            self.conns[c].is_ended |= self.conns[c].core.is_ended();
        } else if Self::is_woken(&self.conns[c].core)
            && let Err(end) = self.conns[c].core.resume()
        {
            self.end(c, &end);
        }
    }

    /// Returns whether the thread of a connection would be awake, by the conditions that `Connection::serve` waits for.
    fn is_woken(core: &Core) -> bool {
        core.login_deadline().is_some()
            || core.mailbox.has_mail()
            || core.sleep_limit().is_some()
            || ((core.has_more() || core.has_deferred()) && core.has_room())
    }

    fn end(&mut self, c: usize, end: &ConnectionEnd) {
        // Responses made before the end are still sent.
        self.drain(c);
        let conn = &mut self.conns[c];
        conn.is_closed = true;
        conn.core.end(end);
        self.model.connection_ends(c);
        if self.stalled == Some(c) {
            self.stalled = None;
        }
    }

    /// Sends solicited data of an initiator.
    fn send_owed(&mut self) {
        if let Some(c) = self.any_conn(|conn| !conn.owed.is_empty() && !conn.is_closed) {
            let place = self.random.usize(..self.conns[c].owed.len());
            self.conns[c].send_owed(place);
        }
    }

    fn disks_work(&mut self) {
        let (choice, honours_cancel) = (self.random.usize(..8), self.random.bool());
        // Disk 2 is so slow that its operations outlive connections and sessions.
        if self.random.u8(..8) > 0 {
            self.pool.run_one(choice);
        } else {
            let choice = if self.random.u8(..4) == 0 { choice } else { usize::MAX };
            self.stores[2].end_one(choice, honours_cancel);
        }
    }

    /// Loses a connection.
    fn lose_connection(&mut self) {
        if let Some(c) = self.any_conn(|conn| !conn.is_closed) {
            self.end(c, &ConnectionEnd::Closed);
        }
    }

    fn log_out(&mut self) {
        let Some(c) = self.any_serving().filter(|_| self.stalled.is_none()) else { return };
        let (Some(session), tag) = (self.conns[c].session, self.tag()) else { return };
        if self.conns[c].is_closing {
            return;
        }
        let whole = self.random.bool();
        let pdu = logout_pdu(&self.conns[c], tag, whole, self.model.sessions[session].cmd_sn);
        self.conns[c].is_closing = true;
        self.conns[c].closes_session = whole;
        self.conns[c].push(pdu, What::Other);
        self.model.logs_out(session, c, whole);
    }

    fn pass_time(&mut self) {
        let time = if self.random.u8(..10) == 0 { 3_000 } else { 20 };
        self.clock.advance(Duration::from_millis(time));
        self.shared.expire();
        self.sync_sessions();
    }

    /// Resizes the disks, which establishes a unit attention for every session.
    fn resize(&mut self) {
        if self.stalled.is_some() {
            return;
        }
        let size = DISK_BYTES + BLOCK * self.random.u64(1..1000);
        if size == self.disk_bytes {
            // No change, so no unit attention.
            return;
        }
        self.disk_bytes = size;
        self.stores.iter().for_each(|store| drop(::store::Store::resize(&**store, self.disk_bytes)));
        let nodes = [NodeConfig::new(IQN, Self::luns(&self.stores))];
        self.shared.set_nodes(&nodes, Duration::from_secs(1)).expect("nodes");
        self.model.owe_attention_everywhere((0x2a, 0x09));
    }

    /// Makes an initiator stop reading, or read again.
    fn stall(&mut self) {
        if self.stalled.take().is_some() {
            return;
        }
        // The model sees unit attentions only when they are read, so none may become due while it does not read.
        if self.model.is_management_idle() {
            self.stalled = self.any_serving();
        }
    }

    /// Recovers lost PDUs by SNACK, or lost tasks by TASK REASSIGN.
    fn recover(&mut self) {
        let Some(c) = self.any_serving().filter(|_| self.stalled.is_none()) else { return };
        let Some(session) = self.conns[c].session else { return };
        if self.conns[c].recovery == 0 || self.conns[c].is_closing {
            return;
        }
        if self.conns[c].recovery < 2 || self.random.bool() {
            let pdu = self.conns[c].snack_pdu();
            self.model.may_repeat(session);
            self.conns[c].push(pdu, What::Other);
            return;
        }
        let lost = self.model.commands.values().filter(|cmd| cmd.session == session && cmd.is_lost);
        let lost: Vec<(u32, u8)> = lost.map(|cmd| (cmd.tag, cmd.lun)).collect();
        if lost.is_empty() {
            return;
        }
        let (referenced, lun) = lost[self.random.usize(..lost.len())];
        let (tag, cmd_sn) = (self.tag(), self.model.sessions[session].cmd_sn);
        let pdu = management_pdu(&self.conns[c], TaskPlace { tag, lun, cmd_sn }, 8, referenced);
        self.model.may_repeat(session);
        self.model.management_sent(tag, 8, lun, referenced, session, c);
        self.conns[c].push(pdu, What::Management(tag));
    }

    /// Passes to the model what the target has taken, sent and written, and checks its budgets.
    fn observe(&mut self) {
        for c in 0..self.conns.len() {
            for what in self.conns[c].taken() {
                self.model.taken(what);
            }
        }
        self.model.commands_entered();
        self.observe_landed();
        for c in 0..self.conns.len() {
            if self.stalled != Some(c) {
                self.drain(c);
            }
        }
        if self.stalled.is_none() {
            self.model.check_order();
        }
        self.sync_sessions();
        self.check_budgets();
    }

    fn observe_landed(&mut self) {
        let landed = lock(&self.log)[self.seen_log..].to_vec();
        self.seen_log += landed.len();
        landed.into_iter().for_each(|(lun, stamp)| self.model.landed(lun, stamp));
    }

    /// Passes pending bytes of a connection to its initiator.
    fn drain(&mut self, c: usize) {
        // Writes land before they are acknowledged.
        self.observe_landed();
        if self.conns[c].is_ended || self.conns[c].core.outgoing.is_empty() {
            return;
        }
        let bytes = self.conns[c].take_sent();
        let framer = Framer::new(1 << 20);
        let mut at = 0;
        self.conns[c].unparsed.extend_from_slice(&bytes);
        let stream = std::mem::take(&mut self.conns[c].unparsed);
        while let Ok(Cut::Frame(frame)) = framer.next(&stream[at..]) {
            at += frame.total_bytes;
            let (bhs, data) = (frame.bhs, frame.data.to_vec());
            self.received(c, &bhs, &data);
        }
        self.conns[c].unparsed = stream[at..].to_vec();
    }

    fn received(&mut self, c: usize, bhs: &Bhs, data: &[u8]) {
        if let Some(tsih) = self.conns[c].received(bhs, data, &mut self.model) {
            self.logged_in(c, tsih);
        }
    }

    fn logged_in(&mut self, c: usize, tsih: u16) {
        let conn = &self.conns[c];
        if conn.tsih_asked != 0 {
            let session = self.model.session_of(tsih);
            // The target drops an older connection with the same CID.
            self.conns[c].session = session;
            return;
        }
        let there = self.shared.sessions.all().into_iter().find(|session| session.tsih == tsih);
        let session = self.model.session_begins((conn.name, conn.isid), tsih, conn.recovery, there);
        self.conns[c].session = Some(session);
    }

    /// Ends sessions in the model that the target has ended.
    fn sync_sessions(&mut self) {
        let alive: Vec<u64> = self.shared.sessions.all().iter().map(|session| session.instance).collect();
        self.model.alive(&alive);
    }

    fn check_budgets(&self) {
        let limits = &self.shared.config.limits;
        assert!(self.shared.memory.used() <= limits.memory_bytes);
        assert!(self.shared.sessions.sessions() <= limits.sessions);
        for conn in self.conns.iter().filter(|conn| !conn.is_ended) {
            let (waiting, most) = (conn.core.outgoing.own_bytes(), limits.unsent_bytes + (100 << 10));
            assert!(waiting <= most, "{waiting} bytes wait to be sent, {most} may");
            let all = conn.core.outgoing.waiting_bytes();
            assert!(all <= 4 * limits.unsent_bytes + (100 << 10), "{all} bytes wait to be sent");
        }
    }

    /// Finishes all work without new events, and checks that everything was answered.
    fn settle(&mut self) {
        self.stalled = None;
        for round in 0.. {
            assert!(round < SETTLE_CALLS_MAX, "work never finishes: {:?}", self.model.open());
            self.model.step += 1;
            let mut is_busy = false;
            for c in 0..self.conns.len() {
                if self.conns[c].is_ended {
                    continue;
                }
                while let Some(place) = self.conns[c].owed.len().checked_sub(1) {
                    self.conns[c].send_owed(place);
                    is_busy = true;
                }
                if !self.conns[c].is_closed {
                    is_busy |= self.conns[c].deliver(1, &mut self.random);
                    is_busy |= self.frame(c);
                }
                let before = self.conns[c].core.outgoing.position();
                self.wake(c);
                is_busy |= self.conns[c].core.outgoing.position() != before || self.conns[c].is_closed;
                is_busy |= !self.conns[c].core.outgoing.is_empty();
                is_busy |= self.conns[c].core.has_more() && !self.conns[c].is_ended;
                self.observe();
            }
            is_busy |= self.pool.run_one(0);
            is_busy |= self.stores[2].end_one(0, true);
            self.observe();
            if !is_busy {
                let patient = self.conns.iter().any(|c| !c.is_closed && c.core.sleep_limit().is_some());
                if !patient {
                    break;
                }
                self.clock.advance(Duration::from_millis(50));
            }
        }
        self.model.at_rest();
        self.ask_for_attentions();
        for session in self.shared.sessions.all() {
            let open = session.commands.open_window();
            assert_eq!(open, self.shared.config.limits.window, "command window slots are not released");
        }
    }

    /// Sends TEST UNIT READY from every session until no unit attention is left, and checks that none was missed.
    fn ask_for_attentions(&mut self) {
        'connections: for c in 0..self.conns.len() {
            let Some(session) = self.conns[c].session.filter(|_| !self.conns[c].is_closed) else { continue };
            if self.conns[c].is_closing {
                continue;
            }
            for lun in 0..DISKS.len() as u8 {
                for _ in 0..16 {
                    let tag = self.tag();
                    let cmd_sn = self.model.sessions[session].cmd_sn;
                    self.model.sessions[session].cmd_sn = cmd_sn.wrapping_add(1);
                    let conn = &mut self.conns[c];
                    let place = TaskPlace { tag, lun, cmd_sn };
                    let (pdu, fields) = command_pdu(conn, CommandKind::Test, place, 1, &mut self.random);
                    let command = Command::new(session, c, place, fields, 1);
                    self.model.commands.insert(tag, command);
                    conn.push(pdu, What::Command(tag));
                    while self.conns[c].deliver(9, &mut self.random) || self.frame(c) {
                        self.observe();
                    }
                    self.observe();
                    let command = &self.model.commands[&tag];
                    if !command.has_entered() {
                        // An earlier CmdSN was lost with its connection and is never resent.
                        continue 'connections;
                    }
                    match command.status() {
                        Some(2) => {}
                        Some(0) => break,
                        other => panic!("TEST UNIT READY is answered {other:?}"),
                    }
                }
            }
            self.model.check_attentions(session);
        }
    }

    /// Ends all connections and checks that nothing is left.
    fn shut_down(&mut self) {
        for c in 0..self.conns.len() {
            if !self.conns[c].is_closed {
                self.end(c, &ConnectionEnd::Dropped("the simulation is over"));
            }
            for _ in 0..100 {
                if self.conns[c].is_ended {
                    break;
                }
                self.clock.advance(Duration::from_millis(100));
                self.wake(c);
            }
            assert!(self.conns[c].is_ended, "a connection does not end");
            self.shared.sessions.leave(self.conns[c].core.id);
        }
        self.clock.advance(Duration::from_secs(3600));
        self.shared.expire();
        self.conns.clear();
        while self.pool.run_one(0) || self.stores[2].end_one(0, true) {}
        self.observe();
        self.model.sessions.clear();
        assert_eq!(
            (self.shared.sessions.sessions(), self.shared.memory.used()),
            (0, 0),
            "sessions or memory are left"
        );
    }
}

/// Runs a seed; returns how many steps it took.
fn run(seed: u64) -> usize {
    let mut world = World::new(seed);
    world.model.traces = env_number("ROUNDTRIP_SIM_SEED").is_some();
    for _ in 0..STEPS_OF_SEED {
        world.step();
    }
    world.settle();
    world.shut_down();
    world.model.step
}

/// Runs seeds until `steps` steps are taken. Returns the seed and the message of the first failure.
fn run_until(first: u64, steps: usize) -> Result<(), (u64, String)> {
    let (mut seed, mut taken) = (first, 0);
    while taken < steps {
        let ended = std::panic::catch_unwind(|| run(seed));
        match ended {
            Ok(count) => taken += count.min(STEPS_OF_SEED),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                return Err((seed, text.unwrap_or_default()));
            }
        }
        seed += 1;
    }
    Ok(())
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn scripted_initiators_find_no_violation() {
    if let Some(seed) = env_number("ROUNDTRIP_SIM_SEED") {
        run(seed);
        return;
    }
    let steps = env_number("ROUNDTRIP_SIM_STEPS").map_or(100_000, |steps| steps as usize);
    let first = if steps > 100_000 { 1_000_000 } else { 1 };
    if let Err((seed, text)) = run_until(first, steps) {
        panic!("seed {seed} (replay with ROUNDTRIP_SIM_SEED={seed}): {text}");
    }
}

#[test]
fn same_seed_replays_the_same_run() {
    let trace = |seed| {
        let mut world = World::new(seed);
        (0..STEPS_OF_SEED).for_each(|_| world.step());
        world.settle();
        let log = lock(&world.log).clone();
        (log, world.model.step, world.model.answers)
    };
    for seed in 1..6 {
        let (first, second) = (trace(seed), trace(seed));
        assert_eq!(first, second, "seed {seed}");
        assert!(!first.2.is_empty() && !first.0.is_empty());
    }
}

#[test]
fn planted_bugs_are_found() {
    // The panic messages of failing runs are expected output.
    static QUIET: Mutex<()> = Mutex::new(());
    let _quiet = lock(&QUIET);
    for (bug, word) in [
        (Bug::WritesAfterAbort, "landed"),
        (Bug::DropsDeferred, "never answered"),
        (Bug::NotifiesOriginator, "unit attention"),
        (Bug::IgnoresSendLimit, "bytes wait to be sent"),
        (Bug::ForgetsPredecessor, "landed"),
    ] {
        plant(Some(bug));
        let found = run_until(1, 1_000_000);
        plant(None);
        let Err((seed, text)) = found else { panic!("{bug:?} was not found") };
        assert!(text.contains(word), "{bug:?}, seed {seed}: {text}");
    }
}

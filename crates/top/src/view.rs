//! The picture on a terminal, and the keys.

use output::text::line;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use serde::Serialize;

use crate::rates::{ConnectionRates, DiskRates, Rates};
use crate::traffic::{ServiceRates, TrafficRates};

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By commands a second.
    #[default]
    Iops,
    /// By bytes a second.
    Bytes,
    /// By the 99th percentile (disks) or the sends for each command (connections).
    Latency,
    /// By name.
    Name,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Iops => Self::Bytes,
            Self::Bytes => Self::Latency,
            Self::Latency => Self::Name,
            Self::Name => Self::Iops,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Bytes => "MB/s",
            Self::Latency => "p99, sends/cmd",
            Self::Name => "name",
        }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter or sign.
    Character(char),
    /// Deletes the last character of the filter.
    Backspace,
    /// Accepts the filter.
    Enter,
    /// Clears the filter.
    Escape,
    /// One row up.
    Up,
    /// One row down.
    Down,
}

/// What is shown and how.
#[derive(Clone, Debug, Default)]
pub struct View {
    order: Order,
    /// Rows hold this text.
    filter: String,
    is_typing: bool,
    /// No new figures.
    pub is_paused: bool,
    /// The first row that is shown.
    first: usize,
    /// What went wrong, in place of figures.
    pub problem: Option<String>,
}

impl View {
    /// Handles a key; returns false when the view is to end.
    pub fn key(&mut self, key: Key) -> bool {
        if self.is_typing {
            match key {
                Key::Character(character) if self.filter.len() < 64 => self.filter.push(character),
                Key::Backspace => drop(self.filter.pop()),
                Key::Enter => self.is_typing = false,
                Key::Escape => {
                    self.filter.clear();
                    self.is_typing = false;
                }
                _ => {}
            }
            return true;
        }
        match key {
            Key::Character('q') => return false,
            Key::Character('s') => self.order = self.order.next(),
            Key::Character('/') => self.is_typing = true,
            Key::Character('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Character('k') => self.first = self.first.saturating_sub(1),
            Key::Down | Key::Character('j') => self.first += 1,
            _ => {}
        }
        true
    }

    /// Draws the figures.
    pub fn draw(&mut self, frame: &mut Frame<'_>, figures: &Figures) {
        let picture = match figures {
            Figures::Target(rates) => Picture::of_target(rates, &self.filter),
            Figures::Traffic(rates) => Picture::of_traffic(rates, &self.filter),
        };
        // Disks have what they need, and half of the room where both need more.
        let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2);
        let bars = u16::try_from(picture.bars.len()).unwrap_or(u16::MAX).saturating_add(2);
        let room = frame.area().height.saturating_sub(bars.saturating_add(3));
        let for_peers = room.saturating_sub(rows(picture.entries.len())).max(room / 2);
        let below = if picture.peers == 0 { 0 } else { rows(picture.peers).min(for_peers) };
        let parts = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(bars),
            Constraint::Min(3),
            Constraint::Length(below),
            Constraint::Length(1),
        ]);
        let [head, stages, upper, lower, foot] = parts.areas(frame.area());
        frame.render_widget(Paragraph::new(picture.head.clone()), head);
        draw_bars(frame, stages, picture.of_bars, &picture.bars);
        self.draw_entries(frame, upper, &picture);
        if below > 0 {
            self.draw_peers(frame, lower, figures);
        }
        let keys = match (&self.problem, self.is_typing) {
            (Some(problem), _) => line(problem).to_string(),
            (None, true) => format!("filter: {}_   Enter keeps it, Esc clears it", line(&self.filter)),
            (None, false) => {
                let filter = if self.filter.is_empty() {
                    "/ filter".to_owned()
                } else {
                    format!("/ \"{}\"", line(&self.filter))
                };
                let paused = if self.is_paused { "p PAUSED" } else { "p pause" };
                format!("q quit   s sort: {}   {filter}   {paused}   up/down scroll", self.order.name())
            }
        };
        let style = if self.problem.is_some() { Style::new().fg(Color::Red) } else { dim() };
        frame.render_widget(Paragraph::new(keys).style(style), foot);
    }

    fn draw_entries(&mut self, frame: &mut Frame<'_>, area: Rect, picture: &Picture) {
        let mut entries: Vec<&Entry> = picture.entries.iter().collect();
        match self.order {
            Order::Iops => entries.sort_by(|a, b| b.iops.total_cmp(&a.iops)),
            Order::Bytes => entries.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s)),
            Order::Latency => {
                entries.sort_by(|a, b| b.p99_us.unwrap_or(-1.0).total_cmp(&a.p99_us.unwrap_or(-1.0)));
            }
            Order::Name => {}
        }
        self.first = self.first.min(entries.len().saturating_sub(1));
        let width = usize::from(area.width).saturating_sub(57).max(8);
        let row = |entry: &&Entry| {
            let errors = Cell::from(right(count(entry.errors), 7));
            let errors =
                if entry.errors_per_s > 0.0 { errors.style(Style::new().fg(Color::Red)) } else { errors };
            Row::new([
                Cell::from(tail(&entry.name, width)),
                Cell::from(right(count(entry.iops), 8)),
                Cell::from(right(
                    entry.read_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0)),
                    5,
                )),
                Cell::from(right(megabytes(entry.bytes_per_s), 8)),
                Cell::from(right(us(entry.p50_us), 7)),
                Cell::from(right(us(entry.p99_us), 7)),
                Cell::from(right(
                    entry.depth.map_or_else(|| "-".to_owned(), |depth| format!("{depth:.1}")),
                    6,
                )),
                errors,
            ])
        };
        let widths = [width as u16, 8, 5, 8, 7, 7, 6, 7].map(Constraint::Length);
        let heading = [
            picture.of_entries,
            picture.of_rate,
            " read",
            "    MB/s",
            " p50 us",
            " p99 us",
            " depth",
            " errors",
        ];
        let table = Table::new(entries.iter().skip(self.first).map(row), widths)
            .header(Row::new(heading).style(header()));
        frame.render_widget(table, area);
    }

    fn draw_peers(&self, frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
        match figures {
            Figures::Target(rates) => self.draw_connections(frame, area, rates),
            Figures::Traffic(rates) => self.draw_clients(frame, area, rates),
        }
    }

    fn draw_connections(&self, frame: &mut Frame<'_>, area: Rect, rates: &Rates) {
        let shown = |one: &&ConnectionRates| {
            [&one.initiator, &one.target, &one.peer].iter().any(|text| text.contains(&self.filter))
        };
        let mut all: Vec<&ConnectionRates> = rates.connections.iter().filter(shown).collect();
        match self.order {
            Order::Iops => all.sort_by(|a, b| b.iops.total_cmp(&a.iops)),
            Order::Bytes => all.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s)),
            Order::Latency => all.sort_by(|a, b| {
                b.sends_per_command.unwrap_or(-1.0).total_cmp(&a.sends_per_command.unwrap_or(-1.0))
            }),
            Order::Name => {}
        }
        let width = usize::from(area.width).saturating_sub(59).max(8);
        let row = |one: &&ConnectionRates| {
            Row::new([
                tail(&one.initiator, width),
                tail(&one.peer, 21),
                right(count(one.iops), 8),
                right(megabytes(one.bytes_per_s), 8),
                right(one.sends_per_command.map_or_else(|| "-".to_owned(), |sends| format!("{sends:.2}")), 9),
                one.mode.to_owned(),
            ])
        };
        let widths = [width as u16, 21, 8, 8, 9, 7].map(Constraint::Length);
        let heading = ["initiator", "address", "    IOPS", "    MB/s", "sends/cmd", "mode"];
        frame.render_widget(
            Table::new(all.iter().map(row), widths).header(Row::new(heading).style(header())),
            area,
        );
    }

    fn draw_clients(&self, frame: &mut Frame<'_>, area: Rect, rates: &TrafficRates) {
        let shown =
            |one: &&ServiceRates| [&one.service, &one.name].iter().any(|text| text.contains(&self.filter));
        let mut all: Vec<&ServiceRates> = rates.clients.iter().filter(shown).collect();
        match self.order {
            Order::Iops => all.sort_by(|a, b| b.per_s.total_cmp(&a.per_s)),
            Order::Bytes => all.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s)),
            Order::Latency => {
                all.sort_by(|a, b| b.p99_us.unwrap_or(-1.0).total_cmp(&a.p99_us.unwrap_or(-1.0)));
            }
            Order::Name => {}
        }
        let width = usize::from(area.width).saturating_sub(60).max(8);
        let row = |one: &&ServiceRates| {
            Row::new([
                tail(&one.name, width),
                tail(&one.service, 21),
                right(count(one.per_s), 8),
                right(megabytes(one.bytes_per_s), 8),
                right(us(one.p50_us), 7),
                right(us(one.p99_us), 7),
            ])
        };
        let widths = [width as u16, 21, 8, 8, 7, 7].map(Constraint::Length);
        let heading = ["client", "service", "   ops/s", "    MB/s", " p50 us", " p99 us"];
        frame.render_widget(
            Table::new(all.iter().map(row), widths).header(Row::new(heading).style(header())),
            area,
        );
    }
}

/// What is drawn.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Figures {
    /// A target, as it says itself.
    Target(Rates),
    /// Any services, as packets show them.
    Traffic(TrafficRates),
}

impl Figures {
    /// Lines that hold all of it: head, bars and both tables with their headings, and the line of the keys.
    #[must_use]
    pub fn height(&self) -> usize {
        let (bars, entries, peers) = match self {
            Self::Target(rates) => (rates.stages.len(), rates.disks.len(), rates.connections.len()),
            Self::Traffic(rates) => (rates.parts.len(), rates.services.len(), rates.clients.len()),
        };
        let below = if peers == 0 { 0 } else { peers + 2 };
        2 + bars + 2 + (entries + 2).max(3) + below + 1
    }
}

/// A row of the upper table: a disk, or an operation of a service.
struct Entry {
    name: String,
    iops: f64,
    read_share: Option<f64>,
    bytes_per_s: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    depth: Option<f64>,
    errors_per_s: f64,
    errors: f64,
}

/// What both kinds of figures have in common.
struct Picture {
    head: Vec<Line<'static>>,
    of_bars: &'static str,
    /// Name and mean, microseconds.
    bars: Vec<(String, Option<f64>)>,
    of_entries: &'static str,
    of_rate: &'static str,
    entries: Vec<Entry>,
    peers: usize,
}

impl Picture {
    fn of_target(rates: &Rates, filter: &str) -> Self {
        let [iops, bytes, errors] = [
            rates.disks.iter().map(|disk| disk.iops).sum::<f64>(),
            rates.disks.iter().map(|disk| disk.bytes_per_s).sum(),
            rates.disks.iter().map(|disk| disk.errors_per_s).sum(),
        ];
        let mut first = vec![
            Span::styled("roundtrip ", bold()),
            Span::raw(format!(
                "{}   up {}   send {}   sessions {}",
                line(&rates.version),
                time(rates.uptime_s),
                line(&rates.send),
                rates.sessions
            )),
        ];
        if rates.draining {
            first.push(Span::styled("   DRAINING", Style::new().fg(Color::Yellow)));
        }
        let shown = |disk: &&DiskRates| disk.target.contains(filter) || disk.lun.to_string() == filter;
        let entry = |disk: &DiskRates| Entry {
            name: format!("{} {}", disk.target, disk.lun),
            iops: disk.iops,
            read_share: disk.read_share,
            bytes_per_s: disk.bytes_per_s,
            p50_us: disk.p50_us,
            p99_us: disk.p99_us,
            depth: Some(disk.depth),
            errors_per_s: disk.errors_per_s,
            errors: disk.errors,
        };
        Self {
            head: vec![Line::from(first), sums("IOPS", iops, bytes, errors)],
            of_bars: "where the time of a command goes inside the target, mean us",
            bars: rates.stages.clone(),
            of_entries: "disk",
            of_rate: "    IOPS",
            entries: rates.disks.iter().filter(shown).map(entry).collect(),
            peers: rates.connections.len(),
        }
    }

    fn of_traffic(rates: &TrafficRates, filter: &str) -> Self {
        let [per_s, bytes, errors] = [
            rates.services.iter().map(|one| one.per_s).sum::<f64>(),
            rates.services.iter().map(|one| one.bytes_per_s).sum(),
            rates.services.iter().map(|one| one.errors_per_s).sum(),
        ];
        let capture = &rates.capture;
        let port = if capture.port == 0 { "all ports".to_owned() } else { format!("port {}", capture.port) };
        let mut first = vec![
            Span::styled("packets ", bold()),
            Span::raw(format!(
                "of {port} on {}   {} so far",
                line(&capture.interfaces.join(", ")),
                count(capture.packets as f64)
            )),
        ];
        if capture.drops > 0 {
            let lost = format!("   {} LOST: operations are missing", count(capture.drops as f64));
            first.push(Span::styled(lost, Style::new().fg(Color::Yellow)));
        }
        let shown = |one: &&ServiceRates| one.service.contains(filter) || one.name.contains(filter);
        let entry = |one: &ServiceRates| Entry {
            name: format!("{} {}", one.service, one.name),
            iops: one.per_s,
            read_share: one.read_share,
            bytes_per_s: one.bytes_per_s,
            p50_us: one.p50_us,
            p99_us: one.p99_us,
            depth: one.depth,
            errors_per_s: one.errors_per_s,
            errors: one.errors as f64,
        };
        Self {
            head: vec![Line::from(first), sums("operations/s", per_s, bytes, errors)],
            of_bars: "where the time of an operation goes, mean us",
            bars: rates.parts.iter().map(|&(name, mean)| (name.to_owned(), mean)).collect(),
            of_entries: "service and operation",
            of_rate: "   ops/s",
            entries: rates.services.iter().filter(shown).map(entry).collect(),
            peers: rates.clients.len(),
        }
    }
}

/// The line of all rows together.
fn sums(unit: &str, per_s: f64, bytes: f64, errors: f64) -> Line<'static> {
    // The sum of nothing is -0.
    let [per_s, bytes, errors] = [per_s, bytes, errors].map(|sum| sum + 0.0);
    Line::from(vec![
        Span::styled(format!("{} {unit}", count(per_s)), bold()),
        Span::raw(format!("   {} MB/s   {} errors/s", megabytes(bytes), count(errors))),
    ])
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A bar for each part of the time, as long as its share of their sum.
fn draw_bars(frame: &mut Frame<'_>, area: Rect, of: &'static str, bars: &[(String, Option<f64>)]) {
    let sum: f64 = bars.iter().filter_map(|(_, us)| *us).sum();
    let width = usize::from(area.width).saturating_sub(26);
    let mut lines = vec![Line::styled(of, header())];
    for (name, mean) in bars {
        let share = mean.map_or(0.0, |us| us / sum.max(1e-9));
        let length = (share * width as f64).round() as usize;
        lines.push(Line::from(vec![
            Span::raw(format!(
                "{name:<11}{:>10}  ",
                mean.map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"))
            )),
            Span::styled("\u{2588}".repeat(length), Style::new().fg(Color::Cyan)),
        ]));
    }
    frame.render_widget(Paragraph::new(lines).alignment(Alignment::Left), area);
}

fn dim() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn header() -> Style {
    Style::new().add_modifier(Modifier::UNDERLINED)
}

/// The end of a text, which tells names of one kind apart.
fn tail(text: &str, width: usize) -> String {
    let text = line(text).to_string();
    let length = text.chars().count();
    if length <= width {
        return text;
    }
    let end: String = text.chars().skip(length + 1 - width).collect();
    format!("\u{2026}{end}")
}

fn right(text: impl std::fmt::Display, width: usize) -> String {
    let text = text.to_string();
    format!("{text:>width$}")
}

/// A count, at most five characters.
fn count(value: f64) -> String {
    match value {
        value if value < 9.95 && value.fract() != 0.0 => format!("{value:.1}"),
        value if value < 99_999.5 => format!("{value:.0}"),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value => format!("{:.1}M", value / 1e6),
    }
}

fn megabytes(bytes: f64) -> String {
    let megabytes = bytes / 1e6;
    if megabytes < 99.95 { format!("{megabytes:.1}") } else { format!("{megabytes:.0}") }
}

fn us(us: Option<f64>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| if us < 99.95 { format!("{us:.1}") } else { count(us.round()) })
}

fn time(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn rates() -> Rates {
        let disk = |target: &str, lun, iops, p99| DiskRates {
            target: target.into(),
            lun,
            iops,
            read_share: Some(0.7),
            bytes_per_s: iops * 4096.0,
            p50_us: Some(21.4),
            p99_us: p99,
            depth: 3.2,
            errors_per_s: 0.0,
            errors: 2.0,
        };
        let connection = ConnectionRates {
            id: 1,
            initiator: "iqn.1993-08.org.debian:01:abc\x1b[31m".into(),
            peer: "[2001:db8::1]:54321".into(),
            target: "iqn.a:b".into(),
            iops: 155_435.0,
            bytes_per_s: 6.4e8,
            sends_per_command: Some(0.21),
            mode: "batch",
        };
        Rates {
            seconds: 1.0,
            disks: vec![
                disk("iqn.2026-11.example.roundtrip:a-long-name-of-a-target", 0, 155_435.0, Some(98.0)),
                disk("iqn.b:c", 12, 7.0, Some(1e7)),
            ],
            connections: vec![connection],
            stages: [
                ("turn", Some(0.2)),
                ("receive", Some(1.9)),
                ("queue", Some(2.0)),
                ("execute", Some(0.5)),
                ("store", None),
                ("transmit", Some(3.0)),
            ]
            .map(|(name, us)| (name.to_owned(), us))
            .to_vec(),
            sessions: 1,
            send: "auto".into(),
            draining: true,
            version: "0.1.0".into(),
            uptime_s: 3725.0,
        }
    }

    fn traffic() -> TrafficRates {
        let service = |name: &str, per_s, p99_us| ServiceRates {
            service: "[2001:db8::2]:6379".into(),
            name: name.into(),
            per_s,
            read_share: None,
            bytes_per_s: per_s * 100.0,
            p50_us: Some(80.0),
            p99_us,
            depth: Some(1.5),
            errors_per_s: 1.0,
            errors: 7,
        };
        TrafficRates {
            seconds: 1.0,
            capture: crate::traffic::Capture {
                interfaces: vec!["eth0".into()],
                port: 6379,
                packets: 123_456,
                drops: 12,
            },
            services: vec![service("SET", 1000.0, Some(120.0)), service("GET\x1b[2J", 5000.0, None)],
            clients: vec![service("192.0.2.7", 6000.0, Some(110.0))],
            parts: crate::traffic::PARTS.map(|name| (name, (name != "response").then_some(2.5))).to_vec(),
        }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        drawn_of(view, &Figures::Target(rates()), width, height)
    }

    fn drawn_of(view: &mut View, figures: &Figures, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame, figures)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| format!("{}\n", row(y).trim_end())).collect()
    }

    #[test]
    fn eighty_columns_hold_everything() {
        let text = drawn(&mut View::default(), 80, 24);
        for part in [
            "155k IOPS",
            "637 MB/s",
            "DRAINING",
            "up 1h02m",
            "transmit          3.0",
            "store               -",
            "a-target 0",
            "155k   70%",
            "10.0M",
            "batch",
            "0.21",
            "q quit",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn services_are_shown_as_packets_show_them() {
        let figures = Figures::Traffic(traffic());
        let text = drawn_of(&mut View::default(), &figures, 80, 24);
        for part in [
            "packets of port 6379 on eth0   123k so far   12 LOST",
            "6000 operations/s   0.6 MB/s   2 errors/s",
            "first byte        2.5",
            "response            -",
            "::2]:6379 GET",
            "192.0.2.7",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains('\x1b'), "{text}");
        let (get, set) = (text.find("GET").unwrap(), text.find("SET").unwrap());
        assert!(get < set, "the busier one is first");
        let mut view = View::default();
        for key in "/SET".chars().map(Key::Character).chain([Key::Enter]) {
            view.key(key);
        }
        let text = drawn_of(&mut view, &figures, 80, 24);
        assert!(text.contains("SET") && !text.contains("GET"), "{text}");
    }

    #[test]
    fn nothing_is_no_negative_zero() {
        for figures in [Figures::Target(Rates::default()), Figures::Traffic(TrafficRates::default())] {
            let text = drawn_of(&mut View::default(), &figures, 80, 24);
            assert!(text.contains("\n0 ") && !text.contains("-0"), "{text}");
        }
    }

    #[test]
    fn any_size_is_drawn() {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 12), (200, 60), (500, 2)] {
            drawn(&mut View::default(), width, height);
            drawn_of(&mut View::default(), &Figures::Traffic(traffic()), width, height);
        }
    }

    #[test]
    fn keys_sort_filter_and_end() {
        let mut view = View::default();
        let first = |view: &mut View| {
            let text = drawn(view, 80, 24);
            text.lines().skip_while(|line| !line.starts_with("disk")).nth(1).unwrap_or_default().to_owned()
        };
        assert!(first(&mut view).contains("target 0"));
        [Key::Character('s'), Key::Character('s')].into_iter().for_each(|key| assert!(view.key(key)));
        assert!(first(&mut view).contains("iqn.b:c 12"), "by p99");
        for key in "/target".chars().map(Key::Character).chain([Key::Enter]) {
            view.key(key);
        }
        assert!(first(&mut view).contains("target 0"), "the other is filtered");
        // While a filter is typed, letters are letters.
        view.key(Key::Character('/'));
        assert!(view.key(Key::Character('q')));
        view.key(Key::Escape);
        assert!(view.filter.is_empty() && !view.key(Key::Character('q')));
    }
}

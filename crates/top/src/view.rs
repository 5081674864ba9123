//! The picture on a terminal, and the keys.

use output::text::line;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use crate::rates::{ConnectionRates, DiskRates, Rates};

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
    pub fn draw(&mut self, frame: &mut Frame<'_>, rates: &Rates) {
        // Disks have what they need, and half of the room where both need more.
        let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2);
        let room = frame.area().height.saturating_sub(11);
        let for_connections = room.saturating_sub(rows(rates.disks.len())).max(room / 2);
        let below =
            if rates.connections.is_empty() { 0 } else { rows(rates.connections.len()).min(for_connections) };
        let parts = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(8),
            Constraint::Min(3),
            Constraint::Length(below),
            Constraint::Length(1),
        ]);
        let [head, stages, disks, connections, foot] = parts.areas(frame.area());
        self.draw_head(frame, head, rates);
        draw_stages(frame, stages, rates);
        self.draw_disks(frame, disks, rates);
        if below > 0 {
            self.draw_connections(frame, connections, rates);
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

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, rates: &Rates) {
        let iops: f64 = rates.disks.iter().map(|disk| disk.iops).sum();
        let bytes: f64 = rates.disks.iter().map(|disk| disk.bytes_per_s).sum();
        let errors: f64 = rates.disks.iter().map(|disk| disk.errors_per_s).sum();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut first = vec![
            Span::styled("roundtrip ", bold),
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
        let second = Line::from(vec![
            Span::styled(format!("{} IOPS", count(iops)), bold),
            Span::raw(format!("   {} MB/s   {} errors/s", megabytes(bytes), count(errors))),
        ]);
        frame.render_widget(Paragraph::new(vec![Line::from(first), second]), area);
    }

    fn draw_disks(&mut self, frame: &mut Frame<'_>, area: Rect, rates: &Rates) {
        let shown =
            |disk: &&DiskRates| disk.target.contains(&self.filter) || disk.lun.to_string() == self.filter;
        let mut disks: Vec<&DiskRates> = rates.disks.iter().filter(shown).collect();
        match self.order {
            Order::Iops => disks.sort_by(|a, b| b.iops.total_cmp(&a.iops)),
            Order::Bytes => disks.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s)),
            Order::Latency => {
                disks.sort_by(|a, b| b.p99_us.unwrap_or(-1.0).total_cmp(&a.p99_us.unwrap_or(-1.0)));
            }
            Order::Name => {}
        }
        self.first = self.first.min(disks.len().saturating_sub(1));
        let width = usize::from(area.width).saturating_sub(57).max(8);
        let row = |disk: &&DiskRates| {
            let errors = Cell::from(right(count(disk.errors), 7));
            let errors =
                if disk.errors_per_s > 0.0 { errors.style(Style::new().fg(Color::Red)) } else { errors };
            Row::new([
                Cell::from(tail(&format!("{} {}", disk.target, disk.lun), width)),
                Cell::from(right(count(disk.iops), 8)),
                Cell::from(right(
                    disk.read_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0)),
                    5,
                )),
                Cell::from(right(megabytes(disk.bytes_per_s), 8)),
                Cell::from(right(us(disk.p50_us), 7)),
                Cell::from(right(us(disk.p99_us), 7)),
                Cell::from(right(format!("{:.1}", disk.depth), 6)),
                errors,
            ])
        };
        let widths = [width as u16, 8, 5, 8, 7, 7, 6, 7].map(Constraint::Length);
        let heading = ["disk", "    IOPS", " read", "    MB/s", " p50 us", " p99 us", "depth", " errors"];
        let table = Table::new(disks.iter().skip(self.first).map(row), widths)
            .header(Row::new(heading).style(header()));
        frame.render_widget(table, area);
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
}

/// A bar for each stage of a command, as long as its share of their sum.
fn draw_stages(frame: &mut Frame<'_>, area: Rect, rates: &Rates) {
    let sum: f64 = rates.stages.iter().filter_map(|(_, us)| *us).sum();
    let width = usize::from(area.width).saturating_sub(24);
    let mut lines =
        vec![Line::styled("where the time of a command goes inside the target, mean us", header())];
    for (name, mean) in &rates.stages {
        let share = mean.map_or(0.0, |us| us / sum.max(1e-9));
        let length = (share * width as f64).round() as usize;
        lines.push(Line::from(vec![
            Span::raw(format!(
                "{name:<9}{:>10}  ",
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

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame, &rates())).expect("drawn");
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
            "transmit        3.0",
            "store             -",
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
    fn any_size_is_drawn() {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 12), (200, 60), (500, 2)] {
            drawn(&mut View::default(), width, height);
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

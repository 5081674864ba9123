//! The pictures of a study's points.

use std::path::{Path, PathBuf};

use record::Op;
use report::pages::Figure;
use report::quantities::{Clocks, Origin, Run, Subject, Timed};
use study::StudyResult;
use study::runner::PointOps;

use crate::figures::{self, Folder};

/// The name of a point in names of files.
pub(super) fn point_name(block_bytes: u64, policy: &str, queue_depth: u32) -> String {
    let policy = policy.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    format!("{block_bytes}-{policy}-qd{queue_depth}")
}

/// The pictures of a ring's points.
pub(crate) struct Pictures {
    folder: PathBuf,
    /// The folder is the study's own: files in it are replaced, links too.
    is_own: bool,
}

/// Largest picture that a page contains, bytes.
const PICTURE_MAX: u64 = 4 << 20;
/// A study of more points shows the pictures of queue depth 1 alone: those of a saturated ring are clouds.
const SHOWN_MAX: usize = 12;

impl Pictures {
    /// Those in the study's own folder, or in one that the user named.
    pub(crate) fn of(named: Option<&PathBuf>, output: &Path) -> Self {
        let own = || output.join("figures");
        Self { folder: named.cloned().unwrap_or_else(own), is_own: named.is_none() }
    }

    fn place(&self) -> Folder<'_> {
        if self.is_own { Folder::Own(&self.folder) } else { Folder::Named(&self.folder) }
    }

    /// Draws the operations of a point's first run. Its figures are of the median run, of which that of an end is known only once the
    /// study has compared it with others; the title says which one the picture shows.
    pub(super) fn draw(&self, taken: &PointOps<'_>) -> std::io::Result<()> {
        let PointOps { point, round, operations, has_one_clock } = *taken;
        if round > 0 {
            return Ok(());
        }
        let policy = point.policy.to_string();
        let title =
            format!("{} B reads, {policy}, queue depth {}, first run", point.block_bytes, point.queue_depth);
        let name = point_name(point.block_bytes, &policy, point.queue_depth);
        self.draw_run(&name, title, operations, has_one_clock)
    }

    /// Draws the operations of a run.
    pub(super) fn draw_run(
        &self,
        name: &str,
        title: String,
        operations: &[Op],
        has_one_clock: bool,
    ) -> std::io::Result<()> {
        let clocks = if has_one_clock { Clocks::Shared } else { Clocks::Apart };
        let mut run = Run::new(figures::KEPT_OF_A_RUN);
        operations.iter().filter_map(|op| Timed::of(op, clocks)).for_each(|timed| run.add(&timed));
        let subject = Subject { title, notes: Vec::new(), origin: Origin::Ring, clocks };
        let written = self.place().create().and_then(|()| figures::write(self.place(), name, &subject, &run));
        written.map_err(|error| std::io::Error::other(format!("{error:#}")))
    }

    /// The pictures that the page contains; those of an interrupted study are read from where it wrote them.
    pub(crate) fn shown(&self, result: &StudyResult) -> Vec<Figure> {
        let is_shown = |depth: u32| result.is_end(depth) && (result.stanzas.len() <= SHOWN_MAX || depth == 1);
        let stanzas = result.stanzas.iter().filter(|stanza| is_shown(stanza.queue_depth));
        stanzas
            .filter_map(|stanza| {
                self.read(&point_name(stanza.block_size_bytes, &stanza.policy, stanza.queue_depth))
            })
            .collect()
    }

    /// The pictures of the last run of an experiment's cases.
    pub(super) fn of_last_run(&self, repeats: u32) -> Vec<Figure> {
        let ending = format!("-{repeats}.svg");
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        names.retain(|name| name.ends_with(&ending));
        names.sort();
        names.iter().filter_map(|name| self.read(name.trim_end_matches(".svg"))).collect()
    }

    fn read(&self, name: &str) -> Option<Figure> {
        let path = self.folder.join(format!("{name}.svg"));
        let size = std::fs::symlink_metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
        let svg = std::fs::read_to_string(&path).ok().filter(|_| size <= PICTURE_MAX)?;
        let shown = if self.is_own { format!("figures/{name}.svg") } else { path.display().to_string() };
        Some(Figure { file: shown, svg })
    }
}

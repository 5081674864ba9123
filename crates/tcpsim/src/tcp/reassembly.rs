//! Data that arrived ahead of data that is missing.

/// Offsets `from..to` of a stream.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: u64,
    to: u64,
}

/// Ranges beyond the first missing byte: ascending, disjoint, none touching another.
#[derive(Clone, Debug, Default)]
pub(super) struct Reassembly {
    ranges: Vec<Range>,
}

impl Reassembly {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Keeps the bytes `from..to`.
    pub(super) fn insert(&mut self, from: u64, to: u64) {
        let at = self.ranges.partition_point(|range| range.from < from);
        self.ranges.insert(at, Range { from, to });
        self.ranges.dedup_by(|next, last| {
            let touches = next.from <= last.to;
            if touches {
                last.to = last.to.max(next.to);
            }
            touches
        });
    }

    /// Removes what follows on `offset` without a gap and returns where that ends.
    #[inline]
    pub(super) fn advance(&mut self, mut offset: u64) -> u64 {
        while let Some(&Range { from, to }) = self.ranges.first()
            && from <= offset
        {
            offset = offset.max(to);
            self.ranges.remove(0);
        }
        offset
    }
}

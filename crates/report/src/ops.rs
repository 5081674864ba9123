//! Operations, one record each: Parquet, comma-separated values or a trace for Perfetto, by the file's name.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use output::Draft;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use record::{Observed, Op, OpKind, Outcome};

use crate::perfetto::Trace;

/// Records of a Parquet row group.
const GROUP: usize = 65_536;

/// The columns: stamps in nanoseconds since the epoch (0 in CSV, null in Parquet: not observed); frames as
/// Wireshark counts them.
const SCHEMA: &str = "message operation {
    required int32 connection; required int64 tag; required binary operation (UTF8);
    required binary kind (UTF8); required binary outcome (UTF8); required int32 queue_depth;
    required int64 data_bytes; required int64 request_bytes; required int64 response_bytes;
    optional int64 request_began_ns; optional int64 c1_ns; optional int64 s1_ns; optional int64 s2_ns;
    optional int64 c2_ns; optional int64 response_began_ns; optional int64 thought_ns;
    optional int64 request_frame; optional int64 response_frame;
    optional int64 start_ns; optional int64 finish_ns;
    required binary service (UTF8); required binary key (UTF8); required binary status (UTF8);
    required int64 stream; optional int64 whole_ns; required binary client (UTF8);
    optional int64 request_first_frame; required boolean partial; required boolean shared_clock;
    required int64 held_ns; required int64 repaired_ns;
}";

/// The heading of the same columns.
const HEADING: &str = "connection,tag,operation,kind,outcome,queue_depth,data_bytes,request_bytes,response_bytes,\
request_began_ns,c1_ns,s1_ns,s2_ns,c2_ns,response_began_ns,thought_ns,request_frame,response_frame,start_ns,finish_ns,service,key,status,stream,\
whole_ns,client,request_first_frame,partial,shared_clock,held_ns,repaired_ns";

/// One record.
#[derive(Debug)]
struct Row {
    connection: u32,
    tag: u32,
    texts: [String; 3],
    queue_depth: u32,
    bytes: [u32; 3],
    /// The optional columns, in their order.
    stamps: [Option<u64>; 11],
    /// Service, key and status.
    names: [String; 3],
    stream: u32,
    /// The time as its user sees it, and the request's first frame.
    whole: [Option<u64>; 2],
    client: String,
    /// Seen at one of two points only; both on one clock.
    flags: [bool; 2],
    /// How long TCP held the request, and from the response's last byte until a retransmission completed it.
    waited: [u64; 2],
}

impl Row {
    fn of(op: &Op, observed: Option<&Observed>, named: &Names<'_>) -> Self {
        let detail = observed.map(|observed| &observed.detail);
        let Names { service, client, key } = *named;
        // The program's own record has its begin and its end.
        let own = op.finish.since(op.start).and_then(|ns| u64::try_from(ns).ok());
        let seen = observed.map(Observed::whole_ns).filter(|ns| *ns > 0);
        let frame = |frame: u64| (frame > 0).then_some(frame);
        let outcome = match op.outcome {
            Outcome::Good => "good",
            Outcome::Failed => "failed",
        };
        Self {
            connection: op.connection,
            tag: op.tag,
            texts: [op.verb.name(), kind(op.kind).to_owned(), outcome.to_owned()],
            queue_depth: op.queue_depth,
            bytes: [op.data_bytes, op.request_bytes, op.response_bytes],
            stamps: [
                detail.and_then(|e| e.request.began.ns()),
                op.c1.ns(),
                op.s1.ns(),
                op.s2.ns(),
                op.c2.ns(),
                detail.and_then(|e| e.response.began.ns()),
                detail.and_then(|e| e.thought_ns),
                detail.and_then(|e| frame(e.request.last_frame)),
                detail.and_then(|e| frame(e.response.last_frame)),
                op.start.ns(),
                op.finish.ns(),
            ],
            names: [
                service.map_or(String::new(), |service| service.to_string()),
                key.to_owned(),
                detail.map_or(String::new(), |e| e.status.text()),
            ],
            stream: detail.map_or(0, |e| e.stream),
            whole: [seen.or(own), detail.and_then(|e| frame(e.request.first_frame))],
            client: client.map_or(String::new(), |client| client.to_string()),
            flags: [
                observed.is_some_and(|observed| observed.is_partial),
                observed.is_none_or(|observed| observed.shared_clock),
            ],
            waited: detail.map_or([0; 2], |e| [e.held_ns, e.repaired_ns]),
        }
    }
}

/// What else belongs to an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// Its server.
    pub service: Option<SocketAddr>,
    /// Its client.
    pub client: Option<IpAddr>,
    /// Its key; empty: it has none.
    pub key: &'a str,
}

fn kind(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Read => "read",
        OpKind::Write => "write",
        OpKind::Other => "other",
    }
}

/// Writes records. The file appears under its name when [`OpsWriter::finish`] succeeds; until then, and if it never does, an
/// older file of that name stays as it was.
pub struct OpsWriter {
    format: Format,
    draft: Draft,
}

enum Format {
    Csv(BufWriter<File>),
    Perfetto(Trace<BufWriter<File>>),
    Parquet { writer: Box<SerializedFileWriter<File>>, rows: Vec<Row>, group: usize },
}

impl std::fmt::Debug for OpsWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpsWriter").finish_non_exhaustive()
    }
}

impl OpsWriter {
    /// Creates the file; its name ends with .parquet, .csv or .pftrace.
    ///
    /// # Errors
    /// When the name ends otherwise, or the file is a symbolic link or cannot be written.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::open(path, Draft::create)
    }

    /// Creates the file in place of whatever has its name, in a folder of the program's own.
    ///
    /// # Errors
    /// When its name ends otherwise, or the file cannot be written.
    pub fn create_anew(path: &Path) -> io::Result<Self> {
        Self::open(path, Draft::in_own_folder)
    }

    fn open(path: &Path, open: fn(&Path) -> io::Result<Draft>) -> io::Result<Self> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("csv") => {
                let draft = open(path)?;
                let mut out = BufWriter::new(draft.handle()?);
                writeln!(out, "{HEADING}")?;
                Ok(Self { format: Format::Csv(out), draft })
            }
            Some("parquet") => {
                let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let draft = open(path)?;
                let writer = SerializedFileWriter::new(draft.handle()?, schema, Arc::new(properties))
                    .map_err(failed)?;
                let format = Format::Parquet { writer: Box::new(writer), rows: Vec::new(), group: GROUP };
                Ok(Self { format, draft })
            }
            Some("pftrace") => {
                let draft = open(path)?;
                let format = Format::Perfetto(Trace::new(BufWriter::new(draft.handle()?)));
                Ok(Self { format, draft })
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "its name says no format; let it end with .parquet, .csv or .pftrace (Perfetto)",
            )),
        }
    }

    /// The file in row groups of so many records: what is kept in memory of a file that is one of many.
    #[must_use]
    pub fn in_groups_of(mut self, records: usize) -> Self {
        if let Format::Parquet { group, .. } = &mut self.format {
            *group = records.clamp(1, GROUP);
        }
        self
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, op: &Op) -> io::Result<()> {
        self.write_one(op, None, &Names::default())
    }

    /// Adds an operation with what only packets show: its service, its client, and the name of its key.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_observed(&mut self, observed: &Observed, named: &Names<'_>) -> io::Result<()> {
        self.write_one(&observed.op, Some(observed), named)
    }

    fn write_one(&mut self, op: &Op, observed: Option<&Observed>, named: &Names<'_>) -> io::Result<()> {
        if let Format::Perfetto(trace) = &mut self.format {
            return trace.write(op, observed, named);
        }
        let row = Row::of(op, observed, named);
        match &mut self.format {
            Format::Perfetto(_) => Ok(()),
            Format::Csv(out) => {
                let Row {
                    connection,
                    tag,
                    texts,
                    queue_depth,
                    bytes,
                    stamps,
                    names,
                    stream,
                    whole,
                    client,
                    flags,
                    waited,
                } = row;
                // A method comes from the capture.
                let [operation, kind, outcome] = texts.map(|text| output::text::csv(&text));
                let [data, request, response] = bytes;
                write!(
                    out,
                    "{connection},{tag},{operation},{kind},{outcome},{queue_depth},{data},{request},{response}"
                )?;
                for stamp in stamps {
                    write!(out, ",{}", stamp.unwrap_or(0))?;
                }
                let [service, key, status] = names.map(|text| output::text::csv(&text));
                let [whole, first] = whole.map(|value| value.unwrap_or(0));
                let [partial, shared] = flags;
                let [held, repaired] = waited;
                write!(
                    out,
                    ",{service},{key},{status},{stream},{whole},{client},{first},{partial},{shared}"
                )?;
                writeln!(out, ",{held},{repaired}")
            }
            Format::Parquet { writer, rows, group: most } => {
                rows.push(row);
                if rows.len() < *most {
                    return Ok(());
                }
                group(writer, rows).map_err(failed)
            }
        }
    }

    /// Writes everything that is buffered and gives the file its name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        match self.format {
            Format::Csv(mut out) => out.flush()?,
            Format::Perfetto(trace) => trace.finish()?,
            Format::Parquet { mut writer, mut rows, .. } => {
                if !rows.is_empty() {
                    group(&mut writer, &mut rows).map_err(failed)?;
                }
                writer.close().map_err(failed)?;
            }
        }
        self.draft.commit()
    }
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => io::Error::other(source),
        other => io::Error::other(other),
    }
}

/// Writes a row group and empties `rows`.
fn group(writer: &mut SerializedFileWriter<File>, rows: &mut Vec<Row>) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let words = |of: fn(&Row) -> u32| rows.iter().map(|r| of(r).cast_signed()).collect::<Vec<i32>>();
    let longs = |of: &dyn Fn(&Row) -> u32| rows.iter().map(|r| i64::from(of(r))).collect::<Vec<i64>>();
    let texts = |of: &dyn Fn(&Row) -> &str| rows.iter().map(|r| ByteArray::from(of(r))).collect::<Vec<_>>();
    column::<Int32Type>(&mut group, &words(|r| r.connection), None)?;
    column::<Int64Type>(&mut group, &longs(&|r| r.tag), None)?;
    for which in 0..3 {
        column::<ByteArrayType>(&mut group, &texts(&|r| &r.texts[which]), None)?;
    }
    column::<Int32Type>(&mut group, &words(|r| r.queue_depth), None)?;
    for which in 0..3 {
        column::<Int64Type>(&mut group, &longs(&|r| r.bytes[which]), None)?;
    }
    let optional = |group: &mut SerializedRowGroupWriter<'_, File>, of: &dyn Fn(&Row) -> Option<u64>| {
        let values: Vec<i64> = rows.iter().filter_map(|r| of(r).map(u64::cast_signed)).collect();
        let levels: Vec<i16> = rows.iter().map(|r| i16::from(of(r).is_some())).collect();
        column::<Int64Type>(group, &values, Some(&levels))
    };
    for which in 0..11 {
        optional(&mut group, &|r| r.stamps[which])?;
    }
    for which in 0..3 {
        column::<ByteArrayType>(&mut group, &texts(&|r| &r.names[which]), None)?;
    }
    column::<Int64Type>(&mut group, &longs(&|r| r.stream), None)?;
    optional(&mut group, &|r| r.whole[0])?;
    column::<ByteArrayType>(&mut group, &texts(&|r| &r.client), None)?;
    optional(&mut group, &|r| r.whole[1])?;
    for which in 0..2 {
        let flags: Vec<bool> = rows.iter().map(|r| r.flags[which]).collect();
        column::<BoolType>(&mut group, &flags, None)?;
    }
    for which in 0..2 {
        let values: Vec<i64> = rows.iter().map(|r| r.waited[which].cast_signed()).collect();
        column::<Int64Type>(&mut group, &values, None)?;
    }
    group.close()?;
    rows.clear();
    Ok(())
}

/// Writes the next column of a row group; `levels` say which of the rows have a value.
fn column<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("a column too many".to_owned()));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use record::{Exchange, Passage, Side, Stamp};

    use super::*;

    #[test]
    fn both_formats_have_every_record() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = |i: u64| Exchange {
            op: Op { connection: 3, tag: i as u32, data_bytes: 512, ..Op::default() },
            request: Passage { ended: Stamp::at(100 + i), ..Passage::default() },
            response: Passage { ended: Stamp::at(200 + i), last_frame: i, ..Passage::default() },
            ..Exchange::default()
        };
        let observed = |i| Observed::alone(Side::Client, &exchange(i));
        let count = GROUP as u64 + 5;
        for name in ["a.csv", "a.parquet"] {
            let path = folder.path().join(name);
            let mut writer = OpsWriter::create(&path).unwrap();
            (0..count).for_each(|i| writer.write_observed(&observed(i), &Names::default()).unwrap());
            writer.finish().unwrap();
        }
        let csv = std::fs::read_to_string(folder.path().join("a.csv")).unwrap();
        assert_eq!(csv.lines().count() as u64, count + 1);
        assert_eq!(
            csv.lines().nth(2),
            Some("3,1,turn,other,good,0,512,0,0,0,101,0,0,201,0,0,0,1,0,0,,,,0,0,,0,false,false,0,0")
        );
        let file = File::open(folder.path().join("a.parquet")).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows() as u64, count);
        let schema = reader.metadata().file_metadata().schema_descr();
        let names: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
        assert_eq!(names.join(","), HEADING, "both formats have the same columns");
        let row = reader.get_row_iter(None).unwrap().nth(1).unwrap().unwrap().to_string();
        assert!(
            row.contains("c1_ns: 101") && row.contains("s1_ns: null") && row.contains("c2_ns: 201"),
            "{row}"
        );
        assert!(OpsWriter::create(&folder.path().join("a.txt")).is_err());
    }

    /// What TCP held before the request, and a retransmission that completed the response, are of the time that its user sees.
    #[test]
    fn the_whole_time_has_what_tcp_held_and_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let mut writer = OpsWriter::create(&path).unwrap();
        let passage = |began, ended| Passage { ended: Stamp::at(ended), ..Passage::begin(began, 7) };
        let exchange = Exchange {
            request: passage(1000, 1100),
            response: passage(1900, 2000),
            held_ns: 300,
            repaired_ns: 40_000,
            ..Exchange::default()
        };
        let names = Names { client: Some([192, 0, 2, 1].into()), ..Names::default() };
        let observed = Observed { is_partial: true, ..Observed::alone(Side::Client, &exchange) };
        writer.write_observed(&observed, &names).unwrap();
        // A program's own record has its own time.
        let op = Op { start: Stamp::at(10), finish: Stamp::at(25), ..Op::default() };
        writer.write(&op).unwrap();
        writer.finish().unwrap();
        let csv = std::fs::read_to_string(&path).unwrap();
        let ends: Vec<&str> = csv.lines().skip(1).map(|line| line.splitn(25, ',').last().unwrap()).collect();
        assert_eq!(ends, ["41300,192.0.2.1,7,true,false,300,40000", "15,,0,false,true,0,0"]);
    }

    #[test]
    fn http_methods_cannot_become_spreadsheet_formulas() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let mut writer = OpsWriter::create(&path).unwrap();
        for method in ["=1+1", "+1,2", "@A1", "-1\"", "GET"] {
            let op = Op {
                connection: 3,
                verb: record::Verb::Http(record::Word::new(method.as_bytes())),
                ..Op::default()
            };
            writer.write(&op).unwrap();
        }
        writer.finish().unwrap();
        let csv = std::fs::read_to_string(&path).unwrap();
        let begins = ["3,0,'=1+1,", "3,0,\"'+1,2\",", "3,0,'@A1,", "3,0,\"'-1\"\"\",", "3,0,GET,"];
        for (line, begin) in csv.lines().skip(1).zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
    }
}

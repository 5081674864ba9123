//! Any bytes as descriptions of tracepoints, pages of the trace buffer and events.
#![no_main]

use ftrace::{Decoder, Devices, Format, Page};
use libfuzzer_sys::fuzz_target;

const HEADER: &str = "field: local_t commit; offset:8; size:8;\nfield: char data; offset:16; size:4080;";
const EVENT: &str = "field:int common_pid; offset:4; size:4;\nfield:__data_loc char[] name; offset:8; size:4;\n\
    field:unsigned int len; offset:12; size:4;\nfield:long ret; offset:8; size:8;\nfield:unsigned int vec; offset:8; size:4;\n\
    field:pid_t pid; offset:8; size:4;\nfield:pid_t next_pid; offset:12; size:4;\nfield:unsigned int cpu; offset:8; size:4;\n\
    field:u32 state; offset:8; size:4;\nfield:void * skbaddr; offset:12; size:8;";

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let _ = (Format::read(&text), Page::read(&text));
    let devices = Devices { client: "client0".into(), server: "server0".into() };
    // Every tracepoint by the length of its path, so that short numbers find one.
    let format_of = |path: &str| Some(format!("ID: {}\n{EVENT}", path.len()));
    let decoder = Decoder::new(devices, &format_of).expect("the fields of every tracepoint");
    let Some(page) = Page::read(HEADER) else { return };
    let mut cpu = decoder.of_cpu(0);
    let _ = page.events(data, &mut |time, event| {
        let _ = cpu.decode(time, event);
    });
});

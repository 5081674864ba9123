//! Tests of single operations, and of random sequences against a reference copy on every store and layer.

use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

use store::file::{Engine, OpenOptions};
use store::layer::{Crash, Delay, ErrorAt, Layered, Log, Stats, Throttle};
use store::request::wait_for;
use store::{Fault, FileStore, Operation, Ram, Request};

use super::*;

fn at<'a>(store: &'a dyn Store, atomic_lock: &'a RwLock<()>, offset_bytes: u64) -> Place<'a> {
    Place { store, atomic_lock, offset_bytes }
}

#[test]
fn compare_and_write_is_atomic() {
    let (ram, step) = (Ram::new(1 << 20), RwLock::new(()));
    ram.write_at(512, &[1; 1024]).unwrap();
    let swap = |expected: u8| Action::CompareAndWrite {
        offset_bytes: 512,
        expected: [vec![1; 700], vec![expected; 324]].concat(),
        data: vec![9; 1024],
        fua: true,
    };
    assert_eq!(act(&ram, &step, swap(2)), Err(Sense::miscompare(700)));
    let mut there = [0; 1024];
    ram.read_at(512, &mut there).unwrap();
    assert_eq!(there, [1; 1024]);
    assert_eq!(act(&ram, &step, swap(1)), Ok(()));
    ram.read_at(512, &mut there).unwrap();
    assert_eq!(there, [9; 1024]);
    act(&ram, &step, Action::Or { offset_bytes: 512, data: vec![6; 512], fua: false }).unwrap();
    ram.read_at(512, &mut there).unwrap();
    assert_eq!((there[0], there[512]), (15, 9));
}

#[test]
fn copies_overlapping_ranges_and_between_disks() {
    let (a, b) = (Ram::new(2 << 20), Ram::new(2 << 20));
    let (step, other) = (RwLock::new(()), RwLock::new(()));
    let data: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 249) as u8).collect();
    for (from, to) in [(100, 5000), (5000, 100)] {
        a.write_at(from, &data).unwrap();
        copy(at(&a, &step, from), at(&a, &step, to), data.len() as u64, || Some(())).unwrap();
        let mut there = vec![0; data.len()];
        a.read_at(to, &mut there).unwrap();
        assert!(there == data, "{from} to {to}");
    }
    copy(at(&a, &step, 100), at(&b, &other, 7), data.len() as u64, || Some(())).unwrap();
    let mut there = vec![0; data.len()];
    b.read_at(7, &mut there).unwrap();
    assert!(there == data);
    let fenced = copy(at(&a, &step, 0), at(&b, &other, 0), 512, || None::<()>);
    assert_eq!(fenced, Err(Sense::COPY_ABORTED));
    let beyond = copy(at(&a, &step, 0), at(&b, &other, 2 << 20), 512, || Some(()));
    assert_eq!(beyond.map_err(|sense| sense.key), Err(SenseKey::CopyAborted));
}

#[test]
fn repeated_block_is_written_and_verified() {
    let (ram, step) = (Ram::new(2 << 20), RwLock::new(()));
    let block: Vec<u8> = (0..512).map(|i| (i % 251) as u8).collect();
    let length_bytes = (1 << 20) + 512;
    act(&ram, &step, Action::Fill { offset_bytes: 512, length_bytes, block: block.clone() }).unwrap();
    let same = Action::Compare { offset_bytes: 512, length_bytes, expected: block };
    assert_eq!(act(&ram, &step, same.clone()), Ok(()));
    ram.write_at(700_000, &[255]).unwrap();
    assert_eq!(act(&ram, &step, same), Err(Sense::miscompare(700_000 - 512)));
    act(
        &ram,
        &step,
        Action::Unmap { ranges: vec![scsi::ByteRange { offset_bytes: 0, length_bytes: 1 << 20 }] },
    )
    .unwrap();
    let zeros = Action::Compare { offset_bytes: 0, length_bytes: 1 << 20, expected: vec![0; 512] };
    assert_eq!(act(&ram, &step, zeros), Ok(()));
}

/// A store that executes every operation asynchronously and waits for it.
struct Begun(Arc<dyn Store>);

impl Store for Begun {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn has_volatile_cache(&self) -> bool {
        self.0.has_volatile_cache()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let ended = wait_for(&*self.0, Request::Read { offset, buffer: self.0.buffer(buffer.len()) });
        ended.outcome?;
        buffer.copy_from_slice(&ended.buffer.unwrap());
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut own = self.0.buffer(data.len());
        own.copy_from_slice(data);
        // Every other write is forced to stable storage.
        let is_stable = offset.is_multiple_of(1024);
        wait_for(&*self.0, Request::Write { offset, data: own, is_stable }).outcome
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        wait_for(&*self.0, Request::Discard { offset, length }).outcome
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.0.resize(size_bytes)
    }
    fn flush(&self) -> Result<(), StoreError> {
        wait_for(&*self.0, Request::Flush).outcome
    }
}

/// Returns every store, and every layer that leaves data unchanged.
fn stores(folder: &std::path::Path) -> Vec<(&'static str, Arc<dyn Store>)> {
    let ram = || -> Arc<dyn Store> { Arc::new(Ram::new(SIZE)) };
    let file = |name: &str, direct, engine| -> Arc<dyn Store> {
        let how = OpenOptions { size_bytes: Some(SIZE), direct, engine, ..OpenOptions::default() };
        Arc::new(FileStore::open(&folder.join(name), how).unwrap())
    };
    // `Auto` falls back to threads where io_uring is unavailable; operations are then synchronous.
    let begun = |name: &str, direct| -> Arc<dyn Store> {
        let stats = Layered::new(Stats::default(), file(name, direct, Engine::Auto));
        Arc::new(Begun(Arc::new(stats)))
    };
    let error = ErrorAt::new(Operation::Read, Fault::Medium, 0.0, 0..u64::MAX, 0);
    vec![
        ("ram", ram()),
        ("file", file("file", false, Engine::Threads)),
        ("direct", file("direct", true, Engine::Threads)),
        ("file, begun", begun("file, begun", false)),
        ("direct, begun", begun("direct, begun", true)),
        ("crash", Arc::new(Crash::new(ram()))),
        ("delay", Arc::new(Layered::new(Delay(Duration::ZERO), ram()))),
        ("throttle", Arc::new(Layered::new(Throttle::new(None, None), ram()))),
        ("error", Arc::new(Layered::new(error, ram()))),
        ("log", Arc::new(Layered::new(Log { name: "disk".into() }, ram()))),
    ]
}

const SIZE: u64 = 256 << 10;
const BLOCK: u64 = 512;

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    Fill(u64, u64, u8),
    Unmap(u64, u64),
    Swap(u64, u64, u8, bool),
    Or(u64, u64, u8),
    Copy(u64, u64, u64),
    Flush,
    Resize(u64),
}

/// Clamps a range of blocks to a disk of `size` bytes.
fn range(at: u64, blocks: u64, size: u64) -> (u64, u64) {
    let all = size / BLOCK;
    let at = at % all;
    (at * BLOCK, blocks.min(all - at) * BLOCK)
}

/// Returns data that identifies its position and the step that wrote it.
fn data(mark: u8, length: u64) -> Vec<u8> {
    (0..length).map(|i| mark.wrapping_add((i / 7) as u8)).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let (at, count) = (0_u64..1024, 1_u64..300);
    prop_oneof![
        (at.clone(), count.clone()).prop_map(|(a, n)| Step::Read(a, n)),
        (at.clone(), count.clone(), any::<u8>()).prop_map(|(a, n, m)| Step::Write(a, n, m)),
        (at.clone(), count.clone(), any::<u8>()).prop_map(|(a, n, m)| Step::Fill(a, n, m)),
        (at.clone(), count.clone()).prop_map(|(a, n)| Step::Unmap(a, n)),
        (at.clone(), 1_u64..9, any::<u8>(), any::<bool>()).prop_map(|(a, n, m, h)| Step::Swap(a, n, m, h)),
        (at.clone(), 1_u64..9, any::<u8>()).prop_map(|(a, n, m)| Step::Or(a, n, m)),
        (at.clone(), at, count).prop_map(|(a, b, n)| Step::Copy(a, b, n)),
        Just(Step::Flush),
        // Multiples of 4096: direct I/O needs an aligned size.
        (1_u64..64).prop_map(|pages| Step::Resize(pages * 4096)),
    ]
}

/// Applies a step to a store and to a reference copy.
fn run(store: &dyn Store, plain: &mut Vec<u8>, step: &Step) {
    let lock = RwLock::new(());
    let size = plain.len() as u64;
    let place = |(at, length): (u64, u64)| at as usize..(at + length) as usize;
    match *step {
        Step::Read(at, blocks) => {
            let range = range(at, blocks, size);
            let mut there = vec![0xee; range.1 as usize];
            store.read_at(range.0, &mut there).unwrap();
            assert!(there == plain[place(range)]);
        }
        Step::Write(at, blocks, mark) => {
            let range = range(at, blocks, size);
            let data = data(mark, range.1);
            store.write_at(range.0, &data).unwrap();
            plain[place(range)].copy_from_slice(&data);
        }
        Step::Fill(at, blocks, mark) => {
            let range = range(at, blocks, size);
            let block = data(mark, BLOCK);
            let action = Action::Fill { offset_bytes: range.0, length_bytes: range.1, block: block.clone() };
            act(store, &lock, action).unwrap();
            plain[place(range)].chunks_mut(BLOCK as usize).for_each(|there| there.copy_from_slice(&block));
        }
        Step::Unmap(at, blocks) => {
            let range = range(at, blocks, size);
            let unmapped = scsi::ByteRange { offset_bytes: range.0, length_bytes: range.1 };
            act(store, &lock, Action::Unmap { ranges: vec![unmapped] }).unwrap();
            plain[place(range)].fill(0);
        }
        Step::Swap(at, blocks, mark, is_right) => {
            let range = range(at, blocks, size);
            let (mut expected, data) = (plain[place(range)].to_vec(), data(mark, range.1));
            expected[range.1 as usize / 2] ^= u8::from(!is_right);
            let action =
                Action::CompareAndWrite { offset_bytes: range.0, expected, data: data.clone(), fua: false };
            assert_eq!(act(store, &lock, action).is_ok(), is_right);
            if is_right {
                plain[place(range)].copy_from_slice(&data);
            }
        }
        Step::Or(at, blocks, mark) => {
            let range = range(at, blocks, size);
            let data = data(mark, range.1);
            act(store, &lock, Action::Or { offset_bytes: range.0, data: data.clone(), fua: true }).unwrap();
            plain[place(range)].iter_mut().zip(&data).for_each(|(there, bits)| *there |= bits);
        }
        Step::Copy(from, to, blocks) => {
            let (from, to) = (range(from, blocks, size), range(to, blocks, size));
            let length = from.1.min(to.1);
            copy(at(store, &lock, from.0), at(store, &lock, to.0), length, || Some(())).unwrap();
            let data = plain[place((from.0, length))].to_vec();
            plain[place((to.0, length))].copy_from_slice(&data);
        }
        Step::Flush => store.flush().unwrap(),
        Step::Resize(size) => {
            store.resize(size).unwrap();
            assert_eq!(store.size_bytes(), size);
            plain.resize(size as usize, 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Checks that every store and layer equals a reference copy after any sequence of steps.
    #[test]
    fn every_store_matches_a_reference_copy_after_any_sequence(steps in prop::collection::vec(step(), 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        for (name, store) in stores(folder.path()) {
            let mut plain = vec![0; SIZE as usize];
            for step in &steps {
                run(&*store, &mut plain, step);
            }
            let mut there = vec![0xee; plain.len()];
            store.read_at(0, &mut there).unwrap();
            prop_assert!(there == plain, "{name}");
        }
    }
}

/// A store that others use: one writes before each of the first steps.
struct Contended {
    there: Ram,
    others_left: std::sync::atomic::AtomicU8,
    steps: std::sync::atomic::AtomicU32,
}

impl Contended {
    fn new(others: u8) -> Self {
        let there = Ram::new(1 << 20);
        there.write_at(512, &[1; 512]).unwrap();
        Self { there, others_left: others.into(), steps: 0.into() }
    }
}

impl Store for Contended {
    fn kind(&self) -> &'static str {
        "contended"
    }
    fn size_bytes(&self) -> u64 {
        self.there.size_bytes()
    }
    fn has_volatile_cache(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        self.there.read_at(offset, buffer)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), StoreError> {
        panic!("a plain write may undo what another target has written")
    }
    fn limits(&self) -> store::Limits {
        store::Limits { step_bytes: Some(512), ..store::Limits::default() }
    }
    fn compare_and_write(&self, offset: u64, expected: &[u8], data: &[u8]) -> Result<(), StoreError> {
        use std::sync::atomic::Ordering::Relaxed;
        self.steps.fetch_add(1, Relaxed);
        let mut now = vec![0; expected.len()];
        if self.others_left.load(Relaxed) > 0 {
            let other = self.others_left.fetch_sub(1, Relaxed);
            self.there.write_at(offset + 5, &[1 << other])?;
        }
        self.there.read_at(offset, &mut now)?;
        match now.iter().zip(expected).position(|(a, b)| a != b) {
            Some(at) => Err(StoreError::Miscompare(at as u64)),
            None => self.there.write_at(offset, data),
        }
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn changes_of_a_store_that_others_use_are_steps_of_the_store() {
    let lock = RwLock::new(());
    let store = Contended::new(3);
    act(&store, &lock, Action::Or { offset_bytes: 512, data: vec![0x80; 512], fua: true }).unwrap();
    let mut there = [0; 512];
    store.read_at(512, &mut there).unwrap();
    // The last of the others wrote 2 there, and nothing of it is lost.
    assert_eq!((there[0], there[5], store.steps.load(std::sync::atomic::Ordering::Relaxed)), (0x81, 0x82, 4));

    let store = Contended::new(2);
    act(&store, &lock, Action::WriteAtomic { offset_bytes: 512, data: vec![9; 512], fua: false }).unwrap();
    store.read_at(512, &mut there).unwrap();
    assert_eq!((there, store.steps.load(std::sync::atomic::Ordering::Relaxed)), ([9; 512], 3));

    let store = Contended::new(1);
    let swap = || Action::CompareAndWrite {
        offset_bytes: 512,
        expected: vec![1; 512],
        data: vec![7; 512],
        fua: false,
    };
    assert_eq!(act(&store, &lock, swap()), Err(Sense::miscompare(5)));
    store.read_at(512, &mut there).unwrap();
    assert_eq!((there[0], there[5]), (1, 2), "nothing is written");
}

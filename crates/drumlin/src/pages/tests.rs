//! Memory from the system: held, grown, given back, also where the system refuses.
#![allow(unsafe_code)]

use super::*;

#[test]
fn chunks_are_aligned_and_hold_what_is_written() {
    for power in 16..25 {
        let bytes = 1usize << power;
        let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 64 };
        let layout = Layout::from_size_align(bytes, align).expect("a power of two");
        let chunks: Vec<*mut u8> = (0..3).map(|_| chunk(layout)).collect();
        for (n, &chunk) in chunks.iter().enumerate() {
            assert!(chunk.addr().is_multiple_of(align), "{bytes} bytes");
            // SAFETY: `bytes` long, and this test's own.
            unsafe { chunk.write_bytes(n as u8 + 1, bytes) };
        }
        for (n, &chunk) in chunks.iter().enumerate() {
            // SAFETY: written above, given back once.
            unsafe {
                let held = std::slice::from_raw_parts(chunk, bytes);
                assert!(held.iter().all(|&byte| byte == n as u8 + 1), "{bytes} bytes");
                give_back(chunk, layout);
            }
        }
    }
}

/// Bytes of this process that are resident.
#[cfg(all(target_os = "linux", not(miri)))]
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this process");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * PAGE_BYTES
}

/// Regression: what the system refused to unmap stayed resident for ever, and nobody knew; a vector that was to grow
/// then ended the process.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn memory_goes_back_where_the_system_has_no_mapping_left_to_split() {
    // In a process of its own: the others' memory is not to be refused.
    let program = std::env::current_exe().expect("this program");
    let one = ["--ignored", "--exact", "pages::tests::with_no_mapping_left", "--nocapture"];
    let said = std::process::Command::new(program).args(one).output().expect("it runs");
    let out = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && out.contains("1 passed"),
        "{out}{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
#[ignore = "takes all mappings of its process; run by the test above"]
fn with_no_mapping_left() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let layout = Layout::from_size_align(16 << 20, 64).expect("a power of two");
    let mut chunks: Vec<*mut u8> = (0..12).map(|_| chunk(layout)).collect();
    chunks.sort();
    let mut vector = PageVec::<u64>::new_in(Pages);
    vector.extend(0..100_000);
    for chunk in &chunks {
        // SAFETY: as long as the layout says, and this test's own.
        unsafe { chunk.write_bytes(1, layout.size()) };
    }
    let between = chunks.windows(3).find(|three| three[2].addr() - three[0].addr() == 2 * layout.size());
    let middle = between.expect("the system puts mappings side by side")[1];
    let mut pages = Vec::new();
    for n in 0.. {
        // Neighbours with other rights do not join.
        let rights = if n % 2 == 0 { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
        // SAFETY: a new private mapping of a page that nobody touches.
        match unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, rights, MapFlags::PRIVATE) } {
            Ok(page) => pages.push(page),
            Err(_) => break,
        }
    }
    let before = resident();
    // SAFETY: its layout, once.
    unsafe { give_back(middle, layout) };
    let after = resident();
    assert!(after + layout.size() / 8 * 7 < before, "{after} bytes are resident after {before}");
    // SAFETY: asks about addresses, whoever has them.
    let still = unsafe { rustix::mm::msync(middle.cast(), layout.size(), rustix::mm::MsyncFlags::ASYNC) };
    assert!(still.is_ok(), "it was unmapped after all: the test has not come to the limit");
    // Room for one mapping more; to move one in part, the system wants room for more than that.
    for page in pages.split_off(pages.len() - 2) {
        // SAFETY: mapped above, and nobody's.
        unsafe { rustix::mm::munmap(page, PAGE_BYTES) }.expect("a mapping of its own");
    }
    vector.extend(100_000..1_000_000);
    assert!(vector.iter().copied().eq(0..1_000_000));
}

#[test]
fn a_vector_keeps_its_bytes_while_it_grows_and_shrinks() {
    let mut vector = PageVec::<u64>::new_in(Pages);
    let most = if cfg!(miri) { 40_000 } else { 1_000_000 };
    vector.extend(0..most);
    assert!(vector.iter().copied().eq(0..most));
    // Mapped to mapped, mapped to the global allocator's, and back.
    for keep in [most / 2, 100, 0] {
        vector.truncate(keep as usize);
        vector.shrink_to_fit();
        assert!(vector.iter().copied().eq(0..keep), "{keep}");
    }
    vector.resize(most as usize, 7);
    assert!(vector.iter().all(|&n| n == 7));
}

#[test]
fn what_is_appended_is_there() {
    let mut vector = PageVec::new_in(Pages);
    let mut expected = Vec::new();
    for n in 0..400usize {
        let piece = vec![n as u8; n * 7 % 1000];
        append(&mut vector, &piece);
        expected.extend_from_slice(&piece);
        assert_eq!(vector.len(), expected.len());
    }
    assert!(vector.len() > MAPPED_BYTES && vector[..] == expected[..]);
}

#[test]
fn words_are_zero() {
    use std::sync::atomic::Ordering;
    // Of memory that was used before, too.
    for round in 0..3 {
        for count in [64, 16 << 10, 512 << 10] {
            let words = zeroed_words(count);
            assert!(
                words.len() == count && words.iter().all(|word| word.load(Ordering::Relaxed) == 0),
                "{round}"
            );
            words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod packed {
    use super::*;
    use crate::pages::packed::{PACKED_BYTES, REGION_BYTES, Regions};

    /// Pages of a piece that the system has memory for.
    fn resident_in(base: *mut u8, bytes: usize) -> usize {
        use std::io::{Read, Seek, SeekFrom};
        let mut map = std::fs::File::open("/proc/self/pagemap").expect("this process");
        map.seek(SeekFrom::Start((base.addr() / PAGE_BYTES * 8) as u64)).expect("as far as memory reaches");
        let mut words = vec![0; bytes / PAGE_BYTES * 8];
        map.read_exact(&mut words).expect("a word a page");
        // The uppermost bit says it: proc(5).
        words.chunks_exact(8).filter(|word| word[7] >> 7 != 0).count()
    }

    /// A generator of its own: layers above have a better one.
    fn draw(state: &mut u64) -> usize {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as usize
    }

    struct Piece {
        base: NonNull<u8>,
        pages: usize,
        mark: u8,
    }

    impl Piece {
        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: so long, and this piece's alone: that is what is tested.
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.pages * PAGE_BYTES) }
        }

        fn is_kept(&mut self) -> bool {
            let mark = self.mark;
            self.bytes().iter().step_by(64).all(|&byte| byte == mark)
        }
    }

    /// Pieces come and go; each keeps what was written to it, and memory is what invariant 2 says, by the system's own word.
    #[test]
    fn pieces_share_nothing_and_holes_go_back() {
        let (mut regions, mut pieces, mut state) = (Regions::new(), Vec::<Piece>::new(), 7);
        let (mut bases, mut sweeps) = (std::collections::BTreeSet::new(), 0);
        for round in 0..6000u32 {
            let grows = draw(&mut state) % 100 < if round / 1000 % 2 == 0 { 70 } else { 20 };
            if grows && pieces.len() < 300 {
                // From one page to four huge ones, most of some hundred kilobytes.
                let pages = 1 + draw(&mut state) % if round % 50 == 0 { 2048 } else { 200 };
                let mut piece =
                    Piece { base: regions.take(pages).expect("memory"), pages, mark: round as u8 | 1 };
                let mark = piece.mark;
                piece.bytes().fill(mark);
                bases.insert(piece.base.as_ptr().addr() / REGION_BYTES);
                pieces.push(piece);
            } else if !pieces.is_empty() {
                let at = draw(&mut state) % pieces.len();
                let mut piece = pieces.swap_remove(at);
                assert!(piece.is_kept(), "round {round}");
                let before = regions.idle();
                // SAFETY: taken, and given back once.
                unsafe { regions.give_back(piece.base, piece.pages) };
                sweeps += usize::from(before > HUGE_PAGE_BYTES && regions.idle() == 0);
                let held: usize = pieces.iter().map(|piece| piece.pages * PAGE_BYTES).sum();
                assert!(regions.idle() <= held / 4 + HUGE_PAGE_BYTES, "round {round}");
            }
        }
        assert!(bases.len() > 2 && sweeps > 2, "{bases:?} {sweeps}");
        for mut piece in pieces {
            assert!(piece.is_kept());
            // SAFETY: as above.
            unsafe { regions.give_back(piece.base, piece.pages) };
        }
        assert!(regions.count() == 0 && regions.idle() == 0);
    }

    #[test]
    fn packed_memory_goes_back() {
        const PAGES: usize = 130;
        let mut regions = Regions::new();
        let mut pieces: Vec<Piece> = (0..200)
            .map(|_| Piece { base: regions.take(PAGES).expect("memory"), pages: PAGES, mark: 1 })
            .collect();
        pieces.iter_mut().for_each(|piece| piece.bytes().fill(1));
        // One of eight stays, so that few huge pages become empty.
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (n, piece) in pieces.into_iter().enumerate() {
            if n % 8 == 0 { &mut kept } else { &mut gone }.push(piece);
        }
        // Every other one first, so that the rest find holes before and behind them.
        for piece in gone.iter().step_by(2).chain(gone.iter().skip(1).step_by(2)) {
            // SAFETY: taken, and given back once.
            unsafe { regions.give_back(piece.base, piece.pages) };
        }
        let resident: usize =
            gone.iter().map(|piece| resident_in(piece.base.as_ptr(), PAGES * PAGE_BYTES)).sum();
        let most = kept.len() * PAGES / 4 + HUGE_PAGE_BYTES / PAGE_BYTES;
        assert!(resident <= most, "{resident} pages of what was given back are resident, {most} at most");
        assert!(kept.iter_mut().all(Piece::is_kept));
        // What comes now takes the holes, also where it is longer than the pieces that lay there.
        let count = regions.count();
        for _ in 0..kept.len() - 1 {
            kept.push(Piece { base: regions.take(PAGES * 6).expect("memory"), pages: PAGES * 6, mark: 1 });
        }
        assert_eq!(regions.count(), count, "holes are not found again");
        for piece in kept {
            // SAFETY: as above.
            unsafe { regions.give_back(piece.base, piece.pages) };
        }
        assert_eq!(regions.count(), 0);
    }

    #[test]
    fn packed_vectors_keep_their_bytes() {
        let sizes =
            [1, PACKED_BYTES - 1, PACKED_BYTES, PACKED_BYTES + 1, 3 << 20, REGION_BYTES, REGION_BYTES + 1];
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    let filled = |size: usize| {
                        let mut vector = PackedVec::new_in(Packed);
                        vector.resize(size, thread);
                        vector
                    };
                    let vectors: Vec<PackedVec<u8>> = sizes.into_iter().map(filled).collect();
                    for (vector, size) in vectors.iter().zip(sizes) {
                        assert!(
                            vector.len() == size && vector.iter().step_by(61).all(|&byte| byte == thread)
                        );
                    }
                });
            }
        });
        let mut grown = PackedVec::new_in(Packed);
        grown.extend(0..1_000_000u32);
        assert!(grown.iter().copied().eq(0..1_000_000));
        grown.truncate(3);
        grown.shrink_to_fit();
        assert_eq!(grown[..], [0, 1, 2]);
    }
}

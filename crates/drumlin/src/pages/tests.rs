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

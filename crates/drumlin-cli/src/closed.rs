//! Whether standard input and output were closed when the program began.
//!
//! Place: asked by whoever is about to read the one or write the other.
//!
//! 1. A closed stream is an error to those who need it, and nothing to the others.
//!
//! Concurrency: written before `main`, by the only thread there is; read afterwards.
//!
//! Origin: in place of a closed one, the runtime opens /dev/null before `main`; then it looks as if the user had
//! given /dev/null, which is no error. So the look is taken before the runtime is there.
//!
//! Tests: `tests/process.rs`.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio;

static INPUT: AtomicBool = AtomicBool::new(false);
static OUTPUT: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls every function that this section points to, before `main`. `look` is a function, may be
// called with any arguments, and needs no runtime: it makes two system calls and stores two flags. Test:
// `a_closed_standard_stream_is_an_error_to_those_who_need_it`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let closed = |fd| fcntl_getfd(fd) == Err(Errno::BADF);
    INPUT.store(closed(stdio::stdin()), Ordering::Relaxed);
    OUTPUT.store(closed(stdio::stdout()), Ordering::Relaxed);
}

/// Fails if there is no standard input.
pub fn check_input() -> io::Result<()> {
    check(&INPUT)
}

/// Fails if there is no standard output.
pub fn check_output() -> io::Result<()> {
    check(&OUTPUT)
}

fn check(closed: &AtomicBool) -> io::Result<()> {
    match closed.load(Ordering::Relaxed) {
        true => Err(io::Error::other("it is closed")),
        false => Ok(()),
    }
}

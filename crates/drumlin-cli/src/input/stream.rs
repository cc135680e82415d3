//! An input that may keep the program waiting, such as standard input: Ctrl-C ends the waiting.
//!
//! Place: below `input`; `load` and `put` read pipes and terminals through it.
//!
//! 1. Once Ctrl-C was pressed, a read that would wait fails instead; what it says is [`Failure::Interrupted`] to
//!    all who ask `interrupt` first.
//! 2. Bytes come in the order of the input, and its end or its error behind them all.
//!
//! Concurrency: a thread of its own reads the input and hands over pieces by a channel of few. It may wait in a
//! read for ever; it holds nothing, and ends with the process. The handler of Ctrl-C puts a piece of its own into
//! the channel. If the channel is full then, nobody waits at it.
//!
//! [`Failure::Interrupted`]: crate::failure::Failure::Interrupted
//!
//! Tests: `tests/durable.rs`.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::closed;
use crate::interrupt;

/// Bytes asked of the input at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces read ahead.
const PIECES: usize = 4;

/// What is handed over; no bytes are the end.
type Piece = io::Result<Vec<u8>>;

/// An input read by a thread of its own.
pub struct Stream {
    pieces: Receiver<Piece>,
    piece: Vec<u8>,
    /// Bytes of the piece given out.
    given: usize,
    ended: bool,
}

impl Stream {
    /// Begins to read standard input; fails if it is closed.
    pub fn standard_input() -> io::Result<Stream> {
        closed::check_input()?;
        Stream::new(io::stdin())
    }

    /// Begins to read.
    pub fn new(input: impl Read + Send + 'static) -> io::Result<Stream> {
        let (sender, pieces) = sync_channel(PIECES);
        let bell = sender.clone();
        thread::Builder::new().name("input".into()).spawn(move || pump(input, &sender))?;
        interrupt::on_ask(move || {
            let _ = bell.try_send(Err(interrupted()));
        });
        Ok(Stream { pieces, piece: Vec::new(), given: 0, ended: false })
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.given == self.piece.len() && !self.ended {
            if interrupt::asked() {
                return Err(interrupted());
            }
            self.piece = self.pieces.recv().unwrap_or_else(|_| Err(interrupted()))?;
            self.given = 0;
            self.ended = self.piece.is_empty();
        }
        let count = out.len().min(self.piece.len() - self.given);
        out[..count].copy_from_slice(&self.piece[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

/// Reads to the end of the input, or until nobody listens.
fn pump(mut input: impl Read, sender: &SyncSender<Piece>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        let read = match input.read(&mut piece) {
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let last = read.as_ref().map_or(true, Vec::is_empty);
        if sender.send(read).is_err() || last {
            return;
        }
    }
}

/// Not of the kind `Interrupted`, which means "try again".
fn interrupted() -> io::Error {
    io::Error::other("interrupted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_input() {
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let mut read = Vec::new();
        Stream::new(io::Cursor::new(bytes.clone())).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn an_error_comes_behind_the_bytes_before_it() {
        struct Broken(u8);
        impl Read for Broken {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                match self.0 {
                    1 => Err(io::ErrorKind::Interrupted.into()),
                    2 => {
                        out[..2].copy_from_slice(b"ab");
                        Ok(2)
                    }
                    _ => Err(io::Error::other("broken")),
                }
            }
        }
        let mut read = Vec::new();
        let error = Stream::new(Broken(0)).unwrap().read_to_end(&mut read).unwrap_err();
        assert_eq!((&read[..], error.to_string().as_str()), (&b"ab"[..], "broken"));
    }
}

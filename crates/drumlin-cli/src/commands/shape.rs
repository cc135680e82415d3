//! `shape`: a drawing of the tree, level by level; with `--json`, `{"shape":"..."}`.

use crate::args::Args;
use crate::escape;
use crate::failure::Result;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args) -> Result<()> {
    let shape = open::read(args)?.shape().to_string();
    let mut out = Output::new();
    if args.json {
        let mut line = br#"{"shape":"#.to_vec();
        escape::push_string(&mut line, &shape);
        line.extend_from_slice(b"}\n");
        out.bytes(&line)?;
    } else {
        out.line(shape.trim_end())?;
    }
    out.finish()
}

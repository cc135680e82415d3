//! `keyspaces`: the names, one a line, in order; with `--json`, `{"keyspaces":[...]}`.

use crate::args::Args;
use crate::escape;
use crate::failure::Result;
use crate::open;
use crate::output::Output;

pub fn run(args: &Args) -> Result<()> {
    let mut names = open::read(args)?.keyspaces();
    names.sort();
    let mut out = Output::new();
    if args.json {
        let mut line = br#"{"keyspaces":["#.to_vec();
        for (at, name) in names.iter().enumerate() {
            if at > 0 {
                line.push(b',');
            }
            escape::push_string(&mut line, name);
        }
        line.extend_from_slice(b"]}\n");
        out.bytes(&line)?;
    } else {
        for name in &names {
            out.line(name)?;
        }
    }
    out.finish()
}

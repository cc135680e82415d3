//! What `--help` says behind the options: an example of each command, and the fields of its JSON.
//!
//! Place: named by `args`. Examples can be run as they stand, in the order of the README.

/// Behind the help of the program.
pub const PROGRAM: &str = "\
Examples:
  drumlin --db my.db put DE/Kiel 246000
  drumlin --db my.db scan --prefix DE/
  drumlin tour

Exit codes: 0 done; 1 failed, absent or not swapped; 2 wrong usage; 3 stored bytes are wrong; 130 interrupted.

With --json, results are JSON on standard output (`drumlin CMD --help` tells the fields), and an error is one \
line on standard error: {\"error\":TEXT,\"kind\":WORD}; so is a note of what was \
passed over: {\"note\":TEXT}. Text that is not UTF-8 stands in hexadecimal under the same name with _hex: {\"key_hex\":\"ff00\"}.";

pub const LOAD: &str = "\
Example:
  gunzip -c data/cities.tsv.gz | drumlin --db my.db --keyspace cities load - --format tsv --key id

The value of a record is its whole line (in jsonl, the JSON object), byte for byte, without the line end. Every \
line ends at an LF. If the first one ends in CR LF, a CR before the LF is dropped from every line that has one; if \
not, a CR is a byte of the line like any other. In csv, a quoted field may span lines. A byte order mark at the \
beginning is dropped. What gzip has packed is refused: gzip -dc FILE | drumlin load - ...

A line is bad if it is blank, if its key is empty or missing, or if it is malformed; so is a csv record with \
another number of fields than the header, or (with --no-header) than the first good record, and an object that \
has the key's field twice. The first bad line \
stops the load, unless --skip-bad is given; the records before it stay. A bad csv record is one bad line: the \
next line is read anew, so a stray quote costs no more than its own line. A name that two columns have is no \
--key: give the number. An empty input has no header, and is refused unless --no-header is given.

With --json, {\"durable\":N} lines tell while loading that the first N records survive a kill; with --skip-bad the \
last line is {\"durable\":N,\"skipped\":M}, and each skipped line (the first few) is a line on standard error: \
{\"note\":TEXT,\"line\":N}. If the load stops half way, the error has \"durable\":N too.";

pub const GET: &str = "\
Example:
  drumlin --db my.db get DE/Kiel

The bytes are printed as they are, without a line end. An absent key prints nothing and exits 1.

With --json: {\"key\":...,\"value\":...}; the value of an absent key is null.";

pub const PUT: &str = "\
Examples:
  drumlin --db my.db put DE/Kiel 246000
  drumlin --db my.db put photo - < photo.jpg
  drumlin --db my.db put --hex 00ff 'a key that is no text'

The store and the keyspace are made if they are missing. With --json: {\"ok\":true}.";

pub const DELETE: &str = "\
Example:
  drumlin --db my.db delete DE/Kiel

It is no failure if the key is absent. With --json: {\"ok\":true}.";

pub const CAS: &str = "\
Examples:
  drumlin --db my.db cas DE/Kiel --expect 246000 247000
  drumlin --db my.db cas DE/Kiel --absent 246000

Exits 1, and changes nothing, if something else is there. With --json: {\"swapped\":true}, or \
{\"swapped\":false,\"current\":...} with the value that is there, null if none.";

pub const COUNT: &str = "\
Example:
  drumlin --db my.db count

With --json: {\"count\":N}.";

pub const SCAN: &str = "\
Examples:
  drumlin --db my.db scan --prefix DE/ --limit 10
  drumlin --db my.db scan --from A --to B --reverse --keys-only

Shows the keys from A on and before B, in both directions, in the order of their bytes. An interval that ends \
before it begins holds nothing. Raw output is the bytes as they are, so a key or value with a line end in it \
looks like two records: --format jsonl tells them apart.

A line of JSON is {\"key\":...,\"value\":...}.";

pub const KEYSPACES: &str = "\
Example:
  drumlin --db my.db keyspaces

A keyspace is a map of its own within the store; `put` and `load` make the one that --keyspace names.

With --json: {\"keyspaces\":[NAME,...]}.";

pub const STATS: &str = "\
Example:
  drumlin --db my.db stats

A version is one write of a key, a put or a delete; old ones go when levels are merged. The ballast is a file without \
data that is given up when the device is full. With --keyspace: the figures of that one alone.

With --json: {\"keyspaces\":[{\"name\",\"memtable_bytes\",\"memtable_versions\",\"frozen_memtables\",\"levels\":[{\
\"tables\",\"bytes\",\"versions\"},...]},...],\"tables\",\"table_bytes\",\"log_files\",\"log_bytes\",\
\"ballast_bytes\",\"debt_bytes\",\"position\",\"process\":{...}}; with --keyspace only \"keyspaces\". What stands \
under \"process\" is true of this process alone, since it opened the store.";

pub const SHAPE: &str = "\
Example:
  drumlin --db my.db shape

With --keyspace, only that one is drawn.

With --json: {\"keyspaces\":[{\"name\",\"memory\":{\"bytes\",\"versions\"},\"levels\":[{\"tables\",\"bytes\",\
\"versions\"},...]},...]}.";

pub const VERIFY: &str = "\
Example:
  drumlin --db my.db verify

Nothing is changed or repaired. Exits 0 if the store is sound, also after an unclean stop; 3 if bytes are wrong, \
naming file and block; 1 if nothing is wrong but not all could be checked. What is named neither as corrupt nor as not \
checked is sound. Files are counted as by `stats`; ballast, and log files that are no \
longer needed, hold nothing to check. A remark is what you should know although nothing is provably wrong.

With --json: {\"sound\":BOOL,\"files\":N,\"tables\":N,\"log_files\":N,\"bytes\":N,\"problems\":[{\"file\":...,\
\"offset\":N or null,\"what\":...},...],\"unchecked\":[TEXT,...],\"remarks\":[TEXT,...]}.";

pub const COMPACT: &str = "\
Example:
  drumlin --db my.db compact

With --keyspace, only that one is merged. With --json: {\"ok\":true}.";

pub const BENCH: &str = "\
Examples:
  drumlin bench
  drumlin bench --benchmarks fillrandom,readrandom,seekrandom --num 5000000 --threads 2 --rounds 5
  drumlin bench --benchmarks fillrandom --num 5000000 --rate 80000
  drumlin bench --benchmarks list

Names and flags are those of RocksDB's db_bench, YCSB, and the papers. A workload that needs a full store finds one: what \
the workloads before it left, or a fill that is not timed. Where something is written, the time ends when every \
flush and merge that is owed is done; the rate of the burst before stands beside it. Bytes written and read are \
counted where the store calls files, the log by its position; beside them stands what the system counts. With --rate, \
operations begin when they are due, whatever the store does, and latencies count from then. `open` and `recover` open \
the store, closed or as a kill leaves it, and time its first get and scan, too.

Without --db the store is made in the system's temporary directory and removed. With it, DIR must be new or empty, and the \
store of the last round stays there; --use-existing-db measures one that a bench left there.

With --json: one object a workload and round, as soon as it is done: {\"workload\",\"engine\",\"settings\",\"round\",\
\"keys\",\"key_bytes\",\"value_bytes\",\"threads\",\"asked_rate\",\"batch\",\"durability\",\"memory_bytes\",\"operations\",\
\"beside\",\"found\",\"burst_s\",\"drained_s\",\"rate\",\"burst_rate\",\"debt_bytes\",\"debt_left_bytes\",\"processor_us\",\
\"write_amplification\",\"table_write_amplification\",\"reads_per_operation\",\"read_bytes_per_operation\",\
\"device_written\",\"device_read\",\"space_amplification\",\"user_bytes\",\"tables\",\"memtable_bytes\",\"log_bytes\",\
\"resident_peak\",\"latencies\":[{\"kind\",\"count\",\"mean_ns\",\"p50_ns\",\"p90_ns\",\"p99_ns\",\"p999_ns\",\"p9999_ns\",\
\"max_ns\"},...]}; a figure that was not taken is null. With --limits then the objects of `drumlin limits`, and one a \
figure: {\"workload\",\"engine\",\"round\",\"rate\",\"limit\",\"at_most\",\"part\"}. With `--benchmarks list`: one object \
a workload, {\"name\",\"what\"}.";

pub const LIMITS: &str = "\
Example:
  drumlin limits

Each limit is the least that a store cannot do without, with nothing around it; `bench --limits` sets figures beside \
them. Files of --size are written where --db says, or in the system's temporary directory, and removed.

With --json: one object a limit, {\"name\",\"what\",\"threads\",\"figure\",\"unit\",\"failure\"}; the unit is per_second, \
bytes_per_second or nanoseconds.";

pub const TOUR: &str = "\
Example:
  drumlin --db ./drumlin-tour tour

The store of an earlier tour is replaced if it holds nothing but what the tour put there; if you have put records \
or files of your own there, it is left as it is, and the tour is refused. A record of the tour's that you have \
changed is your own; but for the people of keyspace population, which the tour itself changes.

What it tells is its result: --quiet hides only the bars. With --json: one object with the figures at the end.";

pub const COMPLETIONS: &str = "\
Examples:
  bash:  source <(drumlin completions bash)
  zsh:   source <(drumlin completions zsh)
  fish:  drumlin completions fish | source";

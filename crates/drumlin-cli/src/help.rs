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
passed over: {\"note\":TEXT}, with \"line\":N where it is of a line. Text that is not UTF-8 stands in hexadecimal under the same name with _hex: {\"key_hex\":\"ff00\"}.";

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
  drumlin --db my.db --keyspace items put 4711 ok --layout trie

The store and the keyspace are made if they are missing, this with --layout. With --json: {\"ok\":true}.";

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
Examples:
  drumlin --db my.db count
  drumlin --db my.db count --prefix DE/

Reads every key that it counts; `size` estimates.

With --json: {\"count\":N}.";

pub const SIZE: &str = "\
Examples:
  drumlin --db my.db size --prefix DE/
  drumlin --db my.db size --from A --to B

Reads a few blocks of tables at most, so it takes about as long as opening the store: it is told by the index, and exact for tables that lie within the interval as a whole or by a few blocks. \
A version is one write of a key, a put or a delete; keys are puts less deletes, so a key that was written again counts again \
until levels are merged. `count` counts.

With --json: {\"keys\",\"versions\",\"versions_error\",\"table_bytes\",\"memory_bytes\"}; there are no more than \
versions_error versions more or less.";

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

A keyspace is a map of its own within the store; `put`, `load` and `cas --absent` make the one that --keyspace names.

With --json: {\"keyspaces\":[NAME,...]}.";

pub const STATS: &str = "\
Example:
  drumlin --db my.db stats

A version is one write of a key, a put or a delete; old ones go when levels are merged. The ballast is a file without \
data that is given up when the device is full. Keys are puts less deletes, so one that was written again counts again until its \
merge; `count` counts. Bytes are alive in the tables under which no deeper level has the same keys. With --keyspace: the \
figures of that one alone.

With --json: {\"keyspaces\":[{\"name\",\"memory\":{\"kind\",...},\"layout\":{\"kind\",...},\"memtable_bytes\",\"memtable_versions\",\"memtable_unsorted\",\"frozen_memtables\",\
\"keys\",\"live_bytes\",\"levels\":[{\"tables\",\"bytes\",\"versions\"},...],\"values\":{\"files\",\"bytes\",\"live_bytes\",\"records\"}},...],\"tables\",\"table_bytes\",\"log_files\",\
\"log_bytes\",\"ballast_bytes\",\"debt_bytes\",\"position\",\"space_amplification\",\"process\":{...}}; \
with --keyspace only \"keyspaces\". What stands under \"process\" is true of this process alone, since it opened the store; there a program that writes and \
reads finds its \"write_amplification\", \"reads_per_get\" and \"latencies\":[{\"operation\",\"operations\",\"timed\",\"mean_ns\",\
\"p50_ns\",\"p90_ns\",\"p99_ns\",\"p999_ns\",\"max_ns\"},...].";

pub const TUNE: &str = "\
Examples:
  drumlin tune --workload ycsba --num 10000000 --memory 512 --minutes 10
  drumlin tune --workload mine.json --value-size 400 --svg tradeoff.svg
  drumlin tune --workload mixget30 --unordered

Looks at some 2,500 sets of options (with --unordered some 240 more, of tries): memory component and its runs, layout and its runs, ratio of levels, size of \
memtables, filter bits, size of blocks. Each is predicted by what its layout comes to, which is simulated; 24 at most, the \
best of each memory and layout and then ever sparser down the list, are measured on stores that are a sixteenth as large, the best of these on larger ones, each twice, there and back, the last three and the usual options at \
full size, three times in turns: what does not beat the usual options by more than trials differ by is not chosen. Stores are made in a directory of their own under --db, or where temporary files go, and removed.

A file describes a workload in JSON: {\"mix\": {\"put\": 0.3, \"get\": 0.6, \"get absent\": 0.05, \"scan\": 0.05}, \"keys\": \
\"zipfian\", \"scan\": 20, \"begins\": \"full\"}. Shares need not add up to one; operations are put, insert, get, get absent, scan, \
update, put if absent, delete; keys are uniform, zipfian, latest or sequence; it begins full, half or empty.

With --json, a line a trial, {\"candidate\",\"size\",\"predicted_rate\",\"rate\",\"table_write_amplification\"}, then \
{\"choice\":{\"candidate\",\"measured\":{...}},\"usual\":{...},\"doubtful\":{...},\"candidates\",\"rust\",\"arguments\",\"bench\"}; with --grid then \
{\"grid\":[{\"candidate\",\"rate\"},...],\"others\":[...],\"choice_of_best\"}.";

pub const SIMULATE: &str = "\
Examples:
  drumlin simulate --layout lazy-leveled --records 1000000000
  drumlin simulate --layout tiered --runs 4 --records 100000000 --keys 10000000 --memory 64
  drumlin simulate --layout leveled --records 5000000 --real

Runs the policy that a store runs, with tables that are descriptions only. Keys come by chance, each as often, or with \
--ascending in order; there are no deletes, and a merge is done before the next flush, so the delays of a device are not foretold. \
`written` is bytes of tables for each byte put, without the log; `space` is bytes of tables for each byte that tables without \
old versions would have; a get reads so many blocks if filters and indexes are in memory and blocks are not. With --real a store \
is filled by as many puts, in --db or where the system keeps temporary files, and removed again.

With --json, a line for each row: {\"puts\",\"write_amplification\",\"space_amplification\",\"runs\",\"reads_per_get\",\
\"reads_per_miss\",\"filter_bytes\",\"index_bytes\",\"largest_merge_bytes\",\"levels\":[{\"level\",\"tables\",\"bytes\",\
\"entries\"},...]}; with --real then {\"real\":{\"write_amplification\",\"table_bytes\",\"levels\":[...],\"differs\":{\"written\",\"bytes\",\"shape\"}}}.";

pub const SHAPE: &str = "\
Examples:
  drumlin --db my.db shape
  drumlin --db my.db shape --svg tree.svg

With --keyspace, only that one is drawn. The picture shows each table where its keys stand, as wide as its share of the bytes, \
coloured by age, with the share of its deletes; each level's target and score, from 1 on which a merge is due; memory and log. \
A browser shows the figures of the table that the mouse is on.

With --json: {\"keyspaces\":[{\"name\",\"memory\":{\"bytes\",\"versions\"},\"levels\":[{\"tables\",\"bytes\",\
\"versions\"},...]},...]}; with --svg {\"ok\":true}.";

pub const VERIFY: &str = "\
Example:
  drumlin --db my.db verify

Nothing is changed or repaired. Exits 0 if the store is sound, also after an unclean stop; 3 if bytes are wrong, \
naming file and block; 1 if nothing is wrong but not all could be checked. What is named neither as corrupt nor as not \
checked is sound. Files are counted as by `stats`; ballast, and log files that are no \
longer needed, hold nothing to check. A remark is what you should know although nothing is provably wrong.

With --json: {\"sound\":BOOL,\"files\":N,\"tables\":N,\"value_files\":N,\"log_files\":N,\"bytes\":N,\"problems\":[{\"file\":...,\
\"offset\":N or null,\"what\":...},...],\"unchecked\":[TEXT,...],\"remarks\":[TEXT,...]}.";

pub const INSPECT: &str = "\
Examples:
  drumlin inspect table my.db/00000007-0123456789abcdef.tbl --blocks
  drumlin inspect log my.db/log/0000000001.log --records --limit 100
  drumlin inspect manifest my.db/MANIFEST-000003

No store is opened, none has to be sound, and nothing is changed. A table must have the name that the store gave it, with the \
hash of what it holds. The key of the checksums of log and manifest, and of the keys of tables without order (tries), is in the \
store's file STORE; it is looked for beside the file and in the directory above, or in --db.

Exits 0 if the file is sound by itself, 3 if bytes are wrong, naming the offset of each place, 1 if nothing is wrong but \
not all could be checked. What can be read in spite of that is shown.

With --json: one object a line; \"what\" says of what. The last one is of the whole file.";

/// What the last line of every `inspect` has besides.
macro_rules! inspect_end {
    () => {
        "\"problems\":[{\"file\",\"offset\",\"what\"},...],\"unchecked\":[TEXT,...]}. Keys that are not text stand in \
hexadecimal under the same name with _hex, with --hex all of them."
    };
}

pub const INSPECT_TABLE: &str = concat!(
    "\
Example:
  drumlin inspect table my.db/00000007-0123456789abcdef.tbl --blocks --limit 10

A version is one write of a key, a put or a delete. A block is what is read, checked and cached at once. The rate of false \
positives is measured: how often the filter lets a read pass for a key that is not there.

With --json, if asked for, each block: {\"what\":\"block\",\"number\",\"offset\",\"bytes\",\"raw_bytes\",\"compression\",\
\"versions\",\"first\",\"last\",\"fence\",\"problem\"}, and each version: {\"what\":\"version\",\"block\",\"offset\",\"key\",\"lsn\",\
\"kind\",\"value_bytes\",\"apart\":{\"file\",\"offset\"} or null}, where the offset is that in the block. Then {\"what\":\"table\",\"file\",\"bytes\",\"footer\":{\"offset\",\
\"seed\"},\"properties\":PART,\"contents\":{\"id\",\"entries\",\"deletes\",\"range_tombstones\",\"smallest\",\"largest\",\
\"largest_exclusive\",\"min_lsn\",\"max_lsn\",\"raw_bytes\",\"created_at_ms\"},\"comparator\",\"is_placed\",\
\"buckets\":{\"buckets\",\"entries\",\"sources\",\"steps\",\"fill\"},\"block_bytes\",\
\"index\":PART,\"index_leaves\":[PART,...],\"filter\":{\"part\":PART,\"bits_per_key\",\"probes\",\"false_positives\",\"is_asked\"},\
\"tombstone_block\":PART,\"tombstones\":[{\"start\",\"end\",\"lsn\"},...],\"data\":{\"blocks\",\"blocks_read\",\"bytes\",\"raw_bytes\",\
\"versions\",\"keys\"},\
",
    inspect_end!(),
    " A PART is {\"offset\",\"bytes\",\"raw_bytes\",\"compression\",\"problem\"}; what the table has not is null."
);

pub const INSPECT_VALUES: &str = concat!(
    "\
Example:
  drumlin inspect values my.db/00000008-0123456789abcdef.val --records --limit 100

Which keys the values are of, and which of them is garbage, is said by the tables that refer to them.

With --json, if asked for, each record: {\"what\":\"record\",\"offset\",\"bytes\",\"compression\",\"value_bytes\"}. Then \
{\"what\":\"values\",\"file\",\"bytes\",\"id\",\"records\",\"value_bytes\",\
",
    inspect_end!()
);

pub const INSPECT_LOG: &str = concat!(
    "\
Example:
  drumlin inspect log my.db/log/0000000001.log --records --limit 100

A position in the log is counted in units of 8 bytes; that of a write is the version of what it writes. A session is one \
opening of the store. A mark says what was durable when it was written. A pad is room that was given up. A gap between \
records is a write that was not finished when the process died, and no damage, unless it is named as corrupt.

With --json, if asked for, each record: {\"what\":\"record\",\"lsn\",\"offset\",\"bytes\",\"kind\"}, of a write also \
\"entries\":[{\"keyspace\",\"kind\",\"key\",\"end\",\"value_bytes\",\"expected\"},...],\"problem\", of a mark or close also \"from\",\
\"durable\",\"records\". Always each gap: {\"what\":\"gap\",\"lsn\",\"end\",\"offset\",\"bytes\",\"kind\",\"why\"}; the kind is \
earlier, hole, torn or unwritten. Then {\"what\":\"log\",\"file\",\"bytes\",\"header\":{\"segment\",\"segment_bytes\",\"store\",\
\"boot\",\"same_boot\",\"session_first\",\"prior_end\",\"prior_clean\"},\"floor\",\"first\",\"behind\",\"records\",\"writes\",\"versions\",\
\"pads\",\"marks\",\"holes\",\"durable\",\"readable_to\":{\"lsn\",\"offset\",\"why\"},\"cut\":{\"lsn\",\"by_segment\"},\
",
    inspect_end!()
);

pub const INSPECT_MANIFEST: &str = concat!(
    "\
Example:
  drumlin inspect manifest my.db/MANIFEST-000003

An edit is what changed at one moment; the first is a snapshot of all that was, of which the tables are shown with \
--records. A seal behind an edit says that it was durable.

With --json, each edit: {\"what\":\"edit\",\"offset\",\"bytes\",\"sealed\",\"changes\":[{\"change\",...},...]}; the change is \
create_keyspace (\"id\",\"name\",\"options\":OPTIONS), drop_keyspace (\"id\"), set_options (\"keyspace\",\"options\":OPTIONS), add_table (\"keyspace\",\"level\",\"table\":TABLE), \
remove_table (\"keyspace\",\"level\",\"id\"), flushed_to (\"keyspace\",\"lsn\"), next_table (\"id\"), next_keyspace (\"id\"), \
session_start (\"first_segment\") or log_reaches (\"lsn\"). Then {\"what\":\"manifest\",\"file\",\"bytes\",\"number\",\"store\",\
\"is_current\",\"edits\",\"torn\",\"state\":{\"keyspaces\":[{\"id\",\"name\",\"options\":OPTIONS,\"flushed_to\",\"levels\":[[TABLE,...],...]},...],\
\"next_table\",\"next_keyspace\",\"first_segment\",\"log_reaches\"},\
",
    inspect_end!(),
    " A TABLE is {\"id\",\"file\",\"file_bytes\",\"entries\",\"deletes\",\"range_tombstones\",\"smallest\",\"largest\",\
\"largest_exclusive\",\"min_lsn\",\"max_lsn\",\"raw_bytes\",\"created_at_ms\"}, OPTIONS {\"memory\":{\"kind\",...},\
\"layout\":{\"kind\",\"runs\",\"merged_percent\",\"upper_percent\",\"levels\",\"hash\"},\"comparator\",\"logged\",\"memtable_bytes\",\
\"compression\",\"block_bytes\",\"filter_bits_per_key\",\"table_bytes\",\"level0_tables\",\"level1_bytes\",\"level_ratio\",\
\"value_separation\":{\"min_bytes\",\"space_percent\"}}, or null if this build does not know them; of \"layout\" and \"memory\" \
there are the members that their kind has."
);

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

Names are those of RocksDB's db_bench, YCSB and the papers, flags those of db_bench where both have them. A workload that needs a full store finds one: what \
the workloads before it left, or a fill that is not timed. Where something is written, the time ends when every \
flush and merge that is owed is done; the rate of the burst before stands beside it. Bytes written and read are \
counted where the store calls files, the log by its position; beside them stands what the system counts. With --rate, \
operations begin when they are due, whatever the store does, and latencies count from then. `open` and `recover` open \
the store, closed or as a kill leaves it, and time its first get and scan, too.

Without --db the store is made in the system's temporary directory and removed. With it, DIR must be new or empty, and the \
store of the last round stays there; --use-existing-db measures one that a bench left there, with the layout and memory that it has.

With --json: one object a workload and round, as soon as it is done: {\"workload\",\"engine\",\"settings\",\"round\",\
\"keys\",\"key_bytes\",\"value_bytes\",\"threads\",\"asked_rate\",\"batch\",\"durability\",\"memory_bytes\",\"operations\",\
\"beside\",\"found\",\"burst_s\",\"drained_s\",\"rate\",\"burst_rate\",\"debt_bytes\",\"unsorted\",\"debt_left_bytes\",\"held_back_s\",\"wake_latest_ns\",\
\"processor_us\",\"write_amplification\",\"table_write_amplification\",\"reads_per_operation\",\"read_bytes_per_operation\",\
\"device_written\",\"device_read\",\"space_amplification\",\"user_bytes\",\"tables\",\"table_bytes\",\"table_space_amplification\",\"memtable_bytes\",\"filter_bytes\",\"index_bytes\",\"log_bytes\",\
\"resident_peak\",\"latencies\":[{\"kind\",\"count\",\"mean_ns\",\"p50_ns\",\"p90_ns\",\"p99_ns\",\"p999_ns\",\"p9999_ns\",\
\"max_ns\"},...]}; a figure that was not taken is null. With --limits (or of it --limit NAMES alone) then the objects of `drumlin limits`, and one a \
figure: {\"workload\",\"engine\",\"round\",\"rate\",\"limit\",\"at_most\",\"part\"}. With `--benchmarks list`: one object \
a workload, {\"name\",\"what\"}.";

pub const LIMITS: &str = "\
Example:
  drumlin limits
  drumlin limits --only wake-late,wake-latest --seconds 60
  drumlin limits --only chase-huge,log-copy-update --threads 2,4,8

Each limit is the least that a store cannot do without, with nothing around it; `bench --limits` sets figures beside \
them. Files of --size are written where --db says, or in the system's temporary directory, and removed.

With --json: one object a limit, {\"name\",\"what\",\"threads\",\"figure\",\"unit\",\"failure\"}; the unit is per_second, \
bytes_per_second, nanoseconds or bits_per_key.";

pub const PAPER: &str = "\
Examples:
  drumlin paper flodb --figure list
  drumlin paper flodb --figure 15,17 --seconds 10 --rounds 3
  drumlin paper clsm --figure 9 --scale 0.01 --out clsm
  drumlin paper slsm --figure 3.4,3.9.1

Each figure is measured, printed as a table, drawn, and beside each thing that the paper says of it stands whether it holds \
here: holds, fails, or not judged, if it takes other engines (--peers), more processors, or more than one place across. \
--out gets a file of raw points and a picture for each. Stores are made where --db says, or in the system's temporary \
directory, and removed.

With --json: one object a point, {\"paper\",\"figure\",\"round\",\"series\",\"x\",\"y\"}, and one a claim, \
{\"paper\",\"figure\",\"claim\",\"verdict\",\"found\"}; of `list` one a figure, {\"paper\",\"figure\",\"shows\"}.";

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

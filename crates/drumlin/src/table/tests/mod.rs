//! Tests of tables as a whole.

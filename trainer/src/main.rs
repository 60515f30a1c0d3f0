//! The `napmem` command.

fn main() {}

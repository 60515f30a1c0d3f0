//! Helpers shared by the test suite: where fixtures lie and how they are read.

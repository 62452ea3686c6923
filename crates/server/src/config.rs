//! The rules file: from text to rules, or to everything that is wrong with it. Knows YAML and the
//! file system; knows nothing of requests.

mod field;
mod problem;
mod raw;
mod read;
mod source;
mod tree;
mod variable;

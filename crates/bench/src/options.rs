//! The arguments after `cargo bench -p tallygate-bench --`.

use std::path::PathBuf;

/// The text of `--help`.
pub const USAGE: &str = "\
cargo bench -p tallygate-bench [--bench NAME] -- [OPTIONS] [WORD]...

  WORD               only scenarios whose name has every WORD, such as: 1M Zipf '2 threads'
  --contender NAME   only contenders whose name has NAME; may be repeated
  --quick            small sizes: less than a minute
  --full             larger sizes, more often
  --svg FILE         a picture of fair shares (bench shares)
  --help             this text";

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds.
    Quick,
    /// Minutes.
    Usual,
    /// With 10M keys.
    Full,
}

/// The parsed arguments.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much to measure.
    pub size: Size,
    /// Substrings of contender names; empty for all.
    pub contenders: Vec<String>,
    /// Substrings of a scenario name; all must occur.
    pub words: Vec<String>,
    /// Whether `cargo bench` started the program; `cargo test` does so without `--bench`.
    pub bench: bool,
    /// Where to write a picture.
    pub svg: Option<PathBuf>,
    /// Whether `--help` was given.
    pub help: bool,
    /// The task of a child process: everything after `--child`.
    pub child: Option<Vec<String>>,
    /// The arguments as given, for the command printed with the table.
    pub given: Vec<String>,
}

impl Options {
    /// Parses arguments.
    ///
    /// # Errors
    ///
    /// An argument that is not in [`USAGE`].
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            size: Size::Usual,
            contenders: Vec::new(),
            words: Vec::new(),
            svg: None,
            bench: false,
            help: false,
            child: None,
            given: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                // cargo adds it.
                "--bench" => {
                    options.bench = true;
                    continue;
                }
                "--child" => {
                    options.child = Some(args.collect());
                    return Ok(options);
                }
                "--quick" => options.size = Size::Quick,
                "--full" => options.size = Size::Full,
                "--help" | "-h" => options.help = true,
                "--svg" => {
                    options.svg = Some(args.next().ok_or("--svg needs a file")?.into());
                    // Not part of what is measured.
                    continue;
                }
                "--contender" => {
                    let name = args.next().ok_or("--contender needs a name")?;
                    options.given.push(arg);
                    options.given.push(name.clone());
                    options.contenders.push(name);
                    continue;
                }
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                word => options.words.push(word.to_owned()),
            }
            options.given.push(arg);
        }
        Ok(options)
    }

    /// Whether to measure a contender.
    pub fn selects_contender(&self, name: &str) -> bool {
        self.contenders.is_empty() || self.contenders.iter().any(|part| name.contains(part))
    }

    /// Whether to measure a scenario.
    pub fn selects_scenario(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.words
            .iter()
            .all(|word| name.contains(&word.to_lowercase()))
    }

    /// The command that repeats this run.
    pub fn command(&self, bench: &str) -> String {
        let mut command = format!("cargo bench -p tallygate-bench --bench {bench}");
        if !self.given.is_empty() {
            command.push_str(" --");
        }
        for arg in &self.given {
            command.push(' ');
            if arg.contains(char::is_whitespace) {
                command.push_str(&format!("'{arg}'"));
            } else {
                command.push_str(arg);
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        Options::from_args(args.iter().map(|&arg| arg.to_owned()))
    }

    #[test]
    fn words_and_names_filter() {
        let options = options(&["--bench", "--contender", "gov", "1m", "Zipf"]).unwrap();
        assert!(options.selects_contender("governor, foldhash"));
        assert!(!options.selects_contender("limitador"));
        assert!(options.selects_scenario("1M Zipf admitted, 1 thread"));
        assert!(!options.selects_scenario("1M uniform admitted, 1 thread"));
    }

    #[test]
    fn the_command_repeats_the_arguments() {
        let options = options(&["--quick", "--contender", "governor", "2 threads", "--bench"]);
        assert_eq!(
            options.unwrap().command("memory"),
            "cargo bench -p tallygate-bench --bench memory -- --quick --contender governor '2 threads'"
        );
    }

    #[test]
    fn an_unknown_option_is_an_error() {
        assert!(options(&["--fast"]).is_err());
    }
}

//! A config as typed: the file's text, the overrides on top of it, and where each key comes from.
//!
//! Turns both into one table and that table into a type, so that every complaint can name its key and its line.

use super::ConfigError;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// One `--set key=value`.
#[derive(Debug, Clone)]
struct Override {
    key: String,
    text: String,
}

/// The table of a config and the origin of its keys.
#[derive(Debug, Clone)]
pub struct Source {
    file: PathBuf,
    text: String,
    overrides: Vec<Override>,
    table: Table,
}

impl Source {
    /// Reads `file` and applies the overrides in order.
    ///
    /// An override is `dotted.key=value`, the value in TOML; a value that is no TOML is taken as a bare string.
    pub fn read(file: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let text = fs_err::read_to_string(file)?;
        Self::from_text(file, text, overrides)
    }

    /// Like [`Source::read`], for a text that is at hand; `file` only names it.
    pub fn from_text(file: &Path, text: String, overrides: &[String]) -> Result<Self, ConfigError> {
        let table = toml::from_str(&text).map_err(|e| syntax_error(file, &text, &e))?;
        let mut source = Self { file: file.to_owned(), text, overrides: Vec::new(), table };
        for text in overrides {
            source.apply(text)?;
        }
        Ok(source)
    }

    /// The config file's name.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the table as a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        serde_path_to_error::deserialize(Value::Table(self.table.clone())).map_err(|e| {
            let path = match e.path().to_string() {
                path if path == "." => String::new(),
                path => path,
            };
            self.value_error(&path, e.inner().message())
        })
    }

    /// A complaint about `key` that names where the key was set.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        let (key, problem) = (key.to_owned(), problem.into());
        let is_in_file = self.line_of(&key).is_some();
        let made = |o: &Override| !is_in_file && o.key.starts_with(&format!("{key}."));
        let covers = |o: &&Override| o.key == key || key.starts_with(&format!("{}.", o.key)) || made(o);
        if let Some(set) = self.overrides.iter().rev().find(covers) {
            return ConfigError::Key { origin: format!("--set {}", set.text), key, problem, line: None };
        }
        let line = self.line_of(&key);
        ConfigError::Key { origin: self.file.display().to_string(), key, problem, line }
    }

    fn apply(&mut self, text: &str) -> Result<(), ConfigError> {
        let fail = |problem: String| ConfigError::Override { text: text.to_owned(), problem };
        let Some((key, value)) = text.split_once('=') else {
            return Err(fail("must be KEY=VALUE, such as grpo.group_size=8".to_owned()));
        };
        let (key, value) = (key.trim(), value.trim());
        if key.split('.').any(str::is_empty) {
            return Err(fail(format!("`{key}` is not a dotted key such as optim.learning_rate")));
        }
        let value = parse_value(value);
        let (parents, last) = key.rsplit_once('.').unwrap_or(("", key));
        let mut table = &mut self.table;
        for part in parents.split('.').filter(|part| !part.is_empty()) {
            let entry = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            let found = entry.type_str();
            table = entry.as_table_mut().ok_or_else(|| fail(format!("`{part}` is a {found}, not a table")))?;
        }
        table.insert(last.to_owned(), value);
        self.overrides.push(Override { key: key.to_owned(), text: text.to_owned() });
        Ok(())
    }

    /// Turns serde's message about the value at `path` into ours.
    fn value_error(&self, path: &str, message: &str) -> ConfigError {
        let message = message.trim();
        if let Some(rest) = message.strip_prefix("unknown field ") {
            let mut names = backquoted(rest);
            let unknown = if names.is_empty() { String::new() } else { names.remove(0) };
            let key = if path.is_empty() || last_part(path) == unknown { path } else { &join(path, &unknown) };
            return self.error(key, format!("is not a known key; {}", suggest(&unknown, &names)));
        }
        if let Some(rest) = message.strip_prefix("missing field ") {
            let name = backquoted(rest).into_iter().next().unwrap_or_default();
            return self.error(&join(path, &name), "is missing");
        }
        if let Some(rest) = message.strip_prefix("unknown variant ") {
            if let Some((found, allowed)) = rest.split_once(", expected ") {
                return self.error(path, format!("must be {allowed}, got {found}"));
            }
        }
        for prefix in ["invalid type: ", "invalid value: "] {
            if let Some((found, expected)) = message.strip_prefix(prefix).and_then(|r| r.split_once(", expected ")) {
                return self.error(path, format!("must be {}, got {found}", plain_type(expected)));
            }
        }
        self.error(path, message.to_owned())
    }

    /// Line of `key` in the file, from 1; of the nearest enclosing table where the key itself is not written.
    fn line_of(&self, key: &str) -> Option<usize> {
        let document = DeTable::parse(&self.text).ok()?;
        let mut table = document.get_ref();
        let mut line = None;
        for part in key.split('.') {
            let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == part) else {
                break;
            };
            line = Some(line_at(&self.text, name.span().start));
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        line
    }
}

fn parse_value(text: &str) -> Value {
    match toml::from_str::<Table>(&format!("value = {text}")) {
        Ok(mut table) if table.len() == 1 => table.remove("value").unwrap_or_else(|| text.into()),
        _ => Value::String(text.to_owned()),
    }
}

fn syntax_error(file: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let message = error.message().trim().replace('\n', ", ");
    ConfigError::Syntax { file: file.to_owned(), line: line_at(text, start), column: start - line_start + 1, message }
}

fn line_at(text: &str, position: usize) -> usize {
    text.as_bytes()[..position.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn last_part(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn backquoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The allowed keys, the likely one first where there is one.
fn suggest(unknown: &str, allowed: &[String]) -> String {
    let nearest = allowed
        .iter()
        .map(|name| (strsim::damerau_levenshtein(unknown, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min();
    let list: Vec<String> = allowed.iter().map(|name| format!("`{name}`")).collect();
    match nearest {
        Some((_, name)) => format!("did you mean `{name}`? Allowed here: {}", list.join(", ")),
        None => format!("allowed here: {}", list.join(", ")),
    }
}

fn plain_type(expected: &str) -> &str {
    match expected {
        "usize" | "u64" | "u32" => "a whole number not below 0",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "path string" => "a path in quotes",
        "string" => "a string",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Config {
        name: String,
        inner: Inner,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        group_size: usize,
        #[serde(default)]
        kind: Kind,
    }

    #[derive(Debug, Deserialize, PartialEq, Default)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        #[default]
        Mean,
        GroupStd,
    }

    fn read(text: &str, overrides: &[&str]) -> Result<Config, String> {
        let overrides: Vec<String> = overrides.iter().map(|&o| o.to_owned()).collect();
        Source::from_text(Path::new("x.toml"), text.to_owned(), &overrides)
            .and_then(|source| source.parse())
            .map_err(|e| e.to_string())
    }

    const GOOD: &str = "name = \"a\"\n\n[inner]\ngroup_size = 4\n";

    #[test]
    fn overrides_replace_values_and_may_be_bare_strings() {
        let config = read(GOOD, &["inner.group_size=8", "name=runs/b", "inner.kind=group-std"]).unwrap();
        let expected = Config { name: "runs/b".into(), inner: Inner { group_size: 8, kind: Kind::GroupStd } };
        assert_eq!(config, expected);
    }

    #[test]
    fn messages_name_origin_key_found_and_allowed() {
        let cases: [(&str, &[&str], &str); 9] = [
            (
                "name = \"a\"\n[inner]\ngrup_size = 4\n",
                &[],
                "x.toml: `inner.grup_size` is not a known key; did you mean `group_size`? Allowed here: \
                 `group_size`, `kind` (line 3)",
            ),
            (GOOD, &["extra.x=1"], "--set extra.x=1: `extra` is not a known key; allowed here: `name`, `inner`"),
            (
                "name = \"a\"\n[inner]\ngroup_size = \"four\"",
                &[],
                "x.toml: `inner.group_size` must be a whole number not below 0, got string \"four\" (line 3)",
            ),
            (
                GOOD,
                &["inner.group_size=-1"],
                "--set inner.group_size=-1: `inner.group_size` must be a whole number not below 0, got \
                 integer `-1`",
            ),
            (
                GOOD,
                &["inner.kind=median"],
                "--set inner.kind=median: `inner.kind` must be `mean` or `group-std`, got `median`",
            ),
            ("name = \"a\"\n[inner]\n", &[], "x.toml: `inner.group_size` is missing (line 2)"),
            ("name = \"a\"\nname = \"b\"\n", &[], "x.toml:2:1: duplicate key"),
            (GOOD, &["name"], "--set name: must be KEY=VALUE, such as grpo.group_size=8"),
            (GOOD, &["name.x=1"], "--set name.x=1: `name` is a string, not a table"),
        ];
        for (text, overrides, expected) in cases {
            assert_eq!(read(text, overrides).unwrap_err(), expected, "{text} {overrides:?}");
        }
    }
}

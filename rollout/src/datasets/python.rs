//! Python literals, as datasets spell lists and mappings in the fields of a CSV.
//!
//! Takes strings, numbers, `True`, `False`, `None`, lists and mappings with text keys; that is what `repr` gives for
//! what a JSON file can hold. Refuses what only Python has: prefixes (`b''`), triple quotes, tuples, sets, names, sums.

use serde_json::{Map, Number, Value};
use std::fmt::{self, Display};

/// Brackets inside brackets; deeper text is an error, not an exhausted stack.
const MAX_DEPTH: usize = 64;

/// Where a text stops being a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiteralFault {
    /// In characters, from 1.
    position: usize,
    message: String,
}

impl Display for LiteralFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "character {}: {}", self.position, self.message)
    }
}

/// The value of a text that is JSON or, failing that, a Python literal.
pub(super) fn json_or_literal(text: &str) -> Result<Value, LiteralFault> {
    serde_json::from_str(text).or_else(|_| literal(text))
}

/// The value of a Python literal.
pub(super) fn literal(text: &str) -> Result<Value, LiteralFault> {
    let mut parser = Parser { chars: text.chars().collect(), at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(found) => parser.fail(format!("the literal has ended, but {found:?} follows")),
    }
}

struct Parser {
    chars: Vec<char>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let found = self.peek();
        self.at += usize::from(found.is_some());
        found
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn fail<T>(&self, message: String) -> Result<T, LiteralFault> {
        Err(LiteralFault { position: self.at + 1, message })
    }

    /// Fails with what stands at the current position.
    fn expected<T>(&self, what: &str) -> Result<T, LiteralFault> {
        match self.peek() {
            Some(found) => self.fail(format!("expected {what}, found {found:?}")),
            None => self.fail(format!("expected {what}, found the end")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, LiteralFault> {
        if depth > MAX_DEPTH {
            return self.fail(format!("more than {MAX_DEPTH} brackets inside brackets"));
        }
        self.skip_space();
        match self.peek() {
            Some('[') => self.list(depth),
            Some('{') => self.mapping(depth),
            Some('\'' | '"') => Ok(Value::String(self.string()?)),
            Some('-' | '+' | '.' | '0'..='9') => self.number(),
            Some(letter) if letter.is_alphabetic() => self.word(),
            _ => self.expected("a string, number, list, mapping, True, False or None"),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, LiteralFault> {
        let mut items = Vec::new();
        self.next();
        while !self.ends(']') {
            items.push(self.value(depth + 1)?);
            self.separator(']')?;
        }
        self.next();
        Ok(Value::Array(items))
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, LiteralFault> {
        let mut entries = Map::new();
        self.next();
        while !self.ends('}') {
            if !matches!(self.peek(), Some('\'' | '"')) {
                return self.expected("a quoted key");
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(':') {
                return self.expected("`:` after a key");
            }
            self.next();
            let value = self.value(depth + 1)?;
            // Python would keep the last; that the first is lost without a word helps nobody.
            if entries.insert(key.clone(), value).is_some() {
                return self.fail(format!("the key {key:?} appears twice"));
            }
            self.separator('}')?;
        }
        self.next();
        Ok(Value::Object(entries))
    }

    fn ends(&mut self, close: char) -> bool {
        self.skip_space();
        self.peek() == Some(close)
    }

    /// A comma, which may also stand before the closing bracket, or that bracket itself, which is left where it is.
    fn separator(&mut self, close: char) -> Result<(), LiteralFault> {
        self.skip_space();
        match self.peek() {
            Some(',') => self.at += 1,
            Some(found) if found == close => {}
            _ => return self.expected(&format!("`,` or `{close}`")),
        }
        Ok(())
    }

    fn word(&mut self) -> Result<Value, LiteralFault> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        match word.as_str() {
            "True" => Ok(Value::Bool(true)),
            "False" => Ok(Value::Bool(false)),
            "None" => Ok(Value::Null),
            _ => {
                self.at = start;
                self.fail(format!("`{word}` is not True, False or None"))
            }
        }
    }

    fn number(&mut self) -> Result<Value, LiteralFault> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || "+-._".contains(c)) {
            self.at += 1;
        }
        let text: String = self.chars[start..self.at].iter().collect();
        match parse_number(&text) {
            Some(number) => Ok(Value::Number(number)),
            None => {
                self.at = start;
                self.fail(format!("`{text}` is not a decimal number that 64 bits hold"))
            }
        }
    }

    fn string(&mut self) -> Result<String, LiteralFault> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return self.expected("the closing quote"),
                Some('\\') => self.escape(&mut text)?,
                Some('\n') => {
                    self.at -= 1;
                    return self.fail("a line break inside a string must be written as \\n".to_owned());
                }
                found if found == quote => return Ok(text),
                Some(plain) => text.push(plain),
            }
        }
    }

    /// What follows a backslash. As in Python, one that starts no escape stands for itself.
    fn escape(&mut self, text: &mut String) -> Result<(), LiteralFault> {
        let Some(letter) = self.next() else {
            return self.expected("an escape");
        };
        let plain = match letter {
            '\n' => return Ok(()),
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'v' => '\x0b',
            '\\' | '\'' | '"' => letter,
            'x' => self.code_point(2)?,
            'u' => self.code_point(4)?,
            'U' => self.code_point(8)?,
            '0'..='7' => self.octal(letter),
            'N' => return self.fail("escapes by name (\\N{…}) are not read".to_owned()),
            other => {
                text.push('\\');
                other
            }
        };
        text.push(plain);
        Ok(())
    }

    /// The character of a hexadecimal escape; two halves of a surrogate pair are joined.
    fn code_point(&mut self, num_digits: usize) -> Result<char, LiteralFault> {
        let mut code = self.hexadecimal(num_digits)?;
        let is_high = (0xD800..0xDC00).contains(&code);
        if is_high && self.chars[self.at..].starts_with(&['\\', 'u']) {
            self.at += 2;
            let low = self.hexadecimal(4)?;
            if (0xDC00..0xE000).contains(&low) {
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
        }
        match char::from_u32(code) {
            Some(found) => Ok(found),
            None => self.fail(format!("U+{code:04X} is no character")),
        }
    }

    fn hexadecimal(&mut self, num_digits: usize) -> Result<u32, LiteralFault> {
        let mut code = 0u32;
        for _ in 0..num_digits {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(16)) else {
                return self.expected(&format!("{num_digits} hexadecimal digits"));
            };
            self.at += 1;
            code = (code << 4) | digit;
        }
        Ok(code)
    }

    /// Up to three octal digits; the largest, `\777`, is a character.
    fn octal(&mut self, first: char) -> char {
        let mut code = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                break;
            };
            self.at += 1;
            code = code * 8 + digit;
        }
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// A decimal number as Python spells it, without underscores.
fn parse_number(text: &str) -> Option<Number> {
    let digits = text.trim_start_matches(['+', '-']);
    if digits.len() + 1 < text.len() || text.contains('_') {
        return None;
    }
    if digits.chars().all(|c| c.is_ascii_digit()) {
        let is_padded = digits.starts_with('0') && !digits.trim_start_matches('0').is_empty();
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let whole = unsigned.parse::<i64>().map(Number::from).or_else(|_| unsigned.parse::<u64>().map(Number::from));
        return whole.ok().filter(|_| !is_padded);
    }
    let is_decimal = digits.starts_with(|c: char| c == '.' || c.is_ascii_digit());
    let value: f64 = text.parse().ok().filter(|_| is_decimal)?;
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn literals() {
        let cases = [
            (r#"['it\'s', "say \"hi\"", "it's"]"#, json!(["it's", "say \"hi\"", "it's"])),
            (
                "{'role': 'user', 'content': 'Where?', 'n': None}",
                json!({"role": "user", "content": "Where?", "n": null}),
            ),
            (" [ ] ", json!([])),
            ("{}", json!({})),
            ("[1, -2, 3.5, 1e3, .5, +4, True, False, 0, 18446744073709551615,]", {
                json!([1, -2, 3.5, 1000.0, 0.5, 4, true, false, 0, 18_446_744_073_709_551_615_u64])
            }),
            (r"'a\n\t\\\x41\u00e9\U0001F600\101\0'", json!("a\n\t\\Aé😀A\0")),
            (
                r"'\ud83d\ude00 \d \
x'",
                json!("😀 \\d x"),
            ),
            ("'\u{202e}😀<|im_end|>'", json!("\u{202e}😀<|im_end|>")),
            ("{'a': [{'b': {}}]}", json!({"a": [{"b": {}}]})),
        ];
        for (text, expected) in cases {
            assert_eq!(literal(text), Ok(expected), "{text}");
        }
        assert_eq!(json_or_literal("[true, null]"), Ok(json!([true, null])));
        assert_eq!(json_or_literal("[True, None]"), Ok(json!([true, null])));
    }

    #[test]
    fn what_is_no_literal_says_where() {
        let deep = "[".repeat(100_000);
        let cases = [
            ("", "character 1: expected a string"),
            ("['a'", "character 5: expected `,` or `]`, found the end"),
            ("['a' 'b']", "character 6: expected `,` or `]`, found '\\''"),
            ("'a", "character 3: expected the closing quote, found the end"),
            ("'a\nb'", "character 3: a line break inside a string"),
            ("['a'] x", "character 7: the literal has ended, but 'x' follows"),
            ("{1: 2}", "character 2: expected a quoted key"),
            ("{'a' 2}", "expected `:` after a key, found '2'"),
            ("{'a': 1, 'a': 2}", "the key \"a\" appears twice"),
            ("('a',)", "expected a string, number, list, mapping, True, False or None, found '('"),
            ("b'a'", "`b` is not True, False or None"),
            ("nan", "`nan` is not"),
            ("007", "`007` is not a decimal number"),
            ("0x10", "`0x10` is not"),
            ("1_000", "`1_000` is not"),
            ("--1", "`--1` is not"),
            ("-inf", "`-inf` is not"),
            ("99999999999999999999", "is not a decimal number that 64 bits hold"),
            (r"'\ud83d'", "U+D83D is no character"),
            (r"'\x4'", "expected 2 hexadecimal digits"),
            (r"'\N{BULLET}'", "escapes by name"),
            ("__import__('os')", "expected a string"),
            (deep.as_str(), "more than 64 brackets"),
        ];
        for (text, expected) in cases {
            let fault = literal(text).expect_err(expected).to_string();
            assert!(fault.contains(expected), "{fault} / {expected}");
        }
    }

    /// As `repr` writes it, with the quote of `repr`'s choice or the other.
    fn render(value: &Value, quote: char) -> String {
        match value {
            Value::Null => "None".to_owned(),
            Value::Bool(true) => "True".to_owned(),
            Value::Bool(false) => "False".to_owned(),
            Value::Number(number) => number.to_string(),
            Value::String(text) => render_text(text, quote),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| render(item, quote)).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Object(entries) => {
                let entry =
                    |(key, value): (&String, &Value)| format!("{}: {}", render_text(key, '"'), render(value, quote));
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn render_text(text: &str, quote: char) -> String {
        let mut rendered = String::from(quote);
        for c in text.chars() {
            match c {
                '\\' => rendered.push_str(r"\\"),
                '\n' => rendered.push_str(r"\n"),
                c if c == quote => rendered.extend(['\\', c]),
                c if (c as u32) < 0x20 => rendered.push_str(&format!("\\x{:02x}", c as u32)),
                c => rendered.push(c),
            }
        }
        rendered.push(quote);
        rendered
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9f64..1e9).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_repr_writes_is_read(value in values(), is_single in any::<bool>()) {
            let text = render(&value, if is_single { '\'' } else { '"' });
            prop_assert_eq!(literal(&text), Ok(value), "{}", text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in r#"[\[\]{}'",:\\a-z0-9 .+-]{0,40}"#, other in any::<String>()) {
            let _ = literal(&text);
            let _ = literal(&other);
        }
    }
}

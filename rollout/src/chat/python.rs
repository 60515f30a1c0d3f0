//! Python's spelling of values: templates are written for jinja2, whose `str` and `json.dumps` differ from Rust's.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use std::io::{self, Write};

/// `json.dumps(value, ensure_ascii=False, indent=indent)`: separators `", "` and `": "`, keys in order, nothing escaped for HTML.
pub fn dumps(value: &Value, indent: Option<usize>) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PythonFormatter { indent, depth: 0, empty: true });
    value.serialize(&mut serializer).expect("a JSON value has string keys and goes to memory");
    String::from_utf8(bytes).expect("the serializer writes UTF-8")
}

/// `repr` of a float: like Rust's shortest form, but with a signed exponent of two digits at least.
pub fn float_repr(value: f64) -> String {
    let text = format!("{value:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

struct PythonFormatter {
    indent: Option<usize>,
    depth: usize,
    empty: bool,
}

impl PythonFormatter {
    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.new_line(writer)?;
        }
        self.empty = false;
        writer.write_all(bracket)
    }

    fn separate<W: ?Sized + Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        match (first, self.indent) {
            (true, _) => {}
            (false, Some(_)) => writer.write_all(b",")?,
            (false, None) => writer.write_all(b", ")?,
        }
        self.new_line(writer)
    }

    fn new_line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        write!(writer, "\n{:width$}", "", width = indent * self.depth)
    }
}

impl Formatter for PythonFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float_repr(value).as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.empty = false;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.empty = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dumps_as_python_does() {
        let value =
            json!({"z": [1, 2.0, 1e16, 1e-5, true, null], "a": {"<é'>": "\"\\\n\u{1}\u{7f}/"}, "e": [], "o": {}});
        // Python 3: json.dumps(value, ensure_ascii=False), and with indent=2.
        let compact = concat!(
            r#"{"z": [1, 2.0, 1e+16, 1e-05, true, null], "a": {"<é'>": "\"\\\n\u0001"#,
            "\u{7f}",
            r#"/"}, "e": [], "o": {}}"#
        );
        assert_eq!(dumps(&value, None), compact);
        let indented = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}";
        assert_eq!(dumps(&json!({"a": [1, {}], "b": []}), Some(2)), indented);
    }

    #[test]
    fn floats_read_as_in_python() {
        for (value, expected) in
            [(1.0, "1.0"), (0.0001, "0.0001"), (1.5e-7, "1.5e-07"), (1e22, "1e+22"), (-2.5e100, "-2.5e+100")]
        {
            assert_eq!(float_repr(value), expected);
        }
    }
}

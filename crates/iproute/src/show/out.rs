//! One description of the output, two forms: `ip`'s text and `ip -json`'s JSON.
//!
//! Both have the same fields in the same order, so each printing function names a field once, with
//! its JSON key and its word in the text. The text ends every field with a space, as `ip` does.

use std::fmt::{Display, Write as _};
use std::io;

/// How much is collected before it goes to the sink, in bytes.
const CHUNK: usize = 64 * 1024;

/// Where the fields of routes, nexthops and neighbours go.
pub(crate) struct Out<'w> {
    sink: &'w mut dyn io::Write,
    buffer: String,
    json: Option<Json>,
    one_line: bool,
}

/// The state of the JSON writer.
struct Json {
    pretty: bool,
    /// Open objects and arrays.
    depth: usize,
    /// Whether a value stands before, at this depth.
    comma: bool,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text, one line an object and one for each nexthop of it.
    #[default]
    Text,
    /// Text, one line an object: `-oneline`.
    OneLine,
    /// JSON on one line: `-json`.
    Json,
    /// JSON over several lines: `-json -pretty`.
    Pretty,
}

impl<'w> Out<'w> {
    pub(crate) fn new(sink: &'w mut dyn io::Write, form: Form) -> Out<'w> {
        let json = match form {
            Form::Json | Form::Pretty => Some(Json {
                pretty: form == Form::Pretty,
                depth: 0,
                comma: false,
            }),
            Form::Text | Form::OneLine => None,
        };
        Out {
            sink,
            buffer: String::new(),
            json,
            one_line: form == Form::OneLine,
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json.is_some()
    }

    /// `word value ` and `"key":"value"`.
    pub(crate) fn string(&mut self, key: &str, word: &str, value: impl Display) {
        if self.is_json() {
            self.key(key);
            self.quoted(value);
        } else {
            let space = if word.is_empty() { "" } else { " " };
            let _ = write!(self.buffer, "{word}{space}{value} ");
        }
    }

    /// `word value ` and `"key":value`.
    pub(crate) fn number(&mut self, key: &str, word: &str, value: u64) {
        if self.is_json() {
            self.key(key);
            let _ = write!(self.buffer, "{value}");
        } else {
            let _ = write!(self.buffer, "{word} {value} ");
        }
    }

    /// `key ` and `"key":null`: a fact without a value.
    pub(crate) fn fact(&mut self, key: &str) {
        if self.is_json() {
            self.key(key);
            self.buffer.push_str("null");
        } else {
            let _ = write!(self.buffer, "{key} ");
        }
    }

    /// What only the text has.
    pub(crate) fn text(&mut self, text: impl Display) {
        if !self.is_json() {
            let _ = write!(self.buffer, "{text}");
        }
    }

    /// What only the JSON has: `"key":"value"`.
    pub(crate) fn json_string(&mut self, key: &str, value: impl Display) {
        if self.is_json() {
            self.key(key);
            self.quoted(value);
        }
    }

    /// What only the JSON has: `"key":value`.
    pub(crate) fn json_number(&mut self, key: &str, value: u64) {
        self.json_raw(key, &value.to_string());
    }

    /// What only the JSON has: a number that is already text.
    pub(crate) fn json_raw(&mut self, key: &str, value: &str) {
        if self.is_json() {
            self.key(key);
            self.buffer.push_str(value);
        }
    }

    /// `[word, word]` in JSON, `word word ` in text.
    pub(crate) fn words<T: Display>(&mut self, key: &str, words: impl IntoIterator<Item = T>) {
        self.begin_array(key);
        for word in words {
            if self.is_json() {
                self.comma();
                self.quoted(word);
            } else {
                let _ = write!(self.buffer, "{word} ");
            }
        }
        self.end_array();
    }

    /// Begins a line of its own below an object's first, which `-oneline` joins to it.
    pub(crate) fn line_below(&mut self) {
        self.text(if self.one_line { "\\\t" } else { "\n\t" });
    }

    /// Opens `"key":{` in JSON; an element of an array when `key` is empty.
    pub(crate) fn begin_object(&mut self, key: &str) {
        self.open(key, '{');
    }

    /// Closes what [`Out::begin_object`] opened.
    pub(crate) fn end_object(&mut self) {
        self.close('}');
    }

    /// Opens `"key":[` in JSON; the outermost array when `key` is empty.
    pub(crate) fn begin_array(&mut self, key: &str) {
        self.open(key, '[');
    }

    /// Closes what [`Out::begin_array`] opened.
    pub(crate) fn end_array(&mut self) {
        self.close(']');
    }

    /// Writes out what has been collected, if that is much.
    pub(crate) fn spill(&mut self) -> io::Result<()> {
        if self.buffer.len() < CHUNK {
            Ok(())
        } else {
            self.flush()
        }
    }

    /// Writes out everything.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.sink.write_all(self.buffer.as_bytes())?;
        self.buffer.clear();
        self.sink.flush()
    }

    fn open(&mut self, key: &str, bracket: char) {
        if !self.is_json() {
            return;
        }
        if key.is_empty() {
            self.comma();
        } else {
            self.key(key);
        }
        self.buffer.push(bracket);
        if let Some(json) = &mut self.json {
            json.depth += 1;
            json.comma = false;
            // iproute2 puts a space after an array's bracket, and new lines only into objects.
            if json.pretty && bracket == '[' {
                self.buffer.push(' ');
            }
        }
    }

    fn close(&mut self, bracket: char) {
        let Some(json) = &mut self.json else { return };
        json.depth -= 1;
        let empty = !std::mem::replace(&mut json.comma, true);
        if json.pretty {
            if bracket == '}' {
                self.new_line();
            } else if !empty {
                self.buffer.push(' ');
            }
        }
        self.buffer.push(bracket);
        if self.json.as_ref().is_some_and(|json| json.depth == 0) {
            self.buffer.push('\n');
        }
    }

    fn comma(&mut self) {
        if let Some(json) = &mut self.json
            && std::mem::replace(&mut json.comma, true)
        {
            self.buffer.push(',');
        }
    }

    fn key(&mut self, key: &str) {
        self.comma();
        if self.json.as_ref().is_some_and(|json| json.pretty) {
            self.new_line();
            let _ = write!(self.buffer, "\"{key}\": ");
        } else {
            let _ = write!(self.buffer, "\"{key}\":");
        }
    }

    fn new_line(&mut self) {
        let depth = self.json.as_ref().map_or(0, |json| json.depth);
        let _ = write!(self.buffer, "\n{:1$}", "", 4 * depth);
    }

    /// A JSON string. Names of links come from outside and may hold anything but `/` and spaces.
    fn quoted(&mut self, value: impl Display) {
        self.buffer.push('"');
        let start = self.buffer.len();
        let _ = write!(self.buffer, "{value}");
        let special = |c: char| c.is_control() || c == '"' || c == '\\';
        if self.buffer[start..].contains(special) {
            let raw = self.buffer.split_off(start);
            for c in raw.chars() {
                match c {
                    '"' | '\\' => self.buffer.extend(['\\', c]),
                    c if c.is_control() => {
                        let _ = write!(self.buffer, "\\u{:04x}", u32::from(c));
                    }
                    c => self.buffer.push(c),
                }
            }
        }
        self.buffer.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(form: Form, print: impl FnOnce(&mut Out<'_>)) -> String {
        let mut bytes = Vec::new();
        let mut out = Out::new(&mut bytes, form);
        print(&mut out);
        out.flush().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn print(out: &mut Out<'_>) {
        out.begin_array("");
        for dst in ["a", "b\"\\\n"] {
            out.begin_object("");
            out.string("dst", "to", dst);
            out.begin_object("via");
            out.number("n", "n", 5);
            out.end_object();
            out.words("flags", ["x", "y"]);
            out.words("none", [""; 0]);
            out.fact("router");
            out.end_object();
        }
        out.end_array();
    }

    #[test]
    fn json_forms() {
        assert_eq!(
            render(Form::Json, print),
            "[{\"dst\":\"a\",\"via\":{\"n\":5},\"flags\":[\"x\",\"y\"],\"none\":[],\"router\":null},\
             {\"dst\":\"b\\\"\\\\\\u000a\",\"via\":{\"n\":5},\"flags\":[\"x\",\"y\"],\"none\":[],\
             \"router\":null}]\n"
        );
        let pretty = render(Form::Pretty, print);
        let expected = r#"[ {
        "dst": "a",
        "via": {
            "n": 5
        },
        "flags": [ "x","y" ],
        "none": [ ],
        "router": null
    },{
"#;
        assert!(pretty.starts_with(expected), "{pretty}");
        assert!(
            pretty.ends_with("\n        \"router\": null\n    } ]\n"),
            "{pretty}"
        );
        let parsed: serde_json::Value = serde_json::from_str(&pretty).unwrap();
        assert_eq!(parsed[1]["dst"], "b\"\\\n");
        assert_eq!(
            render(Form::Json, |out| {
                out.begin_array("");
                out.end_array()
            }),
            "[]\n"
        );
        assert_eq!(
            render(Form::Pretty, |out| {
                out.begin_array("");
                out.end_array()
            }),
            "[ ]\n"
        );
    }

    #[test]
    fn text_form() {
        assert_eq!(
            render(Form::Text, print).lines().next(),
            Some("to a n 5 x y router to b\"\\")
        );
        assert_eq!(render(Form::Text, |out| out.line_below()), "\n\t");
        assert_eq!(render(Form::OneLine, |out| out.line_below()), "\\\t");
    }
}

//! The command line as a template, and what comes of it when a call's arguments are put in.

use std::collections::BTreeMap;
use std::path::Path;

use abide_core::RawJson;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::spec::SpecError;

/// Bytes of one element of a command line: Linux's `MAX_ARG_STRLEN` of 128 KiB, less the NUL at
/// its end.
pub const MAX_ARGUMENT_BYTES: usize = 128 * 1024 - 1;
/// Bytes of a whole command line, with the NUL after each element. Linux allows a quarter of the
/// stack limit, 2 MiB as a rule, for these and the environment together.
pub const MAX_ARGV_BYTES: usize = 1024 * 1024;

/// Shells whose `-c` takes a script.
const SHELLS: [&str; 7] = ["sh", "ash", "bash", "dash", "ksh", "zsh", "fish"];

/// A checked command line.
#[derive(Debug)]
pub(super) struct Template {
    program: String,
    elements: Vec<Element>,
    /// What stands for an argument that is absent, where the schema has a `default`.
    defaults: BTreeMap<String, Box<RawValue>>,
}

/// One element of a command line after the program.
#[derive(Debug)]
struct Element {
    pieces: Vec<Piece>,
    /// Whether an earlier element is exactly `--`, so that nothing here is read as an option.
    after_end_of_options: bool,
}

/// A part of an element.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    /// The name of an argument.
    Argument(String),
}

/// Why a call's arguments can't be put on the command line. Never shows a value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("The arguments are not a JSON object, so the command was not run.")]
    NotAnObject,
    #[error(
        "The argument `{0}` is not text that can be passed to a command: it has half of a \
         surrogate pair in it. The command was not run; send whole characters."
    )]
    NotText(String),
    #[error(
        "The argument `{0}` has a NUL character in it, which can't be passed to a command. The \
         command was not run; send the value without it."
    )]
    NulByte(String),
    #[error(
        "The argument `{0}` must not make the command's argument start with `-`, because the \
         command could read it as an option. The command was not run; send another value. If \
         such values are right for this tool, its author has to write `--{0}={{{0}}}` in the \
         command, or put `--` before the placeholder."
    )]
    ReadAsOption(String),
    #[error(
        "The argument `{0}` is too long: one argument of a command may have \
         {MAX_ARGUMENT_BYTES} bytes. The command was not run; send a shorter value."
    )]
    TooLong(String),
    #[error(
        "The arguments are too long together, the longest is `{0}`: a command line may have \
         {MAX_ARGV_BYTES} bytes. The command was not run; send shorter values."
    )]
    TooLongTogether(String),
}

impl Refusal {
    /// The name of the argument that is to blame, for logs.
    pub(super) fn argument(&self) -> Option<&str> {
        match self {
            Self::NotAnObject => None,
            Self::NotText(name)
            | Self::NulByte(name)
            | Self::ReadAsOption(name)
            | Self::TooLong(name)
            | Self::TooLongTogether(name) => Some(name),
        }
    }
}

impl Template {
    /// Checks `argv`, which has at least the program, against the inputs that the tool has.
    pub(super) fn parse(argv: &[String], input_schema: &Value) -> Result<Self, SpecError> {
        let Some((program, rest)) = argv.split_first() else {
            return Err(SpecError::NoProgram);
        };
        let no_inputs = serde_json::Map::new();
        let inputs =
            input_schema.get("properties").and_then(Value::as_object).unwrap_or(&no_inputs);

        let mut literal_program = String::new();
        for piece in parse_element(0, program)? {
            match piece {
                Piece::Literal(text) => literal_program.push_str(&text),
                Piece::Argument(_) => {
                    return Err(SpecError::PlaceholderInProgram { element: program.clone() });
                }
            }
        }

        let script = shell_script_at(&literal_program, rest);
        let mut elements = Vec::with_capacity(rest.len());
        let mut after_end_of_options = false;
        for (index, element) in (1..).zip(rest) {
            let pieces = parse_element(index, element)?;
            for piece in &pieces {
                let Piece::Argument(name) = piece else { continue };
                if !inputs.contains_key(name) {
                    return Err(SpecError::UnknownPlaceholder {
                        index,
                        element: element.clone(),
                        placeholder: name.clone(),
                        nearest: nearest(name, inputs.keys()),
                    });
                }
                // A placeholder alone is a tool that is meant to run its caller's scripts.
                if script == Some(index) && pieces.len() > 1 {
                    return Err(SpecError::InsideShellScript {
                        index,
                        element: element.clone(),
                        placeholder: name.clone(),
                    });
                }
            }
            elements.push(Element { pieces, after_end_of_options });
            after_end_of_options |= element == "--";
        }
        let defaults = inputs
            .iter()
            .filter_map(|(name, schema)| Some((name, schema.get("default")?)))
            .filter_map(|(name, value)| Some((name.clone(), to_raw_value(value).ok()?)))
            .collect();
        Ok(Self { program: literal_program, elements, defaults })
    }

    /// Puts a call's arguments in. The first element is the program.
    pub(super) fn render(&self, arguments: &RawJson) -> Result<Vec<String>, Refusal> {
        let mut arguments: BTreeMap<String, Box<RawValue>> =
            arguments.to().map_err(|_| Refusal::NotAnObject)?;
        for (name, default) in &self.defaults {
            if arguments.get(name).is_none_or(|value| value.get() == "null") {
                arguments.insert(name.clone(), default.clone());
            }
        }
        let mut argv = vec![self.program.clone()];
        let mut total = self.program.len() + 1;
        let mut longest: Option<(usize, &str)> = None;

        for element in &self.elements {
            let Some(text) = element.render(&arguments)? else { continue };
            total += text.len() + 1;
            if let Some(name) = element.first_argument()
                && longest.is_none_or(|(length, _)| length < text.len())
            {
                longest = Some((text.len(), name));
            }
            argv.push(text);
        }
        match longest {
            Some((_, name)) if total > MAX_ARGV_BYTES => {
                Err(Refusal::TooLongTogether(name.to_owned()))
            }
            _ => Ok(argv),
        }
    }
}

impl Element {
    /// The name of the first argument in the element.
    fn first_argument(&self) -> Option<&str> {
        self.pieces.iter().find_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Literal(_) => None,
        })
    }

    /// The element's text; none if it has placeholders and all of them are absent.
    fn render(
        &self,
        arguments: &BTreeMap<String, Box<RawValue>>,
    ) -> Result<Option<String>, Refusal> {
        let mut text = String::new();
        let mut present = self.first_argument().is_none();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Argument(name) => {
                    if let Some(value) = arguments.get(name).filter(|value| value.get() != "null") {
                        present = true;
                        text.push_str(&value_text(name, value)?);
                        if text.len() > MAX_ARGUMENT_BYTES {
                            return Err(Refusal::TooLong(name.clone()));
                        }
                    }
                }
            }
        }
        if !present {
            return Ok(None);
        }
        if let Some(Piece::Argument(name)) = self.pieces.first()
            && !self.after_end_of_options
            && text.starts_with('-')
        {
            return Err(Refusal::ReadAsOption(name.clone()));
        }
        match self.first_argument() {
            Some(name) if text.len() > MAX_ARGUMENT_BYTES => Err(Refusal::TooLong(name.to_owned())),
            _ => Ok(Some(text)),
        }
    }
}

/// A value as text for a command line.
fn value_text(name: &str, value: &RawValue) -> Result<String, Refusal> {
    let json = value.get();
    let text = match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).map_err(|_| Refusal::NotText(name.to_owned()))?,
        Some(b'{' | b'[') => compact(json),
        // Numbers, true and false: read into a number and written again, `1E5` or `1.10` would
        // not be what the caller sent.
        _ => json.to_owned(),
    };
    if text.contains('\0') { Err(Refusal::NulByte(name.to_owned())) } else { Ok(text) }
}

/// JSON without the space between its tokens; the tokens stay as they are.
fn compact(json: &str) -> String {
    let mut in_string = false;
    let mut escaped = false;
    json.chars()
        .filter(|&c| {
            if !in_string {
                in_string = c == '"';
                return !matches!(c, ' ' | '\t' | '\n' | '\r');
            }
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            true
        })
        .collect()
}

/// Takes an element apart.
fn parse_element(index: usize, element: &str) -> Result<Vec<Piece>, SpecError> {
    let braces = |problem| SpecError::Braces { index, element: element.to_owned(), problem };
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = element;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err(braces("a `}` without a `{` before it"));
        }
        let name = match rest.find(['{', '}']) {
            Some(end) if rest[end..].starts_with('}') => &rest[..end],
            _ => return Err(braces("a `{` without a `}` after it")),
        };
        if name.is_empty() {
            return Err(braces("no name between `{` and `}`"));
        }
        rest = &rest[name.len() + 1..];
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Argument(name.to_owned()));
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// The index of the element that a shell would run as a script, counted with the program.
fn shell_script_at(program: &str, rest: &[String]) -> Option<usize> {
    let name = Path::new(program).file_name()?.to_str()?;
    if !SHELLS.contains(&name) {
        return None;
    }
    let mut has_script = false;
    let mut rest = (1..).zip(rest);
    while let Some((index, element)) = rest.next() {
        let Some(flags) = element.strip_prefix(['-', '+']) else {
            return has_script.then_some(index);
        };
        if !flags.starts_with('-') {
            has_script |= flags.contains('c');
            if flags.ends_with(['o', 'O']) {
                // The name of a shell option, as in `-eo pipefail`.
                rest.next();
            }
        }
    }
    None
}

/// The known name that is most like `name`, if one is like it at all.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<String> {
    known
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate.clone())
}

#[cfg(test)]
mod tests;

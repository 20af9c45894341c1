//! What the config says about a command tool, its limits, and what can be wrong with it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::desk::{ADDRESS_VARIABLE, TOKEN_VARIABLE};
use crate::runner::{RUN_VARIABLE, SMALLEST_SECRET_BYTES};

/// The variable that tells a command the handle of its task.
pub const TASK_ID_VARIABLE: &str = "ABIDE_TASK_ID";

/// Bytes of standard output, and as many of standard error, that are kept, unless the spec says
/// otherwise.
pub const DEFAULT_MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The least that [`CommandSpec::max_output_bytes`] may be: room for an error message.
pub const SMALLEST_MAX_OUTPUT_BYTES: usize = 1024;
/// The most that [`CommandSpec::max_output_bytes`] may be. Half of a result
/// ([`abide_core::limits::MAX_RESULT_BYTES`]), so that JSON output always fits.
pub const LARGEST_MAX_OUTPUT_BYTES: usize = abide_core::limits::MAX_RESULT_BYTES / 2;
/// How long a command has between SIGTERM and SIGKILL, unless the spec says otherwise.
pub const DEFAULT_KILL_GRACE: Duration = Duration::from_secs(10);

/// What abide sets itself.
const RESERVED: [&str; 4] = [TASK_ID_VARIABLE, RUN_VARIABLE, ADDRESS_VARIABLE, TOKEN_VARIABLE];

/// Everything the config says about a command tool, already parsed.
#[derive(Clone)]
pub struct CommandSpec {
    /// The program and templates for its arguments; see the [module](super) for their language.
    pub argv: Vec<String>,
    /// Where the command runs; the server's working directory if none.
    pub cwd: Option<PathBuf>,
    /// Variables that are added to the cleared environment; these win over inherited ones.
    pub env: BTreeMap<String, String>,
    /// More variables, whose values are replaced in everything that is kept of the output.
    pub secrets: BTreeMap<String, String>,
    /// What the command prints.
    pub output: OutputMode,
    /// JSON Schema (2020-12 unless `$schema` says otherwise) that JSON output has to fit.
    pub output_schema: Option<serde_json::Value>,
    /// How many bytes of standard output, and as many of standard error, are kept: the first
    /// half and the last half, with a marker between them.
    pub max_output_bytes: usize,
    /// How many bytes of the log are kept: standard output and standard error together, in the
    /// order in which they came.
    pub max_log_bytes: u64,
    /// How long the command has between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
}

/// Shows the names of variables only: their values may be secrets.
impl fmt::Debug for CommandSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSpec")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("env", &self.env.keys())
            .field("secrets", &self.secrets.keys())
            .field("output", &self.output)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("kill_grace", &self.kill_grace)
            .finish_non_exhaustive()
    }
}

/// What a command prints on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputMode {
    /// Text, returned as it is.
    Text,
    /// Exactly one JSON value, returned as `structuredContent`.
    Json,
}

/// What is wrong with a [`CommandSpec`]. Elements of the command count from 0, the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no program.
    #[error("the command is empty; its first element must be the program to run")]
    NoProgram,
    /// The caller would choose the program.
    #[error(
        "the program `{element}` must not have a placeholder: a caller must not choose what runs"
    )]
    PlaceholderInProgram {
        /// The element as written.
        element: String,
    },
    /// A placeholder names no property of the input schema.
    #[error(
        "element {index} of the command, `{element}`: there is no input named `{placeholder}`{}",
        hint(nearest.as_deref())
    )]
    UnknownPlaceholder {
        /// Which element.
        index: usize,
        /// The element as written.
        element: String,
        /// The name between the braces.
        placeholder: String,
        /// The input whose name is most like it.
        nearest: Option<String>,
    },
    /// A brace has no partner, or nothing stands between two.
    #[error(
        "element {index} of the command, `{element}`: {problem}; write `{{name}}` for an input, \
         `{{{{` and `}}}}` for literal braces"
    )]
    Braces {
        /// Which element.
        index: usize,
        /// The element as written.
        element: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A value would be read as part of a shell script.
    #[error(
        "element {index} of the command, `{element}`: the shell would run the value of \
         `{placeholder}` as part of its script; write `\"$1\"` in the script, and \
         `\"sh\", \"{{{placeholder}}}\"` as the next elements"
    )]
    InsideShellScript {
        /// Which element.
        index: usize,
        /// The element as written.
        element: String,
        /// The name between the braces.
        placeholder: String,
    },
    /// A NUL byte can't be passed to a program.
    #[error("{what} has a NUL byte in it, which can't be passed to a program")]
    NulByte {
        /// Which part of the spec.
        what: String,
    },
    /// A variable can't be named like this.
    #[error("the variable name `{name}` must not be empty or have `=` in it")]
    BadVariable {
        /// The name.
        name: String,
    },
    /// The variable is abide's own.
    #[error("the variable `{name}` is set by abide for every call; choose another name")]
    ReservedVariable {
        /// The name.
        name: String,
    },
    /// A value is too short to be told from other output.
    #[error(
        "the secret `{name}` has fewer than {SMALLEST_SECRET_BYTES} bytes, too few to be found in \
         the command's output; give a longer one, or put it into the plain environment"
    )]
    ShortSecret {
        /// The name.
        name: String,
    },
    /// A variable is given twice.
    #[error("the variable `{name}` is given as a secret and as a plain one; keep one of them")]
    SecretAndPlain {
        /// The name.
        name: String,
    },
    /// The output limit is out of range.
    #[error(
        "the output limit of {given} bytes must be {SMALLEST_MAX_OUTPUT_BYTES} to \
         {LARGEST_MAX_OUTPUT_BYTES} bytes"
    )]
    OutputLimit {
        /// The limit in the spec, in bytes.
        given: usize,
    },
    /// Only JSON can be checked against a schema.
    #[error("there is an output schema, but the output is text; set the output to JSON")]
    SchemaForText,
    /// The output schema is not a usable JSON Schema.
    #[error("the output schema can't be used: {problem}")]
    OutputSchema {
        /// What is wrong with it.
        problem: String,
    },
}

/// The end of a message about an unknown name.
fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl CommandSpec {
    /// Checks all but the templates and the output schema.
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(SpecError::NoProgram);
        }
        if let Some(index) = self.argv.iter().position(|element| element.contains('\0')) {
            return Err(SpecError::NulByte { what: format!("element {index} of the command") });
        }
        if self.cwd.as_ref().is_some_and(|cwd| cwd.as_os_str().as_encoded_bytes().contains(&0)) {
            return Err(SpecError::NulByte { what: "the working directory".to_owned() });
        }
        for (name, value) in self.env.iter().chain(&self.secrets) {
            if name.is_empty() || name.contains('=') {
                return Err(SpecError::BadVariable { name: name.clone() });
            }
            if RESERVED.contains(&name.as_str()) {
                return Err(SpecError::ReservedVariable { name: name.clone() });
            }
            if name.contains('\0') || value.contains('\0') {
                return Err(SpecError::NulByte { what: format!("the variable {name:?}") });
            }
        }
        for (name, value) in &self.secrets {
            let name = name.clone();
            if self.env.contains_key(&name) {
                return Err(SpecError::SecretAndPlain { name });
            }
            if value.len() < SMALLEST_SECRET_BYTES {
                return Err(SpecError::ShortSecret { name });
            }
        }
        if !(SMALLEST_MAX_OUTPUT_BYTES..=LARGEST_MAX_OUTPUT_BYTES).contains(&self.max_output_bytes)
        {
            return Err(SpecError::OutputLimit { given: self.max_output_bytes });
        }
        if self.output_schema.is_some() && self.output == OutputMode::Text {
            return Err(SpecError::SchemaForText);
        }
        Ok(())
    }
}

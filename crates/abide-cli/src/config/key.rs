//! How a config key is described: the one form from which the reader, the defaults, the JSON
//! Schema and the reference page are made.

/// A table of the config file with a fixed set of keys.
#[derive(Debug)]
pub(super) struct Table {
    /// Heading in the reference.
    pub(super) heading: &'static str,
    /// What the table is for, in Markdown.
    pub(super) doc: &'static str,
    /// The keys it may have, in the order of the reference.
    pub(super) keys: &'static [Key],
    /// Groups of keys of which at most one may be given.
    pub(super) exclusive: &'static [&'static [&'static str]],
}

impl Table {
    /// The key of this name.
    #[must_use]
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// One key of a [`Table`].
#[derive(Debug)]
pub(super) struct Key {
    /// Its name.
    pub(super) name: &'static str,
    /// What it takes.
    pub(super) kind: Kind,
    /// Whether it has to be there, or what stands in for it.
    pub(super) presence: Presence,
    /// What it does, in Markdown.
    pub(super) doc: &'static str,
    /// A TOML value as an example; empty for none.
    pub(super) example: &'static str,
}

/// Whether a key has to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has to be.
    Required,
    /// Without it there is no value.
    Optional,
    /// Without it, this TOML value counts as written.
    Default(&'static str),
}

/// What a key takes.
#[derive(Debug)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// A string that is one of these.
    OneOf(&'static [&'static str]),
    /// An IP address with a port.
    Address,
    /// Where the tasks are stored.
    Store,
    /// A length of time.
    Duration {
        /// Whether zero is allowed.
        zero: bool,
        /// The word for "without bound", if there may be none.
        unbounded: Option<&'static str>,
    },
    /// A number of bytes.
    Size {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A whole number.
    Count {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// Any number, kept as it was written.
    Number,
    /// true or false.
    Flag,
    /// A list of strings.
    Texts {
        /// How many there have to be.
        min: usize,
    },
    /// A table of strings by any name.
    TextMap,
    /// Any value that has a JSON form.
    Json,
    /// A non-empty list of values that have a JSON form.
    JsonList,
    /// A table that has a JSON form.
    JsonObject,
    /// A table with fixed keys.
    Table(&'static Table),
    /// Tables with fixed keys, by any name.
    Tables(&'static Table),
}

impl Kind {
    /// What it takes, in words that follow "must be".
    #[must_use]
    pub(super) fn expected(&self) -> String {
        match self {
            Self::Text => "text in quotes".to_owned(),
            Self::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                match words.split_last() {
                    Some((last, rest)) if !rest.is_empty() => {
                        format!("{} or {last}", rest.join(", "))
                    }
                    _ => words.concat(),
                }
            }
            Self::Address => {
                "an IP address and a port in quotes, such as \"127.0.0.1:8720\"".to_owned()
            }
            Self::Store => {
                "\"sqlite:\" and the path of a file, such as \"sqlite:abide.db\"".to_owned()
            }
            Self::Duration { unbounded: None, .. } => {
                "a duration in quotes, such as \"500ms\", \"90s\" or \"2h30m\"".to_owned()
            }
            Self::Duration { unbounded: Some(word), .. } => {
                format!("a duration in quotes, such as \"90s\" or \"2h30m\", or {word:?}")
            }
            Self::Size { .. } => {
                "a number of bytes, or text such as \"64KiB\" or \"4MiB\"".to_owned()
            }
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Number => "a number".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Texts { min: 0 } => "a list of texts".to_owned(),
            Self::Texts { .. } => "a list of texts with at least one in it".to_owned(),
            Self::TextMap => "a table of texts, such as { CI = \"1\" }".to_owned(),
            Self::Json => "a value that JSON has too".to_owned(),
            Self::JsonList => "a list with at least one value".to_owned(),
            Self::JsonObject | Self::Table(_) => "a table".to_owned(),
            Self::Tables(_) => "a table of tables".to_owned(),
        }
    }
}

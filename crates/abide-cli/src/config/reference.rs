//! The reference page of the config file, in Markdown.

use std::fmt::Write as _;

use super::key::{Key, Kind, Presence, Table};
use super::keys::ROOT;
use super::limits;
use super::value::human_size;
use crate::env;

/// The page.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "<!-- Written by `abide config reference`; don't edit. -->\n\n\
         # The config file\n\n\
         `abide serve FILE` reads one TOML file. Unknown keys are errors. `abide config check FILE` \
         says everything that is wrong with a file at once; `abide config schema` prints a JSON \
         Schema for editors (checked in as [config.schema.json](config.schema.json)).\n\n\
         Durations are text such as `500ms`, `90s`, `5m`, `2h`, `7d` or `1h30m`, in whole \
         milliseconds. Sizes are a number of bytes or text such as `64KiB` or `4MiB`.\n",
    );
    // Writing to a string can't fail.
    let _ = writeln!(
        page,
        "\nA file has at most {} and {} tools; a schema file at most {}.",
        human_size(limits::MAX_FILE_BYTES),
        limits::MAX_TOOLS,
        human_size(limits::MAX_SCHEMA_FILE_BYTES),
    );
    for key in ROOT.keys {
        inner(key, &mut page);
    }
    page.push_str(
        "\n## Environment variables\n\n\
         They override the file; a flag on the command line overrides them.\n\n\
         | Variable | Overrides | |\n|---|---|---|\n",
    );
    for variable in env::ALL {
        let _ =
            writeln!(page, "| `{}` | {} | {} |", variable.name, variable.overrides, variable.doc);
    }
    page
}

/// Writes the tables that `key` leads to.
fn inner(key: &Key, page: &mut String) {
    if let Kind::Table(table) | Kind::Tables(table) = key.kind {
        section(table, page);
        for key in table.keys {
            inner(key, page);
        }
    }
}

fn section(table: &Table, page: &mut String) {
    let _ = write!(
        page,
        "\n## `{}`\n\n{}\n\n| Key | Takes | Without it | |\n|---|---|---|---|\n",
        table.heading, table.doc
    );
    for key in table.keys {
        let without = match key.presence {
            Presence::Required => "**required**".to_owned(),
            Presence::Optional => String::new(),
            Presence::Default(default) => format!("`{default}`"),
        };
        let mut about = key.doc.to_owned();
        if !key.example.is_empty() {
            let _ = write!(about, " Example: `{} = {}`", key.name, key.example);
        }
        let cells = [takes(&key.kind), without, about].map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(page, "| `{}` | {} |", key.name, cells.join(" | "));
    }
}

/// What a key takes, in a table cell.
fn takes(kind: &Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::OneOf(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Address => "address and port".to_owned(),
        Kind::Store => "`sqlite:PATH`".to_owned(),
        Kind::Duration { zero, unbounded } => {
            let mut takes = "duration".to_owned();
            if !zero {
                takes.push_str(" above zero");
            }
            if let Some(word) = unbounded {
                let _ = write!(takes, " or `\"{word}\"`");
            }
            takes
        }
        Kind::Size { min, max } => format!("size, {} to {}", human_size(*min), human_size(*max)),
        Kind::Count { min, max } => format!("{min} to {max}"),
        Kind::Number => "number".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Texts { .. } => "list of texts".to_owned(),
        Kind::TextMap => "table of texts".to_owned(),
        Kind::Json => "any value".to_owned(),
        Kind::JsonList => "list of values".to_owned(),
        Kind::JsonObject => "JSON Schema".to_owned(),
        Kind::Table(table) => format!("table, see `{}`", table.heading),
        Kind::Tables(table) => format!("tables, see `{}`", table.heading),
    }
}

//! Every environment variable that abide reads, once. Flags take their variable from here, and
//! the reference is generated from it.

/// An environment variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it overrides, in Markdown.
    pub overrides: &'static str,
    /// What it does, in Markdown.
    pub doc: &'static str,
}

/// Where HTTP is served.
pub const LISTEN: Variable = Variable {
    name: "ABIDE_LISTEN",
    overrides: "`listen` in `[server]`",
    doc: "Address and port, as `--listen` of `abide serve` and `abide demo`.",
};

/// Where tasks are stored.
pub const STORE: Variable = Variable {
    name: "ABIDE_STORE",
    overrides: "`store` in `[server]`",
    doc: "`sqlite:PATH`, as `--store` of `abide serve`. A relative path starts at the current \
          folder.",
};

/// What is logged.
pub const LOG: Variable = Variable {
    name: "ABIDE_LOG",
    overrides: "the log filter `info,rmcp=error`",
    doc: "Levels and targets, such as `debug` or `abide_engine=debug,info`, as `--log`.",
};

/// How it is logged.
pub const LOG_FORMAT: Variable = Variable {
    name: "ABIDE_LOG_FORMAT",
    overrides: "the log format `text`",
    doc: "`text` or `json` (one object a line), as `--log-format`. Logs go to standard error.",
};

/// All of them, in the order of the reference.
pub const ALL: &[Variable] = &[LISTEN, STORE, LOG, LOG_FORMAT];

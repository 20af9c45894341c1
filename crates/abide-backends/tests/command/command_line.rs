//! Arguments reach the program byte for byte, and nothing else does.

use std::collections::BTreeMap;

use abide_backends::command::{self, CommandBackend, MAX_ARGUMENT_BYTES, SpecError};
use proptest::prelude::*;
use serde_json::json;

use crate::harness::{Context, call, finished, run, script, spec, start_as, task_id, within};

/// A tool that prints its arguments, each with a NUL behind it.
fn print_arguments(templates: &[&str]) -> abide_backends::command::CommandSpec {
    let shell = ["sh", "-c", r#"printf '%s\0' "$@""#, "sh"];
    spec(&[&shell, templates].concat())
}

async fn arguments_seen(templates: &[&str], arguments: &str) -> Vec<String> {
    let finished = call(print_arguments(templates), arguments).await;
    let text = finished.text().strip_suffix('\0').unwrap();
    text.split('\0').map(str::to_owned).collect()
}

#[tokio::test]
async fn values_arrive_byte_for_byte() {
    for (value, text) in [
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.10", "1.10"),
        ("1E5", "1E5"),
        ("true", "true"),
        (r#""\u202eר\u0301 🦀\r\n\t\"'`$HOME * \\""#, "\u{202e}ר\u{301} 🦀\r\n\t\"'`$HOME * \\"),
        (r#""""#, ""),
        (r#"{ "k": [1.0, null] }"#, r#"{"k":[1.0,null]}"#),
    ] {
        let seen = arguments_seen(&["{a}", "x={a}"], &format!(r#"{{"a":{value}}}"#)).await;
        assert_eq!(seen, [text, &format!("x={text}")], "{value}");
    }
    for number in ["-0.0", "-5"] {
        let arguments = format!(r#"{{"a":{number}}}"#);
        assert_eq!(arguments_seen(&["--", "{a}"], &arguments).await, ["--", number]);
        let refused = call(print_arguments(&["{a}"]), &arguments).await;
        refused.complains(&["`a`", "`--a={a}`", "`--`"]);
    }
}

#[tokio::test]
async fn the_longest_argument_arrives() {
    let longest = "x".repeat(MAX_ARGUMENT_BYTES);
    let seen = arguments_seen(&["{a}"], &json!({"a": longest}).to_string()).await;
    assert_eq!(seen, [longest]);
    let longer = json!({"a": "x".repeat(MAX_ARGUMENT_BYTES + 1)}).to_string();
    call(print_arguments(&["{a}"]), &longer).await.complains(&["`a`", "too long"]);
    // Together they pass, each alone would.
    let nine = ["{a}"; 9];
    call(print_arguments(&nine), &json!({"a": "x".repeat(MAX_ARGUMENT_BYTES)}).to_string())
        .await
        .complains(&["`a`", "too long together"]);
}

#[tokio::test]
async fn what_can_not_be_passed_is_refused_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(&["sh", "-c", "echo > started", "sh", "{a}"]);
    spec.cwd = Some(directory.path().to_owned());
    for (value, word) in [
        (r#""secret\u0000""#, "NUL"),
        (r#""-secret""#, "option"),
        (r#""\ud800secret""#, "surrogate"),
    ] {
        let refused = call(spec.clone(), &format!(r#"{{"a":{value}}}"#)).await;
        refused.complains(&["`a`", word]);
        assert!(!refused.raw.as_str().contains("secret"));
    }
    assert!(!directory.path().join("started").exists());
}

#[tokio::test]
async fn the_environment_is_the_listed_one() {
    let mut spec = spec(&["env", "-0"]);
    spec.env = BTreeMap::from([
        ("CI".to_owned(), "1".to_owned()),
        ("LANG".to_owned(), "x=y\nz".to_owned()),
    ]);
    spec.secrets = BTreeMap::from([("TOKEN".to_owned(), "not for the log".to_owned())]);
    let id = task_id();
    let finished = finished(within(start_as(id, spec, "{}", &Context::new())).await);
    let seen: BTreeMap<&str, &str> =
        finished.text().split_terminator('\0').map(|line| line.split_once('=').unwrap()).collect();
    let run = format!("{id}.1");
    let mut expected = BTreeMap::from([
        ("CI", "1"),
        ("LANG", "x=y\nz"),
        ("TOKEN", "[redacted TOKEN]"),
        ("ABIDE_TASK_ID", id.as_str()),
        ("ABIDE_RUN", &run),
    ]);
    let (path, home) = (std::env::var("PATH").unwrap(), std::env::var("HOME").unwrap_or_default());
    expected.insert("PATH", &path);
    if !home.is_empty() {
        expected.insert("HOME", &home);
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn standard_input_is_empty_and_there_is_no_terminal() {
    assert_eq!(run("wc -c").await.text().trim(), "0");
    assert_eq!(run("(: < /dev/tty) 2>/dev/null && echo tty || echo none").await.text(), "none\n");
    // Leader of a group of its own, in the session of its runner.
    let stat = run("cut -d' ' -f1,4,5,6 /proc/$$/stat").await;
    let ids: Vec<&str> = stat.text().split_whitespace().collect();
    assert!(ids.len() == 4 && ids[0] == ids[2] && ids[1] == ids[3], "{ids:?}");
}

#[tokio::test]
async fn a_relative_program_is_in_the_working_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/pwd", directory.path().join("tool")).unwrap();
    let mut spec = spec(&["./tool", "-P"]);
    spec.cwd = Some(directory.path().to_owned());
    let finished = call(spec, "{}").await;
    let expected = directory.path().canonicalize().unwrap();
    assert_eq!(finished.text().trim_end(), expected.to_str().unwrap());
}

#[test]
fn a_bad_spec_is_refused() {
    let refused = |spec| {
        let schema = json!({"properties": {"build": {}}});
        command::check(&spec, &schema).unwrap_err()
    };
    assert_eq!(refused(spec(&[])), SpecError::NoProgram);
    assert_eq!(refused(spec(&[""])), SpecError::NoProgram);
    assert!(matches!(refused(spec(&["x", "a\0"])), SpecError::NulByte { .. }));
    assert!(matches!(
        refused(spec(&["x", "{biuld}"])),
        SpecError::UnknownPlaceholder { index: 1, nearest: Some(name), .. } if name == "build"
    ));
    for (name, value) in
        [("", "x"), ("a=b", "x"), ("a", "\0"), ("ABIDE_TASK_ID", "x"), ("ABIDE_RUN", "x")]
    {
        let mut plain = spec(&["x"]);
        plain.env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        refused(plain);
        let mut secret = spec(&["x"]);
        secret.secrets = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        refused(secret);
    }
    let mut both = spec(&["x"]);
    both.secrets = BTreeMap::from([("KEY".to_owned(), "abc".to_owned())]);
    assert_eq!(refused(both.clone()), SpecError::ShortSecret { name: "KEY".to_owned() });
    both.env = both.secrets.clone();
    assert_eq!(refused(both), SpecError::SecretAndPlain { name: "KEY".to_owned() });
    for max_output_bytes in [0, 1023, 4 * 1024 * 1024 + 1] {
        let spec = abide_backends::command::CommandSpec { max_output_bytes, ..spec(&["x"]) };
        assert_eq!(refused(spec), SpecError::OutputLimit { given: max_output_bytes });
    }
    let mut spec = script("x");
    spec.output_schema = Some(json!({}));
    assert_eq!(refused(spec), SpecError::SchemaForText);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_program_sees_the_elements_of_the_template(
        values in proptest::collection::vec("[^\\x00]{0,20}", 4)
    ) {
        let (a, b, c, d) = (&values[0], &values[1], &values[2], &values[3]);
        let arguments = json!({"a": a, "b": b, "c": c, "d": d}).to_string();
        let templates = ["--", "{a}", "--b={b}", "{c}-{d}", "end"];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seen = runtime.block_on(arguments_seen(&templates, &arguments));
        prop_assert_eq!(seen, ["--", a, &format!("--b={b}"), &format!("{c}-{d}"), "end"]);
    }
}

#[test]
fn a_tool_can_be_shared() {
    fn check<T: Send + Sync + 'static>() {}
    check::<CommandBackend>();
}

//! JSON output: unchanged, whole, and as its schema says.

use abide_backends::command::{self, CommandSpec, LARGEST_MAX_OUTPUT_BYTES, OutputMode, SpecError};
use abide_core::limits::MAX_RESULT_BYTES;
use serde_json::{Value, json};

use crate::harness::{call, script};

fn printing(text: &str, schema: Option<Value>) -> CommandSpec {
    let mut spec = script(text);
    spec.output = OutputMode::Json;
    spec.output_schema = schema;
    spec
}

#[tokio::test]
async fn a_value_comes_back_unchanged() {
    for (value, structured) in [
        (
            r#"{"z":1.10,"a":12345678901234567890123,"n":-0.0,"u":"é🦀"}"#,
            r#"{"z":1.10,"a":12345678901234567890123,"n":-0.0,"u":"é🦀"}"#,
        ),
        // Only spaces and the spelling of exponents and escapes are evened out.
        (r#"[1, {"k" : null}]"#, r#"[1,{"k":null}]"#),
        (r#"[1E5, 1e400, 2.50e-3]"#, "[1e+5,1e+400,2.50e-3]"),
        (r#""\u00e9""#, r#""é""#),
        ("null", "null"),
        ("\"text\"", "\"text\""),
    ] {
        let finished = call(printing(&format!("echo '{value}'"), None), "{}").await;
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(
            finished.raw.as_str(),
            format!(
                r#"{{"resultType":"complete","content":[{{"type":"text","text":{text}}}],"structuredContent":{structured}}}"#
            )
        );
    }
}

#[tokio::test]
async fn space_around_and_a_byte_order_mark_are_allowed() {
    let finished = call(printing(r#"printf '\357\273\277\r\n {\n"a": 1}\r\n '"#, None), "{}").await;
    assert_eq!(finished.value["structuredContent"], json!({"a": 1}));
    assert_eq!(finished.text(), "{ \"a\": 1}");
}

#[tokio::test]
async fn standard_error_is_left_out_of_a_good_result() {
    let finished = call(printing("echo warning >&2; echo 1", None), "{}").await;
    assert_eq!(finished.text(), "1");
}

#[tokio::test]
async fn what_is_not_one_value_is_an_error() {
    for (text, parts) in [
        ("true", &["nothing"] as &[&str]),
        ("echo hello", &["not exactly one JSON value", "line 1 column 1", "hello"]),
        ("echo '{} {}'", &["trailing characters"]),
        ("echo '{\"a\":'", &["EOF"]),
        ("echo '{\"a\": NaN}'", &["JSON has no NaN"]),
        ("echo '[-Infinity]'", &["JSON has no Infinity"]),
        ("printf '\\n[\\n1, Infinity]'", &["JSON has no Infinity", "line 3"]),
        (r"printf '\042\377\042'", &["not UTF-8 at byte 1"]),
        (r"printf '\042\\ud800\042'", &["hex escape"]),
        ("head -c 5000 /dev/zero | tr '\\0' '['", &["recursion limit"]),
        ("head -c 2000000 /dev/zero", &["2000000 bytes", "limit"]),
    ] {
        let finished = call(printing(text, None), "{}").await;
        finished.complains(parts);
        assert_eq!(finished.texts().len(), 1);
        assert!(finished.texts()[0].len() < 4096);
    }
}

#[tokio::test]
async fn a_complaint_comes_with_standard_error() {
    let finished = call(printing("echo; seq 1 10000 >&2", None), "{}").await;
    finished.complains(&["nothing"]);
    assert!(finished.texts()[1].starts_with("1\n2\n") && finished.texts()[1].len() < 8192);
}

#[tokio::test]
async fn a_bad_end_is_told_as_for_text() {
    let finished = call(printing("echo '{}'; exit 2", None), "{}").await;
    finished.complains(&["{}"]);
    assert_eq!(finished.texts(), ["{}\n", "exit code 2"]);
}

#[tokio::test]
async fn the_schema_decides() {
    let schema = json!({
        "type": "object",
        "properties": {"id": {"$ref": "#/$defs/id"}, "tags": {"items": {"type": "string"}}},
        "required": ["id"],
        "$defs": {"id": {"type": "integer", "maximum": 12_345_678_901_234_567_890_u64}},
    });
    let cases = [
        (r#"{"id":12345678901234567890,"tags":["x"]}"#, None),
        (r#"{"id":12345678901234567891}"#, Some(vec!["at /id", "maximum"])),
        (r#"{"id":1,"tags":["x",2]}"#, Some(vec!["at /tags/1", "string"])),
        ("{}", Some(vec!["at the root", "id", "It begins with:\n{}"])),
    ];
    for (value, misfit) in cases {
        let finished = call(printing(&format!("echo '{value}'"), Some(schema.clone())), "{}").await;
        match misfit {
            None => assert_eq!(finished.text(), value),
            Some(parts) => finished.complains(&parts),
        }
    }
}

#[test]
fn a_schema_can_not_reach_outside() {
    for (schema, word) in [
        (json!({"$ref": "https://example.com/schema.json"}), "outside the schema"),
        (json!({"$ref": "file:///etc/hostname"}), "outside the schema"),
        (json!({"properties": {"a": {"$ref": "other.json#/x"}}}), "not present"),
        (json!({"type": "nonsense"}), "nonsense"),
    ] {
        let error = command::check(&printing("true", Some(schema)), &json!({})).unwrap_err();
        assert!(matches!(error, SpecError::OutputSchema { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn the_largest_value_fits() {
    let mut spec = printing(r#"printf '['; yes '"",' | head -c 4194296; printf '""]'"#, None);
    spec.max_output_bytes = LARGEST_MAX_OUTPUT_BYTES;
    let finished = call(spec, "{}").await;
    assert!(finished.text().contains("too large to be repeated"));
    assert!(finished.value["structuredContent"].as_array().unwrap().len() > 1_000_000);
    assert!(finished.raw.len() < MAX_RESULT_BYTES);
}

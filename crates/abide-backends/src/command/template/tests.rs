//! Templates: what is refused in a spec, what is refused in a call, what comes out.

use super::*;

fn inputs() -> Value {
    serde_json::json!({"properties": {"env": {}, "build": {}, "a b": {}, "ünï": {}}})
}

fn parse(argv: &[&str]) -> Result<Template, SpecError> {
    let argv: Vec<String> = argv.iter().map(|element| (*element).to_owned()).collect();
    Template::parse(&argv, &inputs())
}

#[track_caller]
fn check(argv: &[&str], arguments: &str, expected: Result<&[&str], &str>) {
    let rendered = parse(argv).unwrap().render(&RawJson::parse(arguments).unwrap());
    match (rendered, expected) {
        (Ok(rendered), Ok(expected)) => assert_eq!(rendered, expected),
        (Err(refusal), Err(argument)) => assert_eq!(refusal.argument(), Some(argument)),
        (rendered, expected) => panic!("{rendered:?}, expected {expected:?}"),
    }
}

#[test]
fn values_fill_elements_and_parts_of_them() {
    let fill = |arguments, expected: &[&str]| {
        check(&["x", "{env}", "--b={build}", "{env}-{build}"], arguments, Ok(expected));
    };
    fill(r#"{"env":"e","build":7}"#, &["x", "e", "--b=7", "e-7"]);
    fill(
        r#"{"env":"a b; $(c) 'd' *","build":"\n"}"#,
        &["x", "a b; $(c) 'd' *", "--b=\n", "a b; $(c) 'd' *-\n"],
    );
    check(&["x", "{env}", "--b={build}"], r#"{"env":"","build":""}"#, Ok(&["x", "", "--b="]));
}

#[test]
fn the_text_of_a_value_is_what_was_sent() {
    for (value, text) in [
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.10", "1.10"),
        ("1E5", "1E5"),
        ("1e+05", "1e+05"),
        ("true", "true"),
        ("false", "false"),
        (r#""\u00e9🦀\u202e\ud83e\udd80""#, "é🦀\u{202e}🦀"),
        (r#""{build}""#, "{build}"),
        ("[ 1.0 , \"a \\\" b\" ]", "[1.0,\"a \\\" b\"]"),
        ("{ \"z\" : 1E5,\n\"a\\\\\" : [ ] }", "{\"z\":1E5,\"a\\\\\":[]}"),
        (r#"{"a":"\u0000"}"#, r#"{"a":"\u0000"}"#),
    ] {
        check(&["x", "{env}"], &format!("{{\"env\":{value}}}"), Ok(&["x", text]));
    }
}

#[test]
fn braces_are_doubled() {
    check(
        &["x{{}}", "{{env}}", "{{{env}}}", "}}{{"],
        r#"{"env":1}"#,
        Ok(&["x{}", "{env}", "{1}", "}{"]),
    );
}

#[test]
fn names_may_be_unusual() {
    check(&["x", "{a b}{ünï}"], r#"{"a b":1,"ünï":2}"#, Ok(&["x", "12"]));
}

#[test]
fn what_is_absent_is_left_out() {
    let argv = ["x", "{env}", "--b={build}", "{env}:{build}", "lit"];
    check(&argv, "{}", Ok(&["x", "lit"]));
    check(&argv, r#"{"env":null,"build":null}"#, Ok(&["x", "lit"]));
    check(&argv, r#"{"env":"e"}"#, Ok(&["x", "e", "e:", "lit"]));
    check(&argv, r#"{"build":""}"#, Ok(&["x", "--b=", ":", "lit"]));
}

#[test]
fn an_option_can_not_be_passed_as_a_value() {
    let dash = r#"{"env":"-rf","build":-5}"#;
    for argv in [
        &["x", "{env}"] as &[&str],
        &["x", "{env}/more"],
        &["--", "{env}"],
        &["x", "---", "{env}"],
        &["x", "{env}", "--"],
    ] {
        check(argv, dash, Err("env"));
    }
    check(&["x", "{build}"], dash, Err("build"));
    // An empty value in front leaves the dash at the beginning.
    check(&["x", "{env}-{build}"], r#"{"env":"","build":1}"#, Err("env"));
    check(&["x", "{env}-{build}"], r#"{"build":1}"#, Err("env"));

    check(&["x", "--", "{env}", "{build}"], dash, Ok(&["x", "--", "-rf", "-5"]));
    check(&["x", "--e={env}", "p{build}"], dash, Ok(&["x", "--e=-rf", "p-5"]));
}

#[test]
fn values_that_can_not_be_passed_are_refused() {
    check(&["x", "{env}"], r#"{"env":"a\u0000b"}"#, Err("env"));
    check(&["x", "{env}"], r#"{"env":"\ud800"}"#, Err("env"));
    let template = parse(&["x", "{env}"]).unwrap();
    assert_eq!(template.render(&RawJson::parse("[]").unwrap()), Err(Refusal::NotAnObject));
}

#[test]
fn lengths_are_bounded() {
    let call = |length| format!(r#"{{"env":"{}","build":1}}"#, "x".repeat(length));
    let longest = "x".repeat(MAX_ARGUMENT_BYTES);
    check(&["x", "{env}"], &call(MAX_ARGUMENT_BYTES), Ok(&["x", &longest]));
    check(&["x", "{env}"], &call(MAX_ARGUMENT_BYTES + 1), Err("env"));
    check(&["x", "{env}{build}"], &call(MAX_ARGUMENT_BYTES), Err("build"));
    check(&["x", "{env}y"], &call(MAX_ARGUMENT_BYTES), Err("env"));
    let many = ["{env}"; MAX_ARGV_BYTES / MAX_ARGUMENT_BYTES];
    check(&[&["x"], &many[..]].concat(), &call(MAX_ARGUMENT_BYTES), Err("env"));
}

#[test]
fn a_bad_template_says_where_and_what() {
    let bad = |argv: &[&str], parts: &[&str]| {
        let message = parse(argv).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{argv:?}: {message}, without {part:?}");
        }
    };
    bad(&["{env}"], &["`{env}`", "must not choose"]);
    bad(&["./{env}/x"], &["must not choose"]);
    bad(&["x", "y", "{biuld}"], &["element 2", "`biuld`", "did you mean `build`?"]);
    bad(&["x", "{ env }"], &["element 1", "did you mean `env`?"]);
    bad(&["x", "{env"], &["element 1", "without a `}`"]);
    bad(&["x", "{e{nv}"], &["without a `}`"]);
    bad(&["x", "env}"], &["without a `{`"]);
    bad(&["x", "{}"], &["no name"]);
    bad(&["x{"], &["element 0"]);
    let message = parse(&["x", "{zzzz}"]).unwrap_err().to_string();
    assert!(!message.contains("did you mean"), "{message}");
    // A schema without properties has no inputs.
    let argv = ["x".to_owned(), "{env}".to_owned()];
    assert!(Template::parse(&argv, &Value::Bool(true)).is_err());
}

#[test]
fn a_value_does_not_get_into_a_shell_script() {
    for argv in [
        &["sh", "-c", "echo {env}"] as &[&str],
        &["/bin/bash", "-eo", "pipefail", "-c", "x {env}"],
        &["bash", "--norc", "-lc", "{env}{build}"],
    ] {
        let error = parse(argv).unwrap_err();
        assert!(matches!(error, SpecError::InsideShellScript { .. }), "{error}");
    }
    for argv in [
        &["sh", "-c", "echo \"$1\"", "sh", "x{env}"] as &[&str],
        &["sh", "-c", "{env}"],
        &["bash", "script.sh", "-c", "x{env}"],
        &["cc", "-c", "{env}.c"],
    ] {
        assert!(parse(argv).is_ok(), "{argv:?}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_stays_inside_its_element(values in proptest::collection::vec("\\PC{0,12}", 2)) {
            let arguments = serde_json::json!({"env": values[0], "build": values[1]});
            let arguments = RawJson::from_value(&arguments).unwrap();
            let template = parse(&["x", "--", "{env}", "{env}{build}", "p={build}", "q"]).unwrap();
            let (env, build) = (&values[0], &values[1]);
            prop_assert_eq!(template.render(&arguments).unwrap(), [
                "x", "--", env, &format!("{env}{build}"), &format!("p={build}"), "q",
            ]);
        }

        #[test]
        fn no_element_that_begins_with_a_value_is_an_option(env in "-?\\PC{0,3}", build in "-?\\PC{0,3}") {
            let arguments = serde_json::json!({"env": env, "build": build});
            let arguments = RawJson::from_value(&arguments).unwrap();
            let template = parse(&["x", "{env}{build}", "{build}"]).unwrap();
            if let Ok(argv) = template.render(&arguments) {
                prop_assert_eq!(argv.len(), 3);
                prop_assert!(argv.iter().all(|element| !element.starts_with('-')));
            } else {
                let whole = env + &build;
                prop_assert!(whole.starts_with('-') || build.starts_with('-'));
            }
        }

        #[test]
        fn any_text_parses_or_is_refused(element in "[{}a-c ]{0,10}") {
            let _ = parse(&["x", &element]);
        }
    }
}

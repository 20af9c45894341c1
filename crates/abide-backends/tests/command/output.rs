//! What a command prints comes back, in bounded memory and bounded time.

use abide_backends::command::LARGEST_MAX_OUTPUT_BYTES;
use abide_core::limits::MAX_RESULT_BYTES;

use crate::harness::{call, run, script};

#[tokio::test]
async fn text_comes_back_unchanged() {
    for (format, text) in [
        (r"a\r\nb\n", "a\r\nb\n"),
        (r"\0nul\0", "\0nul\0"),
        (r"\303\274\360\237\246\200", "ü🦀"),
        (r"bad\377\342\202!", "bad\u{fffd}\u{fffd}!"),
        (r"cut\360\237\246", "cut\u{fffd}"),
        (r"\033[31m\177\001", "\u{1b}[31m\u{7f}\u{1}"),
    ] {
        let finished = run(&format!("printf '{format}'")).await;
        assert_eq!(finished.text(), text);
        assert!(finished.value.get("isError").is_none());
    }
    let raw = run(r"printf '\0'").await.raw;
    assert_eq!(
        raw.as_str(),
        r#"{"resultType":"complete","content":[{"type":"text","text":"\u0000"}]}"#
    );
}

#[tokio::test]
async fn a_character_may_be_split_across_writes() {
    // The pipe is empty before the second write: the reader has waited for more.
    let finished = run(r"printf 'a\360\237'; sleep 0.2; printf '\246\200b'").await;
    assert_eq!(finished.text(), "a🦀b");
}

#[tokio::test]
async fn a_good_end_shows_standard_output_else_standard_error() {
    assert_eq!(run("echo out; echo err >&2").await.text(), "out\n");
    assert_eq!(run("echo err >&2").await.text(), "err\n");
    assert_eq!(run("true").await.text(), "(no output)");
}

#[tokio::test]
async fn a_bad_end_shows_both_and_the_exit_code() {
    for (text, expected) in [
        ("echo out; echo err >&2; exit 3", &["out\n", "err\n", "exit code 3"] as &[&str]),
        ("echo err >&2; exit 1", &["err\n", "exit code 1"]),
        ("exit 255", &["exit code 255"]),
        ("echo out; kill -KILL $$", &["out\n", "killed by signal 9 (SIGKILL)"]),
        ("kill -SEGV $$", &["killed by signal 11 (SIGSEGV)"]),
    ] {
        let finished = run(text).await;
        assert!(finished.is_error());
        assert_eq!(finished.texts(), expected);
    }
}

#[tokio::test]
async fn both_pipes_are_drained_at_once() {
    for (first, second) in [("", ">&2"), (">&2", "")] {
        let finished = run(&format!(
            "head -c 262144 /dev/zero {second}; head -c 262144 /dev/zero {first}; \
             head -c 262144 /dev/zero {second}"
        ))
        .await;
        assert!(finished.text().len() >= 262_144);
    }
}

#[tokio::test]
async fn long_output_keeps_its_beginning_and_its_end() {
    let mut spec = script("seq 1 100000");
    spec.max_output_bytes = 1024;
    let finished = call(spec, "{}").await;
    let text = finished.text();
    assert!(text.starts_with("1\n2\n3\n") && text.ends_with("99999\n100000\n"));
    // seq prints 588895 bytes.
    assert!(text.contains("[… 587871 bytes left out …]"), "{text}");
}

#[tokio::test]
async fn a_cut_does_not_split_characters() {
    let mut spec = script("yes 🦀ü€ | head -n 5000");
    for max_output_bytes in 1024..1036 {
        spec.max_output_bytes = max_output_bytes;
        assert!(!call(spec.clone(), "{}").await.text().contains('\u{fffd}'));
    }
}

#[tokio::test]
async fn a_gigabyte_costs_little_memory() {
    let finished = run("head -c 1000000000 /dev/zero; printf end").await;
    let text = finished.text();
    assert!(text.contains("bytes left out") && text.ends_with("\0end"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    assert!(peak < 700_000, "{peak} kB at the peak");
}

#[tokio::test]
async fn a_result_is_never_larger_than_allowed() {
    // As JSON each of these bytes takes six.
    let mut fill = script(r"head -c 4194304 /dev/zero | tr '\0' '\1' | tee /dev/stderr; exit $1");
    fill.argv.extend(["sh".to_owned(), "{a}".to_owned()]);
    fill.max_output_bytes = LARGEST_MAX_OUTPUT_BYTES;
    for code in [0, 1] {
        let finished = call(fill.clone(), &format!(r#"{{"a":{code}}}"#)).await;
        assert!(finished.raw.len() > MAX_RESULT_BYTES - 256 * 1024, "{} bytes", finished.raw.len());
        assert_eq!(finished.is_error(), code == 1);
        let texts = finished.texts();
        for text in &texts[..=code] {
            assert!(text.starts_with('\u{1}') && text.ends_with('\u{1}'));
            assert!(text.contains("bytes left out"));
        }
    }
}

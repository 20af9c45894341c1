//! What is kept of a stream, as text.

use proptest::prelude::*;

use super::*;

/// What is kept of `bytes` when there is room for `max`.
fn capture(bytes: &[u8], max: usize) -> Captured {
    let total = bytes.len() as u64;
    if bytes.len() <= max {
        return Captured { head: bytes.to_owned(), tail: None, total };
    }
    let (head, rest) = bytes.split_at(max / 2);
    let tail = &rest[rest.len() - (max - head.len())..];
    Captured { head: head.to_owned(), tail: Some(tail.to_owned()), total }
}

#[test]
fn what_fits_is_whole() {
    let text = "größer\r\n\0🦀".as_bytes();
    let captured = capture(text, text.len());
    assert_eq!(captured.whole(), Some(text));
    assert_eq!(captured.into_text().into_string().as_bytes(), text);
    assert!(capture(b"", 10).into_text().is_empty());
}

#[test]
fn the_marker_counts_what_is_missing() {
    let text = capture(b"0123456789abcdefghij", 10).into_text().into_string();
    assert_eq!(text, "01234\n[… 10 bytes left out …]\nfghij");
    // Line breaks at the cut are not doubled.
    let text = capture(b"0123\n56789abcdefgh\r\nj", 8).into_text().into_string();
    assert_eq!(text, "0123\n[… 13 bytes left out …]\nh\r\nj");
    let text = capture(b"012\n456789abcdefgh\nij", 6).into_text().into_string();
    assert_eq!(text, "012\n[… 15 bytes left out …]\nij");
}

#[test]
fn a_cut_never_splits_a_character() {
    let text = "🦀".repeat(100);
    for max in 2..40 {
        let text = capture(text.as_bytes(), max).into_text();
        assert!(!text.head.contains('\u{fffd}') && !text.tail.contains('\u{fffd}'), "{text:?}");
        let kept = text.head.len() + text.tail.len();
        assert_eq!(kept as u64 + text.left_out, 400);
        assert!(kept + 6 >= max - max % 4, "{max}: too much was cut: {text:?}");
    }
}

#[test]
fn invalid_bytes_are_repaired() {
    let text = capture(b"a\xffb\xe2\x82", 100).into_text().into_string();
    assert_eq!(text, "a\u{fffd}b\u{fffd}");
}

#[test]
fn json_len_is_what_serde_writes() {
    let all: String = ('\0'..='\u{3ff}').chain(['\u{2028}', '🦀', '\u{fffd}']).collect();
    let written = serde_json::to_string(&all).unwrap().len() - 2;
    assert_eq!(Text::whole(&all).json_len(), written);
}

proptest! {
    #[test]
    fn shrunk_text_fits_and_counts(text in "\\PC{0,200}|[\\x00-\\x20\"]{0,200}", max in 128_usize..400) {
        let whole = Text::whole(&text);
        let fitted = whole.json_len() <= max;
        let mut shrunk = whole;
        shrunk.shrink(max);
        prop_assert!(shrunk.json_len() <= max);
        prop_assert_eq!(shrunk.left_out == 0, fitted);
        prop_assert!(text.starts_with(&shrunk.head) && text.ends_with(&shrunk.tail));
        let kept = (shrunk.head.len() + shrunk.tail.len()) as u64;
        prop_assert_eq!(kept + shrunk.left_out, text.len() as u64);
        // Once more, of a text that has a gap already.
        shrunk.shrink(128);
        prop_assert!(shrunk.json_len() <= 128);
        let kept = (shrunk.head.len() + shrunk.tail.len()) as u64;
        prop_assert_eq!(kept + shrunk.left_out, text.len() as u64);
        let written = serde_json::to_string(&shrunk.into_string()).unwrap();
        prop_assert!(written.len() <= 130);
    }
}

//! Replaces the values of secrets in a stream, wherever the reads happen to cut it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// Values with fewer bytes are not replaced: `1` or `no` are everywhere, and no secrets.
pub const SMALLEST_SECRET_BYTES: usize = 4;

/// What is secret, and what is put in its place.
pub(super) struct Secrets {
    values: Vec<Vec<u8>>,
    marks: Vec<String>,
    automaton: AhoCorasick,
}

impl Secrets {
    /// Takes the values of the variables with these names; none if there is nothing to replace.
    pub(super) fn of(names: &BTreeSet<String>, env: &[(OsString, OsString)]) -> Option<Self> {
        let secrets = env.iter().filter_map(|(name, value)| {
            let name = name.to_str().filter(|name| names.contains(*name))?;
            Some((format!("[redacted {name}]"), value.as_bytes().to_owned()))
        });
        let (marks, values): (Vec<_>, Vec<_>) =
            secrets.filter(|(_, value)| value.len() >= SMALLEST_SECRET_BYTES).unzip();
        if values.is_empty() {
            return None;
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            // The smallest.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&values)
            .ok()?;
        Some(Self { values, marks, automaton })
    }

    /// Bytes at the end that may be the beginning of a secret.
    fn begun(&self, bytes: &[u8]) -> usize {
        let longest = self.values.iter().map(Vec::len).max().unwrap_or(0);
        (1..longest.min(bytes.len() + 1))
            .rev()
            .find(|length| {
                let end = &bytes[bytes.len() - length..];
                self.values.iter().any(|value| value.len() > *length && value.starts_with(end))
            })
            .unwrap_or(0)
    }
}

/// One stream on its way.
#[derive(Default)]
pub(super) struct Redactor {
    /// The beginning of what may become a secret.
    held: Vec<u8>,
}

impl Redactor {
    /// What can be kept of the stream now that these bytes have come.
    pub(super) fn push<'a>(&mut self, secrets: Option<&Secrets>, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match secrets {
            None => Cow::Borrowed(bytes),
            Some(secrets) => {
                let mut all = std::mem::take(&mut self.held);
                all.extend_from_slice(bytes);
                let sure = all.len() - secrets.begun(&all);
                Cow::Owned(self.replace(secrets, &all, sure))
            }
        }
    }

    /// What is left at the end of the stream.
    pub(super) fn finish(&mut self, secrets: Option<&Secrets>) -> Vec<u8> {
        let rest = std::mem::take(&mut self.held);
        secrets.map_or_else(Vec::new, |secrets| self.replace(secrets, &rest, rest.len()))
    }

    /// Replaces what begins before `sure`, and holds what begins after it.
    fn replace(&mut self, secrets: &Secrets, all: &[u8], sure: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(all.len());
        let mut done = 0;
        for found in secrets.automaton.find_iter(all).take_while(|found| found.start() < sure) {
            out.extend_from_slice(&all[done..found.start()]);
            out.extend_from_slice(secrets.marks[found.pattern().as_usize()].as_bytes());
            done = found.end();
        }
        let sure = sure.max(done);
        out.extend_from_slice(&all[done..sure]);
        self.held = all[sure..].to_owned();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[(&str, &str)]) -> Option<Secrets> {
        let names = values.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut env: Vec<(OsString, OsString)> =
            values.iter().map(|(name, value)| (name.into(), value.into())).collect();
        env.push(("PLAIN".into(), "plain".into()));
        Secrets::of(&names, &env)
    }

    /// Every way to cut the stream in two, and byte by byte.
    #[track_caller]
    fn check(values: &[(&str, &str)], stream: &str, expected: &str) {
        let secrets = secrets(values);
        let redacted = |parts: &[&[u8]]| {
            let mut redactor = Redactor::default();
            let mut out = Vec::new();
            for part in parts {
                out.extend_from_slice(&redactor.push(secrets.as_ref(), part));
            }
            out.extend(redactor.finish(secrets.as_ref()));
            String::from_utf8(out).unwrap()
        };
        let bytes = stream.as_bytes();
        for at in 0..=bytes.len() {
            assert_eq!(redacted(&[&bytes[..at], &bytes[at..]]), expected, "cut at {at}");
        }
        assert_eq!(redacted(&bytes.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn secrets_are_replaced_wherever_the_stream_is_cut() {
        let token = [("TOKEN", "s3cret")];
        check(&token, "a s3cret b", "a [redacted TOKEN] b");
        check(&token, "s3crets3cret", "[redacted TOKEN][redacted TOKEN]");
        check(&token, "s3cre s3s3cret s3cre", "s3cre s3[redacted TOKEN] s3cre");
        check(&token, "plain", "plain");
        // The longer of two that begin alike.
        check(&[("A", "pass"), ("B", "password")], "passwor", "[redacted A]wor");
        check(&[("A", "pass"), ("B", "password")], "password", "[redacted B]");
        check(&[("A", "aaaa")], "aaaaaaaaa", "[redacted A][redacted A]a");
        check(&[("KEY", "two\nlines")], "two\nlines\n", "[redacted KEY]\n");
    }

    #[test]
    fn short_and_missing_values_are_left_alone() {
        assert!(secrets(&[]).is_none());
        check(&[("A", ""), ("B", "1"), ("C", "abc")], "1 abc", "1 abc");
        check(&[("A", "1"), ("B", "long")], "1 long", "1 [redacted B]");
    }

    #[test]
    fn what_can_be_no_secret_is_not_held_back() {
        let secrets = secrets(&[("A", "s3cret")]);
        let mut redactor = Redactor::default();
        assert_eq!(&*redactor.push(secrets.as_ref(), b"Password: "), b"Password: ");
        assert_eq!(&*redactor.push(secrets.as_ref(), b"yes"), b"ye");
        assert_eq!(&*redactor.push(secrets.as_ref(), b"!"), b"s!");
    }
}

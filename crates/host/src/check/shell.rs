//! Words of commands that a person hands to a shell. Names of interfaces may hold all but blanks, `/` and `:`: `$(x)` and `a;b` are
//! names.

/// A word as sh(1) reads it back: quoted where it has to be. NUL, which no word can hold, becomes U+FFFD.
pub(super) fn word(text: &str) -> String {
    let text = text.replace('\0', "\u{fffd}");
    shlex::try_quote(&text).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

/// The words of a text, each as [`word`] has it.
pub(super) fn words(text: &str) -> String {
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// A word in quotes, which it has even where it needs none.
pub(super) fn quoted(text: &str) -> String {
    let word = word(text);
    if word == text { format!("'{text}'") } else { word }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What a shell makes of a line, as the arguments that a program gets. The program is printf, which changes nothing.
    fn arguments(line: &str) -> Vec<String> {
        let script = format!("printf '%s\\0' {line}");
        let output = Command::new("sh").args(["-c", &script]).output().expect("sh");
        let text = String::from_utf8(output.stdout).expect("text");
        text.strip_suffix('\0').expect("an end").split('\0').map(str::to_owned).collect()
    }

    #[test]
    fn odd_names_reach_a_program_as_they_are() {
        for name in [
            "eth0", "a b", "$(x)", "a;b", "`x`", "'", "\"", "\\", "*", "~", "!!", "#", "", "-s", "a\nb",
            "\u{e9}",
        ] {
            assert_eq!(arguments(&format!("dev {} mtu 1500", word(name))), ["dev", name, "mtu", "1500"]);
            assert_eq!(arguments(&quoted(name)), [name]);
        }
        assert_eq!(
            (word("eth0"), word("a b"), quoted("/sys/x")),
            ("eth0".into(), "'a b'".into(), "'/sys/x'".into())
        );
        assert_eq!(
            arguments(&words("default via 10.0.0.1 dev $(x)")),
            ["default", "via", "10.0.0.1", "dev", "$(x)"]
        );
        assert_eq!(arguments(&word("a\0b")), ["a\u{fffd}b"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_name_reaches_a_program_as_it_is(name in "[^\0]{0,20}", odd in "[ -~]{1,15}") {
            for text in [name, odd] {
                prop_assert_eq!(arguments(&word(&text)), [text.clone()]);
                prop_assert_eq!(arguments(&quoted(&text)), [text.clone()]);
            }
        }
    }
}

//! Secrets that a command line holds by mistake. It is too late to hide them from other users, but they need not reach
//! terminals and logs as well.

use std::ffi::OsString;

use load::initiator::url::redacted;

/// A text that may hold a secret, and what to print instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    text: String,
    by: String,
}

/// Returns the arguments that may hold a secret: URLs with a user, and values of options that are named after secrets.
pub(crate) fn secrets(arguments: impl Iterator<Item = OsString>) -> Vec<Replacement> {
    let mut all: Vec<Replacement> = Vec::new();
    let mut add = |text: &str, by: String| {
        if !text.is_empty() && text != by {
            all.push(Replacement { text: text.to_owned(), by });
        }
    };
    let mut follows_secret = false;
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, value),
            _ if argument.starts_with("--") => (&*argument, ""),
            _ => ("", &*argument),
        };
        // The options that exist take files and names; others are mistakes.
        let is_file = option.ends_with("-file") || option.ends_with("-user");
        let is_secret = (option.contains("secret") || option.contains("password")) && !is_file;
        if is_secret || (follows_secret && option.is_empty()) {
            add(value, "***".to_owned());
        } else {
            for part in value.split(',') {
                let is_url = part.contains("://") || part.starts_with("iscsi");
                if part.contains('@') || (is_url && part.contains('%')) {
                    add(part, redacted(part));
                }
            }
        }
        follows_secret = is_secret && value.is_empty();
    }
    // A long text may contain a short one.
    all.sort_by_key(|replacement| std::cmp::Reverse(replacement.text.len()));
    all
}

/// Returns a text without these secrets.
pub(crate) fn without(text: &str, secrets: &[Replacement]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(&secret.text, &secret.by))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(arguments: &[&str]) -> String {
        let text = arguments.join(" | ");
        without(&text, &secrets(arguments.iter().map(OsString::from)))
    }

    #[test]
    fn secrets_are_replaced_and_the_rest_stays() {
        for arguments in [
            &["bench", "iscsi://alice%wonderland@h/iqn.x/0"][..],
            &["bench", "iscsi://alice%wonderland/h"],
            &["bench", "iscsi:/alice%wonderland@h"],
            &["bench", "http://alice:wonderland@h/"],
            &["study", "--compare=iscsi://a%wonderland@h/iqn.x/0"],
            &["bench", "--chap-secret", "wonderland", "x"],
            &["bench", "--chap-secret=wonderland"],
            &["bench", "--password", "wonderland"],
        ] {
            let text = printed(arguments);
            assert!(!text.contains("wonderland") && text.contains(arguments[0]), "{text}");
        }
        for arguments in [
            &["bench", "iscsi://h/iqn.x/0", "--rwmix", "70%"][..],
            &["bench", "--chap-secret-file", "/root/secret", "--chap-user", "alice"],
            &["bench", "iscsi://[fe80::1]:3260/iqn.x/0", "--assert", "p99<2ms"],
        ] {
            assert_eq!(printed(arguments), arguments.join(" | "));
        }
    }
}

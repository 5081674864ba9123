//! Why a server's certificate is refused, in sentences.

use std::time::Duration;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// What to do about a certificate that is in order, but unknown to the client.
const UNTRUSTED: &str =
    "name the authority's certificate with --ca-file, or accept any certificate with --insecure";
/// What to do about a certificate that is itself wrong.
const WRONG: &str = "give the server another certificate, or accept any certificate with --insecure";

/// Returns what is wrong with a certificate, and what to do.
pub(super) fn explain(error: &CertificateError) -> String {
    use CertificateError as E;
    let (what, remedy) = match error {
        E::UnknownIssuer => {
            ("no trusted certificate authority has issued the server's certificate".into(), UNTRUSTED)
        }
        E::BadSignature => (
            "the server's certificate is not signed by the certificate authority that it names".into(),
            UNTRUSTED,
        ),
        E::Expired => ("the server's certificate has expired".into(), WRONG),
        E::ExpiredContext { time, not_after } => {
            (format!("the server's certificate expired {} ago", span(*not_after, *time)), WRONG)
        }
        E::NotValidYet => {
            ("the server's certificate is not valid yet".into(), "check the clocks of both hosts")
        }
        E::NotValidYetContext { time, not_before } => (
            format!("the server's certificate becomes valid in {}", span(*time, *not_before)),
            "check the clocks of both hosts",
        ),
        E::NotValidForName => {
            ("the server's certificate is for another name than the URL's".into(), WRONG_NAME)
        }
        E::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            let expected = expected.to_str();
            (format!("the server's certificate is not valid for '{expected}', only for {names}"), WRONG_NAME)
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            ("the server's certificate is not for servers (extendedKeyUsage lacks serverAuth)".into(), WRONG)
        }
        E::Revoked => ("the server's certificate has been revoked".into(), WRONG),
        E::BadEncoding => ("the server's certificate is not correctly encoded".into(), WRONG),
        E::UnhandledCriticalExtension => (
            "the server's certificate has a critical extension that this program does not know".into(),
            WRONG,
        ),
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => (
            "the server's certificate is signed with an algorithm that this program does not support".into(),
            WRONG,
        ),
        E::Other(other) => of_path(&other.0.to_string()),
        other => (format!("the server's certificate is refused: {}", words(&format!("{other:?}"))), WRONG),
    };
    format!("{what}; {remedy}")
}

/// What to do about a certificate for another name.
const WRONG_NAME: &str = "use one of its names in the URL, or accept any certificate with --insecure";

/// Explains an error of the path to the authority by the name that webpki gives it.
fn of_path(name: &str) -> (String, &'static str) {
    match name {
        "CaUsedAsEndEntity" => (
            "the server presents the certificate of a certificate authority as its own (basicConstraints has CA:TRUE, as \
             `openssl req -x509` sets it)"
                .into(),
            "give the server a certificate with CA:FALSE that the authority has issued, or accept any certificate with \
             --insecure",
        ),
        "EndEntityUsedAsCa" => (
            "the server's certificate was issued by a certificate that is not a certificate authority's".into(),
            WRONG,
        ),
        "UnsupportedCertVersion" => ("the server's certificate is not of X.509 version 3".into(), WRONG),
        name => (format!("the chain of the server's certificate is refused: {}", words(name)), WRONG),
    }
}

/// Returns a presented name without the type and the quotes that webpki puts around it: `DnsName("a.example")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// Returns a name in camel case as words: `PathLenConstraintViolated` as `path len constraint violated`. Names come from rustls;
/// what follows them in parentheses or braces is left out.
fn words(name: &str) -> String {
    let name: String = name.chars().take_while(char::is_ascii_alphanumeric).collect();
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// Returns the time from one moment to a later one in its largest unit.
fn span(from: UnixTime, to: UnixTime) -> String {
    let time = Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()));
    let (count, unit) = match time.as_secs() {
        seconds @ 0..60 => (seconds, "second"),
        seconds @ 60..3600 => (seconds / 60, "minute"),
        seconds @ 3600..86_400 => (seconds / 3600, "hour"),
        seconds => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn every_error_is_a_sentence_with_a_remedy() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let other = |name: &str| {
            CertificateError::Other(OtherError(Arc::new(std::io::Error::other(name.to_owned()))))
        };
        for (error, expected) in [
            (CertificateError::UnknownIssuer, "no trusted certificate authority has issued"),
            (CertificateError::ExpiredContext { time: at(90_000), not_after: at(0) }, "expired 1 day ago"),
            (
                CertificateError::NotValidYetContext { time: at(0), not_before: at(7_200) },
                "valid in 2 hours; check the clocks",
            ),
            (
                CertificateError::NotValidForNameContext {
                    expected: "a.example".try_into().unwrap(),
                    presented: vec!["DnsName(\"b.example\")".into(), "IpAddress(10.0.0.1)".into()],
                },
                "not valid for 'a.example', only for b.example, 10.0.0.1;",
            ),
            (CertificateError::InvalidPurpose, "serverAuth"),
            (CertificateError::Revoked, "revoked"),
            (other("CaUsedAsEndEntity"), "certificate of a certificate authority as its own"),
            (other("EndEntityUsedAsCa"), "not a certificate authority's"),
            (other("PathLenConstraintViolated"), "refused: path len constraint violated"),
            (CertificateError::UnknownRevocationStatus, "refused: unknown revocation status"),
        ] {
            let text = explain(&error);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("--insecure") || text.contains("clocks"), "what to do: {text}");
            assert!(!text.contains(['{', '}']) && !text.contains("Context"), "no names of types: {text}");
        }
    }
}

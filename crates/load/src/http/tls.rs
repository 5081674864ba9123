//! TLS of the client: rustls with the cryptography of ring, ALPN `http/1.1`, and a full handshake for each connection.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// How the server's certificate is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By the certificate authorities of the system.
    System,
    /// By those of a PEM file.
    File(PathBuf),
    /// Not at all.
    Anything,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of certificates cannot be used.
    #[error("{path}: {reason}; it must contain certificates in PEM format")]
    File {
        /// The file.
        path: String,
        /// What failed.
        reason: String,
    },
    /// The system has no certificates.
    #[error("the system has no certificate authorities ({0}); install ca-certificates or use --ca-file")]
    NoSystemRoots(String),
    /// The host is neither a DNS name nor an address.
    #[error("'{0}' is neither a DNS name nor an address, as TLS needs it")]
    Host(String),
    /// rustls refuses the settings.
    #[error("TLS cannot be set up: {0}")]
    Settings(#[from] rustls::Error),
}

/// The settings of all TLS connections of a run.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.server)
    }
}

impl Tls {
    /// Prepares connections to `host`, whose name is sent (SNI) and must be in the certificate.
    ///
    /// # Errors
    /// When the certificates cannot be read, or `host` is no name.
    pub fn new(host: &str, trust: &Trust) -> Result<Self, TlsError> {
        let server = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host(host.to_owned()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let mut config = match trust {
            Trust::System => builder.with_root_certificates(system_roots()?),
            Trust::File(path) => builder.with_root_certificates(roots_of(path)?),
            Trust::Anything => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnything(provider)))
            }
        }
        .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A resumed handshake costs less: the time of a set-up would depend on the ones before.
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), server })
    }

    /// Begins a connection.
    pub(super) fn connection(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.server.clone()).map_err(io::Error::other)
    }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system's store may contain certificates that rustls does not support.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let reason = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
    Err(TlsError::NoSystemRoots(reason))
}

fn roots_of(path: &Path) -> Result<RootCertStore, TlsError> {
    let wrong = |reason: String| TlsError::File { path: path.display().to_string(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))? {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no certificate found".into())) } else { Ok(roots) }
}

/// Accepts any certificate. The signature of the handshake is verified: the server has the key of its certificate.
#[derive(Debug)]
struct AcceptAnything(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

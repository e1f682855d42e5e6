//! What a TLS server shows and what its clients trust: a CA of its own and a certificate for localhost and 127.0.0.1.

use crate::Error;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// PEM files in the server's directory.
#[derive(Debug)]
pub(super) struct CertificateFiles {
    pub(super) ca: PathBuf,
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl CertificateFiles {
    pub(super) fn make_in(dir: &Path) -> Result<Self, Error> {
        let mut ca_params = CertificateParams::new(Vec::new())?;
        ca_params.distinguished_name.push(DnType::CommonName, "gristmill testkit CA");
        ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca_params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_key = KeyPair::generate()?;
        let ca_pem = ca_params.self_signed(&ca_key)?.pem();

        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let cert_pem = params.signed_by(&key, &Issuer::new(ca_params, ca_key))?.pem();

        let files =
            Self { ca: dir.join("ca.pem"), cert: dir.join("server.pem"), key: dir.join("server.key") };
        for (path, pem) in [(&files.ca, ca_pem), (&files.cert, cert_pem), (&files.key, key.serialize_pem())] {
            fs::write(path, pem).map_err(Error::io(format!("cannot write {}", path.display())))?;
        }
        Ok(files)
    }
}

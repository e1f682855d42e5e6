//! TLS servers, seen by a client that verifies.

use gristmill_testkit::{
    Error, eventually,
    proxy::Proxy,
    server::{Flavor, Server, ServerOptions},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

const SOON: Duration = Duration::from_secs(10);

/// Sends commands over TLS and reads as many bytes as are expected back.
fn talk(port: u16, name: &'static str, ca: &Path, request: &str, reply_bytes: usize) -> io::Result<String> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).map_err(|e| other(&e))?).map_err(|e| other(&e))?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| other(&e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerName::try_from(name).map_err(|e| other(&e))?;
    let session = ClientConnection::new(Arc::new(config), server).map_err(|e| other(&e))?;
    let socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(SOON))?;
    let mut stream = StreamOwned::new(session, socket);
    stream.write_all(request.as_bytes())?;
    let mut reply = vec![0; reply_bytes];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[test]
fn shows_a_certificate_that_its_own_ca_signed_and_no_other() {
    let server = Server::start(ServerOptions::new().tls().password("secret")).unwrap();
    assert!(server.url().starts_with("rediss://:secret@127.0.0.1:"), "{}", server.url());
    let ca = server.ca_path().unwrap();
    for name in ["127.0.0.1", "localhost"] {
        let request = "AUTH secret\r\nSET k tls\r\n";
        assert_eq!(talk(server.port(), name, ca, request, 10).unwrap(), "+OK\r\n+OK\r\n");
    }
    assert_eq!(server.command(&["GET", "k"]).unwrap().as_str(), Some("tls"));
    let wrong_name = talk(server.port(), "example.org", ca, "PING\r\n", 7).unwrap_err().to_string();
    assert!(wrong_name.contains("not valid for name"), "{wrong_name}");
    let stranger = Server::start(ServerOptions::new().tls()).unwrap();
    let wrong_ca = talk(server.port(), "localhost", stranger.ca_path().unwrap(), "PING\r\n", 7).unwrap_err();
    assert!(wrong_ca.to_string().contains("certificate"), "{wrong_ca}");
}

#[test]
fn a_program_without_tls_is_named() {
    for flavor in Flavor::available() {
        match Server::start(ServerOptions::new().flavor(flavor).tls()) {
            Ok(server) => assert_eq!(server.command(&["PING"]).unwrap().as_str(), Some("PONG")),
            Err(error) => assert!(matches!(error, Error::NoTls { .. }), "{error}"),
        }
    }
}

#[test]
fn a_proxy_passes_tls_and_can_cut_it() {
    let server = Server::start(ServerOptions::new().tls()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let ca = server.ca_path().unwrap();
    assert_eq!(server.url_at(proxy.port()), format!("rediss://127.0.0.1:{}", proxy.port()));
    assert_eq!(talk(proxy.port(), "localhost", ca, "SET k v\r\n", 5).unwrap(), "+OK\r\n");
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| talk(proxy.port(), "localhost", ca, "BLPOP none 0\r\n", 1));
        eventually(SOON, "the client to block", || {
            (server.info("clients", "blocked_clients").ok()? == "1").then_some(())
        });
        proxy.cut();
        assert!(blocked.join().unwrap().is_err());
    });
    proxy.refuse();
    assert!(talk(proxy.port(), "localhost", ca, "PING\r\n", 7).is_err());
}

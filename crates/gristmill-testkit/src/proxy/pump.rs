//! The threads of one connection: two read, two write, and none holds the lock while it waits for a socket.

use super::{
    frame::take_messages,
    state::{Connection, Shared},
};
use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// The first byte of a client of Postgres: the length of its first message, which is short.
const POSTGRES: u8 = 0;
/// Commands that make a connection what it is, and are repeated on a new upstream connection.
const GREETINGS: [&[u8]; 5] = [b"AUTH", b"HELLO", b"SELECT", b"CLIENT", b"READONLY"];

pub(super) fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), CONNECT_WITHIN)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Serves a client. An error means that the connection ended before it began.
pub(super) fn serve(shared: &Arc<Shared>, client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let target = shared.lock().target;
    let upstream = connect(target)?;
    let (from_client, to_client) = (client.try_clone()?, client.try_clone()?);
    let from_upstream = upstream.try_clone()?;
    let connection = Connection::new(client, upstream);
    let id = shared.change(|state| {
        let id = state.id();
        state.connections.insert(id, connection);
        if state.stopping || state.refuse {
            state.close(id);
        }
        id
    });
    let spawn = |run: fn(&Arc<Shared>, u64, TcpStream), stream: TcpStream| {
        let shared = Arc::clone(shared);
        thread::spawn(move || run(&shared, id, stream));
    };
    spawn(read_client, from_client);
    spawn(write_client, to_client);
    spawn_upstream_reader(shared, id, 0, from_upstream);
    let shared = Arc::clone(shared);
    thread::spawn(move || write_upstream(&shared, id));
    Ok(())
}

/// Gives a connection a new upstream connection to `port` and says its greeting there.
pub(super) fn reconnect(
    shared: &Arc<Shared>,
    id: u64,
    connection: &mut Connection,
    port: u16,
) -> io::Result<()> {
    let upstream = connect(port)?;
    let (reader, mut writer) = (upstream.try_clone()?, upstream.try_clone()?);
    let greeting = connection.replace_upstream(upstream);
    writer.write_all(&greeting)?;
    spawn_upstream_reader(shared, id, connection.generation, reader);
    Ok(())
}

fn spawn_upstream_reader(shared: &Arc<Shared>, id: u64, generation: u64, upstream: TcpStream) {
    let shared = Arc::clone(shared);
    thread::spawn(move || read_upstream(&shared, id, generation, upstream));
}

fn read_client(shared: &Arc<Shared>, id: u64, mut client: TcpStream) {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    let mut raw = None;
    while let Ok(count @ 1..) = client.read(&mut chunk) {
        let raw = *raw.get_or_insert(matches!(chunk[0], TLS_HANDSHAKE | POSTGRES));
        buffer.extend_from_slice(&chunk[..count]);
        let messages = if raw { vec![std::mem::take(&mut buffer)] } else { take_messages(&mut buffer) };
        shared.change(|state| {
            if let Some(connection) = state.connections.get_mut(&id) {
                connection.raw = raw;
                for message in messages {
                    connection.greeted |= !is_greeting(&message);
                    if !connection.greeted {
                        connection.greeting.push(message.clone());
                    }
                    connection.requests.push_back(message);
                }
            }
        });
    }
    shared.change(|state| {
        if let Some(connection) = state.connections.get_mut(&id) {
            connection.client_gone = true;
            connection.muted = true;
        }
    });
}

fn write_upstream(shared: &Arc<Shared>, id: u64) {
    loop {
        let next = shared.wait(None, |state| {
            if !state.connections.contains_key(&id) {
                return Some(None);
            }
            if let Some(request) = state.next_request(id) {
                let connection = state.connections.get(&id)?;
                return Some(
                    connection.upstream.try_clone().ok().map(|up| (up, connection.generation, request)),
                );
            }
            // A fault may have closed it just now.
            let Some(connection) = state.connections.get(&id) else { return Some(None) };
            let nothing_left = connection.requests.is_empty() && !connection.awaits_marker();
            if connection.client_gone && nothing_left {
                state.close(id);
                return Some(None);
            }
            None
        });
        let Some(Some((mut upstream, generation, request))) = next else {
            shared.change(|state| state.close(id));
            return;
        };
        if upstream.write_all(&request).is_err() {
            shared.change(|state| {
                if state.connections.get(&id).is_some_and(|connection| connection.generation == generation) {
                    state.close(id);
                }
            });
        }
    }
}

fn read_upstream(shared: &Arc<Shared>, id: u64, generation: u64, mut upstream: TcpStream) {
    let mut buffer = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let count = upstream.read(&mut chunk).unwrap_or(0);
        let go_on = shared.change(|state| {
            let Some(connection) = state.connections.get(&id).filter(|c| c.generation == generation) else {
                return false;
            };
            let raw = connection.raw;
            buffer.extend_from_slice(&chunk[..count]);
            let messages = if raw { vec![std::mem::take(&mut buffer)] } else { take_messages(&mut buffer) };
            for message in messages {
                state.reply(id, message);
            }
            if count == 0 {
                state.upstream_closed(id);
            }
            count > 0
        });
        if !go_on {
            return;
        }
    }
}

fn write_client(shared: &Arc<Shared>, id: u64, mut client: TcpStream) {
    loop {
        let next = shared.wait(None, |state| {
            if let Some(reply) = state.next_reply(id) {
                return Some(Some(reply));
            }
            let Some(connection) = state.connections.get(&id) else { return Some(None) };
            let delivered = connection.upstream_gone && connection.replies.is_empty();
            if delivered && connection.requests.is_empty() {
                state.close(id);
                return Some(None);
            }
            None
        });
        let Some(Some(reply)) = next else { return };
        if client.write_all(&reply).is_err() {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn is_greeting(message: &[u8]) -> bool {
    // `*2\r\n$4\r\nAUTH\r\n…`: the name is the third line.
    let name = message.split(|byte| *byte == b'\n').nth(2).unwrap_or_default();
    GREETINGS.iter().any(|greeting| name.strip_suffix(b"\r").unwrap_or(name).eq_ignore_ascii_case(greeting))
}

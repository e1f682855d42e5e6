//! A tiny blocking RESP2 client, for setting up and looking. Never used by what is tested.

use crate::Error;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// How long a command may take. Long enough for SAVE or a slow script, short enough to end a test against a paused server.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Replies nest no deeper than this in any command a test uses.
const MAX_DEPTH: usize = 32;

/// A reply of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A simple string such as `OK`.
    Status(String),
    /// An integer.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// No value, or no array.
    Nil,
    /// A list.
    Array(Vec<Reply>),
    /// An error, only inside an array; at the top it is an [`Error::Refused`].
    Error(String),
}

impl Reply {
    /// The text of a status or a string that is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Status(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The number of an integer, or of a string that is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => self.as_str()?.parse().ok(),
        }
    }

    /// The items of a list.
    pub fn as_array(&self) -> Option<&[Reply]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Whether there is no value.
    pub fn is_nil(&self) -> bool {
        *self == Self::Nil
    }
}

/// A connection of the testkit to a server.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn open(port: u16, login: Option<(&str, &str)>, timeout: Duration) -> Result<Self, Error> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connect = || -> io::Result<TcpStream> {
            let stream = TcpStream::connect_timeout(&address, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Ok(stream)
        };
        let stream = connect().map_err(Error::io(format!("cannot connect to {address}")))?;
        let mut connection = Self { stream: BufReader::new(stream) };
        if let Some((user, password)) = login {
            connection.command(&["AUTH", user, password])?;
        }
        Ok(connection)
    }

    /// Sends one command and reads its reply.
    ///
    /// # Errors
    /// [`Error::Refused`] with the server's message; [`Error::Io`] when the connection fails or nothing comes for 10 s.
    /// After an [`Error::Io`] it is not known whether the command was executed, and the connection is of no more use.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, Error> {
        let mut replies = self.pipeline(&[args])?;
        match replies.pop() {
            Some(Reply::Error(message)) => Err(Error::Refused { command: name(args), message }),
            Some(reply) => Ok(reply),
            None => Err(Error::UnexpectedReply { expected: "one reply", got: "none".to_owned() }),
        }
    }

    /// Sends all commands, then reads all replies, in order; refusals are [`Reply::Error`] in their place.
    ///
    /// # Errors
    /// [`Error::Io`] as [`Connection::command`].
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[impl AsRef<[A]>]) -> Result<Vec<Reply>, Error> {
        let what = || {
            commands.first().map_or_else(String::new, |args| format!("no reply to `{}`", name(args.as_ref())))
        };
        let mut request = Vec::new();
        for args in commands {
            encode(&mut request, args.as_ref());
        }
        self.stream.get_mut().write_all(&request).map_err(Error::io(what()))?;
        commands.iter().map(|_| read_reply(&mut self.stream, 0).map_err(Error::io(what()))).collect()
    }
}

fn name<A: AsRef<[u8]>>(args: &[A]) -> String {
    args.first().map_or_else(String::new, |name| String::from_utf8_lossy(name.as_ref()).into_owned())
}

fn encode<A: AsRef<[u8]>>(request: &mut Vec<u8>, args: &[A]) {
    request.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
}

fn read_reply(stream: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let mut line = Vec::new();
    if stream.read_until(b'\n', &mut line)? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
    }
    let text = std::str::from_utf8(&line).map_err(|_| bad("a reply line that is not UTF-8"))?.trim_end();
    let mut chars = text.chars();
    let kind = chars.next().ok_or_else(|| bad("an empty reply line"))?;
    let rest = chars.as_str();
    let number = || rest.parse::<i64>().map_err(|_| bad("a reply without its number"));
    match kind {
        '+' => Ok(Reply::Status(rest.to_owned())),
        '-' => Ok(Reply::Error(rest.to_owned())),
        ':' => Ok(Reply::Int(number()?)),
        '$' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => {
                let mut bytes = Vec::new();
                stream.take(length as u64 + 2).read_to_end(&mut bytes)?;
                if bytes.len() != length + 2 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the reply was cut short"));
                }
                bytes.truncate(length);
                Ok(Reply::Bulk(bytes))
            }
        },
        '*' if depth >= MAX_DEPTH => Err(bad("a reply nested too deep")),
        '*' => match usize::try_from(number()?) {
            Err(_) => Ok(Reply::Nil),
            Ok(length) => Ok(Reply::Array(
                (0..length).map(|_| read_reply(stream, depth + 1)).collect::<Result<_, _>>()?,
            )),
        },
        other => Err(bad(&format!("expected a RESP2 reply, got one that starts with {other:?}"))),
    }
}

fn bad(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> io::Result<Reply> {
        read_reply(&mut io::Cursor::new(bytes), 0)
    }

    #[test]
    fn reads_every_kind() {
        assert_eq!(parse(b"+OK\r\n").unwrap(), Reply::Status("OK".into()));
        assert_eq!(parse(b":-3\r\n").unwrap(), Reply::Int(-3));
        assert_eq!(parse(b"$4\r\na\r\nb\r\n").unwrap(), Reply::Bulk(b"a\r\nb".to_vec()));
        assert_eq!(parse(b"$-1\r\n").unwrap(), Reply::Nil);
        assert_eq!(parse(b"*-1\r\n").unwrap(), Reply::Nil);
        assert_eq!(
            parse(b"*2\r\n:1\r\n*1\r\n-ERR no\r\n").unwrap(),
            Reply::Array(vec![Reply::Int(1), Reply::Array(vec![Reply::Error("ERR no".into())])])
        );
    }

    #[test]
    fn refuses_what_is_cut_short_or_foreign() {
        for bytes in [&b""[..], b"$4\r\nab", b"*2\r\n:1\r\n", b"HTTP/1.1 200\r\n", b"\r\n", b":x\r\n"] {
            assert!(parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert!(parse(&b"*1\r\n".repeat(MAX_DEPTH + 2)).is_err());
    }

    #[test]
    fn encodes_bytes_as_they_are() {
        let mut request = Vec::new();
        encode(&mut request, &[&b"SET"[..], b"k", b"\xff\r\n"]);
        assert_eq!(request, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\xff\r\n\r\n");
    }
}
